use std::collections::VecDeque;

use peerlock_types::{PeerId, Ticket, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    pub peer: PeerId,
    pub ticket: Ticket,
    pub resource: usize,
    pub asked: Time,
    pub(crate) is_doomed: bool,
}

/// The waiting requests, by ticket, so that any request is found without searching.
#[derive(Debug, Default)]
pub struct Ledger {
    /// `None` for those removed out of order.
    open: VecDeque<Option<Client>>,
    /// Removed at the front; tickets start at 1.
    gone: u64,
    waiting: usize,
}

impl Ledger {
    pub(crate) fn next(&self) -> Ticket {
        Ticket::new(self.gone + self.open.len() as u64 + 1)
    }

    #[inline]
    pub(crate) fn ask(&mut self, peer: PeerId, resource: usize, asked: Time, is_doomed: bool) -> Client {
        let ticket = self.next();
        let client = Client { peer, ticket, resource, asked, is_doomed };
        self.open.push_back(Some(client));
        self.waiting += 1;
        client
    }

    #[inline]
    pub(crate) fn take(&mut self, ticket: Ticket) -> Option<Client> {
        let at = ticket.get().checked_sub(self.gone + 1)?;
        let client = self.open.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.waiting -= 1;
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.gone += 1;
        }
        Some(client)
    }

    pub fn oldest(&self) -> Option<Client> {
        *self.open.front()?
    }

    pub fn get(&self, ticket: Ticket) -> Option<Client> {
        *self.open.get(usize::try_from(ticket.get().checked_sub(self.gone + 1)?).ok()?)?
    }

    pub fn iter(&self) -> impl Iterator<Item = &Client> {
        self.open.iter().flatten()
    }

    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ledger_removes_each_request_once() {
        let mut ledger = Ledger::default();
        let mut ask = |n| ledger.ask(PeerId::new(n), 0, Time::from_nanos(n), false).ticket;
        let tickets = [ask(0), ask(1), ask(2), ask(3)];
        assert_eq!(tickets.map(Ticket::get), [1, 2, 3, 4]);

        assert_eq!(ledger.take(tickets[1]).map(|client| client.peer), Some(PeerId::new(1)));
        assert_eq!(ledger.take(tickets[1]), None, "granted twice");
        assert_eq!(ledger.oldest().map(|client| client.ticket), Some(tickets[0]));

        assert!(ledger.take(tickets[0]).is_some());
        assert_eq!(ledger.oldest().map(|client| client.ticket), Some(tickets[2]));
        assert_eq!(ledger.take(tickets[0]), None, "long gone");
        assert_eq!(ledger.take(Ticket::NONE), None);
        assert_eq!(ledger.take(Ticket::new(9)), None, "never asked for");
        assert_eq!(ledger.get(tickets[3]).map(|client| client.peer), Some(PeerId::new(3)));
        assert_eq!((ledger.get(tickets[1]), ledger.get(Ticket::new(9))), (None, None));
        assert_eq!((ledger.waiting(), ledger.iter().count()), (2, 2));

        assert_eq!(ledger.ask(PeerId::new(0), 0, Time::ZERO, false).ticket.get(), 5);
    }
}
