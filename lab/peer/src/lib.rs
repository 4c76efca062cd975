//! Runs a protocol on an overlay: routed messages become hops, each with a callback, up to the owner of the key.
//! [`fixed`] does the same over routes that never change, for explorations.
//!
//! ```text
//!   protocol: Effect::Route(key, message)
//!             │ overlay: next_hop(key)
//!             ▼
//!   Effect::Send(peer, Wire::Routed) ──► on_forward ──► on_forward ──► on_routed at the owner of the key
//! ```
#![no_std]
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

extern crate alloc;

pub mod fixed;
mod hops;
mod message;
mod peer;

pub use message::{Effect, Event, Input, Timer, Wire};
pub use peer::{Buffers, Config, Cx, Peer, Resources};
