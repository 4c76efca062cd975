//! Renew: deadlines of grants move, or pass.
//!
//! 1. `Input::Renew` by the client: the lease begins again, `Effect::Renewed` and `Answer::Renewed`. A detached grant
//!    is renewed in the registry first ([`detached`](crate::detached)).
//! 2. A renewal of the session moves the deadlines that it bounds: `Effect::Renewed` for each.
//! 3. A lease that was not renewed until its grace period is lost: `Effect::Lost`. At its end the slot is released.

use std::ops::Not;

use crate::clients::TicketId;
use crate::lease::{Bound, Verdict};
use crate::node::{Alarm, Node};
use crate::{Answer, Effect, Error};

impl Node {
    pub(crate) fn renew(&mut self, call: u64, ticket: TicketId) {
        let granted = self.clients.granted(ticket).map(|(grant, _)| grant);
        if let (Some((_, until)), true) = (self.clients.granted(ticket), self.clients.is_concluded(ticket)) {
            return self.answer(call, Ok(Answer::Renewed(until)));
        }
        let detached = self.clients.get(ticket).is_some_and(|entry| entry.is_detached());
        if let (Some(grant), true) = (granted, detached) {
            return match self.problem() {
                Some(error) => self.answer(call, Err(error)),
                None => {
                    self.await_registry(call);
                    self.ask_to_detach(ticket, grant, Some(call));
                }
            };
        }
        let Some(lease) = self.clients.renew(ticket, self.now) else {
            let why = self.why_not(ticket);
            return self.answer(call, Err(why));
        };
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.effects.push(Effect::Renewed { ticket, until: lease.deadline() });
        self.answer(call, Ok(Answer::Renewed(lease.deadline())));
    }

    pub(crate) fn extend(&mut self, bound: Bound) {
        for (ticket, until) in self.clients.extend(bound) {
            self.effects.push(Effect::Renewed { ticket, until });
        }
        self.clients.entering().into_iter().for_each(|ticket| self.confirm(ticket, self.now));
    }

    pub(crate) fn on_ticket_alarm(&mut self, ticket: TicketId) {
        let Some(entry) = self.clients.get(ticket) else { return };
        let (name, why_not) = (entry.wanted.name.clone(), entry.is_held().not().then(|| self.not_acquired(entry)));
        let Some((verdict, lease)) = self.clients.look(ticket, self.now) else {
            why_not.into_iter().for_each(|why| self.end(ticket, why));
            return;
        };
        match verdict {
            Verdict::Valid => {}
            Verdict::Renewed => self.effects.push(Effect::Renewed { ticket, until: lease.deadline() }),
            Verdict::Lost if self.clients.is_concluded(ticket) => {
                return self.finish(ticket, Error::Lost, false);
            }
            Verdict::Lost => {
                // The client has renewed its lease, but the session was not renewed.
                let why = match lease.lost_with(self.now) {
                    Some(bound) => self.no_majority(self.session_state.confirmed(bound)),
                    None => Error::Lost,
                };
                self.on_lost(ticket, name, why);
            }
            Verdict::Expired => return self.finish(ticket, Error::Lost, false),
        }
        self.timers.set(Alarm::Ticket(ticket), lease.next());
    }
}
