//! The replica side (Figure 1, *Replica side*).

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{Span, Time};

use super::client::peers;
use super::election::Election;
use super::message::{Entry, Holder, Memory, Message, Place, Timer};
use super::{Common, Coordinator, EPOCH, is_same, write_queue};
use crate::replicas::{by_any_clock, mean};
use crate::token::Claim;
use crate::{Cx, fencing};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Replica {
    pub index: u32,
    pub election: Election,
    /// *Queue*, in order.
    pub waiting: Vec<Waiting>,
    /// *Owner*.
    pub owner: Option<Owner>,
    pub number: u64,
    count: u64,
    t_cs: Option<Span>,
    lease_timer_runs: bool,
    /// *received(msg)*, in print.
    received: Vec<(Claim, u64)>,
    pub recoveries: Vec<(u32, Time)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub entry: Entry,
    /// `None` if only other replicas received it.
    last_received: Option<Received>,
    since: Time,
}

/// Send time by the client's clock, arrival by the replica's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Received {
    sent: Time,
    arrived: Time,
}

impl Received {
    /// Converts a local time to the client's clock, rounding down.
    fn by_client_clock(self, here: Time) -> Time {
        self.sent + by_any_clock(here.since(self.arrived))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    pub holder: Holder,
    /// No other chain starts before.
    pub until: Time,
    since: Time,
    last_received: Option<Received>,
}

impl Owner {
    pub fn new(holder: Holder, until: Time, since: Time) -> Self {
        Self { holder, until, since, last_received: None }
    }
}

/// The number in a RELEASE by which a coordinator removes a waiter. Below all grant numbers: a late RELEASE does not
/// remove an owner.
const REMOVED: u64 = 0;

fn is_one_chain(one: u64, other: u64) -> bool {
    one / fencing::LEAP == other / fencing::LEAP
}

fn leap(number: u64) -> u64 {
    (number / fencing::LEAP + 1) * fencing::LEAP
}

impl Replica {
    pub fn new(index: u32, election: Election) -> Self {
        Self { index, election, ..Self::default() }
    }

    pub fn reset(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        cx.cancel_timer(Timer::Lease(self.index));
        cx.cancel_timer(Timer::Ping(self.index));
        *self = Self::new(self.index, Election::blank(cx.now(), &common.config));
        self.start_recovery(common, cx);
    }

    pub fn memory(&self) -> Memory {
        let (max_epoch, number) = (self.election.max_epoch, self.number);
        Memory { max_epoch, number, queue: self.waiting.iter().map(|waiting| waiting.entry).collect() }
    }

    pub fn merge_memory(&mut self, memory: Memory, now: Time) {
        self.number = self.number.max(memory.number);
        for entry in memory.queue {
            self.insert_waiter(entry, now);
        }
    }

    pub fn insert_waiter(&mut self, entry: Entry, now: Time) {
        if self.owner.is_some_and(|owner| owner.holder.client == entry.client) {
            return;
        }
        if !self.waiting.iter().any(|waiting| waiting.entry.client == entry.client) {
            let at = self.waiting.partition_point(|waiting| waiting.entry < entry);
            self.waiting.insert(at, Waiting { entry, last_received: None, since: now });
        }
    }

    /// Returns whether the owner under an earlier coordinator may still hold.
    fn is_in_grace(&self, now: Time) -> bool {
        self.election.grace().is_some_and(|grace| now < grace)
    }

    pub fn on_request(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Request { client, stamp, alone, .. } = message else { return };
        self.election.clock = self.election.clock.max(stamp);
        if !common.config.coordinator_dedups {
            if self.received.contains(&(client, stamp)) {
                return;
            }
            self.received.push((client, stamp));
        }
        if !self.is_coordinator() {
            if alone {
                self.forward(message, common, cx);
            } else if !common.config.one_acts {
                self.ping_then_forward(message, common, cx);
            }
        } else if self.holds_lease(common, cx.now()) {
            self.answer(message, common, cx);
        } else {
            self.enqueue(&message, common, cx.now());
            self.become_candidate(common, cx);
        }
    }

