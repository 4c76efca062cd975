//! Session: opened, used, renewed and lost; and the outputs of the registry, which drive this.
//!
//! 1. The registry opens a session: recorded for the takeover file, before it is used.
//! 2. It is valid: `Effect::Joined` at first. The predecessor's grants are taken over, waiting tickets are requested.
//! 3. A renewal is confirmed: the deadlines of grants move ([`renew`](crate::renew)), connections to the voters are
//!    checked.
//! 4. It is over: every part and grant of it is discarded, `Effect::Lost` and `Effect::Ended` for each holder, and
//!    another session is opened.

use std::mem::take;

use peerlock_protocol::registry::{EventKind, RegistryEvent, Session};
use peerlock_protocol::{self as protocol, custody};
use peerlock_registry::{Command, Found, Identity, Label, Outcome, Output, Refusal, SessionId};
use peerlock_types::{PeerId, Span};

use crate::health::INCIDENT;
use crate::node::{Alarm, Node, Phase};
use crate::session_state::{Ask, SessionChange};
use crate::testing::mutation::{Mutation, makes};
use crate::wire::Body;
use crate::{Effect, Error, Name, Notice};

impl Node {
    pub(crate) fn attend(&mut self) {
        self.session_state.wake(self.now);
        loop {
            while let Some(change) = self.session_state.next_change(self.now) {
                self.on_session_change(change);
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

    fn on_session_change(&mut self, change: SessionChange) {
        match change {
            // If this process is killed now, the next one has to replace this session.
            SessionChange::Opened(session) => {
                // The cluster ID may not be recorded yet on the host that creates the cluster.
                let Identity { cluster, ttl, .. } = self.session_state.identity;
                self.takeover.on_opened(cluster, session, ttl);
            }
            SessionChange::Valid(_) => self.on_session(),
            SessionChange::Ended { since, why } => self.on_session_over(since, why),
            SessionChange::Renewed(bound) => {
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
        for (name, fencing) in take(&mut self.detached.orphans) {
            self.drop_detached(name, fencing);
        }
        self.timers.set(Alarm::Sweep, self.now + self.config.idle / 4);
        self.check_voters();
        self.ask_for_pending();
        self.look_at_cluster();
    }

    /// Waiting tickets are requested again in the next session.
    fn on_session_over(&mut self, since: Span, why: &str) {
        if !makes(Mutation::KeepsParts) {
            for resource in take(&mut self.parts.parts).into_keys() {
                self.timers.cancel(&Alarm::Part(resource, custody::Timer::Update));
            }
        }
        self.parts.given_up.clear(); // Messages to this session are void.
        self.detached.ending.clear();
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
        self.survey.watched.clear();
        if !self.is_leaving() {
            self.counters.sessions_lost += 1;
            self.notice(Notice::SessionLost { since: since.into(), why: why.to_owned(), clients: lost });
            self.timers.set(Alarm::Health, self.now + INCIDENT);
            self.seek();
        }
    }

    pub(crate) fn on_registry_message(&mut self, from: PeerId, registry_message: &[u8]) {
        if let Err(why) = self.session_state.on_registry_message(from, registry_message, self.now) {
            self.counters.malformed += 1;
            let why = why.to_string();
            if self.incidents.misread(&why) {
                self.notice(Notice::Incident(why));
            }
        }
    }

    pub(crate) fn on_written(&mut self, number: u64) {
        if let Some(cluster) = self.session_state.on_written(number, self.now) {
            self.effects.push(Effect::Belongs(cluster));
        }
    }

    fn on_output(&mut self, effect: Output) {
        match effect {
            Output::Send(to, registry_message) => self.send_unreliable(to, &Body::Registry(registry_message)),
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

    /// Returns a session of this host.
    pub(crate) fn own(&self, session: SessionId) -> Session {
        Session { peer: self.host(), number: session.get() }
    }

    fn on_event(&mut self, resource: Label, session: SessionId, generation: u64, kind: EventKind) {
        if self.session_state.session() != Some(session) {
            return;
        }
        let Ok(name) = resource.as_str().parse::<Name>() else {
            return self.unexpected("an event of a resource with an invalid name");
        };
        self.open_part(&name);
        let event = RegistryEvent { to: self.own(session), generation, kind };
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
            // The release was confirmed to the client, so the next session drops it again.
            (Ask::DropDetached(session, name, fencing), Outcome::Refused(Refusal::NoSession)) => {
                match self.session_state.session() == Some(session) {
                    true => self.detached.orphans.push((name, fencing)),
                    false => self.drop_detached(name, fencing),
                }
            }
            (Ask::DropDetached(_, name, fencing), _) => self.on_attached(&name, fencing),
            (Ask::Join(..) | Ask::Quit(..) | Ask::Inform, _) => {}
            (Ask::Detach { ticket, of, fencing, at, call }, outcome) => {
                self.on_detached(ticket, of, fencing, at, call, outcome);
            }
            (Ask::Conclude { ticket, of, fencing, session, until, call }, outcome) => {
                self.on_concluded((ticket, of, fencing), (session, until), call, outcome);
            }
            (Ask::Remove(call), outcome) => self.on_remove_outcome(call, &outcome),
            (ask, outcome) => self.on_admin_outcome(ask, outcome),
        }
    }

    pub(crate) fn on_result(&mut self, ask: Ask, found: Found) {
        match (ask, found) {
            (Ask::Cluster, Found::Cluster(view)) => self.on_view(view),
            (Ask::AllMembers, Found::Cluster(page)) => self.on_members(page),
            (Ask::Names(number), Found::Cluster(view)) => self.on_query_names(number, view),
            (Ask::Returned, Found::Resources(page)) => self.on_grants(page),
            (Ask::List(call), Found::Resources(page)) => {
                self.on_listed(call, &page);
            }
            (Ask::Show(number), Found::Resources(page)) => self.on_query_page(number, page),
            (Ask::ResizeFound(call, name, slots), Found::Resources(page)) => {
                self.on_resize_found(call, name, slots, page);
            }
            (Ask::VotersFound(call, hosts), Found::Cluster(view)) => {
                self.session_state.ask(
                    Command::SetVoters { hosts, after: view.choices },
                    Ask::SetVoters(call),
                    self.now,
                );
            }
            (Ask::ForgetFound(call, host), Found::Cluster(view)) => {
                let forget = Command::Forget { host, after: view.choices };
                self.session_state.ask(forget, Ask::Forget(call), self.now);
            }
            (Ask::RemoveFound(call), Found::Resources(page)) => self.on_remove_found(call, page),
            (Ask::RevokeFrom(call), Found::Resources(page)) => self.on_revoke_found(call, page),
            (Ask::EvictTarget(call, name, peer), Found::Resources(page)) => self.on_evict_found(call, name, peer, page),
            _ => self.unexpected("a result of another kind than its query"),
        }
    }
}

pub(crate) fn label(name: &Name) -> Label {
    Label::new(name.as_str()).expect("a valid name is a valid label")
}
