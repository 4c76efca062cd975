//! Backups on a ring: §5 of the Fair-K paper, for any protocol whose state can be copied.
//!
//! A *participant* is an identifier on Chord's ring. The owner of the identifier acts for it; the next p peers keep
//! copies of its state. When a peer fails, its successor continues from the copy:
//!
//! ```text
//!   1 (requests)  2 (fails)     3 (its successor)   4
//!   │ say(1 → 2)  │             │                   │
//!   ├────────────►│ state 2, version 7              │
//!   │             ├────────────►│                   │
//!   │             ├─────────────┼──────────────────►│
//!   │ confirm     │             │                   │
//!   │◄────────────┤             │                   │
//!   │             ✗             │                   │
//!   │ say(1 → 2)                │ 3 owns 2, and has version 7
//!   ├──────────────────────────►│ state 2, version 8
//!   │                           ├──────────────────►│
//! ```
//!
//! *Departure:* §5 does not say what happens to messages in flight, to the clients of a failed peer, and when it
//! returns. Here, unconfirmed messages are part of the state, and are resent to the next owner. The successor releases
//! the requests and slots of the dead clients. A peer never gets its identifier back.
//!
//! **Safety.** One peer acts for each identifier, as long as failures are reported ([`Protocol::on_peer_down`]) only
//! after everything that the failed peer has sent has arrived. A step sends the new state to the backups and its
//! messages together, so on reliable channels the successor has every state of which another peer has received a
//! message. It resends what was not confirmed, and the receivers discard duplicates by number. If all copies are lost,
//! the protocol is restarted ([`Config::recovers`]).
//!
//! After a false report two peers act for one identifier, and mutual exclusion is violated: a flaw of the design
//! (`explore/scenarios/backed_defects`).

mod message;
mod part;
mod recovery;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hash;

use peerlock_types::{PeerId, Ticket, mix};

pub use self::message::Message;
pub use self::part::Part;
use self::recovery::Recovery;
use crate::token::Layout;
use crate::{Cx, Effect, Input, Never, Observe, Protocol, step};

/// A protocol whose state is a value, which sets no timers, and can be restarted.
pub trait Backable:
    Protocol<Timer = Never, Message: Clone + Eq + Hash> + Observe + Clone + fmt::Debug + Eq + Hash
{
    /// Returns a participant with the same configuration, in its initial state for this layout.
    fn fresh(&self, me: PeerId, layout: &Layout) -> Self;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// p: the copies of a participant's state.
    pub backups: usize,
    /// The owner of a lost state queries all peers and restarts the protocol, as the paper's reference \[18\] does.
    pub recovers: bool,
}

/// Limits the messages between participants of one peer in a step: after a false report parents may form a cycle.
const MAX_PER_STEP: usize = 4096;

/// The peers in ring order.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    peers: Vec<PeerId>,
}

impl Ring {
    /// Orders peers by a hash, so that neighbours are unrelated.
    pub fn mixed(peers: impl IntoIterator<Item = PeerId>) -> Arc<Self> {
        let mut peers: Vec<PeerId> = peers.into_iter().collect();
        peers.sort_by_key(|peer| mix(peer.get()));
        Arc::new(Self { peers })
    }

    pub fn in_order(peers: impl IntoIterator<Item = PeerId>) -> Arc<Self> {
        Arc::new(Self { peers: peers.into_iter().collect() })
    }

    fn from(&self, peer: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let at = self.peers.iter().position(|&other| other == peer).unwrap_or(0);
        self.peers[at..].iter().chain(&self.peers[..at]).copied()
    }
}

/// A peer with its own participant, those that it acts for, and copies of others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backed<P: Backable> {
    me: PeerId,
    config: Config,
    ring: Arc<Ring>,
    failed: BTreeSet<PeerId>,
    parts: BTreeMap<PeerId, Part<P>>,
    inbox: VecDeque<Message<P>>,
    /// Messages for participants that another peer owns according to `failed`.
    early: Vec<Message<P>>,
    recovery: Recovery,
}

