//! The session, and the outputs of the registry.

use peerlock_protocol::registry::{Detached, EventKind, RegistryEvent, Session};
use peerlock_protocol::{self as protocol, custody};
use peerlock_registry::{self as registry, Label, Outcome, Output, Refusal, SessionId};
use peerlock_types::{Key, PeerId, Span, Time};

use super::{Alarm, Answer, Effect, Node, Phase};
use crate::clients::TicketId;
use crate::mutation::{Mutation, makes};
use crate::session_state::{Ask, Turn};
use crate::wire::Body;
use crate::{Class, Error, Missing, Name, Notice};

/// The time without a session after which it is logged, and the interval of repetition.
const INCIDENT: Span = Span::from_secs(5);
const INCIDENT_AGAIN: Span = Span::from_secs(60);

impl Node {
    /// Checks the session, and handles the outputs of the registry.
    pub(super) fn attend(&mut self) {
        self.session_state.wake(self.now);
        loop {
            while let Some(turn) = self.session_state.turn(self.now) {
                self.on_turn(turn);
            }
            let take_outputs = self.session_state.take_outputs();
            if take_outputs.is_empty() && !self.stop_if_nothing_is_owed() {
                break;
            }
            take_outputs.into_iter().for_each(|effect| self.on_output(effect));
        }
        if self.phase == Phase::Leaving && self.session_state.has_stopped() {
            self.left(true);
        }
        if let Some(why) = self.session_state.halted().map(str::to_owned)
            && self.incidents.halt()
        {
            self.notice(Notice::Halted(why));
        }
        if let Some(why) = self.session_state.forgotten().map(str::to_owned)
            && self.incidents.forget()
        {
            self.notice(Notice::Forgotten(why));
        }
        let unexpected = self.session_state.unexpected().filter(|why| self.incidents.registry_drops(why));
        unexpected.collect::<Vec<_>>().into_iter().for_each(|why| self.unexpected(why));
    }

    /// Ends the session of a leaving node, once no request about a detached grant is pending: otherwise a grant that is
    /// persisted late would have no owner. Returns whether it did.
    fn stop_if_nothing_is_owed(&mut self) -> bool {
        let stops = self.phase == Phase::Leaving && !self.session_state.is_stopping() && !self.session_state.owes();
        if stops {
            self.session_state.stop(self.now);
        }
        stops
    }

    fn on_turn(&mut self, turn: Turn) {
        match turn {
            // Before it is valid: if this process is killed now, the next one has to replace this session, not the
            // previous one.
            Turn::Opened(session) => {
                let (cluster, ttl) = (self.session_state.cluster_of_session(), self.session_state.session_ttl());
                self.takeover.on_opened(cluster, session, ttl);
            }
            Turn::Stands(_) => self.on_session(),
            Turn::Over { since, why } => self.on_session_over(since, why),
            Turn::Extended(bound) => {
                self.extend(bound);
                self.check_voters();
                self.reach_isolated();
            }
        }
    }

    fn on_session(&mut self) {
        self.timers.cancel(&Alarm::Health);
        self.incidents.on_session();
        if self.phase == Phase::Joining {
            self.phase = Phase::Joined;
            self.timers.cancel(&Alarm::Join);
            self.effects.push(Effect::Joined);
            self.take_over();
            self.look_at_grants(None);
        }
        for (name, fencing) in self.detached.take_orphans() {
            self.drop_detached(name, fencing);
        }
        self.timers.set(Alarm::Sweep, self.now + self.config.idle / 4);
        self.check_voters();
        self.ask_for_pending();
        self.look_at_cluster();
    }

    /// The session has ended: all its grants are void, except detached ones. Waiting tickets are requested again in the
    /// next session.
    fn on_session_over(&mut self, since: Span, why: &str) {
        if !makes(Mutation::KeepsParts) {
            for resource in self.parts.end() {
                self.timers.cancel(&Alarm::Part(resource, custody::Timer::Update));
            }
        }
        // Messages to this session are void.
        self.parts.forget_given_up();
        self.detached.on_session_over();
        let error = Error::SessionLost { since: since.into(), why: why.to_owned() };
        let mut lost = 0;
        for ticket in self.clients.ids() {
            self.clients.take_alias(ticket);
            self.clients.wait_again(ticket);
            let Some(entry) = self.clients.get(ticket) else { continue };
            let name = entry.wanted.name.clone();
            if !entry.is_held() || entry.is_detached() {
                continue;
            }
            lost += 1;
            if self.clients.lose(ticket).is_some() {
                self.on_lost(ticket, name, error.clone());
            }
            self.end(ticket, error.clone());
        }
        self.survey.forget();
        if !matches!(self.phase, Phase::Leaving | Phase::Left) {
            self.counters.sessions_lost += 1;
            self.notice(Notice::SessionLost { since: since.into(), why: why.to_owned(), clients: lost });
            self.timers.set(Alarm::Health, self.now + INCIDENT);
            self.seek();
        }
    }

