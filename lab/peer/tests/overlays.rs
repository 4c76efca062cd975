//! Protocols on settled overlays.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod driver;

use driver::{Net, Parcel, key_of, net, nodes, resource, unexpected_resource};
use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_overlay::{Node, Overlay};
use peerlock_peer::{Config, Effect, Input, Wire};
use peerlock_types::{Key, PeerId, Ticket};

const PEERS: u64 = 50;

/// Each test runs on both overlays.
macro_rules! on_both {
    ($($(#[$doc:meta])* $name:ident)*) => {
        mod chord { $($(#[$doc])* #[test] fn $name() { super::$name::<super::Chord>(); })* }
        mod pastry { $($(#[$doc])* #[test] fn $name() { super::$name::<super::Pastry>(); })* }
    };
}

on_both! {
    routed_message_reaches_owner_through_hops
    message_stopped_by_a_hop_is_not_delivered
    resources_are_independent
    dead_hop_is_avoided_only_with_confirmations
    hop_is_retried_before_it_is_avoided
    moved_key_is_disowned
    departed_peer_owns_nothing_and_forwards
    peer_without_route_does_not_confirm
    circling_message_is_dropped
    unknown_resource_is_unexpected
    reset_reaches_every_instance
    owned_keys_per_resource_are_limited
}

fn routed_message_reaches_owner_through_hops<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::RELIABLE);
    let mut far = 0;
    for number in 1..=200 {
        let (from, parcel) = (PeerId::new(number % PEERS), Parcel::Plain(number));
        net.route(0, from, number);
        let way = net.way(from, key_of(number));
        far += usize::from(way.len() > 2);
        let asked = net.asked(parcel);
        assert_eq!(asked.len(), way.len().saturating_sub(2), "{way:?}: all but the first and the last forward it");
        for (hop, around) in asked.iter().zip(way.windows(3)) {
            assert_eq!((hop.origin, hop.previous, hop.next), (from, around[0], Some(around[2])));
        }
        let owner = net.owner(key_of(number));
        let previous = way.iter().rev().nth(1).copied().unwrap_or(from);
        let delivered = net.delivered(parcel);
        assert_eq!(delivered.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [owner]);
        let hop = delivered[0].1;
        assert_eq!((hop.key, hop.origin, hop.previous, hop.next), (key_of(number), from, previous, None));
        assert_eq!(net.answered(from, number), usize::from(owner != from), "the owner answers directly");
    }
    assert!(far > 20, "{far} ways had hops");
}

fn message_stopped_by_a_hop_is_not_delivered<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::RELIABLE);
    let (from, number) = net.far_away();
    net.say(from, Input::Request { resource: driver::resource(0), ticket: Ticket::new(number + driver::RETAINED) });
    net.settle();
    let parcel = Parcel::Retained(number);
    assert_eq!(net.asked(parcel).len(), 1);
    assert_eq!(net.delivered(parcel), []);
}

fn resources_are_independent<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::RELIABLE);
    let from = PeerId::new(3);
    for (resource, number) in [(0, 7), (1, 8), (2, 7)] {
        net.route(resource, from, number);
    }
    for (resource, number, others) in [(0, 7, [8]), (1, 8, [7]), (2, 7, [8])] {
        let owner = net.owner(key_of(number));
        let here = &net.protocol(owner, resource).unwrap().delivered;
        assert!(here.iter().any(|(_, parcel)| *parcel == Parcel::Plain(number)));
        assert!(here.iter().all(|(_, parcel)| others.iter().all(|other| *parcel != Parcel::Plain(*other))));
    }
    assert!(
        net.peers.iter().flatten().all(|peer| peer.protocol(driver::resource(3)).is_none()),
        "no peer has an instance"
    );
}

fn dead_hop_is_avoided_only_with_confirmations<O: Overlay>() {
    for (config, arrives) in [(Config::RELIABLE, 0), (Config::CONFIRMED, 1)] {
        let mut net = net::<O>(PEERS, config);
        let (from, number) = net.far_away();
        let dead = net.way(from, key_of(number))[1];
        net.peers[dead.index()] = None;
        let owner = net.owner(key_of(number));
        net.route(0, from, number);
        let delivered = net.delivered(Parcel::Plain(number));
        assert_eq!(delivered.len(), arrives);
        assert!(delivered.iter().all(|(peer, _)| *peer == owner));
    }
}

fn hop_is_retried_before_it_is_avoided<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config { tries: 4, ..Config::CONFIRMED });
    let (from, number) = net.far_away();
    let dead = net.way(from, key_of(number))[1];
    net.peers[dead.index()] = None;
    net.route(0, from, number);
    assert_eq!(net.sent(from, dead), 4);
    assert_eq!(net.delivered(Parcel::Plain(number)).len(), 1);
    // After a report of the network no timer is needed.
    let mut net = driver::net::<O>(PEERS, Config::CONFIRMED);
    net.peers[dead.index()] = None;
    net.say(from, Input::Request { resource: driver::resource(0), ticket: Ticket::new(number) });
    net.say(from, Input::Unreachable(dead));
    net.settle();
    assert_eq!((net.sent(from, dead), net.delivered(Parcel::Plain(number)).len()), (1, 1));
    // A confirmation by another peer is ignored.
    let mut net = driver::net::<O>(PEERS, Config::CONFIRMED);
    net.peers[dead.index()] = None;
    net.say(from, Input::Request { resource: driver::resource(0), ticket: Ticket::new(number) });
    let liar = PeerId::new((from.get() + 1) % PEERS);
    net.say(from, Input::Message { from: liar, wire: Wire::Got { receipt: 1 } });
    net.settle();
    assert_eq!(net.delivered(Parcel::Plain(number)).len(), 1);
}

