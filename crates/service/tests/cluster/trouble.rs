//! Cut connections, partitions and sudden deaths, one story each. What chance does to whole nodes is tried in
//! `peerlock-sim`.

use std::time::Duration;

use peerlock_base::Rng;
use peerlock_service::memory::Network;
use peerlock_service::transport::{self, Transport};
use peerlock_service::{Clock, Error, Request, Service};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Cluster, Log, id};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(12);
/// How long a session stands without a renewal.
const SESSION: Duration = Duration::from_secs(15);

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
    assert_eq!(cluster.peer(4).show("r").await.unwrap().coordinator, Some(id(1)));
    (cluster, grant, waits)
}

/// They come in, one after the other, in this order, within the time.
async fn in_order(log: &Log, waits: Vec<(u64, peerlock_service::Acquire)>, within: Duration) {
    let began = Instant::now();
    for (number, acquire) in waits {
        let grant = timeout(within, acquire).await.unwrap_or_else(|_| panic!("{number} waits in vain")).unwrap();
        log.enter(number, &grant);
        log.leave(&grant);
    }
    assert!(began.elapsed() < within, "{:?}", began.elapsed());
}

/// Its session ends, and with it what it had: the next one is in.
#[tokio::test(start_paused = true)]
async fn the_holder_dies() {
    let (mut cluster, grant, waits) = with_waiters(41).await;
    let (log, died) = (Log::new(1), Instant::now());
    log.enter(2, &grant);
    cluster.kill(2);
    log.leave(&grant);
    std::mem::forget(grant);
    in_order(&log, waits, SESSION + 5 * SECOND).await;
    assert!(died.elapsed() >= SESSION - 5 * SECOND, "its clients had until the end that they were told");
    assert_eq!(log.entries(), [2, 3, 4, 5]);
}

