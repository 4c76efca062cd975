//! Administration: resize, evict, revoke, delete, and the choice of voters.
//!
//! *Resize*, *evict* and *voters* first query the registry, then send a command that names what was found (generation,
//! participation, number of changes), so that it is void if another command comes first. A call that the registry does
//! not answer fails after a few seconds.
//!
//! *Revoke* asks the holder's host, repeatedly, since messages may be lost and that host keeps no state about the
//! requester:
//!
//! ```text
//!   requester                 the holder's host
//!      ├── Revoke ───────────────►│  notifies its client that the slot is lost; the lease is not renewed any more
//!      │◄─── Revoked(3000 ms) ────┤
//!      ├── Revoke ───────────────►│  and so on
//!      │◄─── Revoked(None) ───────┤  the client has released, or its lease has ended
//! ```
//!
//! A detached grant has no process to notify: it ends at once, and its next renewal fails; its host replies `None` when
//! the registry has recorded the end. If the host does not answer, the requester ends a detached grant in the registry.
//!
//! *Delete* asks all parties before any of them quits, so that an attempt to delete a used resource has no effect:
//!
//! ```text
//!   requester            the parties' hosts                        the registry
//!      ├── query ──────────────────────────────────────────────────►│
//!      │◄── generation 4, parties 1, 2 ─────────────────────────────┤
//!      ├── Used? ──────────────►│                                   │
//!      │◄── no ─────────────────┤  (yes: nothing has changed)       │
//!      ├── Used? Give it up. ──►│── Quit ──────────────────────────►│  as after a long time without use (R10)
//!      ├── query ──────────────────────────────────────────────────►│  and so on
//!      │◄── generation 6, no parties ───────────────────────────────┤
//!      ├── Remove, generation 6 ───────────────────────────────────►│  refused if a session has joined since (R11)
//! ```
//!
//! The requester may fail at any point, and a host that has quit in vain joins again at the next request.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::replace;

use peerlock_protocol as protocol;
use peerlock_registry::{Command, Look, Outcome, Page, Refusal};
use peerlock_types::{Key, PeerId, Span, Time};

use crate::node::{Alarm, Node};
use crate::session::label;
use crate::session_state::Ask;
use crate::wire::Question;
use crate::{Answer, Class, Error, Name, check_slots};

/// The timeout of other calls that need the registry: longer than an election.
const CALLERS: Span = Span::from_secs(5);

const MAX_VOTERS: usize = 7;

const REVOKE_AGAIN: Span = Span::from_millis(200);

/// Without an answer for this long the registry is queried; after twice this long the revocation fails.
const REVOKE_PATIENCE: Span = Span::from_secs(5);

const REMOVE_AGAIN: Span = Span::from_millis(100);

/// The timeout: longer than an election, but shorter than the session of an unreachable host.
const REMOVE_PATIENCE: Span = Span::from_secs(5);

#[derive(Clone)]
pub struct Revocation {
    pub name: Name,
    pub peer: PeerId,
    pub fencing: u64,
    /// When the holder's host last answered, or the start of the revocation.
    pub last_received: Time,
}

pub struct Removal {
    name: Name,
    since: Time,
    /// A request to the registry is pending.
    is_asking: bool,
    /// The log index at which the resource was found.
    found: Option<u64>,
    /// The hosts of the parties, from the last answer of the registry.
    parties: BTreeSet<PeerId>,
    unused: BTreeSet<PeerId>,
    is_refused: bool,
}

/// The next step of a deletion.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Gone {
        /// An earlier query has found it.
        was_there: bool,
    },
    /// This host has a detached grant.
    Detached(PeerId),
    /// There are no parties in this generation: request the deletion.
    Unused(u64),
    /// Ask these hosts.
    Shared {
        hosts: BTreeSet<PeerId>,
        /// All of them have reported no use: they are to quit.
        give_up: bool,
    },
}

impl Removal {
    pub fn name(&self) -> &Name {
        &self.name
    }

    pub fn since(&self) -> Time {
        self.since
    }