    pub fn answer(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Request { client, holds, is_holding, newest, sent, .. } = message else { return };
        self.expire(common, cx);
        if let Some(number) = holds {
            self.adopt_owner(Holder { client, number }, is_holding, common, cx);
        }
        self.adopt_number(client, newest);
        let (now, lease) = (cx.now(), common.config.lease);
        let is_it = |owner: &&mut Owner| is_same(owner.holder.client, client, &common.config);
        if let Some(owner) = self.owner.as_mut().filter(is_it).filter(|_| common.config.coordinator_dedups) {
            owner.holder.client = client; // In print a client's requests are one.
            owner.until = now + lease;
            owner.last_received = Some(Received { sent, arrived: now });
            return self.respond(client, false, common, cx);
        }
        let changes = self.enqueue(&message, common, now);
        self.serve(common, cx);
        if self.owner.is_none_or(|owner| owner.holder.client != client) {
            self.respond(client, changes.is_some(), common, cx);
            if let Some(entry) = changes {
                self.send_add_request(entry, common, cx);
            }
        }
    }

    /// A new coordinator knows no chain, and accepts only a client in the critical section: a mere grant may have been
    /// superseded.
    fn adopt_owner(&mut self, holder: Holder, is_holding: bool, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let now = cx.now();
        let is_further =
            |owner: Owner| owner.holder.number < holder.number && is_one_chain(owner.holder.number, holder.number);
        let is_unknown = self.is_in_grace(now) && is_holding && holder.number >= self.number;
        if self.owner.is_some_and(is_further) || is_unknown {
            self.number = self.number.max(holder.number);
            self.owner = Some(Owner::new(holder, now + common.config.lease, now));
            self.waiting.retain(|waiting| waiting.entry.client != holder.client);
            self.set_lease_timer(common, cx);
        }
    }

    /// Adopts a client's higher number, in case a majority has lost its memory.
    fn adopt_number(&mut self, client: Claim, newest: u64) {
        self.number = self.number.max(newest);
        if let Some(owner) = self.owner.as_mut().filter(|owner| owner.holder.client == client)
            && owner.holder.number < newest
        {
            self.number = leap(self.number);
            owner.holder.number = self.number;
        }
    }

    /// *Queue.insert*: returns the entry if it is new.
    fn enqueue(&mut self, message: &Message, common: &Common, now: Time) -> Option<Entry> {
        let Message::Request { client, stamp, place, sent, .. } = *message else { return None };
        let (last_received, config) = (Received { sent, arrived: now }, &common.config);
        if let Some(known) = self.waiting.iter_mut().find(|known| is_same(known.entry.client, client, config)) {
            (known.last_received, known.since) = (Some(last_received), now);
            return None;
        }
        self.count += 1;
        let number = || Place { epoch: self.election.epoch, count: self.count };
        let place = match config.coordinator_numbers {
            true => place.unwrap_or_else(number),
            false => Place { epoch: 0, count: stamp },
        };
        let entry = Entry { place, client };
        let at = self.waiting.partition_point(|waiting| waiting.entry < entry);
        self.waiting.insert(at, Waiting { entry, last_received: Some(last_received), since: now });
        Some(entry)
    }

    pub fn serve(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let now = cx.now();
        if self.owner.is_some() || self.is_in_grace(now) {
            return;
        }
        self.remove_silent(common, cx);
        let Some(at) = self.waiting.iter().position(|waiting| waiting.last_received.is_some()) else { return };
        let Waiting { entry, last_received, .. } = self.waiting.remove(at);
        if common.config.majority_lease && self.number / EPOCH != self.election.epoch {
            self.number = leap(self.number).max(self.election.epoch * EPOCH);
        }
        self.number += 1;
        let holder = Holder { client: entry.client, number: self.number };
        self.owner = Some(Owner { last_received, ..Owner::new(holder, now + common.config.lease, now) });
        self.set_lease_timer(common, cx);
        self.respond(entry.client, true, common, cx);
    }