/// The line is put together again, in the order in which they had asked.
#[tokio::test(start_paused = true)]
async fn the_coordinator_dies() {
    let (mut cluster, grant, waits) = with_waiters(42).await;
    let log = Log::new(1);
    log.enter(2, &grant);
    cluster.kill(1);
    sleep(SESSION + 5 * SECOND).await;
    assert!(!grant.is_lost(), "the holder has a session of its own");
    log.leave(&grant);
    drop(grant);
    in_order(&log, waits, 5 * SECOND).await;
    assert_eq!(log.entries(), [2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_cut_off_and_comes_back_in_time() {
    let (cluster, grant, waits) = with_waiters(43).await;
    cluster.isolate(2, true);
    sleep(5 * SECOND).await;
    cluster.isolate(2, false);
    let log = Log::new(1);
    log.enter(2, &grant);
    sleep(LEASE).await;
    assert!(!grant.is_lost());
    log.leave(&grant);
    drop(grant);
    in_order(&log, waits, 5 * SECOND).await;
    assert_eq!(log.entries(), [2, 3, 4, 5]);
}

/// It is told to stop before others come in, although nobody can reach it.
#[tokio::test(start_paused = true)]
async fn the_holder_is_cut_off_for_good() {
    let (cluster, grant, mut waits) = with_waiters(44).await;
    cluster.isolate(2, true);
    let (number, next) = waits.remove(0);
    let (told, next) = tokio::join!(
        async {
            grant.lost().await;
            Instant::now()
        },
        async { (timeout(SESSION + 5 * SECOND, next).await.expect("its turn").unwrap(), Instant::now()) },
    );
    assert!(told < next.1, "{number} is in before the holder was told");
    assert!(next.0.fencing() > grant.fencing());
    let error = cluster.peer(2).acquire(Request::new("r").try_only()).await.unwrap_err();
    assert!(matches!(&error, Error::NoMajority { missing, .. } if !missing.is_empty()), "{error}");
    drop(next);
    cluster.isolate(2, false);
    in_order(&Log::new(1), waits, 5 * SECOND).await;
    drop(timeout(5 * SECOND, cluster.peer(2).acquire("r")).await.expect("it has a session again").unwrap());
}

/// The next in line dies: the others go on without it.
#[tokio::test(start_paused = true)]
async fn one_who_waits_dies() {
    let (mut cluster, grant, mut waits) = with_waiters(45).await;
    cluster.kill(3);
    drop(waits.remove(0));
    sleep(SECOND).await;
    drop(grant);
    in_order(&Log::new(1), waits, SESSION + 5 * SECOND).await;
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

/// The side without a majority of the voters stops, and says who is missing.
#[tokio::test(start_paused = true)]
async fn the_smaller_side_of_a_partition_has_nothing() {
    let cluster = Cluster::of(3, 46).await;
    let held = cluster.peer(1).acquire("r").await.unwrap();
    cluster.isolate(1, true);
    timeout(SESSION + SECOND, held.lost()).await.expect("it is told");
    sleep(5 * SECOND).await;
    let error = cluster.peer(1).acquire(Request::new("new").ttl(LEASE)).await.unwrap_err();
    let Error::NoMajority { missing, .. } = &error else { panic!("{error}") };
    assert_eq!(missing.iter().map(|missing| missing.peer).collect::<Vec<_>>(), [2, 3].map(id), "{error}");
    for name in ["new", "r"] {
        drop(timeout(SESSION + 5 * SECOND, cluster.peer(3).acquire(name)).await.expect("a majority can").unwrap());
    }
    cluster.isolate(1, false);
    cluster.settle().await;
    drop(timeout(5 * SECOND, cluster.peer(1).acquire("new")).await.expect("it has a session again").unwrap());
}

/// Its host comes back at once. What it had goes on to others when the old session has ended, and not before.
#[tokio::test(start_paused = true)]
async fn a_host_that_comes_back_has_no_tokens() {
    let mut cluster = Cluster::of(3, 47).await;
    std::mem::forget(cluster.peer(1).acquire("r").await.unwrap());
    let died = Instant::now();
    cluster.kill(1);
    cluster.start(1, 2).await.unwrap();
    let grant = cluster.peer(1).acquire("r").await.unwrap();
    assert!(died.elapsed() >= SESSION - 5 * SECOND, "a client of the old process may be inside: {:?}", died.elapsed());
    drop(grant);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_there_to_join() {
    let mut cluster = Cluster::of(1, 48).await;
    let error = cluster.start(2, 9).await.unwrap_err();
    assert!(matches!(error, Error::NoPeer { .. }), "{error}");
}

/// All peers are told to join each other, and somebody has to begin: when all have met, and not before.
#[tokio::test(start_paused = true)]
async fn peers_that_all_join_each_other_found_one_cluster() {
    let network = Network::new(49);
    let start = |number: u64| {
        let endpoint = network.endpoint(id(number));
        let others = (1..=3).filter(move |other| *other != number);
        let address = |other| Network::address(id(other));
        let builder = Service::builder().clock(Clock::pausable()).votes_from_memory().expect(3);
        let builder = others.fold(builder, |builder, other| builder.join(address(other)));
        async move { builder.start(endpoint).await.unwrap() }
    };
    network.cut(id(2), id(3));
    network.cut(id(1), id(3));
    let heal = async {
        sleep(30 * SECOND).await;
        network.heal(id(2), id(3));
        network.heal(id(1), id(3));
        Instant::now()
    };
    let first = async { (start(1).await, Instant::now()) };
    let ((one, founded), two, three, healed) = tokio::join!(first, start(2), start(3), heal);
    assert!(founded > healed, "two of three have not founded one");
    let held = one.acquire("r").await.unwrap();
    for peer in [two, three] {
        let error = peer.acquire(Request::new("r").try_only()).await.unwrap_err();
        assert!(matches!(error, Error::NotAcquired { .. }), "{error}");
    }
    drop(held);
}
