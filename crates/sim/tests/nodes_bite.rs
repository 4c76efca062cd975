//! Would the runs of whole nodes see a mistake in a node? Each of these is made on purpose, and must be seen within a
//! few hundred runs: by a watcher, or by what a node asserts of itself.

#[path = "nodes/plan.rs"]
#[allow(dead_code, reason = "other users of these plans want more of them")]
mod plan;

use peerlock_node::{Sabotage, sabotage};

/// The first run that goes wrong, and what is wrong with it.
fn seen(within: u64) -> Option<(u64, String)> {
    (0..within).find_map(|seed| plan::play(seed).err().map(|failure| (seed, failure.violation.to_string())))
}

#[test]
fn every_mistake_is_seen() {
    std::panic::set_hook(Box::new(|_| {})); // Assertions that fail are what is wanted here.
    for mistake in [
        Sabotage::Resend,
        Sabotage::Ack,
        Sabotage::LeaseAlarm,
        Sabotage::Release,
        Sabotage::Undelivered,
        Sabotage::Majority,
    ] {
        sabotage(Some(mistake));
        let seen = seen(1000);
        sabotage(None);
        println!("{mistake:?}: {seen:?}");
        assert!(seen.is_some(), "nobody sees {mistake:?}");
    }
}
