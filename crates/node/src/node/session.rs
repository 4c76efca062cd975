//! The session, and what the register says.

use peerlock_base::{Key, PeerId, Span, Time};
use peerlock_mutex::register::{Detached, Fact, Session, Word};
use peerlock_mutex::{self as mutex, custody};
use peerlock_register::{self as register, Doing, Label, Outcome, Refusal, SessionId};

use super::{Alarm, Answer, Effect, Node, Phase};
use crate::clients::TicketId;
use crate::sabotage::{Sabotage, makes};
use crate::standing::{Ask, Turn};
use crate::wire::Body;
use crate::{Class, Error, Missing, Name, Notice};

/// After this long without a session a log is told, and again after this long.
const TROUBLE: Span = Span::from_secs(5);
const TROUBLE_AGAIN: Span = Span::from_secs(60);

impl Node {
    /// Looks at the session, and does what the register says.
    pub(super) fn attend(&mut self) {
        self.standing.wake(self.now);
        loop {
            while let Some(turn) = self.standing.turn(self.now) {
                self.on_turn(turn);
            }
            let doings = self.standing.doings();
            if doings.is_empty() && !self.stop_if_nothing_is_owed() {
                break;
            }
            doings.into_iter().for_each(|doing| self.on_doing(doing));
        }
        if self.phase == Phase::Leaving && self.standing.has_stopped() {
            self.left(true);
        }
        if let Some(why) = self.standing.halted().map(str::to_owned)
            && self.troubles.halt()
        {
            self.notice(Notice::Halted(why));
        }
    }

    /// Who leaves ends its session when the register has answered what becomes of grants that outlive it: nobody would
    /// take back one that is given to nobody. Whether it has.
    fn stop_if_nothing_is_owed(&mut self) -> bool {
        let stops = self.phase == Phase::Leaving && !self.standing.is_stopping() && !self.standing.owes();
        if stops {
            self.standing.stop(self.now);
        }
        stops
    }

    fn on_turn(&mut self, turn: Turn) {
        match turn {
            // Before it stands: killed in between, the next process has to end this one, and not the one before it.
            Turn::Opened(session) => {
                let (cluster, ttl) = (self.standing.cluster_of_session(), self.standing.session_ttl());
                self.heir.on_opened(cluster, session, ttl);
            }
            Turn::Stands(_) => self.on_session(),
            Turn::Over { since, why } => self.on_session_over(since, why),
            Turn::Extended(bound) => {
                self.extend(bound);
                self.look_who_votes();
                self.reach_who_is_lonely();
            }
        }
    }

    fn on_session(&mut self) {
        self.timers.cancel(&Alarm::Trouble);
        self.troubles.on_session();
        if self.phase == Phase::Joining {
            self.phase = Phase::Joined;
            self.timers.cancel(&Alarm::Join);
            self.effects.push(Effect::Joined);
            self.take_over();
            self.look_at_grants(None);
        }
        for (name, fencing) in self.detached.take_orphans() {
            self.attach(name, fencing);
        }
        self.timers.set(Alarm::Sweep, self.now + self.config.idle / 4);
        self.look_who_votes();
        self.ask_for_pending();
        self.look_at_cluster();
    }

