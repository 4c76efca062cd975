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

/// Longer than an election.
const CALL_TIMEOUT: Span = Span::from_secs(5);
const MAX_VOTERS: usize = 7;
/// A holder's host is asked again; without an answer for `PATIENCE`, the registry is queried, and after twice this long
/// the revocation fails.
const REVOKE_AGAIN: Span = Span::from_millis(200);
/// The registry is queried again, for `PATIENCE`: longer than an election, but shorter than the session of an
/// unreachable host.
const REMOVE_AGAIN: Span = Span::from_millis(100);
const PATIENCE: Span = Span::from_secs(5);

/// A pending revocation.
#[derive(Clone)]
pub struct Revocation {
    name: Name,
    peer: PeerId,
    fencing: u64,
    /// When the holder's host last answered, or the start.
    last_received: Time,
}

/// A pending deletion.
pub struct Removal {
    name: Name,
    since: Time,
    is_asking: bool,
    /// The log index at which the resource was found.
    found: Option<u64>,
    /// The hosts of the parties, from the last answer of the registry …
    parties: BTreeSet<PeerId>,
    /// … and those that have reported no use.
    unused: BTreeSet<PeerId>,
    /// The registry has refused although there were no parties.
    is_refused: bool,
}

/// Pending commands of more than one step, by call.
#[derive(Default)]
pub struct Orders {
    pub(crate) revocations: BTreeMap<u64, Revocation>,
    pub(crate) removals: BTreeMap<u64, Removal>,
}

impl Orders {
    pub fn check(&self, has_timer: impl Fn(Alarm) -> bool) {
        for call in self.revocations.keys() {
            assert!(has_timer(Alarm::Revoke(*call)), "revocation {call} has no timer");
        }
        for call in self.removals.keys() {
            assert!(has_timer(Alarm::Remove(*call)), "removal {call} has no timer");
        }
    }
}

