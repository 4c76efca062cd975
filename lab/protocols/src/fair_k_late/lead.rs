//! The coordinator's role: the queue, and the progress of the term.

use core::fmt;

use peerlock_types::PeerId;

use super::{Config, Update};
use peerlock_protocol::queue::Queue;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lead {
    pub(super) epoch: u64,
    served: u32,
    pub(super) queue: Queue,
}

impl Lead {
    pub(super) fn new(tokens: &[PeerId], Config { reach, always_ahead, .. }: Config) -> Self {
        let mut queue = Queue::new(reach, always_ahead);
        (0..).zip(tokens).for_each(|(slot, &at)| queue.add(slot, at, 0, true));
        Self { epoch: 0, served: 0, queue }
    }

    /// An error says why the update is unexpected.
    pub(super) fn apply(&mut self, update: Update) -> Result<(), &'static str> {
        self.served += self.queue.note(update, ())?;
        Ok(())
    }

    /// Moves the role at the end of the term, if another peer has the last waiter.
    pub(super) fn pass_on(&mut self, term: u32, me: PeerId) -> Option<PeerId> {
        if self.served < term {
            return None;
        }
        let last = self.queue.waiting().next_back()?.peer;
        if last == me {
            return None;
        }
        (self.served, self.epoch) = (0, self.epoch + 1);
        Some(last)
    }
}

impl fmt::Display for Lead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "epoch {}: {}", self.epoch, self.queue)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use peerlock_types::Ticket;

    use super::*;
    use crate::token::Claim;

    #[test]
    fn role_moves_to_last_waiter_at_end_of_term() {
        let me = PeerId::new(1);
        let claim = |peer| Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) };
        let mut lead = Lead::new(&[me], Config::default());
        assert_eq!(lead.pass_on(0, me), None, "no waiter");
        [5, 6].into_iter().for_each(|peer| lead.apply(Update::Request(claim(peer))).expect("an expected update"));
        assert_eq!(lead.pass_on(1, me), None, "no entry yet");
        lead.apply(Update::Left { slot: 0, stay: 0, to: claim(5), turn: 0 }).expect("an expected update");

        assert_eq!(lead.pass_on(1, PeerId::new(6)), None, "the last waiter is coordinator");
        assert_eq!(lead.pass_on(1, me), Some(PeerId::new(6)));
        assert_eq!(lead.to_string(), "epoch 1: waiting [6], tokens [0 at 5]");
        assert_eq!(lead.pass_on(1, me), None, "a new term has started");
    }
}
