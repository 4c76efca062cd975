//! The bench's catalogue, the one place beside the network service that names concrete protocols, and the figures that
//! are made with it.
//!
//! A figure is an experiment file ([`Figure`], TOML). A [`Plan`] spells out every run of some figures and does each
//! once; a [`Store`] keeps finished points, so that a run can be stopped and taken up again; [`report::write`] makes
//! one page of it all, with plots, tables, and every published number beside the measured one.

mod catalogue;
mod error;
mod figure;
mod fingerprint;
mod library;
mod metric;
mod plan;
mod plot;
pub mod report;
mod routed;
mod settings;
mod store;
mod voting;

pub use catalogue::{Form, Protocol, UnknownForm, UnknownProtocol};
pub use error::Error;
pub use figure::Figure;
pub use library::select;
pub use plan::{Plan, Progress, Results, Verdict};
pub use routed::Routed;
pub use store::Store;
pub use voting::{AnyProtocol, Voting};
