//! Which resources there are: founded by whoever asks first, and known to everybody from then on.

use alloc::vec;

use peerlock_base::{Key, PeerId, Span};

use super::{Alarm, Node};
use crate::paxos::{Memory, Next, Question};
use crate::wire::{Answer, Body, Question as Asked};
use crate::{Charter, Guard, Name, Notice, Routing};

/// How long the first attempt may take before there is another. Twice as long for each further one, up to the longest:
/// where messages take long and several found at once, none would come to an end before another begins.
const RETRY: Span = Span::from_millis(500);
const DOUBLINGS: u32 = 4;

impl<P: Guard, O: Routing> Node<P, O> {
    /// Founds a resource, or finds out what somebody else has founded.
    pub(super) fn found(&mut self, name: Name, slots: u32) {
        if self.membership.is_joined() && !self.founding.is_pending(name.key()) {
            self.try_to_found(name, slots, 0);
        }
    }

    fn try_to_found(&mut self, name: Name, slots: u32, tries: u32) {
        let (resource, me) = (name.key(), self.membership.contacts.me());
        let above = self.birth.micros + self.now.as_nanos() / 1000;
        let (number, question) = self.founding.attempt(name, slots, tries, me, above);
        let mean = RETRY * (1 << tries.min(DOUBLINGS));
        let after = self.birth.rng.between(mean / 2, mean + mean / 2);
        self.timers.set(Alarm::Found(resource), self.now + after);
        self.ask_members(resource, number, question);
    }

    /// Too few have answered, or somebody else was faster.
    pub(super) fn on_founding_alarm(&mut self, resource: Key) {
        let Some((name, slots, tries)) = self.founding.give_up(resource) else { return };
        if self.clients.waiting(resource).next().is_some() {
            self.try_to_found(name, slots, tries);
        }
    }

    fn ask_members(&mut self, resource: Key, number: u64, question: Question) {
        let contacts = &self.membership.contacts;
        let me = contacts.me();
        for member in contacts.members().into_iter().chain([me]) {
            self.ask(member, number, Asked::Found(resource, question));
        }
    }

    /// A member wants a resource to be founded. If we know that it is, we say so.
    pub(super) fn on_question(&mut self, asker: PeerId, resource: Key, question: Question) -> Option<Answer> {
        if let Some(known) = self.peer.resources().named(resource).cloned()
            && asker != self.membership.contacts.me()
        {
            self.mention(asker, &Body::Charters(vec![known]));
        }
        let memory = self.founding.on_question(resource, question);
        if memory.is_none() {
            self.strange("questions about more resources than fit");
        }
        memory.map(Answer::Found)
    }

    pub(super) fn on_founding_answer(&mut self, from: PeerId, number: u64, memory: Memory) {
        let majority = self.membership.contacts.majority();
        let Some((name, next)) = self.founding.on_answer(from, number, memory, majority) else { return };
        match next {
            Next::Wait => {}
            Next::Ask(question) => self.ask_members(name.key(), number, question),
            Next::Decided(charter) => {
                // Before anybody hears of anything else: then all know that it is founded.
                let body = Body::Charters(vec![(name.clone(), charter)]);
                self.membership.contacts.members().into_iter().for_each(|member| self.tell(member, &body));
                self.learn(name, charter);
            }
        }
    }

    /// A resource is founded.
    pub(super) fn learn(&mut self, name: Name, charter: Charter) {
        match self.peer.resources_mut().learn(&name, charter) {
            Err(known) => return self.notice(Notice::FoundedTwice { name, known, other: charter }),
            Ok(false) => return,
            Ok(true) => {}
        }
        let resource = name.key();
        self.timers.cancel(&Alarm::Found(resource));
        for (from, wire) in self.founding.founded(resource) {
            self.on_wire(from, wire);
        }
        self.refuse_mismatches(resource, charter);
        self.ask_for_pending();
    }
}
