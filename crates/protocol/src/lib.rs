//! Mutual exclusion among peers as a pure state machine.
//!
//! A [`Protocol`] receives inputs (a request, a message, a timer) and emits [`Effect`]s. It never reads a clock, a
//! socket or a random source, so the simulator, the model checker and the network run the same code. [`Custody`] is the
//! product's protocol.
#![no_std]
#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

extern crate alloc;

pub mod custody;
pub mod holder;
mod observe;
mod protocol;
pub mod queue;
pub mod registry;
pub mod token;

pub use custody::Custody;
pub use observe::{Observe, UnderWay};
pub use protocol::{Cx, Effect, Grant, Hop, Input, Never, Protocol, step};