impl<P: Backable> Backed<P> {
    /// Creates the participants with `part`.
    pub fn new(me: PeerId, ring: &Arc<Ring>, config: Config, part: impl Fn(PeerId) -> P) -> Self {
        let mut backed = Self {
            me,
            config,
            ring: ring.clone(),
            failed: BTreeSet::new(),
            parts: BTreeMap::new(),
            inbox: VecDeque::new(),
            early: Vec::new(),
            recovery: Recovery::default(),
        };
        let retained =
            ring.peers.iter().filter(|&&whose| whose == me || backed.backups(whose).any(|backup| backup == me));
        backed.parts = retained.map(|&whose| (whose, Part::new(part(whose)))).collect();
        backed
    }

    fn without_memory(&self) -> Self {
        let (failed, parts, inbox, early) = (BTreeSet::new(), BTreeMap::new(), VecDeque::new(), Vec::new());
        Self { failed, parts, inbox, early, recovery: Recovery::default(), ring: self.ring.clone(), ..*self }
    }

    fn owner(&self, whose: PeerId) -> PeerId {
        self.ring.from(whose).find(|peer| !self.failed.contains(peer)).unwrap_or(self.me)
    }

    /// The p peers that follow its owner.
    fn backups(&self, whose: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let living = self.ring.from(whose).filter(|peer| !self.failed.contains(peer));
        living.skip(1).take(self.config.backups)
    }

    fn acted_for(&self) -> Vec<PeerId> {
        self.parts.keys().copied().filter(|&whose| self.owner(whose) == self.me).collect()
    }

