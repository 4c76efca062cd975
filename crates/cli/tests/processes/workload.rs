//! Many clients without failures.

use std::time::Duration;

use super::world::World;

const AGENTS: usize = 8;
const CLIENTS: usize = 32;
const ENTRIES: u64 = 313;

#[tokio::test]
async fn ten_thousand_grants_of_32_clients_are_exclusive() {
    let mut world = World::new(3, Duration::from_secs(60), Duration::ZERO);
    let agents = world.cluster(AGENTS).await;
    let mut clients: Vec<_> =
        (0..CLIENTS).map(|n| world.client(&agents[n % AGENTS], ENTRIES, (n / AGENTS).is_multiple_of(2))).collect();
    for client in &mut clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    let summary = world.check();
    assert_eq!((summary.all(), &summary.lost[..]), (CLIENTS * ENTRIES as usize, &[][..]));
    for client in &clients {
        assert_eq!(summary.of(client.number), ENTRIES as usize);
    }
}
