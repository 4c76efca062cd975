//! Would the runs of whole nodes see a mistake in a node? Each of these is made on purpose, and must be seen within a few
//! hundred runs: by a watcher, or by what a node asserts of itself.

#[path = "nodes/plan.rs"]
mod plan;

use std::panic::{AssertUnwindSafe, catch_unwind};

use peerlock_node::{Sabotage, sabotage};

/// The first run that goes wrong, and what is wrong with it.
fn seen(within: u64) -> Option<(u64, String)> {
    (0..within).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| plan::play(seed))) {
        Ok(Ok(_)) => None,
        Ok(Err(failure)) => Some((seed, failure.violation.to_string())),
        Err(panic) => Some((seed, panic.downcast_ref::<String>().cloned().unwrap_or_default())),
    })
}

#[test]
fn every_mistake_is_seen() {
    std::panic::set_hook(Box::new(|_| {})); // Assertions that fail are what is wanted here.
    for mistake in [
        Sabotage::Resend,
        Sabotage::Ack,
        Sabotage::LeaseAlarm,
        Sabotage::Early,
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
