//! The coordinator's state after the census.

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
    /// The queue is sorted by arrival.
    pub(super) is_in_order: bool,
    arrived: u64,
    /// Their arrival numbers are not confirmed yet.
    unconfirmed: Vec<Claim>,
    /// The timer for these confirmations is pending.
    is_timed: bool,
    /// Detached grants of slots without a token, sorted. The token is created when the last of them ends.
    detached: Vec<Detached>,
    /// Slots without a token of which an invalid one was reported. Its peer may send reports of it until it receives
    /// `Void`.
    void: Vec<u32>,
    /// Their waiters are passed over. Sorted.
    unreachable: Vec<PeerId>,
}

impl Keeper {
    pub(super) fn new(generation: u64, slots: u32, config: Config, count: &Count) -> Self {
        let (queue, mut detached) = (Queue::new(config.reach, config.always_ahead), count.detached.clone());
        detached.sort_unstable();
        let is_here = |slot: u32| count.adopted.iter().any(|(_, report)| report.token.slot == slot);
        let void = count.void.iter().map(|(_, token)| token.slot).filter(|&slot| !is_here(slot)).collect();
        let (unconfirmed, unreachable) = (Vec::new(), Vec::new());
        let (is_in_order, is_timed) = (true, false);
        let mut keeper = Self {
            generation,
            slots,
            queue,
            is_in_order,
            arrived: 0,
            unconfirmed,
            is_timed,
            detached,
            void,
            unreachable,
        };
        for &(peer, Report { token, in_use }) in &count.adopted {
            keeper.queue.add_barred(token.slot, peer, token.fencing, !in_use);
        }
        for &(claim, arrival) in &count.waiting {
            keeper.ask(claim, arrival);
        }
        keeper
    }

    pub(super) fn add(&mut self, token: Token, at: PeerId) {
        self.queue.add_barred(token.slot, at, token.fencing, true);
    }

    fn ask(&mut self, claim: Claim, arrival: Option<Arrival>) {
        let last = Arrival { generation: self.generation, number: self.arrived };
        // A number that was not given yet is of before the recovery of a quorum.
        let arrival = match arrival.filter(|arrival| *arrival <= last) {
            Some(arrival) => {
                let newest = self.queue.waiting().next_back().and_then(|newest| self.queue.mark(newest));
                self.is_in_order &= newest.is_none_or(|newest| newest <= arrival);
                arrival
            }
            None => {
                self.arrived += 1;
                self.unconfirmed.push(claim);
                Arrival { number: self.arrived, ..last }
            }
        };
        // A request is always valid.
        let _ = self.queue.note(Update::Request(claim), arrival);
    }

    pub(super) fn note(&mut self, update: Update) -> Result<(), &'static str> {
        let request = match update {
            Update::Request(claim) => Some((claim, None)),
            Update::RequestAgain(claim, arrival) => Some((claim, Some(arrival))),
            _ => None,
        };
        if let Some((claim, arrival)) = request {
            // The peer is reachable, and its older waiters come first.
            self.set_reachable(claim.peer, true);
            self.ask(claim, arrival);
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

    pub(super) fn set_reachable(&mut self, peer: PeerId, reachable: bool) {
        match (self.unreachable.binary_search(&peer), reachable) {
            (Err(place), false) => self.unreachable.insert(place, peer),
            (Ok(place), true) => _ = self.unreachable.remove(place),
            (Ok(_), false) | (Err(_), true) => return,
        }
        self.queue.set_reachable(peer, reachable);
    }

    pub(super) fn unreachable(&self) -> &[PeerId] {
        &self.unreachable
    }

    pub(super) fn drop_token(&mut self, slot: u32, stay: u64) {
        self.queue.remove(slot, stay);
    }

    /// Returns whether the token of the slot is to be created.
    pub(super) fn expire(&mut self, over: Detached) -> bool {
        let before = self.detached.len();
        self.detached.retain(|detached| *detached != over);
        let is_left = self.detached.iter().any(|detached| detached.slot == over.slot);
        self.detached.len() < before && !is_left && over.slot < self.slots
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.queue.locations().all(|location| location.free)
    }

    pub(super) fn retained(&self, of: Option<PeerId>) -> usize {
        of.map_or_else(|| self.queue.len(), |peer| self.queue.waiting_at(peer))
    }

    /// With surplus tokens, `holds_back` limits the slots in use to their number.
    pub(super) fn bind(&mut self, holds_back: bool) -> Option<Binding> {
        let alone = self.detached.chunk_by(|one, other| one.slot == other.slot).count();
        let room = if holds_back { (self.slots as usize).saturating_sub(alone) } else { usize::MAX };
        self.queue.let_go(self.slots, room);
        self.queue.bind()
    }

    pub(super) fn is_timed(&self) -> bool {
        self.is_timed
    }

    /// Marks the timer as pending if it has to be set.
    pub(super) fn needs_timer(&mut self) -> bool {
        !self.unconfirmed.is_empty() && !core::mem::replace(&mut self.is_timed, true)
    }

    pub(super) fn announce(&mut self) -> BTreeMap<PeerId, Vec<(Ticket, Arrival)>> {
        self.is_timed = false;
        let mut all: BTreeMap<PeerId, Vec<(Ticket, Arrival)>> = BTreeMap::new();
        for claim in core::mem::take(&mut self.unconfirmed) {
            if let Some(arrival) = self.queue.mark(claim) {
                all.entry(claim.peer).or_default().push((claim.ticket, arrival));
            }
        }
        all
    }
}
