//! BV95: k-mutual exclusion with k trees (Bulgannawar, Vaidya: "A Distributed K-Mutual Exclusion Algorithm", ICDCS
//! 1995), the baseline of the Fair-K paper, whose sections are cited.
//!
//! Each token has a tree, as in Naimi and Tréhel's algorithm. Its root has the token, or is the last in its queue. A
//! request follows the `parent` pointers to the root, and each pointer on the way is turned towards the requester. A
//! [`Heuristic`] chooses the tree without knowledge of the queues, which makes the algorithm unfair. It is safe, since
//! a client holds only while its peer has one of the k tokens.
//!
//! The paper says that requests are *cached*, but not how (`lab/docs/papers/bv95.md` has the reasons for this form):
//!
//! ```text
//!   5            4 (waits)         3 (holds)        tree 0
//!   │              │ request(4)      │
//!   │              ├────────────────►│              3 appends 4 to the token's queue
//!   │ request(5)   │                 │
//!   ├─────────────►│                 │              4 stores 5's request
//!   │              │                 │ … releases
//!   │              │       token [2] │              2 has requested meanwhile
//!   │              │◄────────────────┤              3 points to 2, the tail
//!   │              │ token [5]                      4 has appended 5 and released; it points to 5
//!   │              ├──────────────────────────► 2
//! ```
//!
//! *Departure:* a token with an empty queue goes to the oldest ticket waiting at its peer, whichever tree that ticket
//! chose.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{PeerId, Ticket};
use serde::{Deserialize, Serialize};

use crate::backed::Backable;
pub use crate::token::{Claim, Layout, Token};
use crate::{Cx, Never, Observe, Protocol};

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Message {
    /// Sent by a requester to its parent, and forwarded up to a peer without one, which queues it.
    Request { slot: u32, claim: Claim },
    /// Sent by the releasing peer to the first waiter `to`, which is granted, or forwards the token if withdrawn.
    Token {
        to: Ticket,
        token: Token,
        /// The waiters after `to`; empty in the plain organisation.
        queue: VecDeque<Claim>,
    },
}

/// How the requests of a tree are queued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Organisation {
    /// As Naimi and Tréhel: the root is the tail, and stores the requester as its *next*.
    Plain,
    /// The token carries its queue. A waiting peer stores requests for it: fewer messages, but these requests wait
    /// twice (§4).
    #[default]
    Caching,
}

/// The choice of the tree for a request (§2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Heuristic {
    /// A random tree: the cinema without a moderator (§3.2).
    #[default]
    Random,
    /// The tree of the last token at this peer; at first, the peer's number modulo k.
    LastHeld,
    /// The trees in turn, from the peer's number modulo k.
    RoundRobin,
}

