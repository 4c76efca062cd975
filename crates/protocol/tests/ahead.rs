//! With one slot, successors are sent ahead, and requests are granted in order.

use peerlock_protocol::custody::{self, Body, Custody, Following};
use peerlock_protocol::registry::Session;
use peerlock_protocol::token::{Claim, Token};
use peerlock_protocol::{Cx, Effect, Input, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

const ME: PeerId = PeerId::new(1);
const HOME: PeerId = PeerId::new(0);
const OTHER: PeerId = PeerId::new(2);

type Effects = Vec<Effect<custody::Message, custody::Timer>>;

fn announce(peer: &mut Custody, input: Input<custody::Message, custody::Timer>) -> Effects {
    let (mut rng, mut effects) = (Rng::new(1), Vec::new());
    step(peer, input, &mut Cx::new(ME, Time::ZERO, &mut rng, &mut effects));
    effects
}

fn feed(peer: &mut Custody, body: Body) -> Effects {
    announce(peer, Input::Message { from: HOME, message: custody::Message { generation: 1, body } })
}

fn ask(peer: &mut Custody, ticket: u64) -> Effects {
    announce(peer, Input::Request(Ticket::new(ticket)))
}

fn leave(peer: &mut Custody, ticket: u64) -> Effects {
    announce(peer, Input::Release(Ticket::new(ticket)))
}

fn claim(peer: PeerId, ticket: u64) -> Claim {
    Claim { peer, ticket: Ticket::new(ticket) }
}

fn granted(effects: &Effects) -> Option<Ticket> {
    effects.iter().find_map(|effect| if let &Effect::Grant { ticket, .. } = effect { Some(ticket) } else { None })
}

/// The receiver of the token, and the successors that it carries.
fn handed_on(effects: &Effects) -> Option<(Claim, Following)> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send { to, message: custody::Message { body: Body::Token { to: ticket, following, .. }, .. } } => {
            Some((Claim { peer: *to, ticket: *ticket }, following.clone()))
        }
        _ => None,
    })
}

fn following(claims: &[Claim], more: bool) -> Following {
    Following { turn: 0, claims: claims.to_vec(), more }
}

/// A peer whose client holds the only token.
fn holding(following: Following) -> Custody {
    let config = custody::Config { batch: None, ..custody::Config::default() };
    let mut peer = Custody::founded(Session { peer: ME, number: 0 }, config, HOME, 1);
    ask(&mut peer, 1);
    let token = Token { slot: 0, fencing: (1 << 32) + 1 };
    let effects = feed(&mut peer, Body::Token { to: Ticket::new(1), token, stay: 7, following });
    assert_eq!(granted(&effects), Some(Ticket::new(1)));
    peer
}

#[test]
fn token_carries_remaining_successors() {
    let mut peer = holding(following(&[claim(OTHER, 1), claim(HOME, 1)], true));
    let along = following(&[claim(HOME, 1)], true);
    assert_eq!(handed_on(&leave(&mut peer, 1)), Some((claim(OTHER, 1), along)));
}

#[test]
fn free_token_without_known_waiters_is_granted_at_once() {
    let mut peer = holding(following(&[], false));
    leave(&mut peer, 1);
    assert_eq!(granted(&ask(&mut peer, 2)), Some(Ticket::new(2)));
}

#[test]
fn local_request_is_queued_if_more_wait() {
    let mut peer = holding(following(&[], true));
    leave(&mut peer, 1);
    let effects = ask(&mut peer, 2);
    assert_eq!(granted(&effects), None);
    assert!(effects.iter().any(|effect| matches!(effect, Effect::Send { to: HOME, .. })), "it is queued: {effects:?}");
}

/// Although the token is here.
#[test]
fn older_waiter_of_same_peer_is_granted_first() {
    let mut peer = holding(following(&[], false));
    ask(&mut peer, 2);
    leave(&mut peer, 1);
    assert_eq!(granted(&ask(&mut peer, 3)), None);
    let event = Body::Next { slot: 0, stay: 7, following: following(&[claim(ME, 2)], false), replaces: false };
    assert_eq!(granted(&feed(&mut peer, event)), Some(Ticket::new(2)));
}

#[test]
fn token_for_withdrawn_client_is_passed_on() {
    let config = custody::Config { batch: None, ..custody::Config::default() };
    let mut peer = Custody::founded(Session { peer: ME, number: 0 }, config, HOME, 1);
    ask(&mut peer, 1);
    leave(&mut peer, 1);
    let token = Token { slot: 0, fencing: (1 << 32) + 1 };
    let brought = following(&[claim(OTHER, 1), claim(HOME, 1)], false);
    let effects = feed(&mut peer, Body::Token { to: Ticket::new(1), token, stay: 7, following: brought });
    assert_eq!(handed_on(&effects), Some((claim(OTHER, 1), following(&[claim(HOME, 1)], false))));
}
