//! Cut connections, partitions and sudden deaths, one story each. What chance does to whole nodes is tried in
//! `peerlock-sim`.

use std::time::Duration;

use peerlock_base::Rng;
use peerlock_service::memory::Network;
use peerlock_service::transport::{self, Transport};
use peerlock_service::{Error, Request, Service};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Cluster, Log, id};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(12);

/// Everybody who waits hears of it in time, and nobody comes in.
async fn stalled_within_the_lease(waits: Vec<(u64, peerlock_service::Acquire)>, who: u64) {
    let began = Instant::now();
    for (number, acquire) in waits {
        let error = timeout(LEASE + SECOND, acquire).await.expect("in time").unwrap_err();
        assert!(matches!(&error, Error::Stalled { who: Some(peer), .. } if *peer == id(who)), "{number}: {error}");
    }
    assert!(began.elapsed() <= LEASE + SECOND, "{:?}", began.elapsed());
}

/// A cluster of five in which peer 2 is inside and 3, 4 and 5 wait, in line at peer 1.
async fn with_waiters(seed: u64) -> (Cluster, peerlock_service::Grant, Vec<(u64, peerlock_service::Acquire)>) {
    let cluster = Cluster::of(5, seed).await;
    drop(cluster.peer(1).acquire("r").await.unwrap());
    let grant = cluster.peer(2).acquire("r").await.unwrap();
    let mut waits = Vec::new();
    for number in 3..=5 {
        waits.push((number, cluster.peer(number).acquire(Request::new("r").ttl(LEASE))));
        sleep(SECOND).await;
    }
    assert_eq!(cluster.peer(4).show("r").await.unwrap().coordinator, id(1));
    (cluster, grant, waits)
}

