use peerlock_base::{PeerId, Ticket, Time};
use peerlock_mutex::Observe;

use super::{Broken, Entry, Watch};
use crate::ledger::Ledger;

/// What each client of an open run costs. Peers 0 to n − 1 are the replicas, everybody after them is a client.
#[derive(Debug)]
pub struct Costs {
    replicas: usize,
    /// The place of YIELD among the types of messages, if there is one.
    yields: Option<usize>,
    waiting: u64,
    clients: Vec<Cost>,
}

/// The messages from and to one client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// How many there were.
    pub messages: u64,
    /// How many of them were YIELDs.
    pub yields: u64,
    /// How many waited when it had come, itself included.
    pub place: u64,
}

impl Cost {
    /// Four messages with each of n replicas, and a retry with its answer for each e-fold of the place, of which the
    /// last is seldom a whole one: 4n + 2n ⌈ln P⌉.
    pub fn bound(&self, replicas: u32) -> f64 {
        f64::from(replicas) * (4.0 + 2.0 * (self.place.max(1) as f64).ln().ceil())
    }
}

impl Costs {
    /// For protocol `P` with so many replicas.
    pub fn of<P: Observe>(replicas: u32) -> Self {
        let yields = P::KINDS.iter().position(|kind| *kind == "yield");
        Self { replicas: replicas as usize, yields, waiting: 0, clients: Vec::new() }
    }

    /// The client whose messages are most in relation to the bound of its place.
    pub fn worst(&self) -> Cost {
        let share = |cost: &Cost| cost.messages as f64 / cost.bound(self.replicas as u32);
        self.clients.iter().copied().max_by(|one, other| share(one).total_cmp(&share(other))).unwrap_or_default()
    }

    /// The most YIELDs that a client sent.
    pub fn most_yields(&self) -> u64 {
        self.clients.iter().map(|cost| cost.yields).max().unwrap_or(0)
    }
}

impl<P: Observe> Watch<P> for Costs {
    fn on_request(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        self.waiting += 1;
        self.clients.push(Cost { place: self.waiting, ..Cost::default() });
        Ok(())
    }

    fn on_grant(&mut self, _now: Time, _entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        self.waiting -= 1;
        Ok(())
    }

    fn on_give_up(&mut self, _now: Time, _peer: PeerId, _ticket: Ticket) -> Result<(), Broken> {
        self.waiting -= 1;
        Ok(())
    }

    fn on_send(&mut self, _now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
        let client = from.index().max(to.index()).checked_sub(self.replicas);
        if let Some(cost) = client.and_then(|client| self.clients.get_mut(client)) {
            cost.messages += 1;
            cost.yields += u64::from(self.yields == Some(P::kind(message)));
        }
        Ok(())
    }
}
