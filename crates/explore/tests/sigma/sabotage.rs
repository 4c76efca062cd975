//! Sigma with one thing wrong, made by tampering with what comes out of a healthy peer: the search finds it.

use peerlock_base::{PeerId, Ticket};
use peerlock_explore::{Limits, Violation, World, explore, explore_with_hope};
use peerlock_mutex::sigma::{Config, Message, Sigma, Timer};
use peerlock_mutex::{Cx, Effect, Input, Observe, Protocol, Quorum, Replicas, step};

use crate::{Case, MOST_STATES};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The wrapper itself changes nothing.
    None,
    /// A replica tells everybody who asks that the vote is theirs.
    VoteForAll,
    /// Nobody gives a vote back.
    ReleaseForgotten,
    /// Replicas do not know the fencing numbers given so far.
    LevelForgotten,
    /// A replica does not ask its owner on behalf of an earlier request.
    InquiryForgotten,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Sabotaged {
    inner: Sigma,
    fault: Fault,
}

impl Sabotaged {
    fn run(&mut self, input: Input<Message, Timer>, cx: &mut Cx<'_, Self>) {
        let asker = match input {
            Input::Message { message: Message::Request { client, .. }, .. } => Some(client),
            _ => None,
        };
        let (me, now, mut effects) = (cx.me(), cx.now(), Vec::new());
        step(&mut self.inner, input, &mut Cx::new(me, now, cx.rng(), &mut effects));
        for effect in effects {
            match effect {
                Effect::Send { to, mut message } => {
                    match (self.fault, &mut message) {
                        (Fault::ReleaseForgotten, Message::Release { .. }) => continue,
                        (Fault::InquiryForgotten, Message::Inquire { .. }) => continue,
                        (Fault::VoteForAll, Message::Response { owner, until, .. }) => {
                            *owner = asker.or(*owner);
                            *until = now + Config::REPAIRED.lease;
                        }
                        (Fault::LevelForgotten, Message::Response { fencing, .. }) => *fencing = 0,
                        _ => {}
                    }
                    cx.send(to, message);
                }
                Effect::Grant { ticket, grant } => cx.grant(ticket, grant),
                Effect::Lost { ticket } => cx.lost(ticket),
                Effect::Refused { ticket } => cx.refuse(ticket),
                Effect::Route { .. } | Effect::Forward { .. } => cx.strange("a message to be routed"),
                Effect::Wish(wish) => cx.wish(wish),
                Effect::Strange { why } => cx.strange(why),
                Effect::SetTimer { timer, after } => cx.set_timer(timer, after),
                Effect::CancelTimer { timer } => cx.cancel_timer(timer),
            }
        }
    }
}

impl Protocol for Sabotaged {
    type Message = Message;
    type Timer = Timer;

    fn request(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Request(ticket), cx);
    }

    fn release(&mut self, ticket: Ticket, cx: &mut Cx<'_, Self>) {
        self.run(Input::Release(ticket), cx);
    }

    fn on_message(&mut self, from: PeerId, message: Message, cx: &mut Cx<'_, Self>) {
        self.run(Input::Message { from, message }, cx);
    }

    fn on_timer(&mut self, timer: Timer, cx: &mut Cx<'_, Self>) {
        self.run(Input::Timer(timer), cx);
    }

    fn on_reset(&mut self, incarnation: u64, cx: &mut Cx<'_, Self>) {
        self.run(Input::Reset { incarnation }, cx);
    }
}

impl Observe for Sabotaged {
    const KINDS: &'static [&'static str] = Sigma::KINDS;

    fn kind(message: &Message) -> usize {
        Sigma::kind(message)
    }
}

/// Two replicas, two votes, two clients.
fn world(fault: Fault, timeouts: u32) -> World<Sabotaged> {
    let case = Case::new(2, 2, 2);
    let replicas = Replicas::first(Quorum::new(2, 2));
    let peer = |id| Sabotaged { inner: Sigma::new(id, &replicas, Config::REPAIRED), fault };
    World::new(Limits { alike: false, tidy: false, timeouts, ..case.limits }, case.peers().map(|id| (id, peer(id))))
}

#[test]
fn the_wrapper_changes_nothing() {
    let bare = Case::new(2, 2, 2).with(|limits| (limits.alike, limits.tidy) = (false, false)).holds();

    assert_eq!(explore(&world(Fault::None, 0), MOST_STATES).unwrap(), bare);
}

#[test]
fn every_fault_is_caught_by_the_right_check() {
    type Check = fn(&Violation) -> bool;
    let table: [(Fault, Check); 4] = [
        (Fault::VoteForAll, |v| matches!(v, Violation::TooManyInside { inside: 2, slots: 1 })),
        (Fault::LevelForgotten, |v| matches!(v, Violation::Fencing(..))),
        (Fault::ReleaseForgotten, |v| matches!(v, Violation::Hopeless(_))),
        (Fault::InquiryForgotten, |v| matches!(v, Violation::Hopeless(_))),
    ];
    for (fault, is_right) in table {
        let found = explore_with_hope(&world(fault, 1), MOST_STATES, 1).unwrap_err();
        println!("{fault:?}, {} steps:\n{found}\n", found.steps);
        assert!(is_right(&found.violation), "{fault:?} was found as something else:\n{found}");
    }
}

/// In print a client has no timer as long as it knows no T_w: one loss, and it waits for ever.
#[test]
fn without_a_default_timer_a_loss_is_for_ever() {
    let case = Case::new(2, 2, 2).with(|limits| (limits.losses, limits.timeouts) = (1, 1));

    let found = case.breaks(Config { default_timer: false, ..Config::REPAIRED });

    assert!(matches!(found.violation, Violation::Stuck(_)), "{found}");
}
