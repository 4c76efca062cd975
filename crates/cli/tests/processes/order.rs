//! The order of clients with several slots while one client keeps its slot.

use std::time::Duration;

use super::world::{World, until};

const NEVER: Duration = Duration::from_secs(3_600);
const ON_AND_ON: u64 = u64::MAX;

/// So many entries of those that come again: without a bound one of them is passed by almost all.
const ENTRIES: usize = 100;

/// Two slots and one long stay: 2 k (L + 2) (lab/docs/papers/fair-k-late.md).
const BOUND: usize = 12;

/// A client keeps one of two slots, and three others ask again as soon as they have left the other one.
#[tokio::test]
async fn passes_are_bounded_beside_a_client_that_stays() {
    // Much longer than a message on a busy machine, so that each holder learns of its next before it leaves.
    let mut world = World::new(2, Duration::from_secs(60), NEVER);
    let agents = world.cluster(3).await;
    let holder = world.client(&agents[0], 1, true);
    until("one that stays", async || (world.tally().of(holder.number) > 0).then_some(())).await;
    world.stay = Duration::from_millis(40);
    let mut others: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
    until("many entries", async || (world.tally().all() > ENTRIES).then_some(())).await;
    world.stop();
    for client in &mut others {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    world.kill(&holder);
    let summary = world.check();
    let most = world.with_log(|log| log.passed()).into_iter().max();
    println!("{:?}, most passes of one wait: {most:?}", summary.entries);
    assert!(most.is_some_and(|most| most <= BOUND), "passed by {most:?}: {:?}", summary.entries);
    for client in &others {
        assert!(summary.of(client.number) > ENTRIES / 10, "client {}: {:?}", client.number, summary.entries);
    }
}
