//! Messages that no correct peer sends are dropped and counted.

use peerlock_protocols::coordinator::{self, Coordinator};
use peerlock_protocols::fair_k::{self, FairK, TokenLocations};
use peerlock_protocols::sigma::{self, Sigma};
use peerlock_protocols::strawman::{self, Attempt, Strawman};
use peerlock_protocols::token::{Claim, Layout};
use peerlock_protocols::{Cx, Effect, Input, Protocol, Quorum, Replicas, step};
use peerlock_types::{PeerId, Rng, Span, Ticket, Time};

const ME: PeerId = PeerId::new(9);
const MINE: Claim = Claim { peer: ME, ticket: Ticket::new(1) };

/// A peer with a request reports this message, without any other effect.
fn is_unexpected<P: Protocol>(me: PeerId, mut peer: P, message: P::Message) {
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    let mut feed = |input| {
        effects.clear();
        step(&mut peer, input, &mut Cx::new(me, Time::ZERO, &mut rng, &mut effects));
        matches!(effects[..], [Effect::Unexpected { .. }])
    };
    feed(Input::Request(MINE.ticket));
    assert!(feed(Input::Message { from: PeerId::new(1), message }));
}

fn three() -> Replicas {
    Replicas::first(Quorum::new(3, 2))
}

#[test]
fn answers_about_unknown_replicas_are_unexpected() {
    let number = sigma::Number::default();
    let owner = sigma::Stamp { time: 1, client: MINE };
    let response = sigma::Message::Response {
        replica: 99,
        to: MINE.ticket,
        owner: Some(owner),
        number,
        until: Time::ZERO,
        wait: None,
        fencing: 0,
        clock: 0,
    };
    let inquire = |owner| sigma::Message::Inquire { replica: 99, owner, number, earlier: true };
    let unknown = sigma::Stamp { time: 1, client: Claim { ticket: Ticket::new(7), ..MINE } };
    for message in [response, inquire(owner), inquire(unknown)] {
        is_unexpected(ME, Sigma::new(ME, &three(), sigma::Config::REPAIRED), message);
    }
    for peer in [ME, PeerId::new(8)] {
        let attempt = Attempt { client: Claim { peer, ..MINE }, number: 0 };
        let message = strawman::Message::Response { replica: 99, attempt, owner: attempt, fencing: 0 };
        is_unexpected(ME, Strawman::new(ME, &three(), strawman::Config::BACKS_OFF), message);
    }
}

#[test]
fn messages_from_unknown_replicas_are_unexpected() {
    use coordinator::Message;
    let (sent, from, to) = (Time::ZERO, 99, 0);
    let (place, owner, queue, until) = (None, None, None, Time::ZERO + Span::from_secs(1));
    for (me, message) in [
        (9, Message::Response { client: MINE.ticket, from, place, owner, queue, until, t_cs: None }),
        (0, Message::IamCoordinator { to, from, epoch: 1, sent }),
        (0, Message::Recover { to, from, sent }),
        (0, Message::Ping { to, from, epoch: 1, last_received: sent }),
    ] {
        let me = PeerId::new(me);
        is_unexpected(me, Coordinator::new(me, &three(), coordinator::Config::REPAIRED), message);
    }
}

#[test]
fn role_with_wrong_number_of_queues_is_unexpected() {
    let layout = Layout::printed(3, 2);
    for (tails, counter_number) in [(2, 2), (1, 0), (3, 0)] {
        let locations = Box::new(TokenLocations { tails: vec![MINE; tails], counter_number });
        let (me, to) = (PeerId::new(2), MINE.ticket);
        is_unexpected(
            me,
            FairK::new(me, &layout, fair_k::Config::REPAIRED),
            fair_k::Message::TokenLocations { to, locations },
        );
    }
}
