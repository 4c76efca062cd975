//! Mutual exclusion among peers as pure state machines.
//!
//! One trait, [`Protocol`], and one file per protocol. A protocol is told what happened (a client asks, a message
//! arrives, a timer fires) and answers with [`Effect`]s; it never reads a clock, a socket or a random source, so the
//! simulator, the explorer and the network run the same code.
#![no_std]

extern crate alloc;

pub mod backed;
pub mod bv95;
pub mod coordinator;
pub mod custody;
pub mod e2e;
pub mod fair_k;
pub mod fair_k_late;
pub mod fencing;
mod holder;
mod line;
pub mod non_e2e;
mod observe;
mod outbox;
mod protocol;
pub mod quorum;
pub mod register;
mod replicas;
pub mod route_quorum;
pub mod sigma;
pub mod strawman;
pub mod token;

pub use backed::Backed;
pub use bv95::Bv95;
pub use coordinator::Coordinator;
pub use custody::Custody;
pub use e2e::E2e;
pub use fair_k::FairK;
pub use fair_k_late::FairKLate;
pub use non_e2e::NonE2e;
pub use observe::{Observe, UnderWay};
pub use protocol::{Cx, Effect, Grant, Hop, Input, Never, Protocol, step};
pub use quorum::Quorum;
pub use replicas::Replicas;
pub use sigma::Sigma;
pub use strawman::Strawman;
