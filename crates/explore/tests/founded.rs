//! The founding of a resource in every order of events: there is never a second home.
//!
//! Two homes would both let a client in: the explorer's first rule.
#![allow(clippy::unwrap_used, reason = "a test may fail anywhere")]

use peerlock_base::{PeerId, Span, Ticket};
use peerlock_explore::{Counterexample, Explored, Limits, World, explore_with_hope};
use peerlock_mutex::founded::{Charter, Config, Found, Founded};
use peerlock_mutex::{Cx, Grant, Never, Observe, Protocol, Quorum, Replicas};

/// The home lets its own clients in, everybody else sends theirs away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sole {
    is_home: bool,
}

impl Found for Sole {
    fn found(me: PeerId, charter: Charter) -> Self {
        Self { is_home: me == charter.home }
    }
}

impl Protocol for Sole {
    type Message = u8;
    type Timer = Never;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.is_home {
            cx.grant(ticket, Grant { slot: 0, fencing: ticket.get() });
        } else {
            cx.refuse(ticket);
        }
    }

    fn release(&mut self, _: Ticket, _: &mut Cx<'_, Self>) {}
    fn on_message(&mut self, _: PeerId, _: u8, _: &mut Cx<'_, Self>) {}
}

impl Observe for Sole {
    const KINDS: &'static [&'static str] = &[];

    fn kind(_: &u8) -> usize {
        0
    }
}

/// So many keepers, of which `votes` must agree, and clients at so many other peers.
fn world(keepers: usize, votes: u32, clients: u64, change: impl FnOnce(&mut Limits)) -> World<Founded<Sole>> {
    // Retries (up to 3 s) may come, the charter is not repeated (10 s at least): what is forgotten stays forgotten.
    let mut limits = Limits { replicas: keepers, alike: true, longest_timer: Span::from_secs(5), ..Limits::new(1) };
    change(&mut limits);
    let replicas = Replicas::first(Quorum::new(keepers as u32, votes));
    let peers = (0..keepers as u64 + clients).map(PeerId::new);
    World::new(limits, peers.map(|me| (me, Founded::new(me, &replicas, Some(1), Config::default()))))
}

fn explore(world: &World<Founded<Sole>>, reserve: u32) -> Result<Explored, Box<Counterexample>> {
    explore_with_hope(world, 3_000_000, reserve)
}

#[track_caller]
fn holds(world: &World<Founded<Sole>>) {
    let explored = explore(world, 1).unwrap_or_else(|found| panic!("after {} steps:\n\n{found}\n", found.steps));
    println!("{explored:?}");
}

#[test]
fn two_who_ask_at_once_get_one_home() {
    holds(&world(3, 2, 2, |_| {}));
    holds(&world(2, 2, 2, |limits| limits.timeouts = 1));
}

#[test]
fn a_loss_is_made_up_for() {
    holds(&world(2, 2, 1, |limits| (limits.losses, limits.timeouts) = (1, 2)));
}

#[test]
fn a_message_told_twice_does_no_harm() {
    holds(&world(2, 2, 2, |limits| limits.duplications = 1));
}

/// 2m − n = 2: one may forget.
#[test]
fn a_keeper_may_forget() {
    holds(&world(2, 2, 2, |limits| (limits.resets, limits.timeouts) = (1, 1)));
}

/// 2m − n = 1: none may. The check bites.
#[test]
fn if_too_many_keepers_forget_there_are_two_homes() {
    let found = explore(&world(3, 2, 2, |limits| limits.resets = 1), 0).unwrap_err();
    println!("{} steps:\n{found}", found.steps);
    assert!(found.to_string().contains("2 clients are inside"), "{found}");
}
