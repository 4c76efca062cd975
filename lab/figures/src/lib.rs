//! Figures of the papers and of our own, made with the simulator.
//!
//! A figure is an experiment file ([`Figure`], TOML). A [`Plan`] has the runs of some figures, each once. A [`Store`]
//! keeps finished points, so that an interrupted run can continue. [`report::write`] writes the page.
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

/// Writes a formatted line to a string.
#[macro_export]
macro_rules! put {
    ($text:expr, $($line:tt)+) => {{
        use std::fmt::Write as _;
        writeln!($text, $($line)+).expect("writing to a string cannot fail")
    }};
}

mod error;
mod estimate;
mod figure;
mod fingerprint;
mod library;
mod metric;
mod plan;
pub mod plot;
mod point;
pub mod report;
mod store;

pub use error::Error;
pub use figure::{Figure, Scale};
pub use library::select;
pub use plan::{Plan, Progress, Results, Verdict};
pub use store::Store;
