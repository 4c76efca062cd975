use std::fmt;

use peerlock_protocols::{Grant, Observe};
use peerlock_types::{PeerId, Ticket};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    TooManyHolders { inside: usize, slots: usize },
    // The granted slot does not exist, or is held.
    WrongSlot(PeerId, Grant),
    // The number is not above all earlier ones of the slot, or another slot had it.
    Fencing(PeerId, Grant),
    NotWaiting(PeerId, Ticket),
    Tokens { found: usize, expected: usize },
    Coordinators(usize),
    ParentCycle(Vec<PeerId>),
    Unexpected(PeerId, &'static str),
    Panic(PeerId, String),
    // The slot has two usable tokens, or one although its holder's peer is gone.
    SlotTwice(u32),
    // No token of the slot is left, and only optional events are.
    SlotLost(u32),
    // One slot was granted in another order than that of arrival.
    OutOfOrder(PeerId, Ticket),
    // These clients wait, although no message is under way and slots are free.
    Idle(Vec<(PeerId, Ticket)>),
    // These clients wait, and no event is left.
    Stuck(Vec<(PeerId, Ticket)>),
    // These clients cannot be served any more within the limits.
    Hopeless(Vec<(PeerId, Ticket)>),
    // A duplicated resize has undone the one after it.
    Undone(u32),
    // These many steps lead back to the same state.
    Livelock(usize),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooManyHolders { inside, slots } => write!(f, "{inside} clients hold slots, {slots} allowed"),
            Self::WrongSlot(peer, grant) => {
                write!(f, "{peer} enters slot {}, which is held or does not exist", grant.slot)
            }
            Self::Fencing(peer, Grant { slot, fencing }) => {
                write!(f, "{peer} enters slot {slot} with fencing number {fencing}, which is not new")
            }
            Self::NotWaiting(peer, ticket) => write!(f, "{peer} grants ticket {ticket}, which does not wait"),
            Self::Tokens { found, expected } => write!(f, "{found} tokens are held or under way instead of {expected}"),
            Self::Coordinators(found) => write!(f, "{found} coordinators at peers or under way instead of one"),
            Self::ParentCycle(peers) => write!(f, "parent pointers form a cycle: {}", list(peers.iter(), " → ")),
            Self::Unexpected(peer, why) => write!(f, "{peer} received unexpected input: {why}"),
            Self::Panic(peer, why) => write!(f, "{peer} failed an assertion: {why}"),
            Self::SlotTwice(slot) => write!(f, "slot {slot} can be used twice"),
            Self::SlotLost(slot) => write!(f, "slot {slot} is lost"),
            Self::OutOfOrder(peer, ticket) => write!(f, "{peer} grants ticket {ticket} before an earlier arrival"),
            Self::Idle(waiting) => {
                write!(f, "a slot is free, no message is under way, and these wait: {}", clients(waiting))
            }
            Self::Stuck(waiting) => {
                write!(f, "no event is possible and these wait: {}", clients(waiting))
            }
            Self::Hopeless(waiting) => {
                write!(f, "no continuation serves all clients, and these wait: {}", clients(waiting))
            }
            Self::Undone(slots) => {
                write!(f, "the resize to {slots} slots is undone by a duplicate of an earlier one")
            }
            Self::Livelock(steps) => write!(f, "the last {steps} steps form a cycle"),
        }
    }
}

fn clients(waiting: &[(PeerId, Ticket)]) -> String {
    list(waiting.iter().map(|(peer, ticket)| format!("{peer} with ticket {ticket}")), ", ")
}

fn list<T: fmt::Display>(items: impl Iterator<Item = T>, between: &str) -> String {
    items.map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

/// The results of the checks of one peer, computed when it changes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Summary {
    tokens: usize,
    coordinator: bool,
    parents: Box<[Option<usize>]>,
    slots: Vec<u32>,
}

impl Summary {
    pub(crate) fn of<P: Observe>(peer: &P, ids: &[PeerId]) -> Self {
        let parent = |tree| peer.parent_in(tree).and_then(|parent| ids.binary_search(&parent).ok());
        let parents = (0..peer.trees()).map(parent).collect();
        Self { tokens: peer.tokens(), coordinator: peer.is_coordinator(), parents, slots: peer.slots_here() }
    }

    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }
}

pub(crate) fn invariants<'a, P: Observe>(
    any: &P,
    ids: &[PeerId],
    summary: impl Fn(usize) -> &'a Summary,
    messages: impl Iterator<Item = &'a P::Message> + Clone,
) -> Option<Violation>
where
    P::Message: 'a,
{
    let peers = || (0..ids.len()).map(&summary);
    if let Some(expected) = any.tokens_in_all() {
        let held: usize = peers().map(|summary| summary.tokens).sum();
        let found = held + messages.clone().map(P::tokens_in).sum::<usize>();
        if found != expected {
            return Some(Violation::Tokens { found, expected });
        }
    }
    if P::HAS_COORDINATOR {
        let found = peers().filter(|summary| summary.coordinator).count();
        let found = found + messages.filter(|message| P::carries_coordinator(message)).count();
        if found != 1 {
            return Some(Violation::Coordinators(found));
        }
    }
    (0..any.trees()).find_map(|tree| parent_cycle(ids, |at| summary(at).parents[tree]))
}

/// A walk longer than the number of peers is on a cycle.
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
