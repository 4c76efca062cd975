//! The words every other room uses: who ([`PeerId`], [`Ticket`]), where ([`Key`]), when ([`Time`], [`Span`]), by chance
//! ([`Rng`]), how many ([`MOST_SLOTS`]), and what may stand in a line that people read ([`visible`]).
//!
//! Nothing here reads a clock or a random source of the machine: time and seeds are arguments.
#![no_std]

extern crate alloc;

/// Has `Debug` say the same as `Display`, for what is shorter and clearer in words than by its fields.
#[macro_export]
macro_rules! debug_as_display {
    ($($name:ty),+) => {
        $(impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        })+
    };
}

mod duration;
mod id;
mod key;
mod limits;
mod random;
mod text;
mod time;

pub use duration::{SpanError, roughly};
pub use id::{PeerId, Ticket};
pub use key::Key;
pub use limits::{MOST_GENERATION, MOST_SLOTS};
pub use random::{Rng, mix};
pub use text::{is_hidden, visible};
pub use time::{Span, Time};
