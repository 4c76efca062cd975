//! Retransmission until acknowledgement. The protocol sets its timer when [`Outbox::send`] returns true, and calls
//! [`Outbox::resend`] when it expires:
//!
//! ```text
//!   sender                          receiver
//!   │ RELEASE(receipt 7)             │
//!   ├───────────── lost              │
//!   │ the timer expires              │
//!   │ RELEASE(receipt 7)             │
//!   ├───────────────────────────────►│ acts on it once
//!   │                  GOT(receipt 7)│
//!   │◄───────────────────────────────┤ acknowledges each copy
//! ```

use alloc::vec::Vec;

use peerlock_types::PeerId;

use crate::replicas::Sender;
use crate::{Cx, Protocol};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum To {
    Peer(PeerId),
    Replica(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Entry<M> {
    receipt: u64,
    to: To,
    message: M,
    tries: u32,
}

/// Unacknowledged messages, in the order in which they were sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Outbox<M> {
    sent: u64,
    entries: Vec<Entry<M>>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { sent: 0, entries: Vec::new() }
    }
}

impl<M: Clone> Outbox<M> {
    /// Sends the message made with the next receipt number. Returns true if no other was pending.
    pub fn send<P: Protocol<Message = M>>(
        &mut self,
        to: To,
        message: impl FnOnce(u64) -> M,
        sender: &mut Sender<M>,
        cx: &mut Cx<'_, P>,
    ) -> bool {
        self.sent += 1;
        let entry = Entry { receipt: self.sent, to, message: message(self.sent), tries: 1 };
        entry.send(sender, cx);
        self.entries.push(entry);
        self.entries.len() == 1
    }

    pub fn on_receipt(&mut self, receipt: u64) -> Option<M> {
        let at = self.entries.iter().position(|entry| entry.receipt == receipt)?;
        Some(self.entries.remove(at).message)
    }

    pub fn discard(&mut self, is_done: impl Fn(&M) -> bool) {
        self.entries.retain(|entry| !is_done(&entry.message));
    }

    pub fn pending(&self) -> impl Iterator<Item = &M> {
        self.entries.iter().map(|entry| &entry.message)
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the messages that were sent `tries` times, and drops them.
    pub fn resend<P: Protocol<Message = M>>(
        &mut self,
        tries: u32,
        sender: &mut Sender<M>,
        cx: &mut Cx<'_, P>,
    ) -> Vec<M> {
        let given_up = self.entries.extract_if(.., |entry| entry.tries >= tries).map(|entry| entry.message).collect();
        for entry in &mut self.entries {
            entry.tries += 1;
            entry.send(sender, cx);
        }
        given_up
    }
}

impl<M: Clone> Entry<M> {
    fn send<P: Protocol<Message = M>>(&self, sender: &mut Sender<M>, cx: &mut Cx<'_, P>) {
        match self.to {
            To::Peer(peer) => sender.send(peer, self.message.clone(), cx),
            To::Replica(replica) => sender.send_to(replica, self.message.clone(), cx),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use peerlock_types::{Rng, Ticket, Time};

    use super::*;
    use crate::{Effect, Never, Quorum, Replicas};

    struct Mute;

    impl Protocol for Mute {
        type Message = (char, u64);
        type Timer = Never;
        fn request(&mut self, _: Ticket, _: &mut Cx<'_, Self>) {}
        fn release(&mut self, _: Ticket, _: &mut Cx<'_, Self>) {}
        fn on_message(&mut self, _: PeerId, _: Self::Message, _: &mut Cx<'_, Self>) {}
    }

    #[test]
    fn unacknowledged_message_is_resent_then_given_up() {
        let (me, mut rng, mut effects) = (PeerId::new(9), Rng::new(1), Vec::new());
        let mut sender = Sender::new(me, &Replicas::first(Quorum::new(3, 2)));
        let mut cx: Cx<'_, Mute> = Cx::new(me, Time::ZERO, &mut rng, &mut effects);
        let mut outbox = Outbox::default();
        assert!(outbox.send(To::Replica(2), |receipt| ('a', receipt), &mut sender, &mut cx));
        assert!(!outbox.send(To::Peer(PeerId::new(5)), |receipt| ('b', receipt), &mut sender, &mut cx));
        assert_eq!((outbox.on_receipt(1), outbox.on_receipt(1)), (Some(('a', 1)), None));
        assert_eq!(outbox.resend(2, &mut sender, &mut cx), []);
        assert_eq!(outbox.resend(2, &mut sender, &mut cx), [('b', 2)]);
        assert!(outbox.is_empty());
        let sent = |to, message| Effect::Send { to: PeerId::new(to), message };
        assert_eq!(effects, [sent(2, ('a', 1)), sent(5, ('b', 2)), sent(5, ('b', 2))]);
    }

    #[test]
    fn discarded_message_is_not_pending() {
        let (me, mut rng, mut effects) = (PeerId::new(9), Rng::new(1), Vec::new());
        let mut sender = Sender::new(me, &Replicas::first(Quorum::new(3, 2)));
        let mut cx: Cx<'_, Mute> = Cx::new(me, Time::ZERO, &mut rng, &mut effects);
        let mut outbox = Outbox::default();
        outbox.send(To::Peer(me), |receipt| ('a', receipt), &mut sender, &mut cx);
        outbox.discard(|message| message.0 == 'a');
        assert_eq!((outbox.pending().count(), sender.take(), effects.len()), (0, Some(('a', 1)), 0));
    }
}
