//! Would the runs of whole nodes see a mistake? Each of these is made on purpose, in the node or in the register, and must
//! be seen: by a watcher, by what a node asserts of itself, or because somebody is never served.

#[path = "nodes/plan.rs"]
#[allow(dead_code, reason = "other users of these plans want more of them")]
mod plan;

use peerlock_node::{Sabotage, sabotage};
use peerlock_register::Sabotage as InRegister;
use peerlock_sim::Nodes;
use rayon::prelude::*;

/// How many runs may pass before a mistake is seen.
const WITHIN: u64 = 2000;

#[derive(Clone, Copy, Debug)]
enum Mistake {
    Node(Sabotage),
    Register(InRegister),
}

fn plan_with(mistake: Mistake, seed: u64) -> Nodes {
    let mut plan = plan::plan(seed);
    if let Mistake::Register(mistake) = mistake {
        plan.config.register.sabotage = Some(mistake);
    }
    plan
}

/// What is wrong with this run, if it is.
fn seen(mistake: Mistake, seed: u64) -> Option<(u64, String)> {
    plan_with(mistake, seed).run().err().map(|failure| (seed, failure.violation.to_string()))
}

/// Each mistake with a seed that shows it and a word of what is seen. A change of the code may change what a seed stands
/// for: then the first one that shows it is looked for, and printed.
#[test]
fn every_mistake_is_seen() {
    std::panic::set_hook(Box::new(|_| {})); // Assertions that fail are what is wanted here.
    let table: [(Mistake, u64, &[&str]); 14] = [
        (Mistake::Node(Sabotage::Resend), 0, &[]),
        (Mistake::Node(Sabotage::Ack), 0, &[]),
        (Mistake::Node(Sabotage::LeaseAlarm), 0, &[]),
        (Mistake::Node(Sabotage::Release), 0, &[]),
        (Mistake::Node(Sabotage::BeyondSession), 0, &[]),
        (Mistake::Node(Sabotage::DetachedUntold), 0, &[]),
        (Mistake::Node(Sabotage::KeepsParts), 0, &[]),
        (Mistake::Register(InRegister::ReplacesSession), 0, &[]),
        (Mistake::Register(InRegister::AckBeforeDisk), 0, &[]),
        (Mistake::Register(InRegister::TellsOnce), 0, &[]),
        (Mistake::Register(InRegister::EndsAtOnce), 0, &[]),
        (Mistake::Register(InRegister::CountsFromAnswer), 0, &[]),
        (Mistake::Register(InRegister::NoLatch), 0, &[]),
        (Mistake::Register(InRegister::YesWithoutRound), 0, &[]),
    ];
    let mut unseen = Vec::new();
    for (mistake, named, words) in table {
        sabotage(if let Mistake::Node(mistake) = mistake { Some(mistake) } else { None });
        let first = || (0..WITHIN).into_par_iter().find_map_first(|seed| seen(mistake, seed));
        let found = seen(mistake, named).or_else(first);
        println!("{mistake:?}: {found:?}");
        let is_right = |(_, what): &(u64, String)| words.is_empty() || words.iter().any(|word| what.contains(word));
        if !found.as_ref().is_some_and(is_right) {
            unseen.push((mistake, found));
        }
    }
    sabotage(None);
    assert!(unseen.is_empty(), "not seen as they should be: {unseen:?}");
}
