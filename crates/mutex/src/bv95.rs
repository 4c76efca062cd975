//! BV95: k-mutual exclusion with k trees (Bulgannawar, Vaidya: "A Distributed K-Mutual Exclusion Algorithm", ICDCS
//! 1995), the baseline that Fair-K was measured against.
//!
//! There are k tokens, and a client is inside only with one of them. Each token has a tree of its own, which is played
//! like the single tree of Naimi and Tréhel: the root has the token or will have it last, a request follows the
//! `parent` pointers to it, and every pointer on the way is turned towards the requester. A newcomer picks one tree by
//! a [`Heuristic`], knowing nothing of the queues, and stays there. That is what makes it unfair.
//!
//! We have it second-hand, from the Fair-K paper (the sections in the margin are its), which says that requests are
//! *cached* and does not say how. So there are two [`Organisation`]s; `docs/papers/bv95.md` says why ours caches thus:
//!
//! ```text
//!   5            4 (waits)         3 (inside)       tree 0
//!   │              │ request(4)      │
//!   │              ├────────────────►│              3 puts 4 into the token's queue
//!   │ request(5)   │                 │
//!   ├─────────────►│                 │              4 waits for the same token: it keeps 5's request
//!   │              │                 │ … leaves
//!   │              │       token [2] │              and 2 has asked meanwhile
//!   │              │◄────────────────┤              3 points to 2, the tail
//!   │              │ token [5]                      4 has put 5 behind 2, entered and left; it points to 5
//!   │              ├──────────────────────────► 2
//! ```
//!
//! *Departure:* any number of clients wait at one peer, each ticket in its own right, and a waiting ticket may
//! withdraw, as in [Fair-K](crate::fair_k). A token that nobody wants elsewhere goes to the oldest ticket that waits at
//! the same peer, whichever tree that has picked; its place there passes the token on, as if it had withdrawn.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket};

use crate::backed::Backable;
pub use crate::token::{Claim, Layout, Token};
use crate::{Cx, Never, Observe, Protocol};

/// The two messages, each of one tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Message {
    /// Somebody asks. From a requester to its parent, and on from parent to parent until it reaches one that keeps it;
    /// answered by `Token`.
    Request {
        /// The tree, which is named after its token's slot.
        slot: u32,
        /// The requester, not the peer that passes the request on.
        claim: Claim,
    },
    /// From the one who leaves to the next in line.
    Token {
        /// The place in line that it is meant for.
        to: Ticket,
        /// The token itself.
        token: Token,
        /// Who follows after `to`. Always empty in the plain organisation, where each place knows its own `next`.
        queue: VecDeque<Claim>,
    },
}

/// How the requests of one tree are put in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Organisation {
    /// Naimi and Tréhel's: the root is the end of the line, who is told its `next` and is root no longer. One FIFO per
    /// tree.
    Plain,
    /// The token carries its queue. A waiting peer keeps the requests that reach it, and puts them at the end of the
    /// queue when the token comes: fewer messages, but they wait twice (§4, where Fair-K gives fairness as its reason
    /// not to cache).
    #[default]
    Caching,
}

/// Which tree a request goes to (§2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Heuristic {
    /// Each with the same probability (§3.2, the cinema without a moderator).
    #[default]
    Random,
    /// The tree whose token this peer had last; before its first, the one of its number modulo k.
    LastHeld,
    /// One after the other, beginning with the one of the peer's number modulo k.
    RoundRobin,
}

/// How the protocol is played. The default is the form that comes closest to the published figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Config {
    /// How the requests of one tree are put in line.
    pub organisation: Organisation,
    /// Which tree a request goes to.
    pub heuristic: Heuristic,
}

/// One request's place in line.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Place {
    ticket: Ticket,
    /// Waits for the token only to pass it on.
    withdrawn: bool,
    /// Plain: *next*, at most one. Caching: the requests that were kept here.
    behind: VecDeque<Claim>,
}

/// A token that is here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Held {
    token: Token,
    /// Whose turn it is; `None` while nobody wants the token.
    inside: Option<Ticket>,
    /// Who gets it then. Plain: *next*, at most one.
    queue: VecDeque<Claim>,
}

