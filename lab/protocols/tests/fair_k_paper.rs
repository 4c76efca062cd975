//! Statements of the Fair-K paper about single peers, and our departures.

use peerlock_protocols::fair_k::{Claim, Config, FairK, Layout, Message, Token, TokenLocations};
use peerlock_protocols::{Cx, Effect, Grant, Input, Never, Observe, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Effects = Vec<Effect<Message, Never>>;

struct Node {
    me: PeerId,
    fair_k: FairK,
}

fn node(me: u64, nodes: u64, k: u32) -> Node {
    let me = PeerId::new(me);
    Node { me, fair_k: FairK::new(me, &Layout::printed(nodes, k), Config::PRINTED) }
}

impl Node {
    fn step(&mut self, input: Input<Message, Never>) -> Effects {
        let mut effects = Vec::new();
        step(&mut self.fair_k, input, &mut Cx::new(self.me, Time::ZERO, &mut Rng::new(0), &mut effects));
        effects
    }

    fn request(&mut self, ticket: u64) -> Effects {
        self.step(Input::Request(Ticket::new(ticket)))
    }

    fn release(&mut self, ticket: u64) -> Effects {
        self.step(Input::Release(Ticket::new(ticket)))
    }

    fn receive(&mut self, message: Message) -> Effects {
        self.step(Input::Message { from: PeerId::new(99), message })
    }

    fn parent(&self) -> Option<u64> {
        self.fair_k.parent().map(PeerId::get)
    }
}

fn first(peer: u64) -> Claim {
    claim(peer, 1)
}

fn claim(peer: u64, ticket: u64) -> Claim {
    Claim { peer: PeerId::new(peer), ticket: Ticket::new(ticket) }
}

/// A node's place in a queue before its first request.
fn initial(peer: u64) -> Claim {
    claim(peer, 0)
}

fn request(r: Claim) -> Message {
    Message::Request(r)
}

fn child(slot: u32, tail: u64, child: Claim) -> Message {
    Message::Child { slot, tail: Ticket::new(tail), child }
}

fn token(to: u64, slot: u32, fencing: u64) -> Message {
    Message::Token { to: Ticket::new(to), token: Token { slot, fencing } }
}

fn token_locations(to: u64, tails: &[Claim], counter_number: u32) -> Message {
    let locations = Box::new(TokenLocations { tails: tails.to_vec(), counter_number });
    Message::TokenLocations { to: Ticket::new(to), locations }
}

fn send(to: u64, message: Message) -> Effect<Message, Never> {
    Effect::Send { to: PeerId::new(to), message }
}

fn enter(ticket: u64, slot: u32, fencing: u64) -> Effect<Message, Never> {
    Effect::Grant { ticket: Ticket::new(ticket), grant: Grant { slot, fencing } }
}

/// §3.2, Initialization.
#[test]
fn node_0_is_initial_parent_and_root() {
    let parents = (0..4).map(|me| node(me, 4, 2).parent());

    assert_eq!(parents.collect::<Vec<_>>(), [None, Some(0), Some(0), Some(0)]);
}

/// §3.2, Initialization, and §3.4, Safety.
#[test]
fn first_k_nodes_start_with_a_token() {
    let tokens = (0..4).map(|me| node(me, 4, 2).fair_k.tokens());

    assert_eq!(tokens.collect::<Vec<_>>(), [1, 1, 0, 0]);
}

/// *Departure from §3.1*, which has k ≤ n.
#[test]
fn surplus_tokens_are_distributed_in_turn() {
    let tokens = (0..2).map(|me| node(me, 2, 5).fair_k.tokens());

    assert_eq!(tokens.collect::<Vec<_>>(), [3, 2]);
}

/// §3.2, Initialization.
#[test]
fn node_0_is_initial_coordinator() {
    let coordinators = (0..4).map(|me| node(me, 4, 2).fair_k.is_coordinator());

    assert_eq!(coordinators.collect::<Vec<_>>(), [true, false, false, false]);
}

/// §3.2, Initialization. `token_locations[i]` is misprinted as `token_counter`.
#[test]
fn initial_tails_are_token_holders_and_first_queue_is_0() {
    let mut node = node(0, 4, 3);

    let effects = node.receive(request(first(3)));

    let tails = [first(3), initial(1), initial(2)];
    assert_eq!(effects, [send(3, token(1, 0, 1)), send(3, token_locations(1, &tails, 1))]);
}

/// §3.2, Request_CS.
#[test]
fn node_with_token_enters_without_message() {
    let mut node = node(1, 4, 2);

    let effects = node.request(1);

    assert_eq!(effects, [enter(1, 1, 2)]);
    assert_eq!(node.parent(), Some(0), "its place in the tree stays");
}

/// §3.2, Request_CS, and §3.1.
#[test]
fn node_without_token_requests_at_parent_and_becomes_root() {
    let mut node = node(3, 4, 2);

    let effects = node.request(1);

    assert_eq!(effects, [send(0, request(first(3)))]);
    assert_eq!(node.parent(), None);
}

/// §3.2, Release_CS.
#[test]
fn release_sends_token_to_child() {
    let mut node = node(1, 4, 2);
    node.request(1);
    node.receive(child(1, 0, first(3)));

    let effects = node.release(1);

    assert_eq!(effects, [send(3, token(1, 1, 4))]);
    assert_eq!(node.fair_k.tokens(), 0);
    assert_eq!(node.request(2), [send(3, request(claim(1, 2)))], "it requests a token");
}

/// §3.2, Release_CS.
#[test]
fn release_without_child_keeps_token() {
    let mut node = node(1, 4, 2);
    node.request(1);

    let effects = node.release(1);

    assert_eq!(effects, []);
    assert_eq!(node.fair_k.tokens(), 1);
    assert_eq!(node.request(2), [enter(2, 1, 4)]);
}

/// §3.2, Process_Request(r): path reversal.
#[test]
fn forwarded_request_makes_requester_the_parent() {
    let mut node = node(2, 4, 2);

    let effects = node.receive(request(first(3)));

    assert_eq!(effects, [send(0, request(first(3)))]);
    assert_eq!(node.parent(), Some(3));
}

/// §3.2, Process_Request(r), at a root that is the coordinator.
#[test]
fn coordinator_assigns_request_and_passes_role_to_requester() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.receive(token_locations(1, &[first(3), initial(1)], 1));

    let effects = node.receive(request(first(2)));

    let tails = [first(3), first(2)];
    assert_eq!(effects, [send(1, child(1, 0, first(2))), send(2, token_locations(1, &tails, 0))]);
    assert!(!node.fair_k.is_coordinator());
    assert_eq!(node.parent(), Some(2));
}

