//! Our parts in resources, one for each under the session that stands.

use peerlock_base::{Key, PeerId, Span, Ticket, Time};
use peerlock_mutex::register::{Fact, Wish, Word};
use peerlock_mutex::{self as mutex, Custody, Grant, custody};
use peerlock_register::{Command, SessionId};

use super::session::label;
use super::{Alarm, Node};
use crate::Name;
use crate::sabotage::{Sabotage, makes, without};
use crate::standing::Ask;
use crate::wire::{Body, decode_body};

/// At most so much is kept of what one host has said about all resources: requests, early news, answers. More than twice
/// of what its clients can want.
const RATION: usize = 250_000;
/// How soon we look whether what was lost with a process has been counted since.
const RECOUNT: Span = Span::from_secs(2);

/// Our part in one resource.
pub(super) struct Part {
    pub name: Name,
    pub custody: Custody,
    /// When we last heard that a generation begins which we coordinate.
    pub opened: Time,
    /// How many generations have followed the first that we were part of.
    pub recoveries: u64,
}

impl Node {
    /// Our part in a resource, which begins now if there is none and a session stands.
    pub(super) fn open_part(&mut self, name: &Name) {
        self.open_part_with(name, &[]);
    }

    /// The same where clients of an earlier process are inside.
    pub(super) fn open_part_with(&mut self, name: &Name, inside: &[(Ticket, Grant)]) {
        let Some(session) = self.standing.session() else { return };
        let (me, now) = (self.session_of((session, self.host())), self.now);
        self.parts.entry(name.key()).or_insert_with(|| {
            let config = custody::Config { without: without(), ..custody::Config::default() };
            let custody = Custody::taking_over(me, config, inside);
            Part { name: name.clone(), custody, opened: now, recoveries: 0 }
        });
    }

    /// A message of another's part. Only who has asked to take part is meant by any of these: others are for an earlier
    /// session of this host, which has nothing any more.
    pub(super) fn on_part_message(&mut self, from: PeerId, resource: Key, message: custody::Message) {
        if !self.has_ration(from, &message) {
            return self.strange("more than is kept of one host");
        }
        if !self.parts.contains_key(&resource) && self.heir.keep_message(from, resource, &message) {
            return;
        }
        let body = message.body.clone();
        self.part_step(resource, mutex::Input::Message { from, message });
        self.reach_next(resource, &body);
    }

    /// Whether there is room for what a host says. What of it is still kept is counted when it could be too much: that is
    /// once in many messages.
    fn has_ration(&mut self, from: PeerId, message: &custody::Message) -> bool {
        let said = self.rations.entry(from).or_default();
        *said += 1 + match &message.body {
            custody::Body::Answer(answer) => answer.tokens.len() + answer.waiting.len(),
            custody::Body::Next { following, .. } | custody::Body::Token { following, .. } => following.claims.len(),
            _ => 0,
        };
        if *said > RATION {
            *said = self.parts.values().map(|part| part.custody.kept(Some(from))).sum();
        }
        *said <= RATION
    }

    /// Hands one input to our part in a resource, if we have one, and does what it wants done.
    pub(super) fn part_step(&mut self, resource: Key, input: mutex::Input<custody::Message, custody::Timer>) {
        let me = self.host();
        let Some(part) = self.parts.get_mut(&resource) else { return };
        let is_force = matches!(input, mutex::Input::Word(Word { fact: Fact::Expelled, .. }));
        if is_force && makes(Sabotage::ForceUnheard) {
            return;
        }
        let generation = part.custody.generation();
        let mut effects = Vec::new();
        mutex::step(&mut part.custody, input, &mut mutex::Cx::new(me, self.now, &mut self.rng, &mut effects));
        if part.custody.generation() > generation {
            part.opened = self.now;
            part.recoveries += u64::from(generation > 0);
        }
        effects.into_iter().for_each(|effect| self.carry_out(resource, effect));
    }

