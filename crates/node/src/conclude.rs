//! Conclude: a holder reports the end of a run that takes place once per period.
//!
//! 1. `Input::Conclude` by the client that holds the slot; `Command::Detach` with a `RunEnd` to the registry, which
//!    counts the failed runs of the period.
//! 2. The run counts (it has succeeded, or was the last attempt): the grant becomes a detached one that lasts until the
//!    period ends, and `Effect::Concluded`. The client's lease no longer matters.
//! 3. Another run may be attempted: the client releases the slot ([`release`](crate::release)).
//! 4. `Answer::Concluded`. At the end of the period the node releases the slot like that of an expired detached grant.
//!
//! A client that receives no answer may conclude again, also at the next process of this host if its grant is in the
//! takeover file: the registry answers the same. If the client or this process has died after step 1, the next process
//! finds the record among the detached grants.

use std::time::Duration;

use peerlock_protocol::Grant;
use peerlock_registry::{Command, MOST_ATTEMPTS, Outcome, Refusal, RunEnd, SessionId, Ttl};
use peerlock_types::Time;

use crate::clients::TicketId;
use crate::node::{Alarm, Node};
use crate::session::label;
use crate::session_state::{Ask, label_of};
use crate::{Answer, Class, Effect, Error, Name};

/// The end of a run that takes place once per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// Whether the run has succeeded.
    pub succeeded: bool,
    /// The number of failed runs after which the period has no further one. A failed run counts until the time that it
    /// would have held the slot is over.
    pub attempts: u32,
    /// How long no other run may start, from now on: at least 100 ms, at most 30 days.
    pub hold: Duration,
}

impl Conclusion {
    /// The default number of attempts.
    pub const ATTEMPTS: u32 = 3;

    fn check(&self) -> Result<Ttl, String> {
        if !(1..=MOST_ATTEMPTS).contains(&self.attempts) {
            return Err(format!("a period has 1 to {MOST_ATTEMPTS} attempts, not {}", self.attempts));
        }
        let millis = u64::try_from(self.hold.as_millis()).unwrap_or(u64::MAX);
        Ttl::from_millis(millis).map_err(|_| "a period lasts between 100 ms and 30 days".to_owned())
    }
}

impl Node {
    pub(crate) fn conclude(&mut self, call: u64, ticket: TicketId, conclusion: Conclusion, at: Duration) {
        let refused = |message: String| Error::Refused { class: Class::BadRequest, message };
        let Some((Grant { slot, fencing }, _)) = self.clients.granted(ticket) else {
            let why = self.why_not(ticket);
            return self.answer(call, Err(why));
        };
        let Some(entry) = self.clients.get(ticket) else { return };
        if entry.is_detached() && !entry.concluded {
            let why = "a slot of `acquire` cannot be concluded: request it by `hold`, or by `peerlock run`";
            return self.answer(call, Err(refused(why.to_owned())));
        }
        let ttl = match conclusion.check() {
            Ok(ttl) => ttl,
            Err(why) => return self.answer(call, Err(refused(why))),
        };
        let (of, note) = (entry.wanted.name.clone(), label_of(&entry.wanted.label));
        let Some(session) = self.session_state.session() else {
            let error = self.problem().unwrap_or(Error::Lost);
            return self.answer(call, Err(error));
        };
        self.await_registry(call);
        let Conclusion { succeeded, attempts, .. } = conclusion;
        let (resource, run) = (label(&of), Some(RunEnd { succeeded, attempts, at: at.as_millis() as u64 }));
        let ask = Ask::Conclude { ticket, of, fencing, session, until: self.now + ttl.span(), call };
        self.session_state.ask(Command::Detach { session, resource, slot, fencing, ttl, note, run }, ask, self.now);
    }

    pub(crate) fn on_concluded(
        &mut self,
        (ticket, of, fencing): (TicketId, Name, u64),
        (session, until): (SessionId, Time),
        call: u64,
        outcome: Outcome,
    ) {
        let is_held = self.clients.get(ticket).is_some_and(|entry| entry.is_held() && entry.has(fencing));
        let answer = match outcome {
            Outcome::Concluded { holds: true } if is_held => {
                self.hold_until(ticket, until);
                Ok(Answer::Concluded { holds: true })
            }
            // The lease has expired meanwhile, and its slot was handed over.
            Outcome::Concluded { holds: true }
                if self.session_state.session() == Some(session) && !self.is_leaving() =>
            {
                self.drop_detached(of, fencing);
                Err(Error::Lost)
            }
            // The token has ended with the session.
            Outcome::Concluded { holds: true } => Ok(Answer::Concluded { holds: true }),
            Outcome::Concluded { holds: false } => Ok(Answer::Concluded { holds: false }),
            Outcome::Refused(Refusal::NoSuchGrant | Refusal::NotYours | Refusal::NoParty) => Err(Error::Lost),
            Outcome::Refused(why) => Err(self.problem().unwrap_or_else(|| Error::Refused {
                class: Class::Unavailable,
                message: format!("the registry has not recorded the end of a run of {of}: {why}"),
            })),
            outcome => {
                self.unexpected("an outcome that answers no conclusion");
                let message = format!("the registry has answered {outcome:?}");
                Err(Error::Refused { class: Class::Unavailable, message })
            }
        };
        self.answer_caller(call, answer);
    }

    /// Makes a held grant one that lasts until the end of its period.
    pub(crate) fn hold_until(&mut self, ticket: TicketId, until: Time) {
        if let Some(next) = self.clients.conclude(ticket, self.now, until) {
            self.timers.set(Alarm::Ticket(ticket), next);
            self.takeover.on_over(ticket);
            self.effects.push(Effect::Concluded(ticket));
        }
    }
}
