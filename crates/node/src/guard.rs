//! What a node needs of the protocol that guards its resources, beyond [`Protocol`] itself.

use alloc::vec;
use alloc::vec::Vec;

use peerlock_base::{PeerId, Ticket};
use peerlock_mutex::fair_k_late;
use peerlock_mutex::token::{Claim, Layout};
use peerlock_mutex::{FairKLate, Protocol};
use peerlock_overlay::Overlay;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Charter;

/// A protocol that begins from a charter, and lets people see who waits.
pub trait Guard: Protocol<Message: Serialize + DeserializeOwned> {
    /// The part of peer `me` before the first request.
    fn open(me: PeerId, charter: Charter) -> Self;

    /// Who keeps the line, as far as this peer knows.
    fn coordinator(&self) -> PeerId;

    /// The line, if this peer keeps it.
    fn line(&self) -> Option<Line>;

    /// The tokens that are here.
    fn held(&self) -> Vec<Held>;
}

/// An overlay whose messages can go over a wire.
pub trait Routing: Overlay<Message: Serialize + DeserializeOwned> {}

impl<O: Overlay<Message: Serialize + DeserializeOwned>> Routing for O {}

/// Who waits for a resource, and where its tokens are, as its coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Everybody who waits, oldest first.
    pub waiting: Vec<Claim>,
    /// Where each token is.
    pub seats: Vec<Seat>,
}

/// A token as its coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The slot that it stands for.
    pub slot: u32,
    /// Where it is, or is going.
    pub at: PeerId,
    /// How often it has moved.
    pub stay: u64,
    /// Nobody uses it.
    pub free: bool,
    /// Who gets it next, as far as that is settled.
    pub next: Option<Claim>,
}

/// A token as the peer sees it that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The slot that it stands for.
    pub slot: u32,
    /// The client inside with it.
    pub user: Option<Ticket>,
    /// Who gets it next, as far as this peer was told.
    pub next: Option<Claim>,
}

impl Guard for FairKLate {
    fn open(me: PeerId, Charter { slots, home, above }: Charter) -> Self {
        let layout = Layout { root: home, tokens: vec![home; slots as usize] };
        Self::new(me, &layout, fair_k_late::Config::default()).numbered_above(above)
    }

    fn coordinator(&self) -> PeerId {
        self.coordinator()
    }

    fn line(&self) -> Option<Line> {
        let line = self.line()?;
        let seat = |&fair_k_late::Seat { slot, at, stay, free, next, .. }: &_| Seat { slot, at, stay, free, next };
        Some(Line { waiting: line.waiting().collect(), seats: line.seats().map(seat).collect() })
    }

    fn held(&self) -> Vec<Held> {
        let held = self.held().map(|(token, user)| Held { slot: token.slot, user, next: self.next_of(token.slot) });
        held.collect()
    }
}
