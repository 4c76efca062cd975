//! Key-based routing: which peer owns a key, and which peer is one hop nearer to it.
//!
//! [`Overlay`] follows Dabek et al.: "Towards a Common API for Structured Peer-to-Peer Overlays". The caller has
//! *route*: it *forwards* a message while [`Overlay::next_hop`] returns a peer, and then *delivers* it.
#![no_std]
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

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
