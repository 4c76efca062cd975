//! Backups on a ring: Fair-K paper, §5, for any protocol whose state can be copied.
//!
//! A *participant* is an identifier on Chord's ring. Its state is kept by the owner of the identifier and by the p
//! peers that follow; whoever owns the identifier now acts for it. When a peer fails, its successor owns its
//! identifier, finds the state in its memory, and goes on:
//!
//! ```text
//!   1 (asks)      2 (fails)     3 (its successor)   4
//!   │ say(1 → 2)  │             │                   │
//!   ├────────────►│ state 2, version 7              │      "whenever the node changes its state, it initiates an
//!   │             ├────────────►│                   │       atomic broadcast to all the successors"
//!   │             ├─────────────┼──────────────────►│
//!   │ confirm     │             │                   │
//!   │◄────────────┤             │                   │
//!   │             ✗             │                   │
//!   │ say(1 → 2)                │ 3 owns 2 now, and has version 7
//!   ├──────────────────────────►│ state 2, version 8
//!   │                           ├──────────────────►│
//! ```
//!
//! **What is printed, and what is not.** §5 is two paragraphs. Not in them: what a message that was on its way to the
//! dead one becomes (here its sender keeps it until it is confirmed, and says it again to the next owner; the list of
//! those messages is part of the state, so that the sender's successor does it where the sender is dead, too); what
//! happens to the clients of the dead one (they are gone: whatever they held is released by who acts for them, else
//! nobody would ever); when those who come back get their identifiers back (never).
//!
//! **Atomic broadcast.** A change, its copies and its messages leave in one step, and the paper's channels are
//! reliable: so whatever anybody has heard of a change, its backups will hear, too. On a network that loses or parts
//! this is not so, and no cheap broadcast would make it so. One message for each backup is the least that any atomic
//! broadcast takes.
//!
//! **Who is gone** is told from outside ([`Protocol::on_peer_down`]), and not before all that it has sent has arrived:
//! a copy that comes after its owner's successor has begun to act is too late. §5 believes it. If it is wrong, two act
//! for one identifier, with one token each: two are inside where one may be. That is no mistake of this file but of the
//! idea, and `explore/scenarios/backed_defects` shows it; what [`custody`](crate::custody) does instead is in
//! docs/papers/backups.md.

mod message;
mod part;
mod recovery;

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::hash::Hash;

use peerlock_base::{PeerId, Ticket, mix};

pub use self::message::Message;
pub use self::part::Part;
use self::recovery::Recovery;
use crate::token::Layout;
use crate::{Cx, Effect, Input, Never, Observe, Protocol, step};

/// A protocol that can be backed: its state is nothing but a value, it sets no timers, and it can begin anew.
pub trait Backable:
    Protocol<Timer = Never, Message: Clone + Eq + Hash> + Observe + Clone + fmt::Debug + Eq + Hash
{
    /// One peer's part in the same resource, played in the same way, where everything begins again with this layout.
    fn anew(&self, me: PeerId, layout: &Layout) -> Self;
}

/// How backups are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// p: how many successors have a participant's state beside whoever acts for it.
    pub backups: usize,
    /// Whether those who own an identifier whose state nobody has ask all others and begin anew, as the paper's
    /// reference \[18\] does. Else it is lost, with whatever it had.
    pub recovers: bool,
}

/// More than this is never said in one step among participants of one peer: a request passes each of them once, and so
/// does each token. But where living peers were taken for gone, two have acted for one participant, and then parents
/// may lead in a circle. Who acts for all in it would go round for ever, within a step.
const MOST_IN_A_STEP: usize = 4096;

/// Everybody's place on the ring.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    /// In the order of the ring.
    peers: Vec<PeerId>,
}

impl Ring {
    /// These peers, each where its number is mixed to: neighbours on the ring have nothing in common.
    pub fn mixed(peers: impl IntoIterator<Item = PeerId>) -> Arc<Self> {
        let mut peers: Vec<PeerId> = peers.into_iter().collect();
        peers.sort_by_key(|peer| mix(peer.get()));
        Arc::new(Self { peers })
    }

    /// These peers in this order.
    pub fn in_order(peers: impl IntoIterator<Item = PeerId>) -> Arc<Self> {
        Arc::new(Self { peers: peers.into_iter().collect() })
    }

    /// All peers, from this one on.
    fn from(&self, peer: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let at = self.peers.iter().position(|&other| other == peer).unwrap_or(0);
        self.peers[at..].iter().chain(&self.peers[..at]).copied()
    }
}

