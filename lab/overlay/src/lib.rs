//! Key-based routing: which peer owns a key, and which peer is one hop nearer to it.
//!
//! The trait [`Overlay`] follows the common API for structured overlays (Dabek, Zhao, Druschel, Kubiatowicz, Stoica:
//! "Towards a Common API for Structured Peer-to-Peer Overlays"). There are two overlays: [`chord::Chord`] and
//! [`pastry::Pastry`]. Both use the same `ring`, in which every peer knows its neighbours on both sides and keeps that
//! knowledge up to date; they differ in key ownership and in the table for long hops.
//!
//! The common API's *route* is left to the caller: call [`Overlay::next_hop`] at each hop, *forward* while it returns a
//! peer, *deliver* when it returns none.
//!
//! The crate reads no clock and no random source: each call gets time and randomness in a [`Cx`].
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
