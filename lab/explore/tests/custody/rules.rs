//! Without each rule, some order of events has a violation. The shortest such runs are in the table of
//! lab/docs/custody.md.

use std::fs;
use std::path::Path;

use peerlock_explore::{RegistryMutation, Violation, seek};
use peerlock_protocols::custody::Rule;

use crate::case::case;

const MOST_STATES: usize = 4_000_000;

#[derive(Clone, Copy, Debug)]
enum Fault {
    Rule(Rule),
    RegistryMutation(RegistryMutation),
}

type Row = (&'static str, Fault, &'static str, fn(&Violation) -> bool);

fn twice(violation: &Violation) -> bool {
    matches!(violation, Violation::SlotTwice(_) | Violation::TooManyHolders { .. } | Violation::WrongSlot(..))
}

fn waits_or_lost(violation: &Violation) -> bool {
    matches!(violation, Violation::Stuck(_) | Violation::Idle(_) | Violation::SlotLost(_))
}

fn number(violation: &Violation) -> bool {
    matches!(violation, Violation::Fencing(..))
}

fn undone(violation: &Violation) -> bool {
    matches!(violation, Violation::Undone(_))
}

const TABLE: [Row; 28] = [
    ("R1", Fault::Rule(Rule::Fence), "peers=3 slots=1 parties=2 stops=1", twice),
    ("R2", Fault::Rule(Rule::Forget), "peers=3 slots=1 parties=3 stops=1", waits_or_lost),
    ("R2", Fault::Rule(Rule::NotOurs), "peers=2 slots=2 requests=2 clients=2 parties=2 resize=1", twice),
    ("R3", Fault::Rule(Rule::CountAll), "peers=3 slots=1 parties=3 stops=1", twice),
    ("R3", Fault::RegistryMutation(RegistryMutation::EndUnnoticed), "peers=2 slots=1 parties=2 stops=1", waits_or_lost),
    ("R4", Fault::Rule(Rule::JoinAhead), "peers=3 slots=1 parties=2 stops=1", twice),
    ("R5", Fault::Rule(Rule::PartiesOnly), "peers=2 slots=1 parties=2 stops=1 sessions=1", twice),
    ("R6", Fault::Rule(Rule::BySession), "peers=3 slots=1 parties=3 stops=2 sessions=1", twice),
    ("R7", Fault::Rule(Rule::Numbers), "peers=2 slots=2 requests=3 parties=2 resize=3", number),
    ("R8", Fault::Rule(Rule::NothingLeaves), "peers=3 slots=1 parties=3 stops=2", waits_or_lost),
    (
        "R8",
        Fault::RegistryMutation(RegistryMutation::CloseRemovesJoiners),
        "peers=3 slots=1 parties=3 stops=2",
        waits_or_lost,
    ),
    ("R9", Fault::Rule(Rule::EarlyUpdate), "peers=3 slots=1 parties=2 stops=1", waits_or_lost),
    ("R10", Fault::Rule(Rule::GiveUpFirst), "peers=2 slots=1 parties=2 forgets=1", twice),
    ("R10", Fault::Rule(Rule::GiveUpWaits), "peers=2 slots=1 parties=2 forgets=1", waits_or_lost),
    (
        "R10",
        Fault::Rule(Rule::GiveUpLasts),
        "peers=2 slots=1 requests=2 withdrawals=1 parties=1 forgets=1 repeats=1 resize=2",
        twice,
    ),
    (
        "R10",
        Fault::RegistryMutation(RegistryMutation::QuitsLate),
        "peers=2 slots=1 requests=2 parties=2 forgets=1 repeats=1",
        twice,
    ),
    (
        "R11",
        Fault::RegistryMutation(RegistryMutation::RemovesUsed),
        "peers=2 slots=1 requests=2 parties=1 forgets=1 removes=1",
        twice,
    ),
    (
        "R11",
        Fault::RegistryMutation(RegistryMutation::RemovesForced),
        "peers=2 slots=1 parties=2 forces=1 forgets=1 removes=1",
        waits_or_lost,
    ),
    (
        "R11",
        Fault::RegistryMutation(RegistryMutation::ForgetsFloor),
        "peers=2 slots=1 requests=2 parties=1 forgets=1 removes=1",
        number,
    ),
    ("detached", Fault::Rule(Rule::DetachedEnd), "peers=2 slots=1 parties=2 stops=1 detached=1", twice),
    (
        "detached",
        Fault::RegistryMutation(RegistryMutation::HandsOnFirst),
        "peers=2 slots=1 parties=2 takeovers=1 detached=1 renewals=1",
        twice,
    ),
    (
        "detached",
        Fault::RegistryMutation(RegistryMutation::AttachesRenewed),
        "peers=2 slots=1 parties=2 stops=1 sessions=1 detached=1 renewals=1",
        twice,
    ),
    ("force", Fault::Rule(Rule::Youngest), "peers=3 slots=1 parties=2 takeovers=1 forces=1", twice),
    (
        "force",
        Fault::RegistryMutation(RegistryMutation::EvictsLate),
        "peers=2 slots=1 requests=2 parties=2 forces=1 repeats=1",
        twice,
    ),
    (
        "resize",
        Fault::RegistryMutation(RegistryMutation::ResizesLate),
        "peers=1 slots=1 parties=1 repeats=1 resize=2 then=3",
        undone,
    ),
    ("resize", Fault::Rule(Rule::HoldBack), "peers=2 slots=2 requests=2 clients=2 parties=2 resize=1", twice),
    (
        "take-over",
        Fault::RegistryMutation(RegistryMutation::NoGrantFile),
        "peers=2 slots=1 parties=2 takeovers=1",
        twice,
    ),
    (
        "take-over",
        Fault::RegistryMutation(RegistryMutation::TakeOverUnnoticed),
        "peers=2 slots=1 parties=2 takeovers=1",
        waits_or_lost,
    ),
];

#[test]
fn each_omitted_rule_violates_as_documented() {
    let mut found_rows = Vec::new();
    for (name, fault, world, harm) in TABLE {
        let healthy = case(world);
        assert_eq!(healthy.to_string(), world, "worlds are written as they are printed");
        let (broken, what) = match fault {
            Fault::Rule(rule) => (healthy.without(rule), format!("{rule:?}")),
            Fault::RegistryMutation(mutation) => (healthy.with(mutation), format!("{mutation:?}")),
        };
        match seek(&broken.world(), MOST_STATES, harm) {
            Ok(explored) => panic!("{what} left out does no harm in {world}: {explored:?}"),
            Err(found) => {
                println!("{what}, {} steps:\n{found}\n", found.steps);
                found_rows.push(format!("| {name} | `{what}` | `{world}` | {} | {} |", found.steps, found.violation));
            }
        }
    }
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/custody.md");
    let docs = fs::read_to_string(docs).expect("lab/docs/custody.md");
    let missing: Vec<&String> = found_rows.iter().filter(|row| !docs.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "lab/docs/custody.md does not have these rows:\n{missing:#?}");
}
