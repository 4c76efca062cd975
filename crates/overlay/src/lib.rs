//! Key-based routing: which peer owns a key, and which peer is one hop nearer to it.
//!
//! One trait, [`Overlay`], in the terms of the common API for structured overlays (Dabek, Zhao, Druschel, Kubiatowicz,
//! Stoica: "Towards a Common API for Structured Peer-to-Peer Overlays"), and two overlays: [`chord::Chord`] and
//! [`pastry::Pastry`]. Both stand on the same `ring`, where every peer knows its neighbours on both sides and keeps
//! that knowledge true; they differ in who owns a key and in the table for long jumps.
//!
//! The common API's *route* is the caller's: ask [`Overlay::next_hop`] at each hop, *forward* while it names a peer,
//! *deliver* where it names none.
//!
//! Nothing here reads a clock or a random source: time and chance come with each call in a [`Cx`].
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
