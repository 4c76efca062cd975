//! The papers' figures and our own, made with the simulator.
//!
//! A figure is an experiment file ([`Figure`], TOML). A [`Plan`] spells out every run of some figures and does each
//! once; a [`Store`] keeps finished points, so that a run can be stopped and taken up again; [`report::write`] makes
//! one page of it all, with plots, tables, and every published number beside the measured one.

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
