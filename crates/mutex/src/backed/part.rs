use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use peerlock_base::{PeerId, Ticket};

use super::{Backable, Message};

/// One participant, as whoever acts for it and its backups know it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(bound(
        serialize = "P: serde::Serialize, P::Message: serde::Serialize",
        deserialize = "P: serde::Deserialize<'de>, P::Message: serde::Deserialize<'de>"
    ))
)]
pub struct Part<P: Backable> {
    /// The protocol's own state.
    pub(super) peer: P,
    /// How often it has changed.
    pub(super) version: u64,
    /// Its clients that wait or are inside.
    pub(super) open: Vec<Ticket>,
    /// What it has said and nobody has confirmed.
    pub(super) outbox: Vec<Said<P::Message>>,
    /// How much it has said to each other participant.
    said: BTreeMap<PeerId, u64>,
    /// What it has heard from each.
    heard: BTreeMap<PeerId, Heard>,
}

/// A message of one participant to another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Said<M> {
    pub to: PeerId,
    pub number: u64,
    message: M,
}

/// Which of another's messages have come: all up to a number, and some beyond, since links may reorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Heard {
    all_to: u64,
    beyond: BTreeSet<u64>,
}

impl<P: Backable> Part<P> {
    /// A participant that nobody has heard of yet.
    pub fn new(peer: P) -> Self {
        let (said, heard) = (BTreeMap::new(), BTreeMap::new());
        Self { peer, version: 0, open: Vec::new(), outbox: Vec::new(), said, heard }
    }

    /// Numbers a message and keeps it until it is confirmed.
    pub fn say(&mut self, me: PeerId, to: PeerId, message: P::Message) -> Message<P> {
        let number = self.said.entry(to).or_default();
        *number += 1;
        let said = Said { to, number: *number, message };
        self.outbox.push(said.clone());
        said.again(me)
    }

    /// Whether a message with this number has not been heard before; then it has been now.
    pub fn hears(&mut self, from: PeerId, number: u64) -> bool {
        let heard = self.heard.entry(from).or_default();
        if number <= heard.all_to || !heard.beyond.insert(number) {
            return false;
        }
        while heard.beyond.remove(&(heard.all_to + 1)) {
            heard.all_to += 1;
        }
        true
    }
}

impl<M> Said<M> {
    /// The message, to be sent to whoever owns its receiver now.
    pub fn again<P: Backable<Message = M>>(self, from: PeerId) -> Message<P> {
        Message::Say { epoch: (0, from), from, to: self.to, number: self.number, message: self.message }
    }
}
