//! What the coordinator keeps once all is counted: the line with everybody's arrival number, and which slots are still
//! to be made.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use peerlock_types::{PeerId, Ticket};

use super::Config;
use super::census::Count;
use super::message::Report;
use crate::queue::{Binding, Queue, Update};
use crate::registry::Detached;
use crate::token::{Arrival, Claim, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Keeper {
    generation: u64,
    slots: u32,
    pub(super) queue: Queue<Arrival>,
    /// How many requests have come.
    arrived: u64,
    /// Who has a number and was not told it yet.
    untold: Vec<Claim>,
    /// A timer is pending, after which they are.
    is_timed: bool,
    /// Clients that are inside and whose peer is gone: their slots are made when they are over.
    detached: Vec<Detached>,
    /// Slots without a token of which somebody has reported one that does not count, and may say more of it before it
    /// hears so.
    void: Vec<u32>,
    /// Peers that cannot be reached: those who wait there are passed over. Sorted.
    unreachable: Vec<PeerId>,
}

impl Keeper {
    /// Puts the line together again, and adopts the tokens as they are.
    pub(super) fn new(generation: u64, slots: u32, config: Config, count: &Count) -> Self {
        let (queue, mut detached) = (Queue::new(config.reach, config.always_ahead), count.detached.clone());
        detached.sort_unstable();
        let is_here = |slot: u32| count.adopted.iter().any(|(_, report)| report.token.slot == slot);
        let void = count.void.iter().map(|(_, token)| token.slot).filter(|&slot| !is_here(slot)).collect();
        let (untold, unreachable) = (Vec::new(), Vec::new());
        let mut keeper =
            Self { generation, slots, queue, arrived: 0, untold, is_timed: false, detached, void, unreachable };
        for &(peer, Report { token, in_use }) in &count.adopted {
            keeper.queue.add_barred(token.slot, peer, token.fencing, !in_use);
        }
        for &(claim, arrival) in &count.waiting {
            keeper.ask(claim, arrival);
        }
        keeper
    }

    /// A token was made at the coordinator.
    pub(super) fn add(&mut self, token: Token, at: PeerId) {
        self.queue.add_barred(token.slot, at, token.fencing, true);
    }

    fn ask(&mut self, claim: Claim, arrival: Option<Arrival>) {
        let arrival = arrival.unwrap_or_else(|| {
            self.arrived += 1;
            self.untold.push(claim);
            Arrival { generation: self.generation, number: self.arrived }
        });
        // A request is never strange.
        let _ = self.queue.note(Update::Request(claim), arrival);
    }

    /// Learns something, or says what is strange about it.
    pub(super) fn note(&mut self, update: Update) -> Result<(), &'static str> {
        if let Update::Request(claim) = update {
            // It can be reached, and who waits there for longer comes first.
            self.set_reachable(claim.peer, true);
            self.ask(claim, None);
            return Ok(());
        }
        let is_void = match update {
            Update::Free { slot, .. } | Update::Busy { slot, .. } => self.void.contains(&slot),
            _ => false,
        };
        match self.queue.note(update, Arrival { generation: self.generation, number: 0 }) {
            Err(_) if is_void => Ok(()),
            noted => noted.map(|_| ()),
        }
    }

    /// Passes over everyone who waits at a peer that cannot be reached, or ends that.
    pub(super) fn set_reachable(&mut self, peer: PeerId, reachable: bool) {
        match (self.unreachable.binary_search(&peer), reachable) {
            (Err(place), false) => self.unreachable.insert(place, peer),
            (Ok(place), true) => _ = self.unreachable.remove(place),
            (Ok(_), false) | (Err(_), true) => return,
        }
        self.queue.set_reachable(peer, reachable);
    }

    /// The peers whose waiters are passed over.
    pub(super) fn unreachable(&self) -> &[PeerId] {
        &self.unreachable
    }

    /// A surplus token is no more.
    pub(super) fn drop_token(&mut self, slot: u32, stay: u64) {
        self.queue.remove(slot, stay);
    }

    /// A detached grant is over; whether its slot is to be made now.
    pub(super) fn expire(&mut self, over: Detached) -> bool {
        let before = self.detached.len();
        self.detached.retain(|detached| *detached != over);
        let is_left = self.detached.iter().any(|detached| detached.slot == over.slot);
        self.detached.len() < before && !is_left && over.slot < self.slots
    }

    /// Whether nobody waits, and nobody is inside.
    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.queue.locations().all(|location| location.free)
    }

    /// How many of these wait, or all.
    pub(super) fn retained(&self, of: Option<PeerId>) -> usize {
        of.map_or_else(|| self.queue.len(), |peer| self.queue.waiting_at(peer))
    }

    /// Binds one waiter to one token. Where tokens are surplus, `holds_back` all that would let in more than the slots.
    pub(super) fn bind(&mut self, holds_back: bool) -> Option<Binding> {
        // They are sorted by slot.
        let alone = self.detached.chunk_by(|one, other| one.slot == other.slot).count();
        let room = if holds_back { (self.slots as usize).saturating_sub(alone) } else { usize::MAX };
        self.queue.let_go(self.slots, room);
        self.queue.bind()
    }

    /// Whether a timer is pending after which numbers are told.
    pub(super) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Whether such a timer is needed, which is then taken for set.
    pub(super) fn needs_timer(&mut self) -> bool {
        !self.untold.is_empty() && !core::mem::replace(&mut self.is_timed, true)
    }

    /// What is to be told to whom.
    pub(super) fn announce(&mut self) -> BTreeMap<PeerId, Vec<(Ticket, Arrival)>> {
        self.is_timed = false;
        let mut all: BTreeMap<PeerId, Vec<(Ticket, Arrival)>> = BTreeMap::new();
        for claim in core::mem::take(&mut self.untold) {
            if let Some(arrival) = self.queue.mark(claim) {
                all.entry(claim.peer).or_default().push((claim.ticket, arrival));
            }
        }
        all
    }
}