/// One peer: the part that it plays for its own clients, and those whose backup it is or for which it acts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Backed<P: Backable> {
    me: PeerId,
    config: Config,
    ring: Arc<Ring>,
    /// Whom we take for gone. Nobody comes back.
    gone: BTreeSet<PeerId>,
    /// Every participant whose state we have.
    parts: BTreeMap<PeerId, Part<P>>,
    /// What participants for which we act say to each other.
    inbox: VecDeque<Message<P>>,
    /// What was said to participants that are not ours, as far as we know: its sender knows of more who are gone.
    early: Vec<Message<P>>,
    recovery: Recovery,
}

impl<P: Backable> Backed<P> {
    /// A peer that nobody has asked for anything yet, with its own part and those whose backup it is, which `part`
    /// makes.
    pub fn new(me: PeerId, ring: &Arc<Ring>, config: Config, part: impl Fn(PeerId) -> P) -> Self {
        let mut backed = Self {
            me,
            config,
            ring: ring.clone(),
            gone: BTreeSet::new(),
            parts: BTreeMap::new(),
            inbox: VecDeque::new(),
            early: Vec::new(),
            recovery: Recovery::default(),
        };
        let kept = ring.peers.iter().filter(|&&whose| whose == me || backed.backups(whose).any(|backup| backup == me));
        backed.parts = kept.map(|&whose| (whose, Part::new(part(whose)))).collect();
        backed
    }

    /// A peer at the same place that has forgotten everything.
    fn without_memory(&self) -> Self {
        let (gone, parts, inbox, early) = (BTreeSet::new(), BTreeMap::new(), VecDeque::new(), Vec::new());
        Self { gone, parts, inbox, early, recovery: Recovery::default(), ring: self.ring.clone(), ..*self }
    }

    /// Who owns an identifier: the first from there on that is not gone. We are not gone ourselves.
    fn owner(&self, whose: PeerId) -> PeerId {
        self.ring.from(whose).find(|peer| !self.gone.contains(peer)).unwrap_or(self.me)
    }

