//! Takeover of the predecessor process's grants, and the journal for the next process.

use peerlock_protocol::Grant;
use peerlock_types::Ticket;

use super::{Alarm, Answer, Effect, Node};
use crate::clients::TicketId;
use crate::mutation::{Mutation, makes};
use crate::{Error, Name};

impl Node {
    /// Participates in the predecessor's resources. From before its first census, this process reports all grants that
    /// may be held.
    pub(super) fn take_over(&mut self) {
        if !self.session_state.is_first() {
            // The session that was to take over has ended, and all deadlines with it.
            let waiting = self.takeover.renounce();
            return waiting.into_iter().for_each(|(call, ..)| self.refuse_to_resume(call, Error::Lost));
        }
        let Some(bound) = self.session_state.bound() else { return };
        for (name, grants) in self.takeover.inherit(self.now) {
            let mut inside: Vec<(Ticket, Grant)> = Vec::new();
            for record in grants {
                let (ticket, look) = self.clients.inherit(&record, self.now, bound);
                self.timers.set(Alarm::Ticket(ticket), look);
                self.takeover.await_client(ticket, record.note.clone());
                self.effects.push(Effect::Inherited { ticket, note: record.note });
                inside.extend(self.clients.give_alias(ticket).map(|alias| (alias, record.grant)));
            }
            self.open_part_with(&name, &inside);
        }
        for (from, resource, message) in self.takeover.take_early() {
            self.on_part_message(from, resource, message);
        }
        for ((_, resource), generation) in self.takeover.take_missed() {
            self.recount(resource, generation);
        }
        self.takeover.take_resumes().into_iter().for_each(|(call, name, note)| self.resume(call, name, note));
    }

    pub(super) fn resume(&mut self, call: u64, name: Name, note: String) {
        if self.takeover.is_waiting() {
            return match self.takeover.resume_later(call, &name, &note).filter(|until| *until > self.now) {
                Some(until) => self.timers.set(Alarm::Resume(call), until),
                None => self.refuse_to_resume(call, Error::Lost),
            };
        }
        let is_it = |ticket: &TicketId| self.clients.get(*ticket).is_some_and(|entry| entry.wanted.name == name);
        let ticket = self.takeover.ticket(&note).filter(is_it);
        let Some(ticket) = ticket else { return self.refuse_to_resume(call, Error::Lost) };
        let Some(lease) = self.clients.resume(ticket, self.now) else {
            let why = self.why_not(ticket);
            return self.refuse_to_resume(call, why);
        };
        self.timers.cancel(&Alarm::Resume(call));
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.answer(call, Ok(Answer::Ticket(ticket)));
        let until = lease.deadline();
        self.effects.push(match self.takeover.come(ticket) {
            true => Effect::Granted { ticket, until },
            false => Effect::Renewed { ticket, until },
        });
    }

    pub(super) fn resume_no_more(&mut self, call: u64) {
        if self.takeover.give_up(call) {
            self.timers.cancel(&Alarm::Resume(call));
        }
    }

    /// The deadline came before a session.
    pub(super) fn on_resume_alarm(&mut self, call: u64) {
        if self.takeover.give_up(call) {
            let why = self.problem().unwrap_or(Error::Lost);
            self.refuse_to_resume(call, why);
        }
    }

    fn refuse_to_resume(&mut self, call: u64, why: Error) {
        self.takeover.give_up(call);
        self.timers.cancel(&Alarm::Resume(call));
        self.answer(call, Err(why));
    }

    /// Emits the journal entries of this step before its other effects.
    pub(super) fn write_down(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.takeover.take_out().map(Effect::Record));
        for effect in &self.effects {
            match *effect {
                Effect::Granted { ticket, until } | Effect::Renewed { ticket, until } => {
                    self.takeover.on_until(ticket, until, self.clients.get(ticket));
                }
                Effect::Ended(ticket, _) => self.takeover.on_over(ticket),
                _ => {}
            }
        }
        if !makes(Mutation::AnsweredBeforeRecorded) {
            out.extend(self.takeover.take_out().map(Effect::Record));
        }
    }
}