/// One peer's part in the tree of one token.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Tree {
    /// *parent*: where requests are forwarded to; `None` where they are kept. Plain: at the root. Caching: with every
    /// peer that has the token or waits for it.
    parent: Option<PeerId>,
    held: Option<Held>,
    /// Our clients' places in line, by ticket. The token comes to the first one first.
    places: Vec<Place>,
}

/// One peer's part in BV95, for one resource.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Bv95 {
    me: PeerId,
    config: Config,
    trees: Vec<Tree>,
    /// The tree for our next request, if that is not left to chance.
    turn: u32,
}

impl Bv95 {
    /// Each token's holder is the root of its tree, and everybody else's parent there.
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let tree = |slot: u32| {
            let root = layout.tokens[slot as usize];
            let held = Held { token: Token::new(slot), inside: None, queue: VecDeque::new() };
            Tree { parent: (me != root).then_some(root), held: (me == root).then_some(held), places: Vec::new() }
        };
        let turn = (me.get() % u64::from(slots)) as u32; // Below `slots`, so it fits.
        Self { me, config, trees: (0..slots).map(tree).collect(), turn }
    }

    fn slots(&self) -> u32 {
        self.trees.len() as u32 // As many as `Layout::slots` counted in 32 bits.
    }

    /// §2: a request goes to one tree of the k.
    fn choose_tree(&mut self, cx: &mut Cx<'_, Self>) -> u32 {
        let slots = self.slots();
        match self.config.heuristic {
            Heuristic::Random => cx.rng().below(u64::from(slots)) as u32,
            Heuristic::LastHeld => self.turn,
            Heuristic::RoundRobin => {
                let slot = self.turn;
                self.turn = (slot + 1) % slots;
                slot
            }
        }
    }

    /// Lets a client of ours in with the token of a tree, which is here.
    fn enter(&mut self, slot: u32, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let slots = self.slots();
        let held = self.trees[slot as usize].held.as_mut().expect("who enters has the token here");
        held.inside = Some(ticket);
        cx.grant(ticket, held.token.grant(slots));
        if self.config.heuristic == Heuristic::LastHeld {
            self.turn = slot;
        }
    }

    /// A request of one tree, from the network or our own, is forwarded with path reversal or kept.
    fn process_request(&mut self, slot: u32, r: Claim, cx: &mut Cx<'_, Self>) {
        let tree = &mut self.trees[slot as usize];
        let turns = tree.parent.is_some() || self.config.organisation == Organisation::Plain;
        if let Some(parent) = tree.parent {
            cx.send(parent, Message::Request { slot, claim: r });
        } else {
            tree.keep(r, self.config.organisation);
        }
        if turns && r.peer != self.me {
            tree.parent = Some(r.peer); // Path reversal. A cache stays where it is until the token has come and gone.
        }
        if tree.held.as_ref().is_some_and(|held| held.inside.is_none()) {
            self.pass_on(slot, cx);
        }
    }

    /// Nobody is inside with the token of this tree, which is here: who gets it? Where that is a place of ours whose
    /// client has withdrawn we go on with the next, which is why this is a loop.
    fn pass_on(&mut self, slot: u32, cx: &mut Cx<'_, Self>) {
        loop {
            let tree = &mut self.trees[slot as usize];
            let mut held = tree.held.take().expect("who passes the token on has it");
            held.inside = None;
            let Some(to) = held.queue.pop_front() else {
                tree.held = Some(held);
                if let Some(ticket) = self.take_oldest_waiting() {
                    self.enter(slot, ticket, cx);
                }
                return;
            };
            if to.peer != self.me {
                if tree.parent.is_none() && tree.places.is_empty() {
                    tree.parent = Some(held.queue.back().unwrap_or(&to).peer); // Caching: points to the tail.
                }
                let (token, queue) = (held.token, held.queue);
                return cx.send(to.peer, Message::Token { to: to.ticket, token, queue });
            }
            tree.held = Some(held);
            if self.arrive(slot, to.ticket, cx) {
                return;
            }
        }
    }

    /// The token has come to a place of ours, which ends here: the ones behind it follow the token from now on. Says
    /// whether its client went in.
    fn arrive(&mut self, slot: u32, ticket: Ticket, cx: &mut Cx<'_, Self>) -> bool {
        let tree = &mut self.trees[slot as usize];
        let at = tree.places.iter().position(|place| place.ticket == ticket);
        let (Some(at), Some(held)) = (at, &mut tree.held) else {
            cx.strange("a token for a ticket that does not wait here");
            return false; // Better passed on than lost.
        };
        let mut place = tree.places.remove(at);
        held.queue.append(&mut place.behind);
        if !place.withdrawn {
            self.enter(slot, ticket, cx);
        }
        !place.withdrawn
    }

    /// A token is at hand that nobody wants elsewhere. Our client who has waited longest can have it, and leaves its
    /// place in another tree's line to those behind it.
    fn take_oldest_waiting(&mut self) -> Option<Ticket> {
        let places = self.trees.iter_mut().flat_map(|tree| &mut tree.places);
        let oldest = places.filter(|place| !place.withdrawn).min_by_key(|place| place.ticket)?;
        oldest.withdrawn = true;
        Some(oldest.ticket)
    }
}

