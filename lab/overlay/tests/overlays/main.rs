//! Tests that both overlays must pass.

mod converged;
mod faults;
mod nonsense;
mod paper;
mod world;

/// Makes a test of each generic function, for each overlay.
macro_rules! for_both {
    ($($name:ident),* $(,)?) => {
        mod chord {
            $(#[test] fn $name() { super::$name::<peerlock_overlay::chord::Chord>(); })*
        }
        mod pastry {
            $(#[test] fn $name() { super::$name::<peerlock_overlay::pastry::Pastry>(); })*
        }
    };
}
pub(crate) use for_both;