    pub fn is_asking(&self) -> bool {
        self.is_asking
    }

    pub fn parties(&self) -> &BTreeSet<PeerId> {
        &self.parties
    }

    /// Marks a query as pending. Returns false if one already is.
    pub fn ask(&mut self) -> bool {
        !replace(&mut self.is_asking, true)
    }

    pub fn on_result(&mut self, page: Page) -> Found {
        self.is_asking = false;
        if self.found.is_some_and(|index| page.index < index) {
            return Found::Nothing;
        }
        let Some(found) = page.resources.into_iter().next() else {
            return Found::Gone { was_there: self.found.is_some() };
        };
        self.found = Some(page.index);
        if let Some(grant) = found.detached.first() {
            return Found::Detached(grant.host);
        }
        self.parties = found.parties.iter().map(|party| party.host).collect();
        if self.parties.is_empty() {
            self.is_asking = true;
            return Found::Unused(found.generation);
        }
        self.is_refused = false;
        Found::Shared { hosts: self.parties.clone(), give_up: self.parties.is_subset(&self.unused) }
    }

    pub fn on_unused(&mut self, host: PeerId) -> bool {
        self.unused.insert(host) && self.parties.is_subset(&self.unused)
    }

    pub fn on_outcome(&mut self) {
        self.is_asking = false;
    }

    /// Returns whether the registry had refused before, without any parties.
    pub fn on_refused(&mut self) -> bool {
        replace(&mut self.is_refused, true)
    }
}

#[derive(Default)]
pub struct Orders {
    pub(crate) revocations: BTreeMap<u64, Revocation>,
    pub(crate) removals: BTreeMap<u64, Removal>,
}

impl Orders {
    pub fn revoke(&mut self, call: u64, name: Name, peer: PeerId, fencing: u64, now: Time) {
        self.revocations.insert(call, Revocation { name, peer, fencing, last_received: now });
    }

    pub fn revocation(&self, call: u64) -> Option<&Revocation> {
        self.revocations.get(&call)
    }

    /// Returns false if the host was not asked.
    pub fn on_answered(&mut self, call: u64, from: PeerId, now: Time) -> bool {
        let revocation = self.revocations.get_mut(&call).filter(|it| it.peer == from);
        revocation.map(|it| it.last_received = now).is_some()
    }

    pub fn remove(&mut self, call: u64, name: Name, now: Time) {
        let (parties, unused) = (BTreeSet::new(), BTreeSet::new());
        let removal = Removal { name, since: now, is_asking: false, found: None, parties, unused, is_refused: false };
        self.removals.insert(call, removal);
    }

    pub fn removal(&mut self, call: u64) -> Option<&mut Removal> {
        self.removals.get_mut(&call)
    }

    pub fn end(&mut self, call: u64) {
        self.revocations.remove(&call);
        self.removals.remove(&call);
    }

    pub fn check(&self, revokes: impl Fn(u64) -> bool, removes: impl Fn(u64) -> bool) {
        for call in self.revocations.keys() {
            assert!(revokes(*call), "revocation {call} has no timer");
        }
        for call in self.removals.keys() {
            assert!(removes(*call), "removal {call} has no timer");
        }
    }
}

impl Node {
    /// Without a quorum, the session may remain valid for its whole length, so a call has its own timeout.
    pub(crate) fn wait_for_register(&mut self, call: u64) {
        self.timers.set(Alarm::Caller(call), self.now + CALLERS);
    }

    pub(crate) fn answer_caller(&mut self, call: u64, answer: Result<Answer, Error>) {
        if self.timers.is_set(&Alarm::Caller(call)) {
            self.timers.cancel(&Alarm::Caller(call));
            self.answer(call, answer);
        }
    }

