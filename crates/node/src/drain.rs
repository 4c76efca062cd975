//! Drain and leave.
//!
//! 1. `Input::Close` accepts no more requests and withdraws the waiting ones; `Input::Drain` also asks the holders to
//!    stop.
//! 2. `Effect::Drained` after the last client.
//! 3. `Input::Leave` ends the remaining tickets except detached grants and, once the registry has answered every
//!    request about these, the session: `Effect::Left`.

use crate::clients::TicketId;
use crate::node::{Alarm, Draining, Node, Phase};
use crate::{Effect, Error};

impl Node {
    pub(crate) fn close(&mut self) {
        self.draining = Draining::Yes;
        let waits = |ticket: &TicketId| self.clients.get(*ticket).is_some_and(|entry| !entry.is_held());
        let waiting: Vec<TicketId> = self.clients.ids().into_iter().filter(waits).collect();
        waiting.into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
    }

    pub(crate) fn drain(&mut self) {
        self.close();
        for ticket in self.clients.ids() {
            let Some(entry) = self.clients.get(ticket).filter(|entry| !entry.is_detached()) else { continue };
            let name = entry.wanted.name.clone();
            if let Some(until) = self.clients.lose(ticket) {
                self.timers.set(Alarm::Ticket(ticket), until);
                self.on_lost(ticket, name, Error::Stopped);
            }
        }
    }

    /// Returns whether a client waits, or holds a grant that ends with our session.
    pub fn has_clients(&self) -> bool {
        self.clients.attached().next().is_some() || self.takeover.holds(self.now)
    }

    pub(crate) fn leave(&mut self) {
        if self.is_leaving() {
            return;
        }
        self.phase = Phase::Leaving;
        self.clients.attached().collect::<Vec<_>>().into_iter().for_each(|ticket| self.end(ticket, Error::Stopped));
        for ticket in self.clients.ids() {
            self.timers.cancel(&Alarm::Ticket(ticket));
            self.clients.take_alias(ticket);
            self.clients.remove(ticket);
        }
        for alarm in [Alarm::Join, Alarm::Health, Alarm::Look] {
            self.timers.cancel(&alarm);
        }
        self.timers.set(Alarm::Leave, self.now + self.config.leave_patience);
    }

    /// Ends the session of a leaving node once no request about a detached grant is pending: a grant that is persisted
    /// late would have no owner.
    pub(crate) fn stop_if_nothing_is_owed(&mut self) -> bool {
        let stops = self.phase == Phase::Leaving && !self.session_state.leaves && !self.session_state.owes();
        if stops {
            self.session_state.stop(self.now);
        }
        stops
    }

    pub(crate) fn left(&mut self, confirmed: bool) {
        if self.phase == Phase::Leaving {
            self.phase = Phase::Left;
            self.timers.cancel(&Alarm::Leave);
            self.contacts.ack_all();
            self.effects.push(Effect::Left { confirmed });
        }
    }
}
