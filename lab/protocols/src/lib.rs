//! The protocols of the papers as pure state machines, one per file.
//!
//! They implement the product's trait [`Protocol`]. *Departure* from every paper: a client may withdraw while it waits,
//! and any number of clients at one peer wait independently.
#![no_std]
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

extern crate alloc;

pub mod backed;
pub mod bv95;
pub mod coordinator;
pub mod e2e;
pub mod fair_k;
pub mod fair_k_late;
pub mod fencing;
pub mod non_e2e;
mod outbox;
pub mod quorum;
mod replicas;
pub mod route_quorum;
pub mod sigma;
pub mod strawman;

pub use backed::Backed;
pub use bv95::Bv95;
pub use coordinator::Coordinator;
pub use e2e::E2e;
pub use fair_k::FairK;
pub use fair_k_late::FairKLate;
pub use non_e2e::NonE2e;
pub use peerlock_protocol::{
    Custody, Cx, Effect, Grant, Hop, Input, Never, Observe, Protocol, UnderWay, custody, registry, step, token,
};
pub use quorum::Quorum;
pub use replicas::Replicas;
pub use sigma::Sigma;
pub use strawman::Strawman;