/// The form of the algorithm. The default is closest to the published figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Config {
    /// The queue of a tree.
    pub organisation: Organisation,
    pub heuristic: Heuristic,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Place {
    ticket: Ticket,
    withdrawn: bool,
    /// Plain: *next*, at most one. Caching: the stored requests.
    behind: VecDeque<Claim>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Held {
    token: Token,
    user: Option<Ticket>,
    /// Plain: *next*, at most one.
    queue: VecDeque<Claim>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Tree {
    /// *parent*; `None` at a peer that stores requests. Plain: the root. Caching: each peer that has the token or waits
    /// for it.
    parent: Option<PeerId>,
    held: Option<Held>,
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Bv95 {
    me: PeerId,
    config: Config,
    trees: Vec<Tree>,
    turn: u32,
}

impl Bv95 {
    /// Creates the initial state: each token's peer is the root of its tree.
    pub fn new(me: PeerId, layout: &Layout, config: Config) -> Self {
        let slots = layout.slots();
        let tree = |slot: u32| {
            let root = layout.tokens[slot as usize];
            let held = Held { token: Token::new(slot), user: None, queue: VecDeque::new() };
            Tree { parent: (me != root).then_some(root), held: (me == root).then_some(held), places: Vec::new() }
        };
        let turn = (me.get() % u64::from(slots)) as u32; // Below `slots`, so it fits.
        Self { me, config, trees: (0..slots).map(tree).collect(), turn }
    }

    fn slots(&self) -> u32 {
        self.trees.len() as u32 // `Layout::slots` counts them in 32 bits.
    }

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

    fn enter(&mut self, slot: u32, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let slots = self.slots();
        let held = self.trees[slot as usize].held.as_mut().expect("the token of the granted slot is here");
        held.user = Some(ticket);
        cx.grant(ticket, held.token.grant(slots));
        if self.config.heuristic == Heuristic::LastHeld {
            self.turn = slot;
        }
    }

    /// Forwards a request, or stores it at the root; then reverses the path.
    fn process_request(&mut self, slot: u32, r: Claim, cx: &mut Cx<'_, Self>) {
        let tree = &mut self.trees[slot as usize];
        let turns = tree.parent.is_some() || self.config.organisation == Organisation::Plain;
        if let Some(parent) = tree.parent {
            cx.send(parent, Message::Request { slot, claim: r });
        } else {
            tree.store(r, self.config.organisation);
        }
        if turns && r.peer != self.me {
            tree.parent = Some(r.peer); // A peer that caches gets a parent when it sends the token on.
        }
        if tree.held.as_ref().is_some_and(|held| held.user.is_none()) {
            self.pass_on(slot, cx);
        }
    }

    /// Sends the token to the first claim of its queue that is not withdrawn here.
    fn pass_on(&mut self, slot: u32, cx: &mut Cx<'_, Self>) {
        loop {
            let tree = &mut self.trees[slot as usize];
            let mut held = tree.held.take().expect("a token to be forwarded is here");
            held.user = None;
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

    /// Returns whether a client was granted the slot.
    fn arrive(&mut self, slot: u32, ticket: Ticket, cx: &mut Cx<'_, Self>) -> bool {
        let tree = &mut self.trees[slot as usize];
        let at = tree.places.iter().position(|place| place.ticket == ticket);
        let (Some(at), Some(held)) = (at, &mut tree.held) else {
            cx.unexpected("a token for a ticket that does not wait here");
            return false; // The token stays here: losing it is worse.
        };
        let mut place = tree.places.remove(at);
        held.queue.append(&mut place.behind);
        if !place.withdrawn {
            self.enter(slot, ticket, cx);
        }
        !place.withdrawn
    }

    /// Chooses a client for an idle token. Its place in another tree remains, as withdrawn.
    fn take_oldest_waiting(&mut self) -> Option<Ticket> {
        let places = self.trees.iter_mut().flat_map(|tree| &mut tree.places);
        let oldest = places.filter(|place| !place.withdrawn).min_by_key(|place| place.ticket)?;
        oldest.withdrawn = true;
        Some(oldest.ticket)
    }
}

impl Tree {
    fn store(&mut self, r: Claim, organisation: Organisation) {
        let queue = self.held.as_mut().map(|held| &mut held.queue);
        let end = match organisation {
            // The tail is the newest place, or the holder if there is none.
            Organisation::Plain => self.places.last_mut().map(|place| &mut place.behind).or(queue),
            // The token arrives at the oldest place first.
            Organisation::Caching => queue.or(self.places.first_mut().map(|place| &mut place.behind)),
        };
        let end = end.expect("a peer without a parent has the token or waits for it");
        debug_assert!(organisation == Organisation::Caching || end.is_empty(), "the tail has no successor");
        end.push_back(r);
    }
}

impl Protocol for Bv95 {
    type Message = Message;
    type Timer = Never;

    #[inline]
    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        let mut places = self.trees.iter().flat_map(|tree| &tree.places);
        debug_assert!(places.all(|place| place.ticket < ticket), "tickets are requested in order");
        let held = self.trees.iter().filter_map(|tree| tree.held.as_ref());
        if let Some(idle) = held.filter(|held| held.user.is_none()).map(|held| held.token.slot).next() {
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
        let user = |tree: &Tree| tree.held.as_ref().is_some_and(|held| held.user == Some(ticket));
        if let Some(slot) = (0..self.slots()).find(|&slot| user(&self.trees[slot as usize])) {
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
            return cx.unexpected("a message for an unknown tree");
        };
        match message {
            Message::Request { claim, .. } => self.process_request(slot, claim, cx),
            Message::Token { .. } if tree.held.is_some() => cx.unexpected("a token that is already here"),
            Message::Token { to, token, queue } => {
                tree.held = Some(Held { token, user: None, queue });
                if !self.arrive(slot, to, cx) {
                    self.pass_on(slot, cx);
                }
            }
        }
    }
}

impl Backable for Bv95 {
    fn fresh(&self, me: PeerId, layout: &Layout) -> Self {
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

    use peerlock_types::{Rng, Time};

    use super::*;
    use crate::{Effect, Grant, Input, step};

    type Effects = Vec<Effect<Message, Never>>;

    const PLAIN: Config = Config { organisation: Organisation::Plain, heuristic: Heuristic::LastHeld };
    const CACHING: Config = Config { organisation: Organisation::Caching, heuristic: Heuristic::LastHeld };
    const ROUND_ROBIN: Config = Config { organisation: Organisation::Caching, heuristic: Heuristic::RoundRobin };

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

    fn feed(peer: &mut Bv95, message: Message) -> Effects {
        on(peer, Input::Message { from: PeerId::new(9), message })
    }

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
    fn idle_token_is_granted_at_once_with_rising_fencing_number() {
        let mut holder = peer(1, 3, Config::default());
        assert_eq!(ask(&mut holder, 1), granted(1, 1, 2));
        assert_eq!(release(&mut holder, 1), []);
        assert_eq!(ask(&mut holder, 2), granted(2, 1, 5));
    }

    /// §3.2, path reversal.
    #[test]
    fn forwarding_a_request_sets_parent_to_requester() {
        for config in [PLAIN, CACHING] {
            let mut on_the_way = peer(5, 2, config);
            assert_eq!(feed(&mut on_the_way, request(1, 3)), sent(1, request(1, 3)));
            assert_eq!((parent(&on_the_way, 0), parent(&on_the_way, 1)), (Some(0), Some(3)));
        }
    }

    /// §3.2: `next` forms the queue; its tail is the root.
    #[test]
    fn plain_tail_stores_next_and_forwards_others() {
        let mut root = peer(5, 1, PLAIN);
        assert_eq!(ask(&mut root, 1), sent(0, request(0, 5)));
        assert_eq!(feed(&mut root, request(0, 2)), []);
        assert_eq!(feed(&mut root, request(0, 3)), sent(2, request(0, 3)));
        assert_eq!(parent(&root, 0), Some(3));

        assert_eq!(feed(&mut root, token(0, 7, 1, &[])), granted(1, 0, 7));
        assert_eq!(release(&mut root, 1), sent(2, token(0, 8, 1, &[])));
        assert_eq!(parent(&root, 0), Some(3));
    }

    /// The exchange in the module's diagram, at peer 4.
    #[test]
    fn caching_waiting_peer_stores_requests_for_token() {
        let mut waiting = peer(4, 1, CACHING);
        assert_eq!(ask(&mut waiting, 1), sent(0, request(0, 4)));
        assert_eq!(feed(&mut waiting, request(0, 5)), []);
        assert_eq!(parent(&waiting, 0), None);

        assert_eq!(feed(&mut waiting, token(0, 7, 1, &[2])), granted(1, 0, 7));
        assert_eq!(release(&mut waiting, 1), sent(2, token(0, 8, 1, &[5])));
        assert_eq!(parent(&waiting, 0), Some(5));
    }

    #[test]
    fn caching_holder_appends_requests_to_token_queue() {
        let mut holder = peer(0, 1, CACHING);
        ask(&mut holder, 1);
        assert_eq!((feed(&mut holder, request(0, 3)), feed(&mut holder, request(0, 2))), (vec![], vec![]));
        assert_eq!(release(&mut holder, 1), sent(3, token(0, 2, 1, &[2])));
        assert_eq!(parent(&holder, 0), Some(2));
    }

    #[test]
    fn idle_token_goes_to_first_requester() {
        for config in [PLAIN, CACHING] {
            let mut holder = peer(0, 1, config);
            assert_eq!(feed(&mut holder, request(0, 3)), sent(3, token(0, 1, 1, &[])));
            assert_eq!(parent(&holder, 0), Some(3));
        }
    }

    #[test]
    fn heuristics_choose_tree() {
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
    fn last_held_requests_in_tree_of_last_token() {
        let layout = Layout { root: PeerId::new(0), tokens: [0, 1, 4].map(PeerId::new).to_vec() };
        let mut holder = Bv95::new(PeerId::new(4), &layout, CACHING); // Before its first grant: tree 1.
        assert_eq!(ask(&mut holder, 1), granted(1, 2, 3));
        feed(&mut holder, request(2, 5));
        release(&mut holder, 1);
        assert_eq!(ask(&mut holder, 2), sent(5, Message::Request { slot: 2, claim: claim(4, 2) }));
    }

    #[test]
    fn clients_of_one_peer_queue_separately() {
        for config in [PLAIN, CACHING] {
            let mut two = peer(5, 1, config);
            ask(&mut two, 1);
            assert_eq!(ask(&mut two, 2), [], "the queue ends at a local request: no message");
            feed(&mut two, request(0, 3));
            assert_eq!(feed(&mut two, token(0, 7, 1, &[])), granted(1, 0, 7));
            assert_eq!(release(&mut two, 1), granted(2, 0, 8));
            assert_eq!(release(&mut two, 2), sent(3, token(0, 9, 1, &[])));
        }
    }

    #[test]
    fn caching_stored_requests_join_first_token() {
        let mut two = peer(5, 1, CACHING);
        ask(&mut two, 1);
        ask(&mut two, 2);
        feed(&mut two, request(0, 3));
        feed(&mut two, token(0, 7, 1, &[2]));
        let queue = VecDeque::from([claim(5, 2), claim(3, 1)]);
        let token_to_2 = Message::Token { to: Ticket::new(1), token: Token { slot: 0, fencing: 8 }, queue };
        assert_eq!(release(&mut two, 1), sent(2, token_to_2));
    }

    #[test]
    fn queued_claim_travels_with_token() {
        let mut holder = peer(0, 1, CACHING);
        ask(&mut holder, 1);
        feed(&mut holder, request(0, 3));
        ask(&mut holder, 2);
        let queue = VecDeque::from([claim(0, 2)]);
        let token_to_3 = Message::Token { to: Ticket::new(1), token: Token { slot: 0, fencing: 2 }, queue };
        assert_eq!(release(&mut holder, 1), sent(3, token_to_3));
        assert_eq!(feed(&mut holder, request(0, 4)), [], "still waiting: keeps the request");
        assert_eq!(feed(&mut holder, token(0, 3, 2, &[])), granted(2, 0, 3));
        assert_eq!(release(&mut holder, 2), sent(4, token(0, 4, 1, &[])));
    }

    #[test]
    fn withdrawn_request_passes_token_on() {
        for config in [PLAIN, CACHING] {
            let mut withdrawn = peer(5, 1, config);
            ask(&mut withdrawn, 1);
            feed(&mut withdrawn, request(0, 3));
            assert_eq!(release(&mut withdrawn, 1), []);
            assert_eq!(feed(&mut withdrawn, token(0, 7, 1, &[])), sent(3, token(0, 7, 1, &[])));
            assert_eq!(parent(&withdrawn, 0), Some(3));
        }
    }

    /// Departure: no token is idle at a peer with waiting clients.
    #[test]
    fn idle_token_goes_to_oldest_local_waiter() {
        let mut holder = peer(1, 3, ROUND_ROBIN);
        assert_eq!(ask(&mut holder, 1), granted(1, 1, 2));
        assert_eq!(ask(&mut holder, 2), [], "queued in tree 1 behind the first");
        assert_eq!(ask(&mut holder, 3), sent(2, Message::Request { slot: 2, claim: claim(1, 3) }));
        assert_eq!(ask(&mut holder, 4), sent(0, Message::Request { slot: 0, claim: claim(1, 4) }));
        assert_eq!(release(&mut holder, 1), granted(2, 1, 5));
        assert_eq!(release(&mut holder, 2), granted(3, 1, 8));
        // Its place in tree 2 does not need the token, but the next client does.
        assert_eq!(feed(&mut holder, token(2, 3, 3, &[])), granted(4, 2, 3));
        assert_eq!(feed(&mut holder, token(0, 1, 4, &[5])), sent(5, token(0, 1, 1, &[])));
    }

    #[test]
    fn unexpected_messages_are_reported_without_token_loss() {
        let mut holder = peer(0, 2, CACHING);
        assert_eq!(feed(&mut holder, request(2, 3)), [Effect::Unexpected { why: "a message for an unknown tree" }]);
        assert_eq!(
            feed(&mut holder, token(0, 1, 1, &[])),
            [Effect::Unexpected { why: "a token that is already here" }]
        );
        let unexpected = [Effect::Unexpected { why: "a token for a ticket that does not wait here" }];
        assert_eq!(feed(&mut holder, token(1, 2, 1, &[])), unexpected);
        assert_eq!(holder.tokens(), 2);
    }

    #[test]
    fn messages_display_as_in_paper() {
        let message = Message::Request { slot: 0, claim: claim(4, 2) };
        assert_eq!(message.to_string(), "request(4#2) in tree 0");
        assert_eq!(token(1, 2, 1, &[]).to_string(), "token 1");
        assert_eq!(token(1, 2, 1, &[4, 2]).to_string(), "token 1 [4, 2]");
    }
}
