use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use peerlock_types::{PeerId, Ticket};
use serde::{Deserialize, Serialize};

use super::{Backable, Message};

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(bound(
    serialize = "P: serde::Serialize, P::Message: serde::Serialize",
    deserialize = "P: serde::Deserialize<'de>, P::Message: serde::Deserialize<'de>"
))]
pub struct Part<P: Backable> {
    pub(super) peer: P,
    pub(super) version: u64,
    pub(super) open: Vec<Ticket>,
    pub(super) outbox: Vec<Sent<P::Message>>,
    sent: BTreeMap<PeerId, u64>,
    received: BTreeMap<PeerId, Received>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Sent<M> {
    pub to: PeerId,
    pub number: u64,
    message: M,
}

/// The numbers of received messages: all up to `all_to`, and some beyond, since links may reorder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Received {
    all_to: u64,
    beyond: BTreeSet<u64>,
}

impl<P: Backable> Part<P> {
    pub(super) fn new(peer: P) -> Self {
        let (sent, received) = (BTreeMap::new(), BTreeMap::new());
        Self { peer, version: 0, open: Vec::new(), outbox: Vec::new(), sent, received }
    }

    /// Numbers a message, and keeps it until it is confirmed.
    pub(super) fn say(&mut self, me: PeerId, to: PeerId, message: P::Message) -> Message<P> {
        let number = self.sent.entry(to).or_default();
        *number += 1;
        let sent = Sent { to, number: *number, message };
        self.outbox.push(sent.clone());
        sent.again(me)
    }

    pub(super) fn receives(&mut self, from: PeerId, number: u64) -> bool {
        let received = self.received.entry(from).or_default();
        if number <= received.all_to || !received.beyond.insert(number) {
            return false;
        }
        while received.beyond.remove(&(received.all_to + 1)) {
            received.all_to += 1;
        }
        true
    }
}

impl<M> Sent<M> {
    pub(super) fn again<P: Backable<Message = M>>(self, from: PeerId) -> Message<P> {
        Message::Say { epoch: (0, from), from, to: self.to, number: self.number, message: self.message }
    }
}