fn moved_key_is_disowned<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::CONFIRMED);
    let number = 11;
    let (key, other) = (key_of(number), PeerId::new(5));
    net.route(0, other, number);
    let before = net.owner(key);
    assert!(net.protocol(before, 0).unwrap().disowned.is_empty());

    // On both overlays a peer owns its own key.
    let newcomer = net.add(Node { key, peer: PeerId::new(PEERS) });
    net.say(newcomer, Input::Join(Some(other)));
    net.settle();
    assert_eq!(net.owner(key), newcomer);
    assert_eq!(net.protocol(before, 0).unwrap().disowned, [key]);

    net.route(0, before, number);
    assert_eq!(net.delivered(Parcel::Plain(number)).iter().filter(|(peer, _)| *peer == newcomer).count(), 1);
}

fn departed_peer_owns_nothing_and_forwards<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::CONFIRMED);
    let (number, other) = (12, PeerId::new(5));
    net.route(0, other, number);
    let (before, key) = (net.owner(key_of(number)), key_of(number));
    net.say(before, Input::Leave);
    // A message in flight while the peer leaves.
    let wire = Wire::Routed {
        resource: driver::resource(0),
        key,
        origin: other,
        hops: 3,
        receipt: Some(1),
        message: Parcel::Plain(13),
    };
    net.say(before, Input::Message { from: other, wire });
    net.settle();
    assert_eq!(net.protocol(before, 0).unwrap().disowned, [key]);
    let after = net.owner(key);
    assert_ne!(after, before);
    assert_eq!(net.delivered(Parcel::Plain(13)).iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [after]);
}

fn peer_without_route_does_not_confirm<O: Overlay>() {
    let mut net = Net::<O>::empty(Config::CONFIRMED);
    let lonely = net.add(nodes(1)[0]);
    let (resource, key) = (driver::resource(0), Key::new(1));
    net.say(lonely, Input::Request { resource, ticket: Ticket::new(1) });
    assert_eq!(net.undelivered, [(resource, key_of(1))]);
    let wire =
        Wire::Routed { resource, key, origin: PeerId::new(9), hops: 1, receipt: Some(1), message: Parcel::Plain(1) };
    net.say(lonely, Input::Message { from: PeerId::new(9), wire });
    assert_eq!(net.undelivered.len(), 2);
    assert_eq!(net.sent(lonely, PeerId::new(9)), 0, "the previous hop has to find another route");
}

fn circling_message_is_dropped<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config { longest_way: 1, ..Config::CONFIRMED });
    let (from, number) = net.far_away();
    net.route(0, from, number);
    assert_eq!(net.undelivered, [(driver::resource(0), key_of(number))]);
    assert_eq!(net.delivered(Parcel::Plain(number)), []);
}

fn unknown_resource_is_unexpected<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::RELIABLE);
    net.say(PeerId::new(0), Input::Request { resource: unexpected_resource(), ticket: Ticket::new(1) });
    let wire = Wire::Direct { resource: unexpected_resource(), message: Parcel::Plain(1) };
    net.say(PeerId::new(0), Input::Message { from: PeerId::new(1), wire });
    assert_eq!(net.unexpected, ["a message for an unknown resource"; 2]);
    assert!(net.protocol(PeerId::new(0), 0).is_none());
}

fn owned_keys_per_resource_are_limited<O: Overlay>() {
    let mut net = net::<O>(1, Config::RELIABLE);
    let (resource, origin) = (resource(0), PeerId::new(7));
    for number in 0..2000_u64 {
        let (key, message) = (Key::of(&number.to_be_bytes()), Parcel::Retained(number));
        let wire = Wire::Routed { resource, key, origin, hops: 1, receipt: None, message };
        net.say(PeerId::new(0), Input::Message { from: origin, wire });
    }
    assert_eq!(net.protocol(PeerId::new(0), 0).unwrap().delivered.len(), 1024);
    assert_eq!(net.unexpected, ["more keys than a resource has"; 2000 - 1024]);
}

fn reset_reaches_every_instance<O: Overlay>() {
    let mut net = net::<O>(PEERS, Config::RELIABLE);
    let me = PeerId::new(0);
    for resource in [0, 1] {
        net.route(resource, me, 1);
    }
    net.say(me, Input::Reset { incarnation: 5 });
    for resource in [0, 1] {
        assert_eq!(net.protocol(me, resource).unwrap().resets, [5]);
    }
}

#[test]
fn effects_belong_to_their_own_step() {
    let mut net = net::<Pastry>(PEERS, Config::CONFIRMED);
    let (from, number) = net.far_away();
    let input = Input::Request { resource: driver::resource(0), ticket: Ticket::new(number) };
    let effects = net.step(from, input);
    assert!(matches!(effects[..], [Effect::Send { .. }, Effect::SetTimer { .. }]), "{effects:?}");
    assert!(net.step(from, Input::Release { resource: driver::resource(0), ticket: Ticket::new(number) }).is_empty());
}
