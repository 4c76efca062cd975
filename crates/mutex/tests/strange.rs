//! Messages that no peer would send: they are dropped and counted, whatever is in them.

use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_mutex::backed::{self, Backed, Ring};
use peerlock_mutex::bv95::{self, Bv95};
use peerlock_mutex::coordinator::{self, Coordinator};
use peerlock_mutex::e2e::{self, E2e};
use peerlock_mutex::fair_k::{self, FairK, TokenLocations};
use peerlock_mutex::fair_k_late::{self, FairKLate};
use peerlock_mutex::non_e2e::{self, NonE2e};
use peerlock_mutex::sigma::{self, Sigma};
use peerlock_mutex::strawman::{self, Attempt, Strawman};
use peerlock_mutex::token::{Claim, Layout, Token};
use peerlock_mutex::{Cx, Effect, Input, Protocol, Quorum, Replicas, step};

const ME: PeerId = PeerId::new(9);
const MINE: Claim = Claim { peer: ME, ticket: Ticket::new(1) };

/// Peer `me` has asked, and gets this: that is strange, and nothing else comes of it.
fn is_strange<P: Protocol>(me: PeerId, mut peer: P, message: P::Message) {
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    let mut hear = |input| {
        effects.clear();
        step(&mut peer, input, &mut Cx::new(me, Time::ZERO, &mut rng, &mut effects));
        matches!(effects[..], [Effect::Strange { .. }])
    };
    hear(Input::Request(MINE.ticket));
    assert!(hear(Input::Message { from: PeerId::new(1), message }));
}

fn three() -> Replicas {
    Replicas::first(Quorum::new(3, 2))
}

#[test]
fn of_replicas_that_there_are_not() {
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
        is_strange(ME, Sigma::new(ME, &three(), sigma::Config::REPAIRED), message);
    }
    for peer in [ME, PeerId::new(8)] {
        let attempt = Attempt { client: Claim { peer, ..MINE }, number: 0 };
        let message = strawman::Message::Response { replica: 99, attempt, owner: attempt, fencing: 0 };
        is_strange(ME, Strawman::new(ME, &three(), strawman::Config::BACKS_OFF), message);
    }
}

#[test]
fn from_replicas_that_there_are_not() {
    use coordinator::Message;
    let (sent, from, to) = (Time::ZERO, 99, 0);
    let (place, owner, queue, until) = (None, None, None, Time::ZERO + Span::from_secs(1));
    for (me, message) in [
        (9, Message::Response { client: MINE.ticket, from, place, owner, queue, until, t_cs: None }),
        (0, Message::IamCoordinator { to, from, epoch: 1, sent }),
        (0, Message::Recover { to, from, sent }),
        (0, Message::Ping { to, from, epoch: 1, heard: sent }),
    ] {
        let me = PeerId::new(me);
        is_strange(me, Coordinator::new(me, &three(), coordinator::Config::REPAIRED), message);
    }
}

#[test]
fn tails_of_other_queues_than_there_are() {
    let layout = Layout::printed(3, 2);
    for (tails, counter_number) in [(2, 2), (1, 0), (3, 0)] {
        let locations = Box::new(TokenLocations { tails: vec![MINE; tails], counter_number });
        let (me, to) = (PeerId::new(2), MINE.ticket);
        is_strange(
            me,
            FairK::new(me, &layout, fair_k::Config::REPAIRED),
            fair_k::Message::TokenLocations { to, locations },
        );
    }
}

/// Nobody has counted so far.
const BEYOND: u64 = 1 << 62;

#[test]
fn numbers_that_votes_cannot_have_counted_to() {
    let stamp = |time| sigma::Stamp { time, client: MINE };
    let (replica, sent, earlier, number) = (0, Time::ZERO, false, sigma::Number::default());
    let votes = [
        sigma::Message::Request { replica, client: stamp(1), sent, fencing: BEYOND },
        sigma::Message::Request { replica, client: stamp(u64::MAX), sent, fencing: 1 },
        sigma::Message::Release { replica, client: stamp(1), fencing: u64::MAX },
        sigma::Message::Inquire { replica, owner: stamp(BEYOND), number, earlier },
        sigma::Message::Yield { replica, client: stamp(BEYOND), number, sent },
        sigma::Message::Response {
            replica,
            to: MINE.ticket,
            owner: None,
            number,
            until: Time::ZERO,
            wait: None,
            fencing: 0,
            clock: BEYOND,
        },
    ];
    let me = PeerId::new(0);
    for vote in votes {
        is_strange(me, Sigma::new(me, &three(), sigma::Config::REPAIRED), vote);
        is_strange(me, E2e::new(me, &three(), e2e::Config::REPAIRED), vote.into());
        is_strange(me, NonE2e::new(me, &three(), non_e2e::Config::REPAIRED), vote.into());
    }
    let attempt = Attempt { client: MINE, number: 0 };
    let message = strawman::Message::Request { replica, attempt, fencing: BEYOND };
    is_strange(me, Strawman::new(me, &three(), strawman::Config::BACKS_OFF), message);
    let owner = |epoch| e2e::Owner { epoch, elected: stamp(1), peer: PeerId::new(1) };
    let rest = |sequence| e2e::Copy { sequence, queue: Vec::new() };
    let token = |epoch, sequence| e2e::Message::Token {
        receipt: 1,
        to: stamp(1),
        owner: owner(epoch),
        until: Time::ZERO + Span::from_secs(1),
        rest: rest(sequence),
    };
    for message in [token(BEYOND, 1), token(1, BEYOND), e2e::Message::Forget { replica, epoch: BEYOND }] {
        is_strange(me, E2e::new(me, &three(), e2e::Config::REPAIRED), message);
    }
}

