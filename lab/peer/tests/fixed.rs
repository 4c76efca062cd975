//! Hops and owners of routed messages.

use std::sync::Arc;

use peerlock_peer::fixed::{OnRoutes, Routes, Wire};
use peerlock_protocols::{Cx, Effect, Hop, Input, Never, Protocol, step};
use peerlock_types::{Key, PeerId, Rng, Ticket, Time};

const KEY: Key = Key::new(7);

/// Routes its ticket's number to the key. Each hop adds its own number, and stops multiples of ten.
#[derive(Debug, Default)]
struct Adder {
    received: Vec<(Hop, u64)>,
}

impl Protocol for Adder {
    type Message = u64;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        cx.route(KEY, ticket.get());
    }

    fn release(&mut self, _: Ticket, _: &mut Cx<'_, Self>) {}

    fn on_message(&mut self, from: PeerId, message: u64, _: &mut Cx<'_, Self>) {
        panic!("{message} from {from} was routed, not sent");
    }

    fn on_routed(&mut self, hop: Hop, message: u64, _: &mut Cx<'_, Self>) {
        self.received.push((hop, message));
    }

    fn on_forward(&mut self, hop: Hop, message: u64, cx: &mut Cx<'_, Self>) -> Option<u64> {
        self.received.push((hop, message));
        let sum = message + cx.me().get();
        (!sum.is_multiple_of(10)).then_some(sum)
    }
}

fn ask(peers: &mut [OnRoutes<Adder>], from: usize, ticket: u64) -> usize {
    let mut rng = Rng::new(1);
    let mut sent = 0;
    let mut next = Some((from, Input::Request(Ticket::new(ticket))));
    while let Some((at, input)) = next.take() {
        let mut effects = Vec::new();
        let me = PeerId::new(at as u64);
        step(&mut peers[at], input, &mut Cx::new(me, Time::ZERO, &mut rng, &mut effects));
        for effect in effects {
            let Effect::Send { to, message } = effect else { panic!("{effect:?}") };
            sent += 1;
            next = Some((to.index(), Input::Message { from: me, message }));
        }
    }
    sent
}

fn peers() -> Vec<OnRoutes<Adder>> {
    let routes = Arc::new(Routes::default().with(KEY, &[0, 3, 4]).with(KEY, &[1, 3, 4]));
    (0..5).map(|_| OnRoutes::new(Adder::default(), routes.clone())).collect()
}

fn hop(origin: u64, previous: u64, next: Option<u64>) -> Hop {
    Hop { key: KEY, origin: PeerId::new(origin), previous: PeerId::new(previous), next: next.map(PeerId::new) }
}

#[test]
fn forwarding_peer_may_change_the_message() {
    let mut peers = peers();
    assert_eq!(ask(&mut peers, 1, 20), 2);
    assert_eq!(peers[3].protocol().received, [(hop(1, 1, Some(4)), 20)]);
    assert_eq!(peers[4].protocol().received, [(hop(1, 3, None), 23)]);
    assert!(peers[0].protocol().received.is_empty() && peers[1].protocol().received.is_empty());
}

#[test]
fn forwarding_peer_may_stop_the_message() {
    let mut peers = peers();
    assert_eq!(ask(&mut peers, 0, 7), 1);
    assert_eq!(peers[3].protocol().received.len(), 1);
    assert!(peers[4].protocol().received.is_empty());
}

#[test]
fn owner_routes_to_itself_without_a_message() {
    let mut peers = peers();
    assert_eq!(ask(&mut peers, 4, 5), 0);
    assert_eq!(peers[4].protocol().received, [(hop(4, 4, None), 5)]);
}

#[test]
#[should_panic(expected = "two ways from p3")]
fn routes_with_a_fork_are_rejected() {
    let _ = Routes::default().with(KEY, &[0, 3, 4]).with(KEY, &[1, 3, 5]);
}

#[test]
fn routed_message_is_marked_in_debug_output() {
    let wire = |route| Wire { route, message: 5 };
    assert_eq!(format!("{} {:?}", wire(Some((KEY, PeerId::new(0)))), wire(None)), "5… 5");
}
