//! One client after the other.

use std::time::Duration;

use peerlock_service::{Error, Request};

use crate::world::Cluster;

/// Also where those who answer it have not met it yet: nobody has to ask twice.
#[tokio::test(start_paused = true)]
async fn a_newcomer_is_in_after_a_few_round_trips() {
    let mut cluster = Cluster::of(1, 3).await;
    cluster.network.delay(Duration::from_millis(1), Duration::from_millis(100));
    for number in 2..=12 {
        let began = tokio::time::Instant::now();
        cluster.start(number, 1).await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(2), "{number}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn alone_and_among_three_a_slot_is_granted_and_given_back() {
    for peers in [1, 3] {
        let cluster = Cluster::of(peers, peers).await;
        for round in 1..=3 {
            for peer in cluster.peers.values() {
                let grant = peer.acquire(Request::new("backup").slots(1)).await.unwrap();
                assert_eq!(grant.slot(), 0, "round {round}");
                grant.release().await.unwrap();
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn another_number_of_slots_is_an_error_that_names_both() {
    let cluster = Cluster::of(2, 5).await;
    drop(cluster.peer(1).acquire(Request::new("backup").slots(3)).await.unwrap());
    let error = cluster.peer(2).acquire(Request::new("backup").slots(5)).await.unwrap_err();
    assert!(matches!(error, Error::SlotsMismatch { has: 3, asked: 5, .. }), "{error}");
    assert_eq!(error.to_string(), "backup has 3 slots, not 5: ask for 3, or change it with `peerlock resize backup 5`");
    drop(cluster.peer(2).acquire("backup").await.unwrap());
}
