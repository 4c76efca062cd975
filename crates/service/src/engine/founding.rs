//! Which resources there are: founded by whoever asks first, and known to everybody from then on.

use peerlock_base::{Key, PeerId, Span};
use peerlock_mutex::founded::{self, Charter};
use peerlock_peer::{Input, Wire};

use super::{Alarm, Engine, PeerWire, Phase};
use crate::Name;
use crate::register::{Attempt, Ballot, Memory, Next, Question};
use crate::wire::{Answer, Body, Protocol, Question as Asked};

/// How long an attempt may take before there is another.
const RETRY: Span = Span::from_millis(500);
/// So many messages are kept of a resource that we are yet to hear of.
const MOST_EARLY: usize = 1000;

/// A resource that clients here want and that is not known to be founded.
pub(super) struct Founding {
    name: Name,
    slots: u32,
    number: u64,
    attempt: Attempt,
}

impl Engine {
    /// The charter of a resource, once it is known here.
    pub(super) fn charter(&self, resource: Key) -> Option<Charter> {
        self.known.get(&resource).map(|(_, charter)| *charter)
    }

    /// Founds a resource, or finds out what somebody else has founded.
    pub(super) fn found(&mut self, name: &Name, slots: u32) {
        let resource = name.key();
        if self.phase == Phase::Joined && !self.founding.contains_key(&resource) {
            self.try_to_found(resource, name.clone(), slots);
        }
    }

    fn try_to_found(&mut self, resource: Key, name: Name, slots: u32) {
        let me = self.contacts.me();
        let round = self.memories.get(&resource).map_or(0, Memory::round) + 1;
        let charter = Charter { slots, home: me, above: self.birth.micros + self.now.as_nanos() / 1000 };
        let attempt = Attempt::new(Ballot { round, member: me }, charter);
        self.last_question += 1;
        let (number, question) = (self.last_question, attempt.question());
        self.founding.insert(resource, Founding { name, slots, number, attempt });
        let after = self.rng.between(RETRY / 2, RETRY + RETRY / 2);
        self.timers.set(Alarm::Found(resource), self.now + after);
        self.ask_members(resource, number, question);
    }

    /// Too few have answered, or somebody else was faster.
    pub(super) fn on_founding_alarm(&mut self, resource: Key) {
        let Some(Founding { name, slots, .. }) = self.founding.remove(&resource) else { return };
        if self.resources.get(&resource).is_some_and(|known| !known.waiting.is_empty()) {
            self.try_to_found(resource, name, slots);
        }
    }

    fn ask_members(&mut self, resource: Key, number: u64, question: Question) {
        let members: Vec<PeerId> = self.contacts.open().map(|(member, _)| member).collect();
        for member in members.into_iter().chain([self.contacts.me()]) {
            self.ask(member, number, Asked::Found(resource, question));
        }
    }

    /// A member wants a resource to be founded. If we know that it is, we say so.
    pub(super) fn on_question(&mut self, asker: PeerId, resource: Key, question: Question) -> Answer {
        if let Some(known) = self.known.get(&resource).cloned().filter(|_| asker != self.contacts.me()) {
            self.mention(asker, &Body::Charters(vec![known]));
        }
        Answer::Found(self.memories.entry(resource).or_default().on_question(question))
    }

    pub(super) fn on_founding_answer(&mut self, from: PeerId, number: u64, memory: Memory) {
        let majority = self.contacts.majority();
        let Some((&resource, founding)) = self.founding.iter_mut().find(|(_, founding)| founding.number == number)
        else {
            return;
        };
        match founding.attempt.on_answer(from, memory, majority) {
            Next::Wait => {}
            Next::Ask(question) => self.ask_members(resource, number, question),
            Next::Decided(charter) => {
                let name = founding.name.clone();
                // Before anybody hears of anything else: then all know that it is founded.
                let members: Vec<PeerId> = self.contacts.open().map(|(member, _)| member).collect();
                let body = Body::Charters(vec![(name.clone(), charter)]);
                members.into_iter().for_each(|member| self.tell(member, &body));
                self.learn(name, charter);
            }
        }
    }

    /// A resource is founded.
    pub(super) fn learn(&mut self, name: Name, charter: Charter) {
        let resource = name.key();
        if let Some((_, known)) = self.known.get(&resource) {
            if *known != charter {
                tracing::error!(%name, ?known, ?charter, "a resource was founded twice, in clusters that had no contact");
                self.strange("a resource was founded twice");
            }
            return;
        }
        self.known.insert(resource, (name, charter));
        self.memories.remove(&resource);
        self.founding.remove(&resource);
        self.timers.cancel(&Alarm::Found(resource));
        for (from, wire) in self.early.remove(&resource).unwrap_or_default() {
            self.on_wire(from, wire);
        }
        self.refuse_mismatches(resource, charter);
        self.ask_for_pending();
    }

    /// A message for the peer below, which first hears of the resource that it is about.
    pub(super) fn on_wire(&mut self, from: PeerId, wire: PeerWire) {
        if let Wire::Direct { resource, message: founded::Message::Inner(_) } = wire {
            if !self.known.contains_key(&resource) {
                let early = self.early.entry(resource).or_default();
                if early.len() < MOST_EARLY {
                    early.push((from, wire));
                } else {
                    self.strange("more messages of a resource than fit before we know of it");
                }
                return;
            }
            self.recall(resource);
        }
        self.step(Input::Message { from, wire });
    }

    /// Tells our part in a resource what we know of it.
    pub(super) fn recall(&mut self, resource: Key) {
        let Some(charter) = self.charter(resource) else { return };
        if self.peer.protocol(resource).and_then(Protocol::charter).is_none() {
            let wire = Wire::Direct { resource, message: founded::Message::Known(charter) };
            self.step(Input::Message { from: self.contacts.me(), wire });
        }
    }
}
