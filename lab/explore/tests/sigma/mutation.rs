use peerlock_explore::{Violation, World, explore, explore_with_hope};
use peerlock_protocols::sigma::{Config, Message, Sigma};
use peerlock_protocols::{Effect, Input};

use crate::mutated::{Mutation, Sabotaged, Step};
use crate::{MOST_STATES, breaks, case, holds};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Fault {
    /// The wrapper itself changes nothing.
    None,
    VoteForAll,
    ReleaseForgotten,
    LevelForgotten,
    /// A replica does not ask its owner to yield to an earlier request.
    InquiryForgotten,
}

impl Mutation<Sigma> for Fault {
    fn on_effects(&mut self, step: Step<'_, Sigma>) {
        let asker = match step.input {
            Input::Message { message: Message::Request { client, .. }, .. } => Some(*client),
            _ => None,
        };
        step.effects.retain_mut(|effect| {
            let Effect::Send { message, .. } = effect else { return true };
            match (*self, message) {
                (Self::ReleaseForgotten, Message::Release { .. }) => return false,
                (Self::InquiryForgotten, Message::Inquire { .. }) => return false,
                (Self::VoteForAll, Message::Response { owner, until, .. }) => {
                    *owner = asker.or(*owner);
                    *until = step.now + Config::REPAIRED.lease;
                }
                (Self::LevelForgotten, Message::Response { fencing, .. }) => *fencing = 0,
                _ => {}
            }
            true
        });
    }
}

const TWO: &str = "replicas=2 votes=2 clients=2 alike=0 tidy=0";

fn world(fault: Fault, timeouts: u32) -> World<Sabotaged<Sigma, Fault>> {
    let case = case(&format!("{TWO} timeouts={timeouts}"));
    case.world(|id, replicas| Sabotaged { peer: Sigma::new(id, replicas, Config::REPAIRED), mutation: fault })
}

#[test]
fn the_wrapper_changes_nothing() {
    assert_eq!(explore(&world(Fault::None, 0), MOST_STATES).unwrap(), holds(TWO));
}

#[test]
fn every_fault_is_caught_by_the_right_check() {
    type Check = fn(&Violation) -> bool;
    let table: [(Fault, Check); 4] = [
        (Fault::VoteForAll, |v| matches!(v, Violation::TooManyHolders { inside: 2, slots: 1 })),
        (Fault::LevelForgotten, |v| matches!(v, Violation::Fencing(..))),
        (Fault::ReleaseForgotten, |v| matches!(v, Violation::Hopeless(_))),
        (Fault::InquiryForgotten, |v| matches!(v, Violation::Hopeless(_))),
    ];
    for (fault, is_right) in table {
        let found = explore_with_hope(&world(fault, 1), MOST_STATES, 1).unwrap_err();
        println!("{fault:?}, {} steps:\n{found}\n", found.steps);
        assert!(is_right(&found.violation), "{fault:?} was detected as another violation:\n{found}");
    }
}

#[test]
fn without_a_default_timer_a_loss_is_for_ever() {
    let config = Config { default_timer: false, ..Config::REPAIRED };

    let found = breaks("replicas=2 votes=2 clients=2 losses=1 timeouts=1", config);

    assert!(matches!(found.violation, Violation::Stuck(_)), "{found}");
}
