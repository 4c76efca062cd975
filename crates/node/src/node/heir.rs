//! Going on with what an earlier process of this host has left, and leaving as much to the next.

use peerlock_base::Ticket;
use peerlock_mutex::Grant;

use super::{Alarm, Answer, Effect, Node};
use crate::clients::TicketId;
use crate::sabotage::{Sabotage, makes};
use crate::{Error, Name};

impl Node {
    /// Our first session stands, and takes part in what was left to us: from before it is first asked it answers for
    /// everybody who may be inside.
    pub(super) fn take_over(&mut self) {
        if !self.standing.is_first() {
            // The one that was to take over is over, and with it the ends of all that it was to answer for.
            let waiting = self.heir.renounce();
            return waiting.into_iter().for_each(|(call, ..)| self.refuse_to_resume(call, Error::Lost));
        }
        let Some(bound) = self.standing.bound() else { return };
        for (name, grants) in self.heir.inherit(self.now) {
            let mut inside: Vec<(Ticket, Grant)> = Vec::new();
            for kept in grants {
                let (ticket, look) = self.clients.inherit(&kept, self.now, bound);
                self.timers.set(Alarm::Ticket(ticket), look);
                self.heir.await_client(ticket, kept.note.clone());
                self.effects.push(Effect::Inherited { ticket, note: kept.note });
                inside.extend(self.clients.give_alias(ticket).map(|alias| (alias, kept.grant)));
            }
            self.open_part_with(&name, &inside);
        }
        for (from, resource, message) in self.heir.take_early() {
            self.on_part_message(from, resource, message);
        }
        for ((_, resource), generation) in self.heir.take_missed() {
            self.recount(resource, generation);
        }
        self.heir.take_resumes().into_iter().for_each(|(call, name, note)| self.resume(call, name, note));
    }

    pub(super) fn resume(&mut self, call: u64, name: Name, note: String) {
        if self.heir.is_waiting() {
            return match self.heir.resume_later(call, &name, &note).filter(|until| *until > self.now) {
                Some(until) => self.timers.set(Alarm::Resume(call), until),
                None => self.refuse_to_resume(call, Error::Lost),
            };
        }
        let is_it = |ticket: &TicketId| self.clients.get(*ticket).is_some_and(|entry| entry.wanted.name == name);
        let ticket = self.heir.ticket(&note).filter(is_it);
        let Some(ticket) = ticket else { return self.refuse_to_resume(call, Error::Lost) };
        let Some(lease) = self.clients.resume(ticket, self.now) else {
            let why = self.why_not(ticket);
            return self.refuse_to_resume(call, why);
        };
        self.timers.cancel(&Alarm::Resume(call));
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.answer(call, Ok(Answer::Ticket(ticket)));
        let until = lease.deadline();
        self.effects.push(match self.heir.come(ticket) {
            true => Effect::Granted { ticket, until },
            false => Effect::Renewed { ticket, until },
        });
    }

    /// Who wanted to go on does not wait for it.
    pub(super) fn resume_no_more(&mut self, call: u64) {
        if self.heir.give_up(call) {
            self.timers.cancel(&Alarm::Resume(call));
        }
    }

    /// There was no session before its end.
    pub(super) fn on_resume_alarm(&mut self, call: u64) {
        if self.heir.give_up(call) {
            let why = self.trouble().unwrap_or(Error::Lost);
            self.refuse_to_resume(call, why);
        }
    }

    fn refuse_to_resume(&mut self, call: u64, why: Error) {
        self.heir.give_up(call);
        self.timers.cancel(&Alarm::Resume(call));
        self.answer(call, Err(why));
    }

    /// Whatever clients are told in this step is written down before they are told it.
    pub(super) fn write_down(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.heir.take_out().map(Effect::Keep));
        for effect in &self.effects {
            match *effect {
                Effect::Granted { ticket, until } | Effect::Renewed { ticket, until } => {
                    self.heir.on_until(ticket, until, self.clients.get(ticket));
                }
                Effect::Ended(ticket, _) => self.heir.on_over(ticket),
                _ => {}
            }
        }
        if !makes(Sabotage::ToldBeforeKept) {
            out.extend(self.heir.take_out().map(Effect::Keep));
        }
    }
}