    /// §4.4, *failure of requester*. A waiter sends three requests per lease.
    fn remove_silent(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        if !common.config.owner_lease {
            return;
        }
        let is_silent = |waiting: &Waiting| cx.now().since(waiting.since) >= common.config.lease;
        let silent: Vec<Claim> = self.waiting.iter().filter(|w| is_silent(w)).map(|w| w.entry.client).collect();
        self.waiting.retain(|waiting| !is_silent(waiting));
        for client in silent {
            self.broadcast_removal(client, common, cx);
        }
    }

    fn broadcast_removal(&mut self, client: Claim, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let number = Some(REMOVED);
        let release = |to| Message::Release { to, client, number, successor: None, last: None, receipt: 0 };
        for peer in peers(self.waiting.iter().map(|waiting| &waiting.entry)) {
            common.sender.send(peer, release(None), cx);
        }
        for to in self.others(common) {
            common.send(to, release(Some(to)), cx);
        }
    }

    pub fn respond(&self, to: Claim, with_queue: bool, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let known = self.waiting.iter().find(|waiting| is_same(waiting.entry.client, to, &common.config));
        let last_received = match self.owner {
            Some(owner) if is_same(owner.holder.client, to, &common.config) => owner.last_received,
            _ => known.and_then(|waiting| waiting.last_received),
        };
        let until = last_received
            .zip(self.owner)
            .map_or(Time::ZERO, |(last_received, owner)| last_received.by_client_clock(owner.until));
        let message = Message::Response {
            client: to.ticket,
            from: self.index,
            place: known.map(|waiting| waiting.entry.place),
            owner: self.owner.map(|owner| owner.holder),
            queue: with_queue.then(|| self.waiting.iter().map(|waiting| waiting.entry).collect()),
            until,
            t_cs: self.t_cs,
        };
        common.sender.send(to.peer, message, cx);
    }

    fn send_add_request(&self, entry: Entry, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        for to in self.others(common) {
            common.send(to, Message::AddRequest { to: Some(to), entry }, cx);
        }
        let owner = self.owner.filter(|_| common.config.owner_notified).map(|owner| owner.holder.client.peer);
        let mut waiting = peers(self.waiting.iter().map(|waiting| &waiting.entry));
        waiting.extend(owner.filter(|owner| !waiting.contains(owner)));
        for peer in waiting.into_iter().filter(|&peer| peer != entry.client.peer || Some(peer) == owner) {
            common.sender.send(peer, Message::AddRequest { to: None, entry }, cx);
        }
    }

    pub fn on_release(&mut self, message: Message, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Message::Release { client, number, successor, last, receipt, .. } = message else { return };
        if !common.config.replicas_receive_release {
            return;
        }
        self.waiting.retain(|w| !is_same(w.entry.client, client, &common.config) && Some(w.entry.client) != successor);
        let leads = self.is_coordinator() && self.holds_lease(common, cx.now());
        if leads && receipt > 0 {
            common.sender.send(client.peer, Message::Got { receipt }, cx);
            let newcomers = self.waiting.iter().map(|waiting| &waiting.entry).filter(|entry| Some(entry.place) > last);
            for peer in peers(newcomers) {
                let release = Message::Release { to: None, client, number, successor, last, receipt: 0 };
                common.sender.send(peer, release, cx);
            }
        }
        let Some(number) = number.or_else(|| self.never_entered(client, common)) else {
            return if leads {
                self.serve(common, cx)
            };
        };
        let is_later = |owner: Owner| number >= owner.holder.number && is_one_chain(number, owner.holder.number);
        if !leads || !self.owner.is_some_and(is_later) {
            self.number = self.number.max(number);
            return;
        }
        self.t_cs = self.owner.map(|owner| mean(self.t_cs, cx.now().since(owner.since))).or(self.t_cs);
        let first =
            (!common.config.named_successor && !self.waiting.is_empty()).then(|| self.waiting.remove(0).entry.client);
        let next = successor.or(first).map(|client| Holder { client, number: number + 1 });
        self.number = self.number.max(next.map_or(number, |next| next.number));
        self.owner = next.map(|next| Owner::new(next, cx.now() + common.config.lease, cx.now()));
        self.set_lease_timer(common, cx);
        self.serve(common, cx);
    }

