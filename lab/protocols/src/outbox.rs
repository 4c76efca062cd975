//! Retransmission until acknowledgement. The protocol sets its timer when [`Outbox::post`] returns true, and calls
//! [`Outbox::again`] when it expires:
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

use crate::replicas::Post;
use crate::{Cx, Protocol, Replicas};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum To {
    Peer(PeerId),
    /// The peer that hosts this replica.
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
    posted: u64,
    entries: Vec<Entry<M>>,
}

impl<M> Default for Outbox<M> {
    fn default() -> Self {
        Self { posted: 0, entries: Vec::new() }
    }
}

impl<M: Clone> Outbox<M> {
    /// Sends the message made with the next receipt number. Returns true if no other was pending.
    pub fn post<P: Protocol<Message = M>>(
        &mut self,
        to: To,
        message: impl FnOnce(u64) -> M,
        (post, replicas): (&mut Post<M>, &Replicas),
        cx: &mut Cx<'_, P>,
    ) -> bool {
        self.posted += 1;
        let message = message(self.posted);
        send(to, message.clone(), (post, replicas), cx);
        self.entries.push(Entry { receipt: self.posted, to, message, tries: 1 });
        self.entries.len() == 1
    }

    /// Removes and returns the acknowledged message, unless the receipt is a duplicate.
    pub fn on_receipt(&mut self, receipt: u64) -> Option<M> {
        let at = self.entries.iter().position(|entry| entry.receipt == receipt)?;
        Some(self.entries.remove(at).message)
    }

    /// Drops messages that need no acknowledgement.
    pub fn forget(&mut self, is_vain: impl Fn(To, &M) -> bool) {
        self.entries.retain(|entry| !is_vain(entry.to, &entry.message));
    }

    pub fn pending(&self) -> impl Iterator<Item = (To, &M)> {
        self.entries.iter().map(|entry| (entry.to, &entry.message))
    }

    /// Resends all messages, and gives up those that were sent `tries` times.
    pub fn again<P: Protocol<Message = M>>(
        &mut self,
        tries: u32,
        (post, replicas): (&mut Post<M>, &Replicas),
        cx: &mut Cx<'_, P>,
    ) -> Vec<(To, M)> {
        let given_up = self.entries.extract_if(.., |entry| entry.tries >= tries);
        let given_up = given_up.map(|entry| (entry.to, entry.message)).collect();
        for entry in &mut self.entries {
            entry.tries += 1;
            send(entry.to, entry.message.clone(), (&mut *post, replicas), cx);
        }
        given_up
    }
}

fn send<M, P: Protocol<Message = M>>(
    to: To,
    message: M,
    (post, replicas): (&mut Post<M>, &Replicas),
    cx: &mut Cx<'_, P>,
) {
    match to {
        To::Peer(peer) => post.send(peer, message, cx),
        To::Replica(replica) => post.send_to(replicas, replica, message, cx),
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use peerlock_types::{Rng, Ticket, Time};

    use super::*;
    use crate::{Effect, Never, Quorum};

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
        let (mut post, replicas) = (Post::new(me), Replicas::first(Quorum::new(3, 2)));
        let mut cx: Cx<'_, Mute> = Cx::new(me, Time::ZERO, &mut rng, &mut effects);
        let mut outbox = Outbox::default();
        assert!(outbox.post(To::Replica(2), |receipt| ('a', receipt), (&mut post, &replicas), &mut cx));
        assert!(!outbox.post(To::Peer(PeerId::new(5)), |receipt| ('b', receipt), (&mut post, &replicas), &mut cx));
        assert_eq!((outbox.on_receipt(1), outbox.on_receipt(1)), (Some(('a', 1)), None));
        assert_eq!(outbox.again(2, (&mut post, &replicas), &mut cx), []);
        assert_eq!(outbox.again(2, (&mut post, &replicas), &mut cx), [(To::Peer(PeerId::new(5)), ('b', 2))]);
        assert_eq!(outbox.pending().count(), 0);
        let sent = |to, message| Effect::Send { to: PeerId::new(to), message };
        assert_eq!(effects, [sent(2, ('a', 1)), sent(5, ('b', 2)), sent(5, ('b', 2))]);
    }

    #[test]
    fn forgotten_message_is_not_pending() {
        let (me, mut rng, mut effects) = (PeerId::new(9), Rng::new(1), Vec::new());
        let (mut post, replicas) = (Post::new(me), Replicas::first(Quorum::new(3, 2)));
        let mut cx: Cx<'_, Mute> = Cx::new(me, Time::ZERO, &mut rng, &mut effects);
        let mut outbox = Outbox::default();
        outbox.post(To::Peer(me), |receipt| ('a', receipt), (&mut post, &replicas), &mut cx);
        outbox.forget(|to, message| to == To::Peer(me) && message.0 == 'a');
        assert_eq!((outbox.pending().count(), post.take(), effects.len()), (0, Some(('a', 1)), 0));
    }
}