    /// Passes an input to a participant; sends the new state to the backups, then the messages.
    fn act(&mut self, whose: PeerId, input: Input<P::Message, Never>, cx: &mut Cx<'_, Self>) {
        let Some(part) = self.parts.get_mut(&whose) else { return };
        match input {
            Input::Request(ticket) => part.open.push(ticket),
            Input::Release(ticket) => part.open.retain(|open| *open != ticket),
            _ => {}
        }
        let (mut effects, before) = (Vec::new(), part.peer.clone());
        let now = cx.now();
        step(&mut part.peer, input, &mut Cx::new(whose, now, cx.rng(), &mut effects));
        let mut outgoing = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send { to, message } => outgoing.push(part.say(whose, to, message)),
                Effect::Grant { ticket, grant } => self.recovery.grant(whose == self.me, ticket, grant, cx),
                Effect::Lost { ticket } if whose == self.me => cx.lost(ticket),
                Effect::Refused { ticket } if whose == self.me => cx.refuse(ticket),
                Effect::Lost { .. } | Effect::Refused { .. } => {}
                Effect::Unexpected { why } => cx.unexpected(why),
                Effect::SetTimer { timer, .. } | Effect::CancelTimer { timer } => match timer {},
                Effect::Route { .. } | Effect::Forward { .. } | Effect::RegistryRequest(_) => {
                    cx.unexpected("a participant used an overlay or a registry, which backups do not support")
                }
            }
        }
        if part.peer != before || !outgoing.is_empty() {
            part.version += 1;
            self.notify_backups(whose, cx);
        }
        for say in outgoing {
            self.send(say, cx);
        }
    }

    /// §5: *an atomic broadcast to all the successors in the replica set*.
    fn notify_backups(&self, whose: PeerId, cx: &mut Cx<'_, Self>) {
        let Some(part) = self.parts.get(&whose) else { return };
        let (epoch, state) = (self.recovery.epoch(), Arc::new(part.clone()));
        for backup in self.backups(whose).filter(|&backup| backup != self.me) {
            cx.send(backup, Message::State { epoch, whose, state: state.clone() });
        }
    }

    fn send(&mut self, mut message: Message<P>, cx: &mut Cx<'_, Self>) {
        message.stamp(self.recovery.epoch());
        let owner = message.to().map_or(self.me, |to| self.owner(to));
        if owner == self.me {
            self.inbox.push_back(message);
        } else {
            cx.send(owner, message);
        }
    }

    fn process_inbox(&mut self, cx: &mut Cx<'_, Self>) {
        for _ in 0..MAX_PER_STEP {
            if self.recovery.is_under_way() {
                return;
            }
            let Some(message) = self.inbox.pop_front() else { return };
            self.deliver(message, cx);
        }
        self.inbox.clear();
        cx.unexpected("a message cycle among the participants of one peer");
    }

    fn deliver(&mut self, message: Message<P>, cx: &mut Cx<'_, Self>) {
        match message {
            // The sender knows of a failure that this peer does not: the state here may be outdated.
            Message::Say { to, .. } if self.owner(to) != self.me => self.early.push(message),
            Message::Say { from, to, number, message, .. } => self.on_say((from, to), number, message, cx),
            Message::Confirm { from, to, number, .. } => {
                if let Some(part) = self.parts.get_mut(&to) {
                    part.outbox.retain(|sent| (sent.to, sent.number) != (from, number));
                }
            }
            Message::State { whose, state, .. } => self.on_state(whose, state, cx),
            Message::Search { .. } | Message::Found { .. } | Message::Fresh { .. } => {}
        }
    }

    fn on_say(&mut self, (from, to): (PeerId, PeerId), number: u64, message: P::Message, cx: &mut Cx<'_, Self>) {
        let Some(part) = self.parts.get_mut(&to) else {
            return self.on_missing_state(cx);
        };
        if part.receives(from, number) {
            self.act(to, Input::Message { from, message }, cx);
        }
        self.send(Message::Confirm { epoch: (0, self.me), from: to, to: from, number }, cx);
    }

    fn on_state(&mut self, whose: PeerId, state: Arc<Part<P>>, cx: &mut Cx<'_, Self>) {
        if self.owner(whose) == self.me {
            return cx.unexpected("another peer acts for an identifier that this peer owns");
        }
        let is_update = self.parts.get(&whose).is_none_or(|part| part.version < state.version);
        if is_update {
            self.parts.insert(whose, Arc::unwrap_or_clone(state));
        }
    }

    fn take_over(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        let before: BTreeSet<PeerId> = self.acted_for().into_iter().collect();
        let was_its: Vec<PeerId> = self.ring.peers.iter().copied().filter(|&whose| self.owner(whose) == peer).collect();
        self.failed.insert(peer);
        self.inbox.extend(core::mem::take(&mut self.early));
        if self.recovery.is_under_way() {
            return self.forget_search_of(peer, cx);
        }
        for &whose in was_its.iter().filter(|&&whose| self.owner(whose) == self.me) {
            if !self.parts.contains_key(&whose) && self.config.recovers {
                // If it was in the critical section, perhaps no message to it will ever reveal the loss.
                return self.on_missing_state(cx);
            }
        }
        for whose in self.acted_for() {
            let is_new = !before.contains(&whose);
            let open = self.parts.get(&whose).map_or(Vec::new(), |part| part.open.clone());
            // Its clients are dead.
            open.into_iter().filter(|_| is_new).for_each(|ticket| self.act(whose, Input::Release(ticket), cx));
            self.notify_backups(whose, cx);
            let sent = self.parts.get(&whose).map_or(Vec::new(), |part| part.outbox.clone());
            for sent in sent.into_iter().filter(|sent| is_new || was_its.contains(&sent.to)) {
                self.send(sent.again(whose), cx);
            }
        }
    }
}

impl<P: Backable> Protocol for Backed<P> {
    type Message = Message<P>;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_under_way() {
            return self.recovery.record_request(ticket);
        }
        self.act(self.me, Input::Request(ticket), cx);
        self.process_inbox(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_under_way() {
            return self.recovery.record_release(ticket);
        }
        self.recovery.remove_grant(ticket);
        self.act(self.me, Input::Release(ticket), cx);
        self.process_inbox(cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message<P>, cx: &mut Cx<'_, Self>) {
        if self.is_of_recovery(from, &message, cx) {
            return self.process_inbox(cx);
        }
        self.deliver(message, cx);
        self.process_inbox(cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        if peer != self.me && !self.failed.contains(&peer) {
            self.take_over(peer, cx);
            self.process_inbox(cx);
        }
    }
}

impl<P: Backable> fmt::Display for Backed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acted: Vec<PeerId> = self.acted_for();
        write!(f, "acts for {acted:?}, has")?;
        self.parts.iter().try_for_each(|(whose, part)| write!(f, " {whose}@{}", part.version))?;
        if self.failed.is_empty() { Ok(()) } else { write!(f, ", without {:?}", self.failed) }
    }
}
