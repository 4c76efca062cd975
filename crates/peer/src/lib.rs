//! A protocol on an overlay: what is routed becomes hops, every peer on the way is asked, the owner is told.
//!
//! [`Peer`] is the composition that the simulator and the network run: one overlay, and one instance of a protocol for
//! each resource that has come by. [`fixed`] does the same over routes that never change, for one resource, so that a
//! protocol can be explored.
//!
//! ```text
//!   mutex: Effect::Route(key, message)
//!             │ overlay: next_hop(key)
//!             ▼
//!   Effect::Send(peer, Wire::Routed) ──► on_forward ──► on_forward ──► on_routed at the owner of the key
//! ```
#![no_std]

extern crate alloc;

pub mod fixed;
mod hops;
mod message;
mod peer;

pub use message::{Effect, Event, Input, Timer, Wire};
pub use peer::{Buffers, Config, Cx, Peer, Resources};
