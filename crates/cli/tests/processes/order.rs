//! The order of clients of several slots while one client keeps its slot.

use std::time::Duration;

use super::world::{AN_HOUR, ENDLESS, World, until};

/// The number of grants of the other clients. Without a bound, almost all of them would pass a waiter.
const ENTRIES: usize = 100;

/// Two slots and one long holder: 2 k (L + 2) (lab/docs/papers/fair-k-late.md).
const BOUND: usize = 12;

#[tokio::test]
async fn passes_are_bounded_beside_a_client_that_stays() {
    // Much longer than a message takes on a busy machine: each holder's peer knows its successor before the release.
    let mut world = World::new(2, Duration::from_secs(60), AN_HOUR);
    let agents = world.cluster(3).await;
    let holder = world.client(&agents[0], 1, true);
    until("a long holder", async || (world.tally().of(holder.number) > 0).then_some(())).await;
    world.stay = Duration::from_millis(40);
    let mut others: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
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