    pub(crate) fn give_up_register(&mut self, call: u64) {
        let error = self.problem().unwrap_or_else(|| {
            let absent = self.absent_voters(self.now).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            let why =
                if absent.is_empty() { String::new() } else { format!(" (no connection to {})", absent.join(", ")) };
            let message = format!(
                "no quorum within {CALLERS}{why}: try again. A change may still be applied when the voters are \
                 reachable again"
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.answer(call, Err(error));
    }

    pub(crate) fn resize(&mut self, call: u64, name: Name, slots: u32) {
        if let Err(error) = check_slots(slots) {
            return self.answer(call, Err(error));
        }
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.session_state.look(Look::Resource(label(&name)), Ask::ResizeFound(call, name, slots), self.now);
    }

    /// In the generation that was found: a later one may have another number of slots.
    pub(crate) fn on_resize_found(&mut self, call: u64, name: Name, slots: u32, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let command = Command::Resize { resource: resource.name, slots, generation: resource.generation };
        self.session_state.ask(command, Ask::Resize(call, name), self.now);
    }

    pub(crate) fn expel(&mut self, call: u64, name: Name, peer: PeerId) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.wait_for_register(call);
        self.session_state.look(Look::Resource(label(&name)), Ask::EvictTarget(call, name, peer), self.now);
    }

    /// Evicts all sessions of a host: detached grants by their fencing numbers, parties by the participation that was
    /// found. Later ones are not affected.
    pub(crate) fn on_expel(&mut self, call: u64, name: Name, peer: PeerId, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let grants = resource.detached.into_iter().filter(|grant| grant.host == peer);
        let grants = grants.map(|grant| Command::TakeBack {
            resource: label(&name),
            fencing: grant.fencing,
            session: grant.session,
        });
        let parties = resource.parties.into_iter().filter(|party| party.host == peer);
        let parties =
            parties.map(|party| Command::Expel { resource: label(&name), session: party.session, since: party.since });
        let mut commands: Vec<Command> = grants.chain(parties).collect();
        let Some(last) = commands.pop() else { return self.answer_caller(call, Ok(Answer::Expelled)) };
        // Commands are applied in order.
        for command in commands {
            self.session_state.ask(command, Ask::Inform, self.now);
        }
        self.session_state.ask(last, Ask::Expel(call), self.now);
    }

    pub(crate) fn set_voters(&mut self, call: u64, hosts: Option<Vec<PeerId>>) {
        match self.problem() {
            Some(error) => self.answer(call, Err(error)),
            None if hosts.as_ref().is_none_or(|hosts| (1..=MAX_VOTERS).contains(&hosts.len())) => {
                self.wait_for_register(call);
                self.session_state.look(Look::Hosts(Vec::new()), Ask::VotersFound(call, hosts), self.now);
            }
            None => {
                let message = format!("1 to {MAX_VOTERS} hosts can vote");
                self.answer(call, Err(Error::Refused { class: Class::BadRequest, message }));
            }
        }
    }

    pub(crate) fn revoke(&mut self, call: u64, name: Name, peer: PeerId, fencing: u64) {
        self.orders.revoke(call, name, peer, fencing, self.now);
        self.on_revoke_alarm(call);
    }

    pub(crate) fn on_revoke_alarm(&mut self, call: u64) {
        let Some(Revocation { name, peer, fencing, last_received }) = self.orders.revocation(call).cloned() else {
            return;
        };
        let silent = self.now.since(last_received);
        self.timers.set(Alarm::Revoke(call), self.now + REVOKE_AGAIN);
        if silent < REVOKE_PATIENCE {
            return self.ask(peer, call, Question::Revoke { resource: name.key(), fencing });
        }
        if silent >= REVOKE_PATIENCE * 2 || self.problem().is_some() {
            return self.give_up(call);
        }
        if !self.session_state.is_asking(&Ask::RevokeFrom(call)) {
            self.session_state.look(Look::Resource(label(&name)), Ask::RevokeFrom(call), self.now);
        }
    }

    /// Returns the milliseconds until the lease ends; 0 for an ended grant that the registry still has, since its slot
    /// is not free before; `None` if there is no such grant.
    pub(crate) fn ask_to_stop(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let left = self.stop_holder(resource, fencing);
        left.or_else(|| self.takeover.is_owed(resource, fencing).then_some(0))
    }

    fn stop_holder(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let ticket = self.clients.holder(resource, fencing)?;
        let entry = self.clients.get(ticket)?;
        let (name, sent, detached) = (entry.wanted.name.clone(), entry.is_notified(), entry.is_detached());
        let why = Error::Revoked { name: name.clone(), forced: false };
        let until = self.clients.revoke(ticket)?;
        if !sent {
            self.timers.set(Alarm::Ticket(ticket), until);
            self.on_lost(ticket, name, why.clone());
        }
        if detached {
            self.end(ticket, why);
            return None;
        }
        Some(until.max(self.now).since(self.now).as_nanos() / 1_000_000)
    }

    pub(crate) fn on_asked_to_stop(&mut self, from: PeerId, call: u64, is_inside: bool) {
        if self.orders.on_answered(call, from, self.now) && !is_inside {
            self.finish_revocation(call, Ok(Answer::Revoked));
        }
    }

    /// The holder's host does not answer. A detached grant can be ended by its fencing number if the session that
    /// granted it is no party; a party may have its token.
    pub(crate) fn on_revoke_found(&mut self, call: u64, page: Page) {
        let Some(revocation) = self.orders.revocation(call) else { return };
        let (resource, fencing) = (label(&revocation.name), revocation.fencing);
        let given = page.resources.first().and_then(|found| {
            let session = found.detached.iter().find(|grant| grant.fencing == fencing)?.session;
            let is_party = found.parties.iter().any(|party| party.session == session);
            (!is_party).then_some(session)
        });
        match given {
            Some(session) => {
                self.orders.end(call);
                self.timers.cancel(&Alarm::Revoke(call));
                self.wait_for_register(call);
                let command = Command::TakeBack { resource, fencing, session };
                self.session_state.ask(command, Ask::Revoke(call), self.now);
            }
            None => self.give_up(call),
        }
    }

    fn give_up(&mut self, call: u64) {
        let Some(revocation) = self.orders.revocation(call) else { return };
        let (name, host) = (&revocation.name, self.missing(revocation.peer, revocation.last_received));
        let error = self.problem().unwrap_or_else(|| {
            let hosts = if host.name.is_empty() { host.peer.to_string() } else { host.name.clone() };
            let message = format!(
                "{hosts} holds the slot of {name} and has not answered for {:?}, so its client could not be asked to \
                 stop. If it stays unreachable, the slot is free when its session has expired, or a detached grant \
                 when its lease has. Only `peerlock release --force` does not wait",
                host.since
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.finish_revocation(call, Err(error));
    }

    fn finish_revocation(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.orders.end(call);
        self.timers.cancel(&Alarm::Revoke(call));
        self.answer(call, answer);
    }

    pub(crate) fn remove(&mut self, call: u64, name: Name) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.orders.remove(call, name, self.now);
        self.on_remove_alarm(call);
    }

    pub(crate) fn on_remove_alarm(&mut self, call: u64) {
        let problem = self.problem();
        let Some(removal) = self.orders.removal(call) else { return };
        let (name, since) = (removal.name().clone(), removal.since());
        if self.now.since(since) >= REMOVE_PATIENCE || problem.is_some() {
            if removal.is_asking() {
                self.orders.end(call);
                self.timers.cancel(&Alarm::Remove(call));
                return self.give_up_register(call);
            }
            let hosts: Vec<PeerId> = removal.parties().iter().copied().collect();
            let error = problem.unwrap_or_else(|| self.recovering(name, since, &hosts));
            return self.finish_removal(call, Err(error));
        }
        self.timers.set(Alarm::Remove(call), self.now + REMOVE_AGAIN);
        if removal.ask() {
            self.session_state.look(Look::Resource(label(&name)), Ask::RemoveFound(call), self.now);
        }
    }

    pub(crate) fn on_remove_found(&mut self, call: u64, page: Page) {
        let Some(removal) = self.orders.removal(call) else { return };
        let (found, name) = (removal.on_result(page), removal.name().clone());
        match found {
            Found::Nothing => {}
            Found::Gone { was_there: true } => self.finish_removal(call, Ok(Answer::Removed)),
            Found::Gone { was_there: false } => self.finish_removal(call, Err(Error::NoSuchResource { name })),
            Found::Detached(host) => self.refuse_to_remove(call, host),
            Found::Unused(generation) => {
                let command = Command::Remove { resource: label(&name), generation };
                self.session_state.ask(command, Ask::Remove(call), self.now);
            }
            Found::Shared { hosts, give_up } => {
                for host in hosts {
                    self.ask(host, call, Question::Used { resource: name.key(), give_up });
                }
            }
        }
    }

    /// Returns whether a client here uses the resource. If not, and `give_up` is set, quits it as soon as possible.
    pub(crate) fn is_used(&mut self, resource: Key, give_up: bool) -> bool {
        let is_used = self.clients.has_any(resource);
        if give_up && !is_used {
            self.part_step(resource, protocol::Input::Forget);
        }
        is_used
    }

    pub(crate) fn on_used(&mut self, from: PeerId, call: u64, is_used: bool) {
        let Some(removal) = self.orders.removal(call).filter(|it| it.parties().contains(&from)) else { return };
        if is_used {
            return self.refuse_to_remove(call, from);
        }
        // After the last answer the next query is due.
        if removal.on_unused(from) {
            self.on_remove_alarm(call);
        }
    }

    pub(crate) fn on_remove_outcome(&mut self, call: u64, outcome: &Outcome) {
        let Some(removal) = self.orders.removal(call) else { return };
        removal.on_outcome();
        match outcome {
            // Our command was applied twice, or another one came first.
            Outcome::Done | Outcome::Refused(Refusal::NoResource) => self.finish_removal(call, Ok(Answer::Removed)),
            // A session has joined since; or, if the next query finds none, one was evicted.
            Outcome::Refused(Refusal::InUse) if !removal.on_refused() => self.on_remove_alarm(call),
            Outcome::Refused(Refusal::InUse) => {
                let error = Error::InUse { name: removal.name().clone(), host: String::new(), forced: true };
                self.finish_removal(call, Err(error));
            }
            Outcome::Refused(Refusal::OldGeneration) => self.on_remove_alarm(call),
            outcome => {
                let message = match outcome {
                    Outcome::Refused(why) => why.to_string(),
                    outcome => format!("the registry has returned an unexpected outcome: {outcome:?}"),
                };
                self.finish_removal(call, Err(Error::Refused { class: Class::Unavailable, message }));
            }
        }
    }

    fn refuse_to_remove(&mut self, call: u64, host: PeerId) {
        let Some(name) = self.orders.removal(call).map(|removal| removal.name().clone()) else { return };
        let host = self.name_of(host);
        self.finish_removal(call, Err(Error::InUse { name, host, forced: false }));
    }

    fn finish_removal(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.orders.end(call);
        self.timers.cancel(&Alarm::Remove(call));
        self.answer(call, answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        let mut orders = Orders::default();
        orders.revoke(1, "a".parse().unwrap(), PeerId::new(2), 7, Time::ZERO);
        orders.remove(2, "b".parse().unwrap(), Time::ZERO);
        orders.check(|call| call == 1, |call| call == 2);
        orders
    }

    #[test]
    #[should_panic(expected = "revocation 1 has no timer")]
    fn revocation_without_a_timer_panics() {
        orders().check(|_| false, |_| true);
    }

    #[test]
    #[should_panic(expected = "removal 2 has no timer")]
    fn removal_without_a_timer_panics() {
        orders().check(|_| true, |_| false);
    }

    #[test]
    fn ended_commands_need_no_timer() {
        let mut orders = orders();
        assert!(orders.on_answered(1, PeerId::new(2), Time::ZERO));
        assert!(!orders.on_answered(1, PeerId::new(3), Time::ZERO), "it was not asked");
        orders.end(1);
        orders.end(2);
        orders.check(|_| false, |_| false);
        assert!(orders.revocations.is_empty() && orders.removals.is_empty());
    }
}