/// §3.2.
#[test]
fn queues_are_filled_round_robin() {
    let tails = [initial(0), initial(1), initial(2)];
    for (counter, then) in [(0, 1), (1, 2), (2, 0)] {
        let mut node = node(4, 6, 3);
        node.request(1);
        node.receive(token_locations(1, &tails, counter));

        let effects = node.receive(request(first(5)));

        let mut new_tails = tails;
        new_tails[counter as usize] = first(5);
        let to_tail = send(u64::from(counter), child(counter, 0, first(5)));
        assert_eq!(effects, [to_tail, send(5, token_locations(1, &new_tails, then))]);
    }
}

/// §3.2, Process_Request(r), at a root that is not yet the coordinator.
#[test]
fn root_without_role_stores_next() {
    let mut node = node(3, 4, 2);
    node.request(1);

    let effects = node.receive(request(first(2)));

    assert_eq!(effects, []);
    assert_eq!(node.parent(), Some(2));
}

/// §3.2, Process_Token_Locations(a, b), with a `next`.
#[test]
fn role_passes_through_node_with_next() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.receive(request(first(2)));

    let effects = node.receive(token_locations(1, &[first(3), initial(1)], 1));

    let tails = [first(3), first(2)];
    assert_eq!(effects, [send(1, child(1, 0, first(2))), send(2, token_locations(1, &tails, 0))]);
    assert!(!node.fair_k.is_coordinator());
    assert_eq!(node.parent(), Some(2));
}