#[tokio::test(start_paused = true)]
async fn the_holder_dies() {
    let (mut cluster, grant, waits) = with_waiters(41).await;
    cluster.kill(2);
    std::mem::forget(grant);
    stalled_within_the_lease(waits, 2).await;
    let error = cluster.peer(1).acquire(Request::new("r").ttl(LEASE)).await.unwrap_err();
    assert!(matches!(error, Error::Stalled { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_coordinator_dies() {
    let (mut cluster, grant, waits) = with_waiters(42).await;
    cluster.kill(1);
    stalled_within_the_lease(waits, 1).await;
    drop(grant);
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_cut_off_and_comes_back() {
    let (cluster, grant, waits) = with_waiters(43).await;
    cluster.isolate(2, true);
    sleep(LEASE / 2).await;
    cluster.isolate(2, false);
    let log = Log::new(1);
    log.enter(2, &grant);
    sleep(LEASE).await;
    log.leave(&grant);
    drop(grant);
    for (number, acquire) in waits {
        let grant = timeout(SECOND, acquire).await.expect("its turn").unwrap();
        log.enter(number, &grant);
        log.leave(&grant);
    }
    assert_eq!(log.entries(), [2, 3, 4, 5]);
}

/// The next in line dies: the others notice, and go on without it.
#[tokio::test(start_paused = true)]
async fn one_who_waits_dies() {
    let (mut cluster, grant, mut waits) = with_waiters(44).await;
    cluster.kill(3);
    drop(waits.remove(0));
    sleep(40 * SECOND).await;
    drop(grant);
    for (number, acquire) in waits {
        let grant = timeout(SECOND, acquire).await.unwrap_or_else(|_| panic!("{number} waits in vain")).unwrap();
        drop(grant);
    }
}

/// The next in line dies, and the holder leaves before anybody has noticed: the token that was meant for the dead comes
/// back.
#[tokio::test(start_paused = true)]
async fn a_token_for_the_dead_comes_back() {
    let (mut cluster, grant, mut waits) = with_waiters(55).await;
    cluster.kill(3);
    drop(waits.remove(0));
    sleep(SECOND).await;
    drop(grant);
    let mut last = 0;
    for (number, acquire) in waits {
        let grant = timeout(LEASE, acquire).await.unwrap_or_else(|_| panic!("{number} waits in vain")).unwrap();
        assert!(grant.fencing() > last);
        last = grant.fencing();
    }
}

/// One who waits is cut off for so long that its place is given up. When it is back it asks again by itself.
#[tokio::test(start_paused = true)]
async fn one_who_waits_is_cut_off_and_comes_back() {
    let (cluster, grant, waits) = with_waiters(56).await;
    let log = Log::new(1);
    log.enter(2, &grant);
    cluster.isolate(3, true);
    sleep(11 * SECOND).await;
    cluster.isolate(3, false);
    sleep(10 * SECOND).await;
    log.leave(&grant);
    drop(grant);
    let mut clients = Vec::new();
    for (number, acquire) in waits {
        let log = log.clone();
        clients.push(tokio::spawn(async move {
            match timeout(20 * SECOND, acquire).await.unwrap_or_else(|_| panic!("{number} waits in vain")) {
                Ok(grant) => {
                    log.enter(number, &grant);
                    sleep(SECOND).await;
                    log.leave(&grant);
                }
                // It could not reach anybody for most of its lease.
                Err(error) => assert!(number == 3 && matches!(error, Error::Stalled { .. }), "{number}: {error}"),
            }
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(log.entries()[..3], [2, 4, 5]);
    let patient = cluster.peer(3).acquire(Request::new("r").ttl(60 * SECOND)).await.unwrap();
    let waits = cluster.peer(4).acquire(Request::new("r").ttl(60 * SECOND));
    sleep(SECOND).await;
    cluster.isolate(4, true);
    sleep(15 * SECOND).await;
    cluster.isolate(4, false);
    sleep(10 * SECOND).await;
    assert_eq!(cluster.peer(1).show("r").await.unwrap().queue.len(), 1, "it has asked again");
    drop(patient);
    drop(timeout(SECOND, waits).await.expect("its turn").unwrap());
}

/// Who was cut off for so long that it was forgotten is met anew.
#[tokio::test(start_paused = true)]
async fn one_who_was_forgotten_comes_back() {
    let cluster = Cluster::of(4, 58).await;
    for peer in cluster.peers.values() {
        drop(peer.acquire("r").await.unwrap());
    }
    cluster.isolate(3, true);
    sleep(700 * SECOND).await;
    cluster.isolate(3, false);
    cluster.settle().await;
    for (number, peer) in &cluster.peers {
        for name in ["r", "new"] {
            let acquired = timeout(5 * SECOND, peer.acquire(name)).await;
            drop(acquired.unwrap_or_else(|_| panic!("{number} does not get {name}")).unwrap());
        }
    }
}

/// Whoever sends what nobody understands is not listened to, and everybody else goes on.
#[tokio::test(start_paused = true)]
async fn malformed_frames_are_counted_and_dropped() {
    let cluster = Cluster::of(2, 57).await;
    let mut stranger = cluster.network.endpoint(id(9));
    stranger.dial(&Network::address(id(1)));
    let mut rng = Rng::new(57);
    let mut sent = 0;
    while let Ok(Some(event)) = timeout(SECOND, stranger.next()).await {
        let transport::Event::Up { peer, epoch, .. } = event else { continue };
        for length in 0..200 {
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
            bytes.iter_mut().take(1).for_each(|version| *version = length as u8 % 3);
            stranger.send(peer, epoch, bytes);
            sent += 1;
        }
        if sent > 1000 {
            break;
        }
    }
    drop(timeout(SECOND, cluster.peer(2).acquire("r")).await.expect("at once").unwrap());
    let counters = cluster.peer(1).counters().await.unwrap();
    assert!(counters.malformed > 150, "{counters:?}");
}

/// On the smaller side of a partition nothing new is founded, so that it cannot be founded twice.
#[tokio::test(start_paused = true)]
async fn the_smaller_side_of_a_partition_founds_nothing() {
    let cluster = Cluster::of(5, 46).await;
    for alone in [1, 2] {
        for other in 3..=5 {
            cluster.network.cut(id(alone), id(other));
        }
    }
    sleep(10 * SECOND).await;
    let error = cluster.peer(1).acquire(Request::new("new").ttl(LEASE)).await.unwrap_err();
    assert!(matches!(error, Error::Stalled { who: None, .. }), "{error}");
    let held = timeout(LEASE, cluster.peer(4).acquire("new")).await.expect("a majority can").unwrap();
    for alone in [1, 2] {
        for other in 3..=5 {
            cluster.network.heal(id(alone), id(other));
        }
    }
    cluster.settle().await;
    let waits = cluster.peer(1).acquire("new");
    sleep(5 * SECOND).await;
    drop(held);
    drop(timeout(SECOND, waits).await.expect("its turn").unwrap());
}

/// The one who has founded a resource and holds it dies, and its host comes back: it does not hold anything.
#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_has_no_tokens() {
    let mut cluster = Cluster::of(3, 47).await;
    std::mem::forget(cluster.peer(1).acquire("r").await.unwrap());
    cluster.kill(1);
    cluster.start(1, 2).await.unwrap();
    cluster.settle().await;
    for number in 1..=3 {
        let error = cluster.peer(number).acquire(Request::new("r").ttl(LEASE)).await.unwrap_err();
        assert!(matches!(error, Error::Stalled { .. }), "{number}: {error}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_is_there_to_join() {
    let mut cluster = Cluster::of(1, 48).await;
    let error = cluster.start(2, 9).await.unwrap_err();
    assert!(matches!(error, Error::NoPeer { .. }), "{error}");
}

/// All peers are told to join each other, and somebody has to begin.
#[tokio::test(start_paused = true)]
async fn peers_that_all_join_each_other_find_one_who_begins() {
    let network = Network::new(49);
    let start = |number: u64| {
        let endpoint = network.endpoint(id(number));
        let others = (1..=3).filter(move |other| *other != number);
        let address = |other| Network::address(id(other));
        let builder = others.fold(Service::builder(), |builder, other| builder.join(address(other)));
        async move { builder.start(endpoint).await.unwrap() }
    };
    let (one, two, three) = tokio::join!(start(1), start(2), start(3));
    let held = one.acquire("r").await.unwrap();
    for peer in [two, three] {
        let error = peer.acquire(Request::new("r").try_only()).await.unwrap_err();
        assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    }
    drop(held);
}
