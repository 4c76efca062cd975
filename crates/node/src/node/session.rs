//! The session, and what the register says.

use std::collections::BTreeSet;

use peerlock_base::{Key, PeerId, Span, Time};
use peerlock_mutex::register::{Detached, Fact, Session, Word};
use peerlock_mutex::{self as mutex, Grant, custody};
use peerlock_register::{self as register, Command, Doing, Label, Outcome, Refusal, SessionId};

use super::{Alarm, Answer, Effect, Node, Phase, Troubles};
use crate::clients::{Stage, TicketId, Wanted};
use crate::sabotage::{Sabotage, makes};
use crate::standing::{Ask, Turn};
use crate::wire::Body;
use crate::{Class, Error, Missing, Name, Notice, Wait};

/// After this long without a session a log is told, and again after this long.
const TROUBLE: Span = Span::from_secs(5);
const TROUBLE_AGAIN: Span = Span::from_secs(60);

/// From so many refusals on a client is not asked for again. Our choice: that we are no party any more may well happen
/// twice.
const MOST_REFUSED: u32 = 3;

/// The detached grants of this host, as the register tells them, a page at a time.
#[derive(Default)]
pub(super) struct DetachedHere {
    /// Those on the pages so far.
    seen: BTreeSet<(Key, u64)>,
    /// Up to which entry all of these pages go at least.
    index: Option<u64>,
    /// The entry up to which one went on which something was that has returned.
    returned: u64,
    /// The register has told all of them once: others are not of earlier processes.
    pub is_known: bool,
}

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
            && !std::mem::replace(&mut self.troubles.halted, true)
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
        self.troubles = Troubles { halted: self.troubles.halted, ..Troubles::default() };
        if self.phase == Phase::Joining {
            self.phase = Phase::Joined;
            self.timers.cancel(&Alarm::Join);
            self.effects.push(Effect::Joined);
            self.take_over();
            self.look_at_grants(None);
        }
        for (name, fencing) in std::mem::take(&mut self.orphans) {
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
            for (resource, _) in std::mem::take(&mut self.parts) {
                self.timers.cancel(&Alarm::Part(resource, custody::Timer::Tell));
            }
        }
        // Nobody says anything to this session any more.
        self.given_up.clear();
        self.ending.clear();
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
        if self.membership.contacts.open().next().is_none() && self.troubles.other.is_some() {
            return self.troubles.other.clone();
        }
        Some(self.no_majority(self.standing.since()))
    }

    /// That the register does not answer, since then, with the voters that cannot be reached.
    pub(super) fn no_majority(&self, since: Time) -> Error {
        Error::NoMajority { missing: self.absent_voters(since), since: self.now.since(since).into() }
    }

    /// The voters as far as known that are not connected.
    pub(super) fn absent_voters(&self, since: Time) -> Vec<Missing> {
        let known = self.view.iter().flat_map(|view| view.voters.iter().map(|(_, host)| *host));
        let mut voters: Vec<PeerId> =
            known.chain(self.standing.voters(self.now)).filter(|host| *host != self.host()).collect();
        voters.sort_unstable();
        voters.dedup();
        voters.retain(|host| !self.membership.is_linked(*host));
        voters.into_iter().map(|host| self.missing(host, since)).collect()
    }

    pub(super) fn watch_for_trouble(&mut self) {
        self.timers.set(Alarm::Trouble, self.now + TROUBLE);
    }

    pub(super) fn on_trouble_alarm(&mut self) {
        let Some(Error::NoMajority { missing, since }) = self.trouble() else { return };
        self.timers.set(Alarm::Trouble, self.now + TROUBLE_AGAIN);
        let who = missing.iter().map(|missing| missing.peer).collect();
        let before = std::mem::replace(&mut self.troubles.missing, who);
        if before != self.troubles.missing || since < (TROUBLE * 2).into() {
            self.notice(Notice::NoMajority { missing, since });
        }
    }

    pub(super) fn on_letter(&mut self, from: PeerId, letter: &[u8]) {
        if let Err(why) = self.standing.on_letter(from, letter, self.now) {
            self.counters.malformed += 1;
            let why = why.to_string();
            if self.troubles.letter.replace(why.clone()) != Some(why.clone()) {
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
                if self.troubles.refused.replace(why) != Some(why) {
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
                    true => self.orphans.push((name, fencing)),
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
            (Ask::Expel(call), Outcome::Done | Outcome::Advanced(_) | Outcome::Refused(Refusal::NoParty)) => {
                self.answer_caller(call, Ok(Answer::Expelled));
            }
            (Ask::Revoke(call), Outcome::Done | Outcome::Advanced(_) | Outcome::Refused(Refusal::NoParty)) => {
                self.answer_caller(call, Ok(Answer::Revoked));
            }
            (Ask::Seats(call), Outcome::Done) => self.answer_caller(call, Ok(Answer::Seated)),
            (Ask::Resize(call, _) | Ask::Expel(call) | Ask::Revoke(call) | Ask::Seats(call), outcome) => {
                let (class, message) = match outcome {
                    Outcome::Refused(why @ Refusal::NoKeeper) => (Class::BadRequest, why.to_string()),
                    Outcome::Refused(why) => (Class::Unavailable, why.to_string()),
                    outcome => (Class::Unavailable, format!("the register has answered something else: {outcome:?}")),
                };
                self.answer_caller(call, Err(Error::Refused { class, message }));
            }
            (
                Ask::ExpelWhom(..)
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
            // The register has no such name: it never had one, or one that was removed. Of that we may have seen
            // generations, and what comes late of them stays void.
            Outcome::Refused(Refusal::Full) => {
                if let Some(part) = self.parts.remove(&resource)
                    && !part.custody.memory().is_empty()
                {
                    self.given_up.insert(resource, (part.name, part.custody.memory()));
                }
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

    // Detached grants.

    /// Writes a grant of ours into the register, or renews it there.
    pub(super) fn ask_to_detach(&mut self, ticket: TicketId, grant: Grant, call: Option<u64>) {
        let (Some(session), Some(entry)) = (self.standing.session(), self.clients.get(ticket)) else { return };
        let Some((ttl, note)) = entry.wanted.detachable() else { return };
        let Grant { slot, fencing } = grant;
        let of = entry.wanted.name.clone();
        let resource = label(&of);
        if call.is_none() {
            self.heir.owe(&of, grant, self.now);
        }
        let ask = Ask::Detach { ticket, of, fencing, at: self.now, call };
        self.standing.ask(Command::Detach { session, resource, slot, fencing, ttl, note }, ask, self.now);
    }

    fn on_detached(&mut self, ticket: TicketId, of: Name, fencing: u64, at: Time, call: Option<u64>, outcome: Outcome) {
        let entry = self.clients.get(ticket).filter(|entry| match entry.stage {
            Stage::Entering { grant } | Stage::Held { grant, .. } => grant.fencing == fencing,
            Stage::Waiting { .. } => false,
        });
        let stage = entry.map(|entry| (entry.is_held(), entry.alias().is_some()));
        let name = entry.map(|entry| entry.wanted.name.clone());
        let is_returned = entry.is_some_and(|entry| entry.returned);
        let is_late = entry.is_some_and(|entry| self.now.since(at) + entry.wanted.grace >= entry.wanted.ttl);
        match &outcome {
            Outcome::Refused(Refusal::NoSession) if call.is_none() => {
                // It may have been entered before the session ended, and the answer got lost.
                self.attach(of.clone(), fencing);
            }
            Outcome::Refused(_) if call.is_none() => self.heir.settle(&of, fencing),
            _ => {}
        }
        match (outcome, stage) {
            // It took so long that its client would have to leave at once. To ask again would help nobody whose lease
            // is shorter than the way to the register.
            (Outcome::Done, Some((false, _))) if is_late => {
                name.into_iter().for_each(|name| self.attach(name, fencing));
                self.end(ticket, Error::Lost);
            }
            (Outcome::Done, Some((false, _))) => self.let_in(ticket, at),
            (Outcome::Done, Some((true, _))) => {
                let renewed = self.clients.renew_from(ticket, at);
                if let Some(lease) = renewed {
                    self.timers.set(Alarm::Ticket(ticket), lease.next());
                    self.effects.push(Effect::Renewed { ticket, until: lease.deadline() });
                }
                if let Some(call) = call {
                    let renewed = renewed.map(|lease| Answer::Renewed(lease.deadline()));
                    self.answer_caller(call, renewed.ok_or(Error::Lost));
                }
            }
            // Its client has gone, or the session under which it was to be granted. One that was renewed was given back
            // then; or we leave, and it is its client's.
            (Outcome::Done, None) => match call {
                Some(call) => self.answer_gone(call),
                None => self.attach(of, fencing),
            },
            (Outcome::Refused(Refusal::Full), Some((false, _))) => {
                let message = Refusal::Full.to_string();
                self.end(ticket, Error::Refused { class: Class::Busy, message });
            }
            // We are no party any more, as word to come will say: what is here is worth nothing.
            (outcome, Some((false, _))) => match self.clients.refuse(ticket) {
                0..MOST_REFUSED => self.request_again(ticket),
                times => {
                    let why = match outcome {
                        Outcome::Refused(why) => why.to_string(),
                        outcome => format!("{outcome:?}"),
                    };
                    let message = format!("the register has refused to enter {times} grants of {of}: {why}");
                    self.end(ticket, Error::Refused { class: Class::Unavailable, message });
                }
            },
            (Outcome::Refused(Refusal::NoSession), Some((true, _))) => {
                // Renewed under a session that was over: it stands as before.
                if let Some(call) = call {
                    let error = self.trouble().unwrap_or(Error::Lost);
                    self.answer_caller(call, Err(error));
                }
            }
            (outcome, Some((true, _))) => {
                // It has not lapsed, unless it has returned: its end is later there than here. So somebody has taken it
                // away.
                let is_taken = outcome == Outcome::Refused(Refusal::NoSuchGrant) && !is_returned;
                let revoked = name.filter(|_| is_taken);
                let why = revoked.map_or(Error::Lost, |name| Error::Revoked { name, forced: true });
                self.end(ticket, why.clone());
                call.into_iter().for_each(|call| self.answer_caller(call, Err(why.clone())));
            }
            (_, None) => call.into_iter().for_each(|call| self.answer_gone(call)),
        }
    }

    /// A grant was renewed that is not here any more.
    fn answer_gone(&mut self, call: u64) {
        let leaves = matches!(self.phase, Phase::Leaving | Phase::Left);
        self.answer_caller(call, Err(if leaves { Error::Stopped } else { Error::Lost }));
    }

    /// A detached grant is over.
    pub(super) fn attach(&mut self, name: Name, fencing: u64) {
        match self.standing.session() {
            Some(session) => {
                let command = Command::Attach { session, resource: label(&name), fencing };
                self.standing.ask(command, Ask::Attach(session, name, fencing), self.now);
            }
            None => self.orphans.push((name, fencing)),
        }
    }

    /// The register knows that a detached grant is over: nobody can renew it any more, and what is here of it goes on.
    fn on_attached(&mut self, name: &Name, fencing: u64) {
        self.heir.settle(name, fencing);
        if let Some(alias) = self.ending.remove(&(name.key(), fencing)) {
            self.part_step(name.key(), mutex::Input::Release(alias));
        }
    }

    /// Detached grants of this host that are not known here were given by an earlier process.
    pub(super) fn on_grants(&mut self, page: register::Page) {
        if matches!(self.phase, Phase::Leaving | Phase::Left) {
            return;
        }
        let (me, index) = (self.host(), page.index);
        self.detached.index = Some(self.detached.index.map_or(index, |all| all.min(index)));
        let after = page.resources.last().map(|last| last.name.clone()).filter(|_| page.more);
        for resource in page.resources {
            let Ok(name) = resource.name.as_str().parse::<Name>() else { continue };
            for seen in resource.detached.into_iter().filter(|grant| grant.host == me) {
                self.detached.seen.insert((name.key(), seen.fencing));
                if self.clients.has(name.key(), seen.fencing) {
                    continue;
                }
                if let Some(takes_back) = self.heir.owes(&name, seen.fencing) {
                    if takes_back {
                        self.attach(name.clone(), seen.fencing);
                    }
                    continue;
                }
                // It was given back since the register was asked.
                if self.detached.is_known {
                    continue;
                }
                let (ttl, note) = (seen.ttl.span(), seen.note.to_string());
                let grant = Grant { slot: seen.slot, fencing: seen.fencing };
                let wanted = Wanted {
                    name: name.clone(),
                    slots: None,
                    ttl,
                    grace: ttl / 5,
                    kept: false,
                    detached: Some(note.clone()),
                    taken_over_as: None,
                    wait: Wait::Forever,
                    // What it said of itself is not in the register, and what it calls its grant is for nobody else.
                    label: String::new(),
                    pid: None,
                    request: None,
                };
                let (ticket, look) = self.clients.readmit(wanted, grant, self.now);
                self.detached.returned = self.detached.returned.max(index);
                self.timers.set(Alarm::Ticket(ticket), look);
                let (name, ttl) = (name.clone(), ttl.into());
                self.effects.push(Effect::Returned { ticket, name, note, grant, ttl });
            }
        }
        match after {
            Some(_) => self.look_at_grants(after),
            None => {
                self.heir.on_all_seen();
                self.end_returned();
            }
        }
    }

    /// The register has told of all detached grants of this host: what has returned and is not among them is over. A
    /// voter that is behind may not know yet what another has told.
    fn end_returned(&mut self) {
        let DetachedHere { seen, index, returned, .. } = std::mem::take(&mut self.detached);
        (self.detached.returned, self.detached.is_known) = (returned, true);
        let is_over = |(_, resource, fencing): &(TicketId, Key, u64)| !seen.contains(&(*resource, *fencing));
        let over: Vec<_> = self.clients.returned().filter(|_| index >= Some(returned)).filter(is_over).collect();
        over.into_iter().for_each(|(ticket, ..)| self.end(ticket, Error::Lost));
    }
}

/// A name as the register takes it.
pub(super) fn label(name: &Name) -> Label {
    Label::new(name.as_str()).expect("what can be a name can be a label")
}
