//! A protocol of one peer that grants when a timer expires.

use peerlock_explore::{Counterexample, Explored, Limits, Violation, World, explore, explore_with_hope};
use peerlock_protocols::{Cx, Grant, Observe, Protocol};
use peerlock_types::{PeerId, Span, Ticket};

#[derive(Clone, Default, PartialEq, Eq, Hash)]
struct Sleeper {
    forgets_to_cancel: bool,
    waiting: Option<Ticket>,
    newest: u64,
}

impl Protocol for Sleeper {
    type Message = u8;
    type Timer = Ticket;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.waiting = Some(ticket);
        cx.set_timer(ticket, Span::from_secs(2));
        cx.set_timer(ticket, Span::from_secs(1)); // Replaces the first.
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        if self.waiting.take_if(|waiting| *waiting == ticket).is_some() && !self.forgets_to_cancel {
            cx.cancel_timer(ticket);
        }
    }

    fn on_message(&mut self, _: PeerId, _: u8, _: &mut Cx<'_, Self>) {}

    fn on_timer(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.waiting = None;
        self.newest += 1;
        cx.grant(ticket, Grant { slot: 0, fencing: self.newest });
    }

    fn on_reset(&mut self, incarnation: u64, _: &mut Cx<'_, Self>) {
        self.newest = incarnation;
    }
}

impl Observe for Sleeper {
    const KINDS: &'static [&'static str] = &["nothing"];

    fn kind(_: &u8) -> usize {
        0
    }
}

fn explored(limits: Limits, peer: Sleeper) -> Result<Explored, Box<Counterexample>> {
    explore(&World::new(limits, [(PeerId::new(0), peer)]), 1000)
}

#[test]
fn timer_expires_once() {
    let limits = Limits { timeouts: 5, ..Limits::new(1) };

    let explored = explored(limits, Sleeper::default()).unwrap();

    assert_eq!(explored, Explored { states: 4, steps: 3, ends: 1, depth: 3 }, "ask, enter, leave");
}

#[test]
fn world_without_timeouts_is_cut_off_not_stuck() {
    let explored = explored(Limits::new(1), Sleeper::default()).unwrap();

    assert_eq!(explored, Explored { states: 2, steps: 1, ends: 1, depth: 1 });
}

#[test]
fn cancelled_timer_does_not_expire() {
    let limits = Limits { timeouts: 5, withdrawals: 1, ..Limits::new(1) };

    assert!(explored(limits, Sleeper::default()).is_ok());
    let found = explored(limits, Sleeper { forgets_to_cancel: true, ..Sleeper::default() }).unwrap_err();

    assert_eq!(found.violation, Violation::NotWaiting(PeerId::new(0), Ticket::new(1)));
    let trace = "0: request\n0: withdraw\n0: timer t1\n0: enter slot 0, fencing 1\n";
    assert_eq!(found.trace.to_string(), trace);
}

#[test]
fn too_long_timer_never_expires() {
    let limits = |longest_timer| Limits { timeouts: 5, longest_timer, ..Limits::new(1) };

    assert_eq!(explored(limits(Span::from_secs(1)), Sleeper::default()).unwrap().states, 4);
    let found = explored(limits(Span::from_millis(999)), Sleeper::default()).unwrap_err();
    assert_eq!(found.violation, Violation::Stuck(vec![(PeerId::new(0), Ticket::new(1))]));
}

#[test]
fn hope_requires_a_timer_that_may_expire() {
    let hopeful = |timeouts, reserve| {
        let world = World::new(Limits { timeouts, ..Limits::new(1) }, [(PeerId::new(0), Sleeper::default())]);
        explore_with_hope(&world, 1000, reserve)
    };

    assert_eq!(hopeful(1, 1).unwrap().states, 4);
    assert_eq!(hopeful(0, 1).unwrap().states, 2, "cut off");
    let found = hopeful(0, 0).unwrap_err();
    assert_eq!(found.violation, Violation::Hopeless(vec![(PeerId::new(0), Ticket::new(1))]));
    assert_eq!(found.trace.to_string(), "0: request\n");
}

#[test]
fn replicas_have_no_clients_and_may_be_reset() {
    let limits = Limits { timeouts: 1, replicas: 1, resets: 2, ..Limits::new(1) };

    let world = World::new(limits, [0, 1].map(|id| (PeerId::new(id), Sleeper::default())));

    let explored = explore(&world, 1000).unwrap();
    assert_eq!(explored, Explored { states: 3 * 4, steps: 2 * 4 + 3 * 3, ends: 1, depth: 2 + 3 });
}

#[test]
fn timer_expires_when_due() {
    let limits = Limits { passes: 1, ..Limits::new(1) };

    assert_eq!(explored(limits, Sleeper::default()).unwrap(), Explored { states: 5, steps: 4, ends: 1, depth: 4 });
    let world = World::new(Limits { withdrawals: 1, ..limits }, [(PeerId::new(0), Sleeper::default())]);
    let found = explore(&world, 1000);
    assert!(found.is_ok(), "a cancelled timer must not be pending");
    let forgets = Sleeper { forgets_to_cancel: true, ..Sleeper::default() };
    let found = explored(Limits { withdrawals: 1, ..limits }, forgets).unwrap_err();
    let trace = "0: request\n0: withdraw\nat 1s:\n0: timer t1\n0: enter slot 0, fencing 1\n";
    assert_eq!(found.trace.to_string(), trace);
}
