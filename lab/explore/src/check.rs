//! What must hold in every state of a [`World`](crate::World), whatever happens.

use std::fmt;

use peerlock_protocols::{Grant, Observe};
use peerlock_types::{PeerId, Ticket};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// More clients are inside than there are slots.
    TooManyInside {
        /// Clients inside, over all peers.
        inside: usize,
        /// How many may be.
        slots: usize,
    },
    /// A slot that does not exist or that somebody else has.
    WrongSlot(PeerId, Grant),
    /// A fencing number that is not above all earlier ones of its slot, or that another slot had before.
    Fencing(PeerId, Grant),
    /// A client was let in that does not wait: it has withdrawn, is inside already, or has never asked.
    NotWaiting(PeerId, Ticket),
    /// A token was lost or made up.
    Tokens {
        /// How many are held or under way.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The number of coordinators, at a peer or under way, is not one.
    Coordinators(usize),
    /// These peers forward requests in a circle.
    ParentCycle(Vec<PeerId>),
    /// A peer was told something that makes no sense, in a world where everybody keeps to the rules.
    Unexpected(PeerId, &'static str),
    /// A peer broke its own invariant.
    Panic(PeerId, String),
    /// A slot's token is at two peers, or where its slot is in use by somebody whose peer is gone.
    SlotTwice(u32),
    /// Nothing happens by itself any more, and nobody has this slot's token.
    SlotLost(u32),
    /// A client was let in, and another was told that it came earlier, and there is only one slot.
    OutOfOrder(PeerId, Ticket),
    /// No message is under way, slots are empty, and these wait, in a protocol that promises better.
    Idle(Vec<(PeerId, Ticket)>),
    /// Nothing can happen any more, and these still wait.
    Stuck(Vec<(PeerId, Ticket)>),
    /// Whatever happens from here on, within the limits, somebody will wait for ever; these do now.
    Hopeless(Vec<(PeerId, Ticket)>),
    /// A second copy of an order has undone the one that came after it: there are so many slots by that.
    Undone(u32),
    /// A run without end: after this many steps everything is as before.
    Livelock(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyInside { inside, slots } => write!(f, "{inside} clients are inside, {slots} may be"),
            Self::WrongSlot(peer, grant) => write!(f, "{peer} enters slot {}, which is taken or not there", grant.slot),
            Self::Fencing(peer, Grant { slot, fencing }) => {
                write!(f, "{peer} enters slot {slot} with fencing number {fencing}, which is not new")
            }
            Self::NotWaiting(peer, ticket) => write!(f, "{peer} lets ticket {ticket} in, which does not wait"),
            Self::Tokens { found, expected } => write!(f, "{found} tokens are held or under way instead of {expected}"),
            Self::Coordinators(found) => write!(f, "{found} coordinators are there or under way instead of one"),
            Self::ParentCycle(peers) => write!(f, "parent pointers form a cycle: {}", list(peers.iter(), " → ")),
            Self::Unexpected(peer, why) => write!(f, "{peer} was told something strange: {why}"),
            Self::Panic(peer, why) => write!(f, "{peer} broke its own invariant: {why}"),
            Self::SlotTwice(slot) => write!(f, "slot {slot} can be used twice"),
            Self::SlotLost(slot) => write!(f, "slot {slot} is lost for ever"),
            Self::OutOfOrder(peer, ticket) => write!(f, "{peer} lets ticket {ticket} in before one that came earlier"),
            Self::Idle(waiting) => write!(f, "a slot is empty and nobody is told: {} wait", clients(waiting)),
            Self::Stuck(waiting) => {
                write!(f, "nothing can happen any more and these still wait: {}", clients(waiting))
            }
            Self::Hopeless(waiting) => {
                write!(f, "whatever happens, not all will be served, and these still wait: {}", clients(waiting))
            }
            Self::Undone(slots) => {
                write!(f, "the order for {slots} slots is undone by a second copy of an earlier one")
            }
            Self::Livelock(steps) => write!(f, "the last {steps} steps may be repeated for ever"),
        }
    }
}

fn clients(waiting: &[(PeerId, Ticket)]) -> String {
    list(waiting.iter().map(|(peer, ticket)| format!("{peer} with ticket {ticket}")), ", ")
}

fn list<T: fmt::Display>(items: impl Iterator<Item = T>, between: &str) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

/// What the checks below ask of one peer; worked out once when the peer changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Facts {
    tokens: usize,
    coordinator: bool,
    /// In each tree, the parent's place in the table of all peers.
    parents: Box<[Option<usize>]>,
    slots: Vec<u32>,
}

impl Facts {
    pub(crate) fn of<P: Observe>(peer: &P, ids: &[PeerId]) -> Self {
        let parent = |tree| peer.parent_in(tree).and_then(|parent| ids.binary_search(&parent).ok());
        let parents = (0..peer.trees()).map(parent).collect();
        Self { tokens: peer.tokens(), coordinator: peer.is_coordinator(), parents, slots: peer.slots_here() }
    }

    /// Which slots' tokens are here, if the protocol tells.
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }
}

/// The checks that look at all peers and messages at once: `any` peer answers for the whole, `facts` for one peer.
pub(crate) fn invariants<'a, P: Observe>(
    any: &P,
    ids: &[PeerId],
    facts: impl Fn(usize) -> &'a Facts,
    messages: impl Iterator<Item = &'a P::Message> + Clone,
) -> Option<Violation>
where
    P::Message: 'a,
{
    let peers = || (0..ids.len()).map(&facts);
    if let Some(expected) = any.tokens_in_all() {
        let held: usize = peers().map(|facts| facts.tokens).sum();
        let found = held + messages.clone().map(P::tokens_in).sum::<usize>();
        if found != expected {
            return Some(Violation::Tokens { found, expected });
        }
    }
    if P::HAS_COORDINATOR {
        let found = peers().filter(|facts| facts.coordinator).count();
        let found = found + messages.filter(|message| P::carries_coordinator(message)).count();
        if found != 1 {
            return Some(Violation::Coordinators(found));
        }
    }
    (0..any.trees()).find_map(|tree| parent_cycle(ids, |at| facts(at).parents[tree]))
}

/// Follows the pointers from every peer: a walk that has not ended after as many steps as there are peers goes round.
fn parent_cycle(ids: &[PeerId], parent: impl Fn(usize) -> Option<usize>) -> Option<Violation> {
    let walk = |from: usize| (0..ids.len()).try_fold(from, |at, _| parent(at));
    let start = (0..ids.len()).find_map(walk)?;
    let mut cycle = vec![ids[start]];
    let mut at = start;
    while let Some(next) = parent(at) {
        cycle.push(ids[next]);
        at = next;
        if at == start {
            break;
        }
    }
    Some(Violation::ParentCycle(cycle))
}
