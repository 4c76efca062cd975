//! Identifiers ([`PeerId`], [`Ticket`], [`Session`]), events of the registry ([`EventKind`]), keys ([`Key`]), time
//! ([`Time`], [`Span`]), seeded randomness ([`Rng`]) and limits that all crates share.
//!
//! Nothing here reads a clock or a random source: time and seeds are arguments.
#![no_std]
#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

extern crate alloc;

/// Implements `Debug` by `Display`.
#[macro_export]
macro_rules! debug_as_display {
    ($($name:ty),+) => {
        $(impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        })+
    };
}

mod duration;
mod id;
mod key;
mod limits;
mod random;
mod session;
mod text;
mod time;

pub use duration::{SpanError, roughly};
pub use id::{PeerId, Ticket};
pub use key::Key;
pub use limits::{MOST_GENERATION, MOST_SLOTS};
pub use random::{Rng, mix};
pub use session::{Detached, EventKind, Session};
pub use text::{is_hidden, visible};
pub use time::{Span, Time};
