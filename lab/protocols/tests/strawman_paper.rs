//! The strawman (Sigma, §3): one client and three remote replicas.

use peerlock_protocols::strawman::{Attempt, Config, Message, Strawman, Wake};
use peerlock_protocols::token::Claim;
use peerlock_protocols::{Cx, Effect, Input, Quorum, Replicas, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Effects = Vec<Effect<Message, Wake>>;

const ME: PeerId = PeerId::new(9);
const TICKET: Ticket = Ticket::new(1);

fn attempt(peer: PeerId, number: u64) -> Attempt {
    Attempt { client: Claim { peer, ticket: TICKET }, number }
}

/// A client that has requested two of three votes, and retries after a loss.
fn client() -> Strawman {
    let mut client = Strawman::new(ME, &Replicas::first(Quorum::new(3, 2)), Config::BACKS_OFF);
    feed(&mut client, Input::Request(TICKET));
    client
}

fn feed(client: &mut Strawman, input: Input<Message, Wake>) -> Effects {
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    step(client, input, &mut Cx::new(ME, Time::ZERO, &mut rng, &mut effects));
    effects
}

/// A replica's answer to attempt `number`: it has voted for `owner`.
fn answer(client: &mut Strawman, replica: u32, number: u64, owner: Attempt) -> Effects {
    let message = Message::Response { replica, attempt: attempt(ME, number), owner, fencing: 0 };
    feed(client, Input::Message { from: PeerId::new(replica.into()), message })
}

fn is_granted(effects: &Effects) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Grant { .. }))
}

#[test]
fn client_with_m_votes_is_granted() {
    let mut client = client();
    assert!(!is_granted(&answer(&mut client, 0, 0, attempt(ME, 0))));
    assert!(is_granted(&answer(&mut client, 2, 0, attempt(ME, 0))));
}

#[test]
fn duplicate_answer_is_one_vote() {
    let mut client = client();
    answer(&mut client, 0, 0, attempt(ME, 0));
    assert_eq!(answer(&mut client, 0, 0, attempt(ME, 0)), []);
}

/// The replica may have voted for another client since.
#[test]
fn vote_for_earlier_attempt_is_returned() {
    let (mut client, other) = (client(), attempt(PeerId::new(8), 0));
    answer(&mut client, 0, 0, other);
    answer(&mut client, 1, 0, other);
    feed(&mut client, Input::Timer(Wake(TICKET)));
    let late = answer(&mut client, 2, 0, attempt(ME, 0));
    let release = Message::Release { replica: 2, attempt: attempt(ME, 0), fencing: 0 };
    assert_eq!(late, [Effect::Send { to: PeerId::new(2), message: release }]);
    assert!(!is_granted(&answer(&mut client, 0, 1, attempt(ME, 1))), "one vote of the second attempt");
    assert!(is_granted(&answer(&mut client, 1, 1, attempt(ME, 1))), "two votes of it");
}