    /// Who has a copy of a participant's state: the p that follow its owner.
    fn backups(&self, whose: PeerId) -> impl Iterator<Item = PeerId> + '_ {
        let living = self.ring.from(whose).filter(|peer| !self.gone.contains(peer));
        living.skip(1).take(self.config.backups)
    }

    /// The participants for which we act, as far as we have their state.
    fn acted_for(&self) -> Vec<PeerId> {
        self.parts.keys().copied().filter(|&whose| self.owner(whose) == self.me).collect()
    }

    /// One step of a participant for which we act: it changes, its backups are told, and its messages go out.
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
        let mut says = Vec::new();
        for effect in effects {
            match effect {
                Effect::Send { to, message } => says.push(part.say(whose, to, message)),
                Effect::Grant { ticket, grant } => self.recovery.grant(whose == self.me, ticket, grant, cx),
                Effect::Lost { ticket } if whose == self.me => cx.lost(ticket),
                Effect::Refused { ticket } if whose == self.me => cx.refuse(ticket),
                Effect::Lost { .. } | Effect::Refused { .. } => {}
                Effect::Strange { why } => cx.strange(why),
                Effect::SetTimer { timer, .. } | Effect::CancelTimer { timer } => match timer {},
                Effect::Route { .. } | Effect::Forward { .. } | Effect::Wish(_) => {
                    cx.strange("a participant that wants an overlay or a register, which backups have not")
                }
            }
        }
        if part.peer != before || !says.is_empty() {
            part.version += 1;
            self.tell_backups(whose, cx);
        }
        for say in says {
            self.post(say, cx);
        }
    }

    /// "It initiates an atomic broadcast to all the successors in the replica set."
    fn tell_backups(&self, whose: PeerId, cx: &mut Cx<'_, Self>) {
        let Some(part) = self.parts.get(&whose) else { return };
        let (epoch, state) = (self.recovery.epoch(), Arc::new(part.clone()));
        for backup in self.backups(whose).filter(|&backup| backup != self.me) {
            cx.send(backup, Message::State { epoch, whose, state: state.clone() });
        }
    }

    /// To whoever owns the identifier that a message is for; which may be ourselves.
    fn post(&mut self, mut message: Message<P>, cx: &mut Cx<'_, Self>) {
        message.stamp(self.recovery.epoch());
        let owner = message.to().map_or(self.me, |to| self.owner(to));
        if owner == self.me {
            self.inbox.push_back(message);
        } else {
            cx.send(owner, message);
        }
    }

    fn settle(&mut self, cx: &mut Cx<'_, Self>) {
        for _ in 0..MOST_IN_A_STEP {
            if self.recovery.is_under_way() {
                return;
            }
            let Some(message) = self.inbox.pop_front() else { return };
            self.deliver(message, cx);
        }
        self.inbox.clear();
        cx.strange("a message that goes round in circles among participants of one peer");
    }

    fn deliver(&mut self, message: Message<P>, cx: &mut Cx<'_, Self>) {
        match message {
            // To act now would be to act beside one who may live, and with a state of which changes are still to come.
            Message::Say { to, .. } if self.owner(to) != self.me => self.early.push(message),
            Message::Say { from, to, number, message, .. } => self.on_say((from, to), number, message, cx),
            Message::Confirm { from, to, number, .. } => {
                // The backups learn of it with the next change: what they would say again is known there by its number.
                if let Some(part) = self.parts.get_mut(&to) {
                    part.outbox.retain(|said| (said.to, said.number) != (from, number));
                }
            }
            Message::State { whose, state, .. } => self.on_state(whose, state, cx),
            Message::Search { .. } | Message::Found { .. } | Message::Anew { .. } => {}
        }
    }

    /// "If the node i fails, all messages directed to the identifier of node i will be received by the successor of
    /// node i … Since node j has the state information about node i, it can process the message."
    fn on_say(&mut self, (from, to): (PeerId, PeerId), number: u64, message: P::Message, cx: &mut Cx<'_, Self>) {
        let Some(part) = self.parts.get_mut(&to) else {
            // "Such a scenario can be detected when a node receives a message destined to an identifier for which it is
            // the owner, but it does not have the state information of that identifier."
            return self.miss(to, cx);
        };
        if part.hears(from, number) {
            self.act(to, Input::Message { from, message }, cx);
        }
        self.post(Message::Confirm { epoch: (0, self.me), from: to, to: from, number }, cx);
    }

    fn on_state(&mut self, whose: PeerId, state: Arc<Part<P>>, cx: &mut Cx<'_, Self>) {
        if self.owner(whose) == self.me {
            return cx.strange("somebody else acts for an identifier that is ours");
        }
        let is_news = self.parts.get(&whose).is_none_or(|part| part.version < state.version);
        if is_news {
            self.parts.insert(whose, Arc::unwrap_or_clone(state));
        }
    }

    /// A peer is gone: what it had is its successor's.
    fn take_over(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        let before: BTreeSet<PeerId> = self.acted_for().into_iter().collect();
        let was_its: Vec<PeerId> = self.ring.peers.iter().copied().filter(|&whose| self.owner(whose) == peer).collect();
        self.gone.insert(peer);
        self.inbox.extend(core::mem::take(&mut self.early));
        if self.recovery.is_under_way() {
            return self.forget_search_of(peer, cx);
        }
        for &whose in was_its.iter().filter(|&&whose| self.owner(whose) == self.me) {
            if !self.parts.contains_key(&whose) && self.config.recovers {
                // Else nobody would ever miss one who died inside with others waiting behind it: they are told nothing.
                return self.miss(whose, cx);
            }
        }
        for whose in self.acted_for() {
            let is_new = !before.contains(&whose);
            let open = self.parts.get(&whose).map_or(Vec::new(), |part| part.open.clone());
            // Its clients are gone: whatever they held goes on.
            open.into_iter().filter(|_| is_new).for_each(|ticket| self.act(whose, Input::Release(ticket), cx));
            self.tell_backups(whose, cx);
            let said = self.parts.get(&whose).map_or(Vec::new(), |part| part.outbox.clone());
            for said in said.into_iter().filter(|said| is_new || was_its.contains(&said.to)) {
                self.post(said.again(whose), cx);
            }
        }
    }
}

impl<P: Backable> Protocol for Backed<P> {
    type Message = Message<P>;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_under_way() {
            return self.recovery.keep(ticket);
        }
        self.act(self.me, Input::Request(ticket), cx);
        self.settle(cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.recovery.is_under_way() {
            return self.recovery.give_back(ticket);
        }
        self.recovery.left(ticket);
        self.act(self.me, Input::Release(ticket), cx);
        self.settle(cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message<P>, cx: &mut Cx<'_, Self>) {
        if self.is_of_recovery(from, &message, cx) {
            return self.settle(cx);
        }
        self.deliver(message, cx);
        self.settle(cx);
    }

    fn on_peer_down(&mut self, peer: PeerId, cx: &mut Cx<'_, Self>) {
        if peer != self.me && !self.gone.contains(&peer) {
            self.take_over(peer, cx);
            self.settle(cx);
        }
    }
}

impl<P: Backable> fmt::Display for Backed<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acted: Vec<PeerId> = self.acted_for();
        write!(f, "acts for {acted:?}, has")?;
        self.parts.iter().try_for_each(|(whose, part)| write!(f, " {whose}@{}", part.version))?;
        if self.gone.is_empty() { Ok(()) } else { write!(f, ", without {:?}", self.gone) }
    }
}