/// §3.2, Process_Token_Locations(a, b), without a `next`; Table 1.
#[test]
fn role_stays_with_node_without_next() {
    let mut node = node(3, 4, 2);
    node.request(1);

    let effects = node.receive(token_locations(1, &[first(3), initial(1)], 1));

    assert_eq!(effects, []);
    assert!(node.fair_k.is_coordinator());
    assert_eq!(node.parent(), None);
}

/// §3.2, Process_Token; entering is only in the prose.
#[test]
fn received_token_is_granted() {
    let mut node = node(3, 4, 2);
    node.request(1);

    let effects = node.receive(token(1, 0, 5));

    assert_eq!(effects, [enter(1, 0, 5)]);
    assert_eq!(node.fair_k.tokens(), 1);
}

/// §3.2, Process_Child(r), before the node has left the critical section.
#[test]
fn waiting_node_serves_its_child_next() {
    let mut node = node(3, 4, 2);
    node.request(1);

    let effects = node.receive(child(0, 1, first(2)));

    assert_eq!(effects, []);
    assert_eq!(node.parent(), Some(2));
    assert_eq!(node.receive(token(1, 0, 1)), [enter(1, 0, 1)]);
    assert_eq!(node.release(1), [send(2, token(1, 0, 3))]);
}

/// §3.2, Process_Child(r), before the node has left the critical section.
#[test]
fn holder_keeps_token_from_child_until_release() {
    let mut node = node(1, 4, 2);
    node.request(1);

    let effects = node.receive(child(1, 0, first(3)));

    assert_eq!(effects, []);
    assert_eq!(node.fair_k.tokens(), 1);
    assert_eq!(node.parent(), Some(3));
}

/// §3.2, Process_Child(r), afterwards.
#[test]
fn idle_token_is_sent_to_child_at_once() {
    let mut node = node(1, 4, 2);
    node.request(1);
    node.release(1);

    let effects = node.receive(child(1, 0, first(3)));

    assert_eq!(effects, [send(3, token(1, 1, 4))]);
    assert_eq!(node.fair_k.tokens(), 0);
    assert_eq!(node.parent(), Some(3));
}

/// *Departure from §3.2*, Process_Child(r).
#[test]
fn repaired_child_does_not_become_parent() {
    let me = PeerId::new(3);
    let mut node = Node { me, fair_k: FairK::new(me, &Layout::printed(4, 2), Config::REPAIRED) };
    node.request(1);
    node.receive(request(first(1)));

    let effects = node.receive(child(0, 1, first(2)));

    assert_eq!(effects, []);
    assert_eq!(node.parent(), Some(1));
}

/// §3.4, Safety.
#[test]
fn events_conserve_tokens() {
    type Event = fn(&mut Node) -> Effects;
    let events: [(&str, i64, Event); 8] = [
        ("enters with its token", 0, |node| node.request(1)),
        ("receives a child", 0, |node| node.receive(child(1, 0, first(3)))),
        ("forwards a request", 0, |node| node.receive(request(first(2)))),
        ("releases", 0, |node| node.release(1)),
        ("requests", 0, |node| node.request(2)),
        ("receives the role", 0, |node| node.receive(token_locations(2, &[claim(1, 2), first(2)], 1))),
        ("receives a token", 1, |node| node.receive(token(2, 0, 9))),
        ("releases again", 0, |node| node.release(2)),
    ];
    let mut node = node(1, 4, 2);
    for (what, brought, event) in events {
        let before = node.fair_k.tokens() as i64;

        let effects = event(&mut node);

        let sent = effects.iter().map(|effect| match effect {
            Effect::Send { message, .. } => FairK::tokens_in(message) as i64,
            _ => 0,
        });
        assert_eq!(node.fair_k.tokens() as i64 + sent.sum::<i64>(), before + brought, "{what}");
    }
}

/// §3.4, Property 1.
#[test]
fn requesting_root_has_the_token() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.receive(token_locations(1, &[first(3), initial(1)], 1));
    node.receive(token(1, 0, 1));
    node.release(1);
    assert_eq!(node.parent(), None);

    let effects = node.request(2);

    assert_eq!(effects, [enter(2, 0, 3)]);
}