impl Tree {
    /// Puts a request at the end of what we know of the line.
    fn keep(&mut self, r: Claim, organisation: Organisation) {
        let queue = self.held.as_mut().map(|held| &mut held.queue);
        let end = match organisation {
            // Our newest place is the end of the line. If there is none, who is inside here is.
            Organisation::Plain => self.places.last_mut().map(|place| &mut place.behind).or(queue),
            // Our oldest place is where the token comes first.
            Organisation::Caching => queue.or(self.places.first_mut().map(|place| &mut place.behind)),
        };
        let end = end.expect("requests are kept where the token is or will be");
        debug_assert!(organisation == Organisation::Caching || end.is_empty(), "the end has nobody behind it");
        end.push_back(r);
    }
}

impl Protocol for Bv95 {
    type Message = Message;
    type Timer = Never;

    /// With a token at hand the client enters at once; otherwise it picks a tree.
    #[inline]
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let mut places = self.trees.iter().flat_map(|tree| &tree.places);
        debug_assert!(places.all(|place| place.ticket < ticket), "tickets are asked for in order");
        let held = self.trees.iter().filter_map(|tree| tree.held.as_ref());
        if let Some(idle) = held.filter(|held| held.inside.is_none()).map(|held| held.token.slot).next() {
            return self.enter(idle, ticket, cx);
        }
        let slot = self.choose_tree(cx);
        let claim = Claim { peer: self.me, ticket };
        match self.trees[slot as usize].parent.take() {
            Some(parent) => cx.send(parent, Message::Request { slot, claim }),
            None => self.process_request(slot, claim, cx),
        }
        self.trees[slot as usize].places.push(Place { ticket, withdrawn: false, behind: VecDeque::new() });
    }

    #[inline]
    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let inside = |tree: &Tree| tree.held.as_ref().is_some_and(|held| held.inside == Some(ticket));
        if let Some(slot) = (0..self.slots()).find(|&slot| inside(&self.trees[slot as usize])) {
            self.pass_on(slot, cx);
        } else if let Some(place) =
            self.trees.iter_mut().flat_map(|tree| &mut tree.places).find(|place| place.ticket == ticket)
        {
            place.withdrawn = true;
        }
    }

    #[inline]
    fn on_message(&mut self, _from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        let (Message::Request { slot, .. } | Message::Token { token: Token { slot, .. }, .. }) = message;
        let Some(tree) = self.trees.get_mut(slot as usize) else {
            return cx.strange("a message of a tree that there is not");
        };
        match message {
            Message::Request { claim, .. } => self.process_request(slot, claim, cx),
            Message::Token { .. } if tree.held.is_some() => cx.strange("a token that is here already"),
            Message::Token { to, token, queue } => {
                tree.held = Some(Held { token, inside: None, queue });
                if !self.arrive(slot, to, cx) {
                    self.pass_on(slot, cx);
                }
            }
        }
    }
}

impl Backable for Bv95 {
    fn anew(&self, me: PeerId, layout: &Layout) -> Self {
        Self::new(me, layout, self.config)
    }
}