    /// The number of an owner that withdraws before it knows of its grant.
    fn never_entered(&self, client: Claim, common: &Common) -> Option<u64> {
        let owner = self.owner.filter(|owner| is_same(owner.holder.client, client, &common.config));
        owner.map(|owner| owner.holder.number)
    }

    /// Ends an expired lease (§4.4). The chain may have used any number below the next leap.
    pub fn expire(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        let Some(owner) = self.owner.filter(|owner| common.config.owner_lease && owner.until <= cx.now()) else {
            return;
        };
        self.owner = None;
        self.number = leap(self.number);
        self.broadcast_removal(owner.holder.client, common, cx);
        self.serve(common, cx);
    }

    pub fn set_lease_timer(&mut self, common: &Common, cx: &mut Cx<'_, Coordinator>) {
        let now = cx.now();
        let until = self.election.grace().filter(|grace| *grace > now).or(self.owner.map(|owner| owner.until));
        if let Some(until) = until.filter(|_| common.config.owner_lease && !self.lease_timer_runs) {
            self.lease_timer_runs = true;
            cx.set_timer(Timer::Lease(self.index), until.since(now));
        }
    }

    pub fn on_lease_timer(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        self.lease_timer_runs = false;
        if self.is_coordinator() && self.holds_lease(common, cx.now()) {
            self.expire(common, cx);
            self.serve(common, cx);
            self.set_lease_timer(common, cx);
        }
    }

    pub fn start_leading(&mut self, common: &mut Common, cx: &mut Cx<'_, Coordinator>) {
        self.owner = None;
        self.set_lease_timer(common, cx);
        self.serve(common, cx);
        let last_received = self.waiting.iter().filter(|waiting| waiting.last_received.is_some());
        for client in last_received.map(|waiting| waiting.entry.client).collect::<Vec<_>>() {
            self.respond(client, true, common, cx);
        }
    }

    /// All clients before this place have finished.
    pub fn front(&self) -> Place {
        let next = Place { epoch: self.election.epoch, count: self.count + 1 };
        self.waiting.first().map_or(next, |waiting| waiting.entry.place)
    }

    pub fn drop_before(&mut self, front: Place) {
        self.waiting.retain(|waiting| waiting.entry.place >= front);
    }

    pub fn others(&self, common: &Common) -> impl Iterator<Item = u32> + use<> {
        let me = self.index;
        common.all().filter(move |&index| index != me)
    }
}

impl fmt::Display for Replica {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "R{} {}", self.index, self.election)?;
        self.owner.map_or(Ok(()), |owner| write!(f, ", owner {}", owner.holder.client))?;
        write_queue(f, self.waiting.iter().map(|waiting| &waiting.entry))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use peerlock_types::{PeerId, Rng, Ticket};

    use super::*;
    use crate::coordinator::Config;
    use crate::replicas::Sender;
    use crate::{Effect, Quorum, Replicas};

    const OWNER: Claim = Claim { peer: PeerId::new(7), ticket: Ticket::new(1) };
    const OTHER: Claim = Claim { peer: PeerId::new(8), ticket: Ticket::new(1) };
    const NUMBER: u64 = 5;

    /// Returns a permanent coordinator.
    fn leads() -> (Replica, Common) {
        let me = PeerId::new(0);
        let config = Config { majority_lease: false, ..Config::REPAIRED };
        let common = Common { config, sender: Sender::new(me, &Replicas::first(Quorum::new(3, 2))) };
        let mut replica = Replica::new(0, Election::default());
        let holder = Holder { client: OWNER, number: NUMBER };
        (replica.owner, replica.number) = (Some(Owner::new(holder, Time::ZERO + config.lease, Time::ZERO)), NUMBER);
        (replica, common)
    }