    fn carry_out(&mut self, resource: Key, effect: mutex::Effect<custody::Message, custody::Timer>) {
        match effect {
            mutex::Effect::Send { to, message } => self.tell(to, &Body::Part { resource, message }),
            mutex::Effect::Grant { ticket, grant } => self.on_granted(resource, ticket, grant),
            mutex::Effect::Lost { ticket } => self.on_revoked(ticket),
            mutex::Effect::SetTimer { timer, after } => {
                self.timers.set(Alarm::Part(resource, timer), self.now + after);
            }
            mutex::Effect::CancelTimer { timer } => self.timers.cancel(&Alarm::Part(resource, timer)),
            mutex::Effect::Wish(wish) => self.wish(resource, wish),
            mutex::Effect::Strange { why } => self.strange(why),
            mutex::Effect::Refused { .. } | mutex::Effect::Route { .. } | mutex::Effect::Forward { .. } => {
                unreachable!("custody neither refuses nor routes")
            }
        }
    }

    fn wish(&mut self, key: Key, wish: Wish) {
        let (Some(session), Some(part)) = (self.standing.session(), self.parts.get(&key)) else { return };
        let resource = label(&part.name);
        let (command, ask) = match wish {
            Wish::Join => {
                let wanted = self.clients.waiting(key).find_map(|(_, entry)| entry.wanted.slots);
                let slots = wanted.unwrap_or(1);
                (Command::Join { session, resource, slots }, Ask::Join(key, session))
            }
            Wish::Close { generation, keep } => {
                let keep = keep.into_iter().map(|party| SessionId::new(party.number)).collect();
                (Command::Close { session, resource, generation, keep }, Ask::Inform)
            }
            Wish::Renumber { generation } => (Command::Renumber { resource, generation }, Ask::Inform),
        };
        self.standing.ask(command, ask, self.now);
    }

    /// Messages to a host are lost, and a token could be among them. Where a session ends with that, everything is
    /// counted anew. If none does nobody else would notice: who was meant goes on without them, or had left in good
    /// order before, and the next process on its host was meant.
    ///
    /// The question of a count is put again to the next process: it names a session, which may be that one's, opened
    /// before it was met. Any other session is silent.
    pub(super) fn on_messages_lost(&mut self, host: PeerId, bodies: Vec<Vec<u8>>, goes_on: bool) {
        let mut lost = std::collections::BTreeMap::new();
        for body in bodies {
            if let Ok(Body::Part { resource, message }) = decode_body(&body) {
                if matches!(message.body, custody::Body::Census { .. }) && !goes_on {
                    self.tell(host, &Body::Part { resource, message: message.clone() });
                }
                let latest = lost.entry(resource).or_insert(0);
                *latest = message.generation.max(*latest);
            }
        }
        for (resource, generation) in lost {
            match goes_on {
                true => self.recount(resource, generation),
                false => self.recount_later(resource, generation, host),
            }
        }
    }

    /// The process that messages were meant for has ended. As long as its session stands a count would wait for that, and
    /// its end is followed by one.
    fn recount_later(&mut self, resource: Key, generation: u64, host: PeerId) {
        self.timers.set(Alarm::Recount(resource, generation, host), self.now + RECOUNT);
        self.look_soon();
    }

    pub(super) fn on_recount_alarm(&mut self, resource: Key, generation: u64, host: PeerId) {
        let sessions = self.view.iter().flat_map(|view| &view.sessions).filter(|(_, of, _)| *of == host);
        match sessions.count() {
            // That of the process that is there now, if it has one.
            0 | 1 => self.recount(resource, generation),
            _ => self.recount_later(resource, generation, host),
        }
    }

    pub(super) fn recount(&mut self, resource: Key, generation: u64) {
        let is_of = |part: &Part| part.custody.generation() <= generation;
        if self.parts.get(&resource).is_some_and(is_of) {
            self.wish(resource, Wish::Renumber { generation });
        }
    }
}