/// The numbers of a coordinator's grants begin at its epoch times 2⁴⁰.
#[test]
fn epochs_that_no_election_leads_to() {
    use coordinator::Message;
    let (to, from, sent, heard, epoch) = (0, 1, Time::ZERO, Time::ZERO, 1 << 22);
    let memory = coordinator::Memory { seen: epoch, ..coordinator::Memory::default() };
    let release = |number| Message::Release {
        to: Some(to),
        client: MINE,
        number: Some(number),
        successor: None,
        last: None,
        receipt: 1,
    };
    let front = coordinator::Place { epoch: 0, count: BEYOND };
    for message in [
        Message::IamCoordinator { to, from, epoch, sent },
        Message::Ping { to, from, epoch, heard },
        Message::Update { to, from, why: coordinator::Telling::Refusal, sent, epoch: 1, memory },
        Message::Ok { to, from, epoch: 1, sent, front },
        release(u64::MAX),
    ] {
        let me = PeerId::new(0);
        is_strange(me, Coordinator::new(me, &three(), coordinator::Config::REPAIRED), message);
    }
}

#[test]
fn numbers_that_tokens_cannot_have_counted_to() {
    let (layout, me, to) = (Layout::printed(3, 2), PeerId::new(2), MINE.ticket);
    let token = Token { slot: 0, fencing: BEYOND };
    let fair_k = |me| FairK::new(me, &layout, fair_k::Config::REPAIRED);
    is_strange(me, fair_k(me), fair_k::Message::Token { to, token });
    let queue = std::collections::VecDeque::new();
    is_strange(me, Bv95::new(me, &layout, bv95::Config::default()), bv95::Message::Token { to, token, queue });
    let news = fair_k_late::News::Free { slot: 0, stay: BEYOND, report: 1 };
    let late = FairKLate::new(me, &layout, fair_k_late::Config::default());
    is_strange(me, late, fair_k_late::Message::Tell { epoch: 0, news });
    let ring = Ring::in_order((0..3).map(PeerId::new));
    let config = backed::Config { backups: 1, recovers: true };
    for epoch in [BEYOND, 1 << 30] {
        let backed = Backed::new(me, &ring, config, fair_k);
        is_strange(me, backed, backed::Message::Search { epoch: (epoch, PeerId::new(0)) });
    }
}

/// What is said to participants that are somebody else's is kept until we hear that those are gone; but not any number
/// of it, nor of participants that there are not.
#[test]
fn more_than_anybody_says_to_who_is_not_there() {
    let (layout, me) = (Layout::printed(3, 2), PeerId::new(2));
    let fair_k = |me| FairK::new(me, &layout, fair_k::Config::REPAIRED);
    let ring = Ring::in_order((0..3).map(PeerId::new));
    let mut backed = Backed::new(me, &ring, backed::Config { backups: 1, recovers: true }, fair_k);
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    let mut hear = |to, number| {
        let (epoch, from, to) = ((0, PeerId::new(0)), PeerId::new(0), PeerId::new(to));
        let message = backed::Message::Say { epoch, from, to, number, message: fair_k::Message::Request(MINE) };
        effects.clear();
        let mut cx = Cx::new(me, Time::ZERO, &mut rng, &mut effects);
        step(&mut backed, Input::Message { from, message }, &mut cx);
        matches!(effects[..], [Effect::Strange { .. }])
    };
    assert!(hear(7, 1), "there is no participant 7");
    assert!((1..=4096).all(|number| !hear(1, number)), "what fits is kept");
    assert!(hear(1, 4097));
}