    fn with_cx(act: impl FnOnce(&mut Cx<'_, Coordinator>)) -> Vec<Effect<Message, Timer>> {
        let (mut rng, mut effects) = (Rng::new(1), Vec::new());
        act(&mut Cx::new(PeerId::new(0), Time::ZERO, &mut rng, &mut effects));
        effects
    }

    fn owner(replica: &Replica) -> Option<(Claim, u64)> {
        replica.owner.map(|owner| (owner.holder.client, owner.holder.number))
    }

    #[test]
    fn owner_is_replaced_only_within_its_chain() {
        for (number, is_it) in [(NUMBER + 1, true), (fencing::LEAP + 1, false), (NUMBER - 1, false)] {
            let (mut replica, common) = leads();
            let holder = Holder { client: OTHER, number };
            with_cx(|cx| replica.adopt_owner(holder, true, &common, cx));
            let expected = if is_it { (OTHER, number) } else { (OWNER, NUMBER) };
            assert_eq!(owner(&replica), Some(expected), "{number}");
        }
    }

    #[test]
    fn resource_is_freed_only_by_release_of_its_chain() {
        for (number, is_free) in [(NUMBER, true), (NUMBER + 2, true), (fencing::LEAP + 1, false), (NUMBER - 1, false)] {
            let (mut replica, mut common) = leads();
            let release = Message::Release {
                to: None,
                client: OTHER,
                number: Some(number),
                successor: None,
                last: None,
                receipt: 0,
            };
            with_cx(|cx| replica.on_release(release, &mut common, cx));
            assert_eq!(owner(&replica).is_none(), is_free, "{number}");
            assert!(replica.number >= number, "a known number is not used again");
        }
    }

    /// Seen in trial 79 of `faults/table`: an earlier coordinator's removal arrives after the client has become the
    /// owner.
    #[test]
    fn removal_by_earlier_coordinator_keeps_owner() {
        let (mut earlier, mut common) = leads();
        let effects = with_cx(|cx| earlier.broadcast_removal(OWNER, &mut common, cx));
        let to_replica = |effect: &Effect<Message, Timer>| match *effect {
            Effect::Send { to, ref message } if to == PeerId::new(1) => Some(message.clone()),
            _ => None,
        };
        let removed = effects.iter().find_map(to_replica).expect("the other replicas are notified");
        let (mut replica, mut common) = leads();
        with_cx(|cx| replica.on_release(removed, &mut common, cx));
        assert_eq!(owner(&replica), Some((OWNER, NUMBER)));
        let (client, number, successor, last) = (OWNER, None, None, None);
        let withdrawn = Message::Release { to: Some(0), client, number, successor, last, receipt: 1 };
        with_cx(|cx| replica.on_release(withdrawn, &mut common, cx));
        assert_eq!(owner(&replica), None, "withdrawn before it knew of its grant");
    }

    #[test]
    fn owner_with_higher_number_gets_one_above() {
        let (mut replica, mut common) = leads();
        let mut ask = |client, newest| {
            let (to, stamp, place, holds, is_holding, alone, sent) = (0, 1, None, None, false, true, Time::ZERO);
            let request = Message::Request { to, client, stamp, place, holds, is_holding, newest, alone, sent };
            with_cx(|cx| replica.answer(request, &mut common, cx));
            (owner(&replica), replica.number)
        };
        assert_eq!(ask(OTHER, NUMBER + 100), (Some((OWNER, NUMBER)), NUMBER + 100));
        assert_eq!(ask(OWNER, NUMBER + 100), (Some((OWNER, fencing::LEAP)), fencing::LEAP));
        assert_eq!(ask(OWNER, 3), (Some((OWNER, fencing::LEAP)), fencing::LEAP));
    }
}