    /// Returns why there is no session, if there is none.
    pub fn problem(&self) -> Option<Error> {
        if self.session_state.session().is_some() {
            return None;
        }
        if self.contacts.open().next().is_none()
            && let Some(other) = self.incidents.other()
        {
            return Some(other.clone());
        }
        Some(self.no_majority(self.session_state.since()))
    }

    /// Returns the error for a registry that has not answered since then, with the unreachable voters.
    pub(super) fn no_majority(&self, since: Time) -> Error {
        Error::NoMajority { missing: self.absent_voters(since), since: self.now.since(since).into() }
    }

    /// Returns the known voters that are not connected.
    pub(super) fn absent_voters(&self, since: Time) -> Vec<Missing> {
        let mut voters: Vec<PeerId> = self
            .cached_view
            .voters()
            .chain(self.session_state.voters(self.now))
            .filter(|host| *host != self.host())
            .collect();
        voters.sort_unstable();
        voters.dedup();
        voters.retain(|host| !self.contacts.is_linked(*host));
        voters.into_iter().map(|host| self.missing(host, since)).collect()
    }

    pub(super) fn watch_health(&mut self) {
        self.timers.set(Alarm::Health, self.now + INCIDENT);
    }

    pub(super) fn on_health_alarm(&mut self) {
        let Some(Error::NoMajority { missing, since }) = self.problem() else { return };
        self.timers.set(Alarm::Health, self.now + INCIDENT_AGAIN);
        let hosts = missing.iter().map(|missing| missing.peer).collect();
        if self.incidents.miss(hosts) || since < (INCIDENT * 2).into() {
            self.notice(Notice::NoMajority { missing, since });
        }
    }

    pub(super) fn on_registry_message(&mut self, from: PeerId, registry_message: &[u8]) {
        if let Err(why) = self.session_state.on_registry_message(from, registry_message, self.now) {
            self.counters.malformed += 1;
            let why = why.to_string();
            if self.incidents.misread(&why) {
                self.notice(Notice::Incident(why));
            }
        }
    }

    pub(super) fn on_written(&mut self, number: u64) {
        if let Some(cluster) = self.session_state.on_written(number, self.now) {
            self.effects.push(Effect::Belongs(cluster));
        }
    }

    fn on_output(&mut self, effect: Output) {
        match effect {
            Output::Send(to, registry_message) => self.mention(to, &Body::Registry(registry_message)),
            Output::Write { number, write } => self.effects.push(Effect::Write { number, write }),
            Output::Answered(number, outcome) => {
                if let Some(ask) = self.session_state.answered(number) {
                    self.on_outcome(ask, outcome);
                }
            }
            Output::Found(number, found) => {
                if let Some(ask) = self.session_state.answered(number) {
                    self.on_result(ask, found);
                }
            }
            Output::Event { resource, session, generation, kind } => self.on_event(resource, session, generation, kind),
            Output::Refused(why) => {
                if self.incidents.refuse(why) {
                    self.notice(Notice::Refused(why));
                }
            }
        }
    }

    /// Converts a session to the protocol's type.
    pub(super) fn session_of(&self, (number, peer): (SessionId, PeerId)) -> Session {
        Session { peer, number: number.get() }
    }

    fn on_event(&mut self, resource: Label, session: SessionId, generation: u64, kind: registry::EventKind) {
        if self.session_state.session() != Some(session) {
            return;
        }
        let kind = match kind {
            registry::EventKind::Opened { slots, asked, detached } => EventKind::Opened {
                slots,
                asked: asked.into_iter().map(|party| self.session_of(party)).collect(),
                detached: detached.into_iter().map(|(slot, fencing)| Detached { slot, fencing }).collect(),
            },
            registry::EventKind::Expired { slot, fencing } => EventKind::Expired(Detached { slot, fencing }),
            registry::EventKind::Expelled => EventKind::Expelled,
        };
        let Ok(name) = resource.as_str().parse::<Name>() else {
            return self.unexpected("an event of a resource with an invalid name");
        };
        self.open_part(&name);
        let event = RegistryEvent { to: self.session_of((session, self.host())), generation, kind };
        self.part_step(name.key(), protocol::Input::RegistryEvent(event));
    }