impl Node {
    /// Queries the registry for a call. Without a quorum, the session may remain valid for its whole length, so the
    /// call has a timeout of its own.
    pub(crate) fn query_for(&mut self, call: u64, look: Look, ask: Ask) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.await_registry(call);
        self.session_state.look(look, ask, self.now);
    }

    pub(crate) fn await_registry(&mut self, call: u64) {
        self.timers.set(Alarm::Caller(call), self.now + CALL_TIMEOUT);
    }

    pub(crate) fn answer_caller(&mut self, call: u64, answer: Result<Answer, Error>) {
        if self.timers.is_set(&Alarm::Caller(call)) {
            self.timers.cancel(&Alarm::Caller(call));
            self.answer(call, answer);
        }
    }

    pub(crate) fn on_caller_timeout(&mut self, call: u64) {
        let error = self.problem().unwrap_or_else(|| {
            let absent = self.absent_voters(self.now).iter().map(|it| it.name.clone()).collect::<Vec<_>>();
            let why =
                if absent.is_empty() { String::new() } else { format!(" (no connection to {})", absent.join(", ")) };
            let message = format!(
                "no quorum within {CALL_TIMEOUT}{why}: try again. A change may still be applied when the voters are \
                 reachable again"
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.answer(call, Err(error));
    }

    pub(crate) fn resize(&mut self, call: u64, name: Name, slots: u32) {
        match check_slots(slots) {
            Ok(_) => self.query_for(call, Look::Resource(label(&name)), Ask::ResizeFound(call, name, slots)),
            Err(error) => self.answer(call, Err(error)),
        }
    }

    /// Names the generation that was found: a later one may have another number of slots.
    pub(crate) fn on_resize_found(&mut self, call: u64, name: Name, slots: u32, page: Page) {
        let Some(resource) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let command = Command::Resize { resource: resource.name, slots, generation: resource.generation };
        self.session_state.ask(command, Ask::Resize(call, name), self.now);
    }

    pub(crate) fn evict(&mut self, call: u64, name: Name, peer: PeerId) {
        self.query_for(call, Look::Resource(label(&name)), Ask::EvictTarget(call, name, peer));
    }

    /// Ends detached grants by their fencing numbers, and parties by the participation that was found. Later ones are
    /// not affected.
    pub(crate) fn on_evict_found(&mut self, call: u64, name: Name, peer: PeerId, page: Page) {
        let Some(found) = page.resources.into_iter().next() else {
            return self.answer_caller(call, Err(Error::NoSuchResource { name }));
        };
        let resource = || label(&name);
        let grants = found.detached.iter().filter(|grant| grant.host == peer);
        let take_back = grants.map(|it| (it.fencing, it.session));
        let take_back =
            take_back.map(|(fencing, session)| Command::TakeBack { resource: resource(), fencing, session });
        let parties = found.parties.iter().filter(|party| party.host == peer);
        let evict = parties.map(|it| Command::Evict { resource: resource(), session: it.session, since: it.since });
        let mut commands: Vec<Command> = take_back.chain(evict).collect();
        let Some(last) = commands.pop() else { return self.answer_caller(call, Ok(Answer::Done)) };
        // Commands are applied in order.
        for command in commands {
            self.session_state.ask(command, Ask::Inform, self.now);
        }
        self.session_state.ask(last, Ask::Evict(call), self.now);
    }

    pub(crate) fn set_voters(&mut self, call: u64, hosts: Option<Vec<PeerId>>) {
        let is_valid = hosts.as_ref().is_none_or(|hosts| (1..=MAX_VOTERS).contains(&hosts.len()));
        if !is_valid && self.problem().is_none() {
            let message = format!("1 to {MAX_VOTERS} hosts can vote");
            return self.answer(call, Err(Error::Refused { class: Class::BadRequest, message }));
        }
        self.query_for(call, Look::Hosts(Vec::new()), Ask::VotersFound(call, hosts));
    }

    pub(crate) fn forget_member(&mut self, call: u64, host: PeerId) {
        self.query_for(call, Look::Hosts(Vec::new()), Ask::ForgetFound(call, host));
    }

    pub(crate) fn on_admin_outcome(&mut self, ask: Ask, outcome: Outcome) {
        let refused = |class, message| Err(Error::Refused { class, message });
        let (call, answer) = match (ask, outcome) {
            (Ask::Resize(call, _), Outcome::Done | Outcome::Advanced(_)) => (call, Ok(Answer::Done)),
            (Ask::Resize(call, name), Outcome::Refused(Refusal::NoResource)) => {
                (call, Err(Error::NoSuchResource { name }))
            }
            // The participation that was found is over: evicted twice, or ended by itself.
            (
                Ask::Evict(call),
                Outcome::Done
                | Outcome::Advanced(_)
                | Outcome::Refused(Refusal::NoParty | Refusal::OldGeneration | Refusal::NoResource),
            ) => (call, Ok(Answer::Done)),
            (Ask::Revoke(call), Outcome::Done | Outcome::Refused(Refusal::NoResource)) => (call, Ok(Answer::Done)),
            (Ask::Revoke(call), Outcome::Refused(Refusal::Superseded)) => {
                let message = "the client of this slot has renewed it through another agent of its host meanwhile: try \
                               again to ask that agent";
                (call, refused(Class::Unavailable, message.to_owned()))
            }
            (Ask::SetVoters(call) | Ask::Forget(call), Outcome::Done) => (call, Ok(Answer::Done)),
            (
                Ask::Resize(call, _) | Ask::Evict(call) | Ask::Revoke(call) | Ask::SetVoters(call) | Ask::Forget(call),
                outcome,
            ) => {
                let answer = match outcome {
                    Outcome::Refused(why @ Refusal::NoKeeper) => refused(Class::BadRequest, why.to_string()),
                    Outcome::Refused(why @ Refusal::Present) => refused(Class::NotAcquired, why.to_string()),
                    Outcome::Refused(Refusal::Superseded) => {
                        let message = "another command has changed it meanwhile: check it, and try again";
                        refused(Class::Unavailable, message.to_owned())
                    }
                    outcome => refused(Class::Unavailable, why_not_done(&outcome)),
                };
                (call, answer)
            }
            _ => return self.unexpected("an outcome of a query"),
        };
        self.answer_caller(call, answer);
    }

    pub(crate) fn revoke(&mut self, call: u64, name: Name, peer: Option<PeerId>, fencing: u64) {
        let Some(peer) = peer else { return self.answer(call, Err(Error::Lost)) };
        let revocation = Revocation { name, peer, fencing, last_received: self.now };
        self.orders.revocations.insert(call, revocation);
        self.on_revoke_alarm(call);
    }

    pub(crate) fn on_revoke_alarm(&mut self, call: u64) {
        let Some(revocation) = self.orders.revocations.get(&call).cloned() else { return };
        let Revocation { name, peer, fencing, last_received } = revocation;
        let silent = self.now.since(last_received);
        self.timers.set(Alarm::Revoke(call), self.now + REVOKE_AGAIN);
        if silent < PATIENCE {
            return self.ask(peer, call, Question::Revoke { resource: name.key(), fencing });
        }
        if silent >= PATIENCE * 2 || self.problem().is_some() {
            return self.give_up_revocation(call);
        }
        if !self.session_state.is_asking(&Ask::RevokeFrom(call)) {
            self.session_state.look(Look::Resource(label(&name)), Ask::RevokeFrom(call), self.now);
        }
    }

    /// Returns the milliseconds until the lease ends; 0 for an ended grant that the registry still has, since its slot
    /// is not free before.
    pub(crate) fn ask_to_stop(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let left = self.stop_holder(resource, fencing);
        left.or_else(|| self.takeover.is_owed(resource, fencing).then_some(0))
    }

    fn stop_holder(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let ticket = self.clients.holder(resource, fencing)?;
        let entry = self.clients.get(ticket)?;
        let (name, notified, detached) = (entry.wanted.name.clone(), entry.is_notified(), entry.is_detached());
        let why = Error::Revoked { name: name.clone(), forced: false };
        let until = self.clients.revoke(ticket)?;
        if !notified {
            self.timers.set(Alarm::Ticket(ticket), until);
            self.on_lost(ticket, name, why.clone());
        }
        if detached {
            self.end(ticket, why);
            return None;
        }
        Some(until.max(self.now).since(self.now).as_nanos() / 1_000_000)
    }

    pub(crate) fn on_asked_to_stop(&mut self, from: PeerId, call: u64, is_held: bool) {
        let revocation = self.orders.revocations.get_mut(&call).filter(|it| it.peer == from);
        let Some(revocation) = revocation else { return };
        revocation.last_received = self.now;
        if !is_held {
            self.finish_order(call, Ok(Answer::Done));
        }
    }

    /// Ends a detached grant by its fencing number if the session that granted it is no party; a party may have its
    /// token.
    pub(crate) fn on_revoke_found(&mut self, call: u64, page: Page) {
        let Some(revocation) = self.orders.revocations.get(&call) else { return };
        let (resource, fencing) = (label(&revocation.name), revocation.fencing);
        let given = page.resources.first().and_then(|found| {
            let session = found.detached.iter().find(|grant| grant.fencing == fencing)?.session;
            let is_party = found.parties.iter().any(|party| party.session == session);
            (!is_party).then_some(session)
        });
        let Some(session) = given else { return self.give_up_revocation(call) };
        self.end_order(call);
        self.await_registry(call);
        self.session_state.ask(Command::TakeBack { resource, fencing, session }, Ask::Revoke(call), self.now);
    }

    fn give_up_revocation(&mut self, call: u64) {
        let Some(revocation) = self.orders.revocations.get(&call) else { return };
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
        self.finish_order(call, Err(error));
    }

    pub(crate) fn remove(&mut self, call: u64, name: Name) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        let (parties, unused) = (BTreeSet::new(), BTreeSet::new());
        let (is_asking, found, is_refused) = (false, None, false);
        let removal = Removal { name, since: self.now, is_asking, found, parties, unused, is_refused };
        self.orders.removals.insert(call, removal);
        self.on_remove_alarm(call);
    }

    pub(crate) fn on_remove_alarm(&mut self, call: u64) {
        let problem = self.problem();
        let Some(removal) = self.orders.removals.get_mut(&call) else { return };
        let (name, since) = (removal.name.clone(), removal.since);
        if self.now.since(since) >= PATIENCE || problem.is_some() {
            if removal.is_asking {
                self.end_order(call);
                return self.on_caller_timeout(call);
            }
            let hosts: Vec<PeerId> = removal.parties.iter().copied().collect();
            let error = problem.unwrap_or_else(|| self.recovering(name, since, &hosts));
            return self.finish_order(call, Err(error));
        }
        self.timers.set(Alarm::Remove(call), self.now + REMOVE_AGAIN);
        if !replace(&mut removal.is_asking, true) {
            self.session_state.look(Look::Resource(label(&name)), Ask::RemoveFound(call), self.now);
        }
    }

    pub(crate) fn on_remove_found(&mut self, call: u64, page: Page) {
        let Some(removal) = self.orders.removals.get_mut(&call) else { return };
        removal.is_asking = false;
        if removal.found.is_some_and(|index| page.index < index) {
            return; // From a voter that is behind an earlier one: the next query follows.
        }
        let name = removal.name.clone();
        let Some(found) = page.resources.into_iter().next() else {
            let was_there = removal.found.is_some();
            let answer = if was_there { Ok(Answer::Done) } else { Err(Error::NoSuchResource { name }) };
            return self.finish_order(call, answer);
        };
        removal.found = Some(page.index);
        if let Some(grant) = found.detached.iter().find(|grant| grant.holds()) {
            return self.refuse_to_remove(call, grant.host);
        }
        removal.parties = found.parties.iter().map(|party| party.host).collect();
        if removal.parties.is_empty() {
            removal.is_asking = true;
            let command = Command::Remove { resource: label(&name), generation: found.generation };
            return self.session_state.ask(command, Ask::Remove(call), self.now);
        }
        removal.is_refused = false;
        let give_up = removal.parties.is_subset(&removal.unused);
        for host in removal.parties.clone() {
            self.ask(host, call, Question::Used { resource: name.key(), give_up });
        }
    }

    pub(crate) fn is_used(&mut self, resource: Key, give_up: bool) -> bool {
        let is_used = self.clients.has_any(resource);
        if give_up && !is_used {
            self.part_step(resource, protocol::Input::Forget);
        }
        is_used
    }

    pub(crate) fn on_used(&mut self, from: PeerId, call: u64, is_used: bool) {
        let removal = self.orders.removals.get_mut(&call).filter(|it| it.parties.contains(&from));
        let Some(removal) = removal else { return };
        if is_used {
            return self.refuse_to_remove(call, from);
        }
        if removal.unused.insert(from) && removal.parties.is_subset(&removal.unused) {
            self.on_remove_alarm(call);
        }
    }

    pub(crate) fn on_remove_outcome(&mut self, call: u64, outcome: &Outcome) {
        let Some(removal) = self.orders.removals.get_mut(&call) else { return };
        removal.is_asking = false;
        match outcome {
            // Our command was applied twice, or another one came first.
            Outcome::Done | Outcome::Refused(Refusal::NoResource) => self.finish_order(call, Ok(Answer::Done)),
            // A session has joined since; or, if the next query finds none, one was evicted.
            Outcome::Refused(Refusal::InUse) if !replace(&mut removal.is_refused, true) => self.on_remove_alarm(call),
            Outcome::Refused(Refusal::InUse) => {
                let error = Error::InUse { name: removal.name.clone(), host: String::new(), forced: true };
                self.finish_order(call, Err(error));
            }
            Outcome::Refused(Refusal::OldGeneration) => self.on_remove_alarm(call),
            outcome => {
                let message = why_not_done(outcome);
                self.finish_order(call, Err(Error::Refused { class: Class::Unavailable, message }));
            }
        }
    }

    fn refuse_to_remove(&mut self, call: u64, host: PeerId) {
        let Some(name) = self.orders.removals.get(&call).map(|removal| removal.name.clone()) else { return };
        let host = self.name_of(host);
        self.finish_order(call, Err(Error::InUse { name, host, forced: false }));
    }

    fn finish_order(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.end_order(call);
        self.answer(call, answer);
    }

    fn end_order(&mut self, call: u64) {
        self.orders.revocations.remove(&call);
        self.orders.removals.remove(&call);
        self.timers.cancel(&Alarm::Revoke(call));
        self.timers.cancel(&Alarm::Remove(call));
    }
}

fn why_not_done(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Refused(why) => why.to_string(),
        outcome => format!("the registry has returned an unexpected outcome: {outcome:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders() -> Orders {
        let mut orders = Orders::default();
        let name: Name = "a".parse().unwrap();
        let revocation = Revocation { name: name.clone(), peer: PeerId::new(2), fencing: 7, last_received: Time::ZERO };
        orders.revocations.insert(1, revocation);
        let (parties, unused) = <_>::default();
        let (is_asking, found, is_refused) = (false, None, false);
        let removal = Removal { name, since: Time::ZERO, is_asking, found, parties, unused, is_refused };
        orders.removals.insert(2, removal);
        orders.check(|alarm| [Alarm::Revoke(1), Alarm::Remove(2)].contains(&alarm));
        orders
    }

    #[test]
    #[should_panic(expected = "revocation 1 has no timer")]
    fn revocation_without_a_timer_panics() {
        orders().check(|alarm| alarm == Alarm::Remove(2));
    }

    #[test]
    #[should_panic(expected = "removal 2 has no timer")]
    fn removal_without_a_timer_panics() {
        orders().check(|alarm| alarm == Alarm::Revoke(1));
    }
}
