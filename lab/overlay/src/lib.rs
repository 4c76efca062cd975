//! Key-based routing: which peer owns a key, and which peer is one hop nearer to it.
//!
//! [`Overlay`] follows Dabek, Zhao, Druschel, Kubiatowicz, Stoica: "Towards a Common API for Structured Peer-to-Peer
//! Overlays". Both overlays keep neighbours in a `ring`; they differ in key ownership and in the table for long hops.
//! *route* is left to the caller: [`Overlay::next_hop`] at each hop, *forward* while it returns a peer, *deliver* when
//! it returns none.
#![no_std]

extern crate alloc;

pub mod chord;
mod node;
mod overlay;
pub mod pastry;
mod ring;
mod side;
mod table;

pub use node::{KeyRange, Node};
pub use overlay::{Config, Cx, Effect, Input, Overlay, Timer, step};
pub use ring::{Lists, Message as RingMessage};