/// §3.4, Property 2, one step.
#[test]
fn request_is_forwarded_through_waiting_node() {
    let mut node = node(3, 5, 2);
    node.request(1);
    node.receive(request(first(2)));

    let effects = node.receive(request(first(4)));

    assert_eq!(effects, [send(2, request(first(4)))]);
    assert_eq!(node.parent(), Some(4));
}

/// §3.4, Property 3, one step, and §3.2 on FIFO order.
#[test]
fn queue_is_served_in_order_of_assignment() {
    let (mut one, mut two, mut three) = (node(1, 4, 1), node(2, 4, 1), node(3, 4, 1));
    one.request(1);
    two.request(1);
    three.request(1);
    one.receive(child(0, 1, first(2)));
    two.receive(child(0, 1, first(3)));

    let entered = [one.receive(token(1, 0, 1)), two.receive(token(1, 0, 2)), three.receive(token(1, 0, 3))];
    let left = [one.release(1), two.release(1), three.release(1)];

    assert_eq!(entered, [[enter(1, 0, 1)], [enter(1, 0, 2)], [enter(1, 0, 3)]]);
    assert_eq!(left, [vec![send(2, token(1, 0, 2))], vec![send(3, token(1, 0, 3))], vec![]]);
}

/// §3.4, Property 4, one step.
#[test]
fn released_node_still_passes_role_on() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.receive(request(first(2)));
    node.receive(token(1, 0, 1));
    node.release(1);

    let effects = node.receive(token_locations(1, &[first(3), initial(1)], 1));

    let tails = [first(3), first(2)];
    assert_eq!(effects, [send(1, child(1, 0, first(2))), send(2, token_locations(1, &tails, 0))]);
}

#[test]
fn fencing_numbers_of_slots_are_disjoint() {
    let mut numbers = Vec::new();
    for me in 0..3 {
        let mut node = node(me, 3, 3);
        for ticket in 1..=4 {
            let [Effect::Grant { grant, .. }] = node.request(ticket)[..] else { panic!("it has an idle token") };
            numbers.push((grant.slot, grant.fencing));
            node.release(ticket);
        }
    }

    assert_eq!(numbers[..4], [(0, 1), (0, 4), (0, 7), (0, 10)]);
    numbers.sort_by_key(|&(_, fencing)| fencing);
    assert!(numbers.windows(2).all(|pair| pair[0].1 < pair[1].1), "{numbers:?}");
}

#[test]
fn withdrawn_place_forwards_token() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.receive(child(0, 1, first(2)));
    node.release(1);

    let effects = node.receive(token(1, 0, 1));

    assert_eq!(effects, [send(2, token(1, 0, 1))], "the fencing number is not used");
}

#[test]
fn withdrawn_place_without_child_keeps_token() {
    let mut node = node(3, 4, 2);
    node.request(1);
    node.release(1);

    let effects = node.receive(token(1, 0, 1));

    assert_eq!(effects, []);
    assert_eq!(node.request(2), [enter(2, 0, 1)]);
}

#[test]
fn late_child_follows_current_user_of_token() {
    let mut node = node(1, 4, 2);
    node.request(1);
    node.release(1);
    node.request(2);

    let effects = node.receive(child(1, 0, first(3)));

    assert_eq!(effects, []);
    assert_eq!(node.release(2), [send(3, token(1, 1, 6))]);
}

#[test]
fn token_for_unknown_ticket_is_reported_and_kept() {
    let mut node = node(3, 4, 2);

    let effects = node.receive(token(7, 0, 1));

    assert!(matches!(effects[..], [Effect::Unexpected { .. }]));
    assert_eq!(node.fair_k.tokens(), 1);
}

/// *Departure from §3.1*: several clients wait at one node.
#[test]
fn second_client_of_waiting_root_follows_first() {
    let mut node = node(1, 2, 1);
    node.request(1);

    let asked = node.request(2);
    let assigned = node.receive(token_locations(1, &[first(1)], 0));

    assert_eq!(asked, []);
    assert_eq!(assigned, [], "both are clients of node 1, so nothing is sent");
    assert!(node.fair_k.is_coordinator());
    assert_eq!(node.receive(token(1, 0, 1)), [enter(1, 0, 1)]);
    assert_eq!(node.release(1), [enter(2, 0, 2)]);
}