    fn on_outcome(&mut self, ask: Ask, outcome: Outcome) {
        match (ask, outcome) {
            (Ask::Join(resource, session), outcome) if self.session_state.session() == Some(session) => {
                self.on_joined(resource, session, outcome);
            }
            (Ask::Quit(resource, session, generation), outcome) if self.session_state.session() == Some(session) => {
                self.on_quit(resource, session, generation, &outcome);
            }
            // The release was confirmed to the client, so the next session drops it again, if this is not it already.
            (Ask::DropDetached(session, name, fencing), Outcome::Refused(Refusal::NoSession)) => {
                match self.session_state.session() == Some(session) {
                    true => self.detached.orphan(name, fencing),
                    false => self.drop_detached(name, fencing),
                }
            }
            (Ask::DropDetached(_, name, fencing), _) => self.on_attached(&name, fencing),
            (Ask::Join(..) | Ask::Quit(..) | Ask::Inform, _) => {}
            (Ask::Detach { ticket, of, fencing, at, call }, outcome) => {
                self.on_detached(ticket, of, fencing, at, call, outcome);
            }
            (Ask::Resize(call, _), Outcome::Done | Outcome::Advanced(_)) => {
                self.answer_caller(call, Ok(Answer::Resized))
            }
            (Ask::Resize(call, name), Outcome::Refused(Refusal::NoResource)) => {
                self.answer_caller(call, Err(Error::NoSuchResource { name }));
            }
            (Ask::Remove(call), outcome) => self.on_remove_outcome(call, &outcome),
            // The participation that was found is over: evicted twice, or ended by itself. A later participation, or a
            // resource created later, is not meant.
            (
                Ask::Expel(call),
                Outcome::Done
                | Outcome::Advanced(_)
                | Outcome::Refused(Refusal::NoParty | Refusal::OldGeneration | Refusal::NoResource),
            ) => self.answer_caller(call, Ok(Answer::Expelled)),
            (Ask::Revoke(call), Outcome::Done | Outcome::Refused(Refusal::NoResource)) => {
                self.answer_caller(call, Ok(Answer::Revoked));
            }
            (Ask::Revoke(call), Outcome::Refused(Refusal::Superseded)) => {
                let message = "the client of this slot has renewed it through another agent of its host meanwhile: try \
                               again to ask that agent";
                self.answer_caller(
                    call,
                    Err(Error::Refused { class: Class::Unavailable, message: message.to_owned() }),
                );
            }
            (Ask::SetVoters(call), Outcome::Done) => self.answer_caller(call, Ok(Answer::Seated)),
            (Ask::Forget(call), Outcome::Done) => self.answer_caller(call, Ok(Answer::Forgotten)),
            (
                Ask::Resize(call, _) | Ask::Expel(call) | Ask::Revoke(call) | Ask::SetVoters(call) | Ask::Forget(call),
                outcome,
            ) => {
                let (class, message) = match outcome {
                    Outcome::Refused(why @ Refusal::NoKeeper) => (Class::BadRequest, why.to_string()),
                    Outcome::Refused(why @ Refusal::Present) => (Class::NotAcquired, why.to_string()),
                    Outcome::Refused(Refusal::Superseded) => {
                        let message = "another command has changed it meanwhile: check it, and try again";
                        (Class::Unavailable, message.to_owned())
                    }
                    Outcome::Refused(why) => (Class::Unavailable, why.to_string()),
                    outcome => (
                        Class::Unavailable,
                        format!(
                            "the registry has returned an unexpected outcome: \
                                                             {outcome:?}"
                        ),
                    ),
                };
                self.answer_caller(call, Err(Error::Refused { class, message }));
            }
            (
                Ask::EvictTarget(..)
                | Ask::ResizeFound(..)
                | Ask::VotersFound(..)
                | Ask::ForgetFound(..)
                | Ask::RemoveFound(_)
                | Ask::RevokeFrom(_)
                | Ask::Cluster
                | Ask::Everybody
                | Ask::Names(_)
                | Ask::Returned
                | Ask::List(_)
                | Ask::Show(_),
                _,
            ) => {
                self.unexpected("an outcome of a query");
            }
        }
    }

    pub(super) fn on_joined(&mut self, resource: Key, session: SessionId, outcome: Outcome) {
        match outcome {
            Outcome::Joined { generation, coordinator, opened, slots } => {
                self.refuse_mismatches(resource, slots);
                // If the join has opened the generation, its event follows, and must come first.
                if !opened {
                    let (to, coordinator) = (self.session_of((session, self.host())), coordinator.1);
                    let event = RegistryEvent { to, generation, kind: EventKind::Joined { coordinator, slots } };
                    self.part_step(resource, protocol::Input::RegistryEvent(event));
                }
            }
            Outcome::Refused(Refusal::Full) => {
                self.parts.on_no_such_name(resource, self.now);
                let waiting: Vec<TicketId> = self.clients.waiting(resource).map(|(ticket, _)| ticket).collect();
                for ticket in waiting {
                    self.clients.take_alias(ticket);
                    let message = Refusal::Full.to_string();
                    self.end(ticket, Error::Refused { class: Class::Busy, message });
                }
            }
            // The session is over, which is reported separately.
            _ => {}
        }
    }
}

/// Converts a name to a registry label.
pub(super) fn label(name: &Name) -> Label {
    Label::new(name.as_str()).expect("a valid name is a valid label")
}
