use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Ticket, Time};

use super::event::Scheduled;
use super::{World, check};
use crate::actor::{Actor, Input};
use crate::faults::Crash;
use crate::ledger::Client;
use crate::watch::{Broken, Event};
use crate::workload::{Over, Workload};

#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub at: Time,
    /// Its peer has crashed, so the end cannot change.
    pub is_orphan: bool,
}

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    pub(super) fn enter(&mut self, peer: PeerId, ticket: Ticket, grant: Grant) -> Result<(), Broken> {
        let client = check::waits(self.ledger.take(ticket), peer, ticket, "grants")?;
        self.inside.push(client);
        self.watch.on(self.now, Event::Grant(&client, grant, &self.ledger))?;
        self.injector.entered(self.now, peer);
        if client.is_doomed {
            self.queue.push(self.now, Scheduled::CrashOf { peer, ticket });
            return Ok(());
        }
        L::on_entered(self, &client);
        Ok(())
    }

    pub(super) fn take_inside(&mut self, ticket: Ticket) -> Option<Client> {
        if !self.ends.is_empty() {
            self.ends.remove(&ticket);
        }
        let at = self.inside.iter().position(|client| client.ticket == ticket)?;
        Some(self.inside.swap_remove(at))
    }

    pub(super) fn lose(&mut self, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        match self.take_inside(ticket).filter(|client| client.peer == peer) {
            Some(client) => self.out(&client),
            // It has left by itself.
            None if A::REPORTS_ENDS => Ok(()),
            None => Err(format!("peer {peer} reports {ticket:?} as lost, which does not hold").into()),
        }
    }

    fn out(&mut self, client: &Client) -> Result<(), Broken> {
        self.tally.lost += 1;
        self.watch.on(self.now, Event::Leave(client))?;
        L::on_over(self, client, Over::Lost)
    }

    pub(super) fn send_away(&mut self, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        let client = check::waits(self.ledger.take(ticket), peer, ticket, "refuses")?;
        self.tally.refused += 1;
        self.watch.on(self.now, Event::GiveUp(&client))?;
        L::on_over(self, &client, Over::Refused)
    }

    pub(super) fn report_end(&mut self, peer: PeerId, ticket: Ticket, until: Time) {
        if self.inside.iter().all(|client| client.ticket != ticket) {
            return; // It left at an earlier end, which its peer does not know yet.
        }
        let at = self.injector.clock(peer).map_or(until, |clock| clock.when(until)).max(self.now);
        self.ends.insert(ticket, End { at, is_orphan: false });
        self.queue.push(at, Scheduled::End(ticket));
    }

    pub(super) fn end(&mut self, ticket: Ticket) -> Result<(), Broken> {
        if self.ends.get(&ticket).is_none_or(|end| end.at > self.now) {
            return Ok(());
        }
        let Some(client) = self.take_inside(ticket) else { return Ok(()) };
        self.out(&client)
    }
}

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    pub fn next_ticket(&self) -> Ticket {
        self.ledger.next()
    }

    pub fn ask(&mut self, peer: PeerId, resource: usize) -> Result<(), Broken> {
        if self.hosts.get(peer).is_none() {
            return Ok(());
        }
        self.tally.asked += 1;
        let crash = self.injector.crash();
        let client = self.ledger.ask(peer, resource, self.now, crash == Crash::Inside);
        let ticket = client.ticket;
        if let Crash::After(span) = crash {
            self.queue.push(self.now + span, Scheduled::CrashOf { peer, ticket });
        }
        if let Some(span) = self.injector.withdrawal() {
            self.queue.push(self.now + span, Scheduled::Leave { peer, ticket });
        }
        self.watch.on(self.now, Event::Request(&client))?;
        self.step(peer, Input::Request { resource, ticket })
    }

    /// Without effect if the client loses its grant or crashes before.
    pub fn leave_at(&mut self, at: Time, client: &Client) {
        self.queue.push(at, Scheduled::Leave { peer: client.peer, ticket: client.ticket });
    }

    /// Releases a slot, or withdraws a request.
    pub fn leave(&mut self, ticket: Ticket) -> Result<(), Broken> {
        if self.ends.get(&ticket).is_some_and(|end| end.is_orphan) {
            return Ok(());
        }
        let (client, over) = if let Some(client) = self.take_inside(ticket) {
            self.watch.on(self.now, Event::Leave(&client))?;
            (client, Over::Left)
        } else if let Some(client) = self.ledger.take(ticket) {
            self.tally.withdrawn += 1;
            self.watch.on(self.now, Event::GiveUp(&client))?;
            (client, Over::Withdrawn)
        } else {
            return Ok(());
        };
        self.step(client.peer, Input::Release { resource: client.resource, ticket })?;
        L::on_over(self, &client, over)
    }

    /// Whether a holder's peer has crashed and no later process has resumed the grant.
    pub fn is_orphan(&self, ticket: Ticket) -> bool {
        self.ends.get(&ticket).is_some_and(|end| end.is_orphan)
    }

    pub fn adopt(&mut self, ticket: Ticket) {
        if let Some(end) = self.ends.get_mut(&ticket) {
            end.is_orphan = false;
        }
    }
}