    /// Everything that this session had is void from now on. Who waits asks again under the next one; what is detached
    /// stands by the register.
    fn on_session_over(&mut self, since: Span, why: &str) {
        if !makes(Sabotage::KeepsParts) {
            for resource in self.parts.end() {
                self.timers.cancel(&Alarm::Part(resource, custody::Timer::Tell));
            }
        }
        // Nobody says anything to this session any more.
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
            self.timers.set(Alarm::Trouble, self.now + TROUBLE);
            self.seek();
        }
    }

    /// What keeps this process from having a session, if it has none.
    pub fn trouble(&self) -> Option<Error> {
        if self.standing.session().is_some() {
            return None;
        }
        if self.contacts.open().next().is_none()
            && let Some(other) = self.troubles.other()
        {
            return Some(other.clone());
        }
        Some(self.no_majority(self.standing.since()))
    }

    /// That the register does not answer, since then, with the voters that cannot be reached.
    pub(super) fn no_majority(&self, since: Time) -> Error {
        Error::NoMajority { missing: self.absent_voters(since), since: self.now.since(since).into() }
    }

    /// The voters as far as known that are not connected.
    pub(super) fn absent_voters(&self, since: Time) -> Vec<Missing> {
        let mut voters: Vec<PeerId> =
            self.sight.voters().chain(self.standing.voters(self.now)).filter(|host| *host != self.host()).collect();
        voters.sort_unstable();
        voters.dedup();
        voters.retain(|host| !self.contacts.is_linked(*host));
        voters.into_iter().map(|host| self.missing(host, since)).collect()
    }

    pub(super) fn watch_for_trouble(&mut self) {
        self.timers.set(Alarm::Trouble, self.now + TROUBLE);
    }

    pub(super) fn on_trouble_alarm(&mut self) {
        let Some(Error::NoMajority { missing, since }) = self.trouble() else { return };
        self.timers.set(Alarm::Trouble, self.now + TROUBLE_AGAIN);
        let who = missing.iter().map(|missing| missing.peer).collect();
        if self.troubles.miss(who) || since < (TROUBLE * 2).into() {
            self.notice(Notice::NoMajority { missing, since });
        }
    }

    pub(super) fn on_letter(&mut self, from: PeerId, letter: &[u8]) {
        if let Err(why) = self.standing.on_letter(from, letter, self.now) {
            self.counters.malformed += 1;
            let why = why.to_string();
            if self.troubles.misread(&why) {
                self.notice(Notice::Letter(why));
            }
        }
    }

    pub(super) fn on_written(&mut self, number: u64) {
        if let Some(cluster) = self.standing.on_written(number, self.now) {
            self.effects.push(Effect::Belongs(cluster));
        }
    }

    fn on_doing(&mut self, doing: Doing) {
        match doing {
            Doing::Send(to, letter) => self.mention(to, &Body::Register(letter)),
            Doing::Write { number, write } => self.effects.push(Effect::Write { number, write }),
            Doing::Answered(number, outcome) => {
                if let Some(ask) = self.standing.answered(number) {
                    self.on_outcome(ask, outcome);
                }
            }
            Doing::Seen(number, seen) => {
                if let Some(ask) = self.standing.answered(number) {
                    self.on_seen(ask, seen);
                }
            }
            Doing::Told { resource, session, generation, fact } => self.on_told(resource, session, generation, fact),
            Doing::Refused(why) => {
                if self.troubles.refuse(why) {
                    self.notice(Notice::Refused(why));
                }
            }
        }
    }

    /// The session as the protocol names it.
    pub(super) fn session_of(&self, (number, peer): (SessionId, PeerId)) -> Session {
        Session { peer, number: number.get() }
    }

    fn on_told(&mut self, resource: Label, session: SessionId, generation: u64, fact: register::Fact) {
        if self.standing.session() != Some(session) {
            return;
        }
        let fact = match fact {
            register::Fact::Opened { slots, asked, detached } => Fact::Opened {
                slots,
                asked: asked.into_iter().map(|party| self.session_of(party)).collect(),
                detached: detached.into_iter().map(|(slot, fencing)| Detached { slot, fencing }).collect(),
            },
            register::Fact::Expired { slot, fencing } => Fact::Expired(Detached { slot, fencing }),
            register::Fact::Expelled => Fact::Expelled,
        };
        let Ok(name) = resource.as_str().parse::<Name>() else {
            return self.strange("word of a resource without a name");
        };
        self.open_part(&name);
        let word = Word { to: self.session_of((session, self.host())), generation, fact };
        self.part_step(name.key(), mutex::Input::Word(word));
    }

    fn on_outcome(&mut self, ask: Ask, outcome: Outcome) {
        match (ask, outcome) {
            (Ask::Join(resource, session), outcome) if self.standing.session() == Some(session) => {
                self.on_joined(resource, session, outcome);
            }
            (Ask::Quit(resource, session, generation), outcome) if self.standing.session() == Some(session) => {
                self.on_quit(resource, session, generation, &outcome);
            }
            // Its client was told that it is given back: the next session says so again, if this one is not it.
            (Ask::Attach(session, name, fencing), Outcome::Refused(Refusal::NoSession)) => {
                match self.standing.session() == Some(session) {
                    true => self.detached.orphan(name, fencing),
                    false => self.attach(name, fencing),
                }
            }
            (Ask::Attach(_, name, fencing), _) => self.on_attached(&name, fencing),
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
            // What was seen is gone already: this was asked twice, or it ended by itself. What the host has of the
            // resource by now is another participation, or another name's.
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
                let message = "the client of this slot has renewed it through another agent of its host meanwhile: \
                               that agent can be asked now, so try again";
                self.answer_caller(
                    call,
                    Err(Error::Refused { class: Class::Unavailable, message: message.to_owned() }),
                );
            }
            (Ask::Seats(call), Outcome::Done) => self.answer_caller(call, Ok(Answer::Seated)),
            (Ask::Resize(call, _) | Ask::Expel(call) | Ask::Revoke(call) | Ask::Seats(call), outcome) => {
                let (class, message) = match outcome {
                    Outcome::Refused(why @ Refusal::NoKeeper) => (Class::BadRequest, why.to_string()),
                    Outcome::Refused(Refusal::Superseded) => {
                        let message = "another command has changed it meanwhile: look at it, and try again";
                        (Class::Unavailable, message.to_owned())
                    }
                    Outcome::Refused(why) => (Class::Unavailable, why.to_string()),
                    outcome => (Class::Unavailable, format!("the register has answered something else: {outcome:?}")),
                };
                self.answer_caller(call, Err(Error::Refused { class, message }));
            }
            (
                Ask::ExpelWhom(..)
                | Ask::ResizeSeen(..)
                | Ask::SeatsSeen(..)
                | Ask::RemoveSeen(_)
                | Ask::RevokeFrom(_)
                | Ask::Cluster
                | Ask::Everybody
                | Ask::Names(_)
                | Ask::Returned
                | Ask::List(_)
                | Ask::Show(_),
                _,
            ) => {
                self.strange("an outcome of what was only looked at");
            }
        }
    }

    pub(super) fn on_joined(&mut self, resource: Key, session: SessionId, outcome: Outcome) {
        match outcome {
            Outcome::Joined { generation, coordinator, opened, slots } => {
                self.refuse_mismatches(resource, slots);
                // If the join has opened the generation, word of that comes, and nothing is to be joined before it.
                if !opened {
                    let (to, coordinator) = (self.session_of((session, self.host())), coordinator.1);
                    let word = Word { to, generation, fact: Fact::Joined { coordinator, slots } };
                    self.part_step(resource, mutex::Input::Word(word));
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
            // The session is over: we hear of that, too.
            _ => {}
        }
    }
}

/// A name as the register takes it.
pub(super) fn label(name: &Name) -> Label {
    Label::new(name.as_str()).expect("what can be a name can be a label")
}