impl Observe for Bv95 {
    const KINDS: &'static [&'static str] = &["request", "token"];

    #[inline]
    fn kind(message: &Message) -> usize {
        match message {
            Message::Request { .. } => 0,
            Message::Token { .. } => 1,
        }
    }

    fn tokens_in_all(&self) -> Option<usize> {
        Some(self.trees.len())
    }

    #[inline]
    fn tokens(&self) -> usize {
        self.trees.iter().filter(|tree| tree.held.is_some()).count()
    }

    #[inline]
    fn tokens_in(message: &Message) -> usize {
        usize::from(matches!(message, Message::Token { .. }))
    }

    #[inline]
    fn trees(&self) -> usize {
        self.trees.len()
    }

    #[inline]
    fn parent_in(&self, tree: usize) -> Option<PeerId> {
        self.trees[tree].parent
    }
}

/// `request(4) in tree 0`, `token 0`, and with a queue `token 0 [4, 2]`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request { slot, claim } => write!(f, "request({claim}) in tree {slot}"),
            Self::Token { token, queue, .. } if queue.is_empty() => write!(f, "token {}", token.slot),
            Self::Token { token, queue, .. } => write!(f, "token {} {queue:?}", token.slot),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec;

    use peerlock_base::{Rng, Time};

    use super::*;
    use crate::{Effect, Grant, Input, step};

    type Effects = Vec<Effect<Message, Never>>;

    const PLAIN: Config = Config { organisation: Organisation::Plain, heuristic: Heuristic::LastHeld };
    const CACHING: Config = Config { organisation: Organisation::Caching, heuristic: Heuristic::LastHeld };
    const ROUND_ROBIN: Config = Config { organisation: Organisation::Caching, heuristic: Heuristic::RoundRobin };

    /// One of six peers.
    fn peer(me: u64, slots: u32, config: Config) -> Bv95 {
        Bv95::new(PeerId::new(me), &Layout::printed(6, slots), config)
    }

    fn on(peer: &mut Bv95, input: Input<Message, Never>) -> Effects {
        let mut effects = Effects::new();
        let mut rng = Rng::new(1);
        step(peer, input, &mut Cx::new(peer.me, Time::ZERO, &mut rng, &mut effects));
        effects
    }

    fn ask(peer: &mut Bv95, ticket: u64) -> Effects {
        on(peer, Input::Request(Ticket::new(ticket)))
    }

    fn release(peer: &mut Bv95, ticket: u64) -> Effects {
        on(peer, Input::Release(Ticket::new(ticket)))
    }

    fn hear(peer: &mut Bv95, message: Message) -> Effects {
        on(peer, Input::Message { from: PeerId::new(9), message })
    }

    /// The first client of a peer, or another.
    fn claim(peer: u64, ticket: u64) -> Claim {
        Claim { peer: PeerId::new(peer), ticket: Ticket::new(ticket) }
    }

    fn request(slot: u32, peer: u64) -> Message {
        Message::Request { slot, claim: claim(peer, 1) }
    }

    fn token(slot: u32, fencing: u64, to: u64, queue: &[u64]) -> Message {
        let queue = queue.iter().map(|&peer| claim(peer, 1)).collect();
        Message::Token { to: Ticket::new(to), token: Token { slot, fencing }, queue }
    }

    fn sent(to: u64, message: Message) -> Effects {
        vec![Effect::Send { to: PeerId::new(to), message }]
    }

    fn granted(ticket: u64, slot: u32, fencing: u64) -> Effects {
        vec![Effect::Grant { ticket: Ticket::new(ticket), grant: Grant { slot, fencing } }]
    }

    fn parent(peer: &Bv95, tree: usize) -> Option<u64> {
        peer.parent_in(tree).map(PeerId::get)
    }

    #[test]
    fn a_token_at_hand_is_used_at_once_and_again_with_the_next_fencing_number() {
        let mut holder = peer(1, 3, Config::default());
        assert_eq!(ask(&mut holder, 1), granted(1, 1, 2));
        assert_eq!(release(&mut holder, 1), []);
        assert_eq!(ask(&mut holder, 2), granted(2, 1, 5));
    }

    /// §3.2, path reversal.
    #[test]
    fn who_forwards_a_request_points_to_the_requester() {
        for config in [PLAIN, CACHING] {
            let mut on_the_way = peer(5, 2, config);
            assert_eq!(hear(&mut on_the_way, request(1, 3)), sent(1, request(1, 3)));
            assert_eq!((parent(&on_the_way, 0), parent(&on_the_way, 1)), (Some(0), Some(3)));
        }
    }

    /// §3.2: `next` makes the queue, and its end is the root.
    #[test]
    fn plain_the_end_of_the_line_learns_who_is_next_and_sends_the_others_on() {
        let mut root = peer(5, 1, PLAIN);
        assert_eq!(ask(&mut root, 1), sent(0, request(0, 5)));
        assert_eq!(hear(&mut root, request(0, 2)), []);
        assert_eq!(hear(&mut root, request(0, 3)), sent(2, request(0, 3)));
        assert_eq!(parent(&root, 0), Some(3));

        assert_eq!(hear(&mut root, token(0, 7, 1, &[])), granted(1, 0, 7));
        assert_eq!(release(&mut root, 1), sent(2, token(0, 8, 1, &[])));
        assert_eq!(parent(&root, 0), Some(3));
    }

    /// The exchange in the picture on top of this file, as peer 4 sees it.
    #[test]
    fn caching_a_waiting_peer_keeps_requests_until_the_token_comes() {
        let mut waiting = peer(4, 1, CACHING);
        assert_eq!(ask(&mut waiting, 1), sent(0, request(0, 4)));
        assert_eq!(hear(&mut waiting, request(0, 5)), []);
        assert_eq!(parent(&waiting, 0), None);

        assert_eq!(hear(&mut waiting, token(0, 7, 1, &[2])), granted(1, 0, 7));
        assert_eq!(release(&mut waiting, 1), sent(2, token(0, 8, 1, &[5])));
        assert_eq!(parent(&waiting, 0), Some(5));
    }

    #[test]
    fn caching_the_holder_puts_requests_into_the_queue_of_its_token() {
        let mut holder = peer(0, 1, CACHING);
        ask(&mut holder, 1);
        assert_eq!((hear(&mut holder, request(0, 3)), hear(&mut holder, request(0, 2))), (vec![], vec![]));
        assert_eq!(release(&mut holder, 1), sent(3, token(0, 2, 1, &[2])));
        assert_eq!(parent(&holder, 0), Some(2));
    }

    #[test]
    fn an_idle_token_goes_to_the_first_who_asks() {
        for config in [PLAIN, CACHING] {
            let mut holder = peer(0, 1, config);
            assert_eq!(hear(&mut holder, request(0, 3)), sent(3, token(0, 1, 1, &[])));
            assert_eq!(parent(&holder, 0), Some(3));
        }
    }

    #[test]
    fn the_heuristics_choose_the_tree() {
        let trees_of = |heuristic| -> Vec<u32> {
            let mut asking = peer(4, 3, Config { heuristic, ..Config::default() });
            let mut rng = Rng::new(1);
            let mut effects = Effects::new();
            (0..30).map(|_| asking.choose_tree(&mut Cx::new(asking.me, Time::ZERO, &mut rng, &mut effects))).collect()
        };
        assert_eq!(trees_of(Heuristic::RoundRobin)[..5], [1, 2, 0, 1, 2]);
        assert_eq!(trees_of(Heuristic::LastHeld), [1; 30]);
        let random = trees_of(Heuristic::Random);
        assert!((0..3).all(|slot| random.iter().filter(|&&chosen| chosen == slot).count() > 4), "{random:?}");
    }

    #[test]
    fn last_held_follows_the_token_that_let_us_in() {
        let layout = Layout { root: PeerId::new(0), tokens: [0, 1, 4].map(PeerId::new).to_vec() };
        let mut holder = Bv95::new(PeerId::new(4), &layout, CACHING); // Before its first it would choose tree 1.
        assert_eq!(ask(&mut holder, 1), granted(1, 2, 3));
        hear(&mut holder, request(2, 5));
        release(&mut holder, 1);
        assert_eq!(ask(&mut holder, 2), sent(5, Message::Request { slot: 2, claim: claim(4, 2) }));
    }

    #[test]
    fn clients_of_one_peer_stand_in_line_each_in_its_own_right() {
        for config in [PLAIN, CACHING] {
            let mut two = peer(5, 1, config);
            ask(&mut two, 1);
            assert_eq!(ask(&mut two, 2), [], "behind our own request there is nobody to tell");
            hear(&mut two, request(0, 3));
            assert_eq!(hear(&mut two, token(0, 7, 1, &[])), granted(1, 0, 7));
            assert_eq!(release(&mut two, 1), granted(2, 0, 8));
            assert_eq!(release(&mut two, 2), sent(3, token(0, 9, 1, &[])));
        }
    }

    #[test]
    fn caching_what_a_peer_keeps_follows_the_first_token_that_comes_there() {
        let mut two = peer(5, 1, CACHING);
        ask(&mut two, 1);
        ask(&mut two, 2);
        hear(&mut two, request(0, 3));
        hear(&mut two, token(0, 7, 1, &[2]));
        let queue = VecDeque::from([claim(5, 2), claim(3, 1)]);
        let token_to_2 = Message::Token { to: Ticket::new(1), token: Token { slot: 0, fencing: 8 }, queue };
        assert_eq!(release(&mut two, 1), sent(2, token_to_2));
    }

    #[test]
    fn a_place_in_the_tokens_queue_goes_with_it_and_comes_back() {
        let mut holder = peer(0, 1, CACHING);
        ask(&mut holder, 1);
        hear(&mut holder, request(0, 3));
        ask(&mut holder, 2);
        let queue = VecDeque::from([claim(0, 2)]);
        let token_to_3 = Message::Token { to: Ticket::new(1), token: Token { slot: 0, fencing: 2 }, queue };
        assert_eq!(release(&mut holder, 1), sent(3, token_to_3));
        assert_eq!(hear(&mut holder, request(0, 4)), [], "it waits still, so it keeps the request");
        assert_eq!(hear(&mut holder, token(0, 3, 2, &[])), granted(2, 0, 3));
        assert_eq!(release(&mut holder, 2), sent(4, token(0, 4, 1, &[])));
    }

    #[test]
    fn who_has_withdrawn_passes_the_token_on_when_it_comes() {
        for config in [PLAIN, CACHING] {
            let mut withdrawn = peer(5, 1, config);
            ask(&mut withdrawn, 1);
            hear(&mut withdrawn, request(0, 3));
            assert_eq!(release(&mut withdrawn, 1), []);
            assert_eq!(hear(&mut withdrawn, token(0, 7, 1, &[])), sent(3, token(0, 7, 1, &[])));
            assert_eq!(parent(&withdrawn, 0), Some(3));
        }
    }

    /// Our departure: no token lies idle where somebody waits.
    #[test]
    fn a_token_that_nobody_wants_goes_to_the_oldest_client_that_waits_at_the_same_peer() {
        let mut holder = peer(1, 3, ROUND_ROBIN);
        assert_eq!(ask(&mut holder, 1), granted(1, 1, 2));
        assert_eq!(ask(&mut holder, 2), [], "in tree 1, behind the first");
        assert_eq!(ask(&mut holder, 3), sent(2, Message::Request { slot: 2, claim: claim(1, 3) }));
        assert_eq!(ask(&mut holder, 4), sent(0, Message::Request { slot: 0, claim: claim(1, 4) }));
        assert_eq!(release(&mut holder, 1), granted(2, 1, 5));
        assert_eq!(release(&mut holder, 2), granted(3, 1, 8));
        // Its place in tree 2 has no use for the token any more, but the next client has.
        assert_eq!(hear(&mut holder, token(2, 3, 3, &[])), granted(4, 2, 3));
        assert_eq!(hear(&mut holder, token(0, 1, 4, &[5])), sent(5, token(0, 1, 1, &[])));
    }

    #[test]
    fn strange_messages_are_reported_and_lose_no_token() {
        let mut holder = peer(0, 2, CACHING);
        assert_eq!(
            hear(&mut holder, request(2, 3)),
            [Effect::Strange { why: "a message of a tree that there is not" }]
        );
        assert_eq!(hear(&mut holder, token(0, 1, 1, &[])), [Effect::Strange { why: "a token that is here already" }]);
        let strange = [Effect::Strange { why: "a token for a ticket that does not wait here" }];
        assert_eq!(hear(&mut holder, token(1, 2, 1, &[])), strange);
        assert_eq!(holder.tokens(), 2);
    }

    #[test]
    fn messages_read_like_the_papers() {
        let message = Message::Request { slot: 0, claim: claim(4, 2) };
        assert_eq!(message.to_string(), "request(4#2) in tree 0");
        assert_eq!(token(1, 2, 1, &[]).to_string(), "token 1");
        assert_eq!(token(1, 2, 1, &[4, 2]).to_string(), "token 1 [4, 2]");
    }
}
