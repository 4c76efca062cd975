//! Every request that has not been served yet, in the order they were made.

use std::collections::VecDeque;

use peerlock_base::{PeerId, Ticket, Time};

/// Gives out tickets and remembers them as long as somebody waits. Ticket numbers count up over the whole run, so the
/// oldest open request is at the front, and any other is found without searching.
#[derive(Debug, Default)]
pub struct Ledger {
    /// From the oldest waiting request to the newest; `None` for those that were struck out before it.
    open: VecDeque<Option<Request>>,
    /// How many have left `open` at the front; tickets start at 1.
    gone: u64,
    waiting: usize,
}

/// Who asked, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The peer whose client asks.
    pub peer: PeerId,
    /// When it asked.
    pub at: Time,
}

impl Ledger {
    /// Notes a request and gives it the next ticket.
    pub fn ask(&mut self, peer: PeerId, at: Time) -> Ticket {
        self.open.push_back(Some(Request { peer, at }));
        self.waiting += 1;
        Ticket::new(self.gone + self.open.len() as u64)
    }

    /// Strikes out a request that was granted, or that nobody waits for any more; `None` if it is not waiting.
    pub fn strike(&mut self, ticket: Ticket) -> Option<Request> {
        let at = ticket.get().checked_sub(self.gone + 1)?;
        let request = self.open.get_mut(usize::try_from(at).ok()?)?.take()?;
        self.waiting -= 1;
        while let Some(None) = self.open.front() {
            self.open.pop_front();
            self.gone += 1;
        }
        Some(request)
    }

    /// The request that has been waiting longest, and its ticket.
    pub fn oldest(&self) -> Option<(Ticket, Request)> {
        let request = (*self.open.front()?)?;
        Some((Ticket::new(self.gone + 1), request))
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_in_any_order_and_each_once() {
        let mut ledger = Ledger::default();
        let tickets: Vec<Ticket> = (0..4).map(|n| ledger.ask(PeerId::new(n), Time::from_nanos(n))).collect();
        assert_eq!(tickets.iter().map(|ticket| ticket.get()).collect::<Vec<_>>(), [1, 2, 3, 4]);

        assert_eq!(ledger.strike(tickets[1]).map(|request| request.peer), Some(PeerId::new(1)));
        assert_eq!(ledger.strike(tickets[1]), None, "granted twice");
        assert_eq!(ledger.oldest().map(|(ticket, _)| ticket), Some(tickets[0]));

        assert!(ledger.strike(tickets[0]).is_some());
        assert_eq!(ledger.oldest().map(|(ticket, _)| ticket), Some(tickets[2]));
        assert_eq!(ledger.strike(tickets[0]), None, "long gone");
        assert_eq!(ledger.strike(Ticket::NONE), None);
        assert_eq!(ledger.strike(Ticket::new(9)), None, "never asked for");
        assert_eq!(ledger.waiting(), 2);

        assert_eq!(ledger.ask(PeerId::new(0), Time::ZERO).get(), 5);
    }
}
