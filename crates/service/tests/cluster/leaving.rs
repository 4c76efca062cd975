//! Peers that leave in good order take nothing with them.

use std::time::Duration;

use peerlock_service::{Error, Request};
use tokio::time::{sleep, timeout};

use crate::world::{Cluster, Log};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn whoever_founded_a_resource_can_go() {
    let mut cluster = Cluster::of(3, 21).await;
    for name in ["a", "b", "c"] {
        drop(cluster.peer(1).acquire(Request::new(name).slots(2)).await.unwrap());
    }
    cluster.peer(1).leave().await;
    cluster.peers.remove(&1);
    sleep(SECOND).await;
    for name in ["a", "b", "c"] {
        for peer in [3, 2] {
            let grants = async {
                let one = cluster.peer(peer).acquire(Request::new(name).slots(2)).await.unwrap();
                (one, cluster.peer(peer).acquire(name).await.unwrap())
            };
            let (one, two) = timeout(SECOND, grants).await.expect("both slots are left");
            assert!(one.fencing() > 2 || two.fencing() > 2, "the numbers go on");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_keep_their_places_when_the_holder_leaves() {
    let mut cluster = Cluster::of(4, 22).await;
    let held = cluster.peer(1).acquire("r").await.unwrap();
    let log = Log::new(1);
    let mut clients = Vec::new();
    for (turn, peer) in [2, 3, 4, 2, 3].into_iter().enumerate() {
        let (peer, log) = (cluster.peer(peer).clone(), log.clone());
        clients.push(tokio::spawn(async move {
            let grant = peer.acquire("r").await.unwrap();
            log.enter(turn as u64, &grant);
            sleep(Duration::from_millis(5)).await;
            log.leave(&grant);
        }));
        sleep(Duration::from_millis(20)).await;
    }
    cluster.peer(1).leave().await;
    assert!(held.is_lost());
    assert_eq!(cluster.peer(1).acquire("r").await.unwrap_err(), Error::Stopped);
    cluster.peers.remove(&1);
    for client in clients {
        timeout(SECOND, client).await.expect("at once").unwrap();
    }
    assert_eq!(log.entries(), [0, 1, 2, 3, 4]);
}

/// An agent that is told to stop: its clients need time to stop, and nobody comes in meanwhile.
#[tokio::test(start_paused = true)]
async fn who_drains_first_lets_nobody_in_beside_those_who_are_inside() {
    let cluster = Cluster::of(3, 24).await;
    let leaving = cluster.peer(1);
    let held = leaving.acquire("r").await.unwrap();
    let detached = leaving.acquire_detached(Request::new("detached").ttl(3600 * SECOND)).await.unwrap();
    detached.detach();
    let waiting = tokio::spawn(leaving.acquire("r"));
    let other = cluster.peer(2).clone();
    let mut others = Box::pin(async move { other.acquire("r").await.unwrap() });
    assert!(timeout(SECOND, &mut others).await.is_err(), "it waits");

    let mut drained = Box::pin(leaving.drain());
    assert!(timeout(SECOND, &mut drained).await.is_err(), "one is inside");
    assert!(held.is_lost());
    assert_eq!(waiting.await.unwrap().unwrap_err(), Error::Stopped);
    assert_eq!(leaving.acquire("r").await.unwrap_err(), Error::Stopped);
    assert!(timeout(SECOND, &mut others).await.is_err(), "nobody comes in while the holder stops");
    assert_eq!(held.release().await, Err(Error::Lost));
    drop(timeout(SECOND, others).await.expect("the slot is free"));
    timeout(SECOND, drained).await.expect("the other is in the register, and is not waited for");
    leaving.leave().await;
    let error = cluster.peer(2).acquire(Request::new("detached").try_only()).await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { .. }), "it outlives its peer: {error}");
}

#[tokio::test(start_paused = true)]
async fn the_first_ones_leave_one_after_the_other() {
    let mut cluster = Cluster::of(5, 23).await;
    let log = Log::new(1);
    for number in 1..=4 {
        let grant = timeout(5 * SECOND, cluster.peer(number).acquire("r")).await.expect("soon").unwrap();
        log.enter(number, &grant);
        log.leave(&grant);
        drop(grant);
        cluster.peers.remove(&number).unwrap().leave().await;
        // If it was a voter, another one takes its place before the next one goes.
        sleep(90 * SECOND).await;
        let newcomer = 10 + number;
        cluster.start(newcomer, 5).await.unwrap();
        let grant = timeout(5 * SECOND, cluster.peer(newcomer).acquire("r")).await.expect("soon").unwrap();
        log.enter(newcomer, &grant);
        log.leave(&grant);
    }
}

/// A host that comes back has another session: nothing that it had in its former life comes back with it.
#[tokio::test(start_paused = true)]
async fn who_founded_and_left_comes_back_without_a_second_set_of_slots() {
    let mut cluster = Cluster::of(3, 24).await;
    drop(cluster.peer(1).acquire("r").await.unwrap());
    cluster.peers.remove(&1).unwrap().leave().await;
    let held = timeout(SECOND, cluster.peer(2).acquire("r")).await.expect("at once").unwrap();
    cluster.start(1, 3).await.unwrap();
    cluster.settle().await;
    let error = cluster.peer(1).acquire(Request::new("r").wait(5 * SECOND)).await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { place: Some(0), .. }), "{error}");
    let waits = cluster.peer(1).acquire("r");
    drop(held);
    drop(timeout(SECOND, waits).await.expect("its turn").unwrap());
}
