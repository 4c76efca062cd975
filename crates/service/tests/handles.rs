//! The handles of a peer and its task, on a network in memory and in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerlock_service::memory::Network;
use peerlock_service::{Clock, Error, Listing, PeerId, Request, Service};
use peerlock_types::Rng;
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);

/// Starts a peer, which joins peer 1 unless it is peer 1.
async fn start(network: &Network, number: u64) -> (Service, Clock) {
    let clock = Clock::pausable();
    let builder = Service::builder().process_number(number).clock(clock.clone()).votes_from_memory();
    let builder = if number == 1 { builder } else { builder.join(Network::address(PeerId::new(1))) };
    (builder.start(network.endpoint(PeerId::new(number))).await.unwrap(), clock)
}

async fn peers(number: u64, seed: u64) -> Vec<Service> {
    let network = Network::new(seed);
    network.delay(Duration::from_micros(50), Duration::from_millis(2));
    let mut peers = Vec::new();
    for number in 1..=number {
        peers.push(start(&network, number).await.0);
    }
    peers
}

async fn all_free(peers: &[Service], name: &str, slots: usize) {
    sleep(SECOND).await;
    for peer in peers {
        let all = peer.list(Listing::default()).await.unwrap();
        let here = all.iter().find(|resource| resource.name.as_str() == name).unwrap();
        assert_eq!((here.holding_here, here.waiting_here), (0, 0));
    }
    let mut grants = Vec::new();
    for _ in 0..slots {
        grants.push(timeout(SECOND, peers[0].acquire(name)).await.expect("it is free").unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn dropped_futures_leave_nothing_behind() {
    for seed in 0..8 {
        let peers = peers(3, seed).await;
        let log = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
        let clients = peers.iter().cycle().zip(0..9).map(|(peer, client)| {
            let (peer, log, mut rng) = (peer.clone(), log.clone(), Rng::stream(seed, client));
            tokio::spawn(async move {
                for _ in 0..60 {
                    let patience = Duration::from_micros(rng.below(20_000));
                    let acquire = peer.acquire(Request::new("r").slots(2));
                    let Ok(grant) = timeout(patience, acquire).await else { continue };
                    let grant = grant.unwrap();
                    {
                        let (held, granted) = &mut *log.lock().unwrap();
                        assert!(held.insert(grant.slot()), "seed {seed}: slot {} has two holders", grant.slot());
                        assert!(granted.insert(grant.fencing()), "seed {seed}: {} granted twice", grant.fencing());
                    }
                    sleep(Duration::from_micros(rng.below(3_000))).await;
                    log.lock().unwrap().0.remove(&grant.slot());
                    if rng.chance(0.5) {
                        _ = timeout(Duration::ZERO, grant.release()).await;
                    }
                }
            })
        });
        for client in clients.collect::<Vec<_>>() {
            client.await.unwrap();
        }
        assert!(log.lock().unwrap().1.len() > 30, "seed {seed}: some are granted");
        all_free(&peers, "r", 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_the_same_id_share_a_grant() {
    let peers = peers(1, 15).await;
    let ask = |id: &str| peers[0].acquire(Request::new("r").slots(2).request_id(id));
    let (one, two) = (ask("7").await.unwrap(), ask("7").await.unwrap());
    assert_eq!((one.id(), one.fencing()), (two.id(), two.fencing()));
    let other = ask("8").await.unwrap();
    assert_ne!(other.id(), one.id());
    let elsewhere = peers[0].acquire(Request::new("another").request_id("7")).await.unwrap();
    assert_eq!(elsewhere.name().as_str(), "another");
    drop(one);
    let (waits, again) = (ask("9"), ask("9"));
    drop(waits);
    sleep(SECOND).await;
    assert!(!two.is_lost(), "one handle is left");
    drop(other);
    drop(timeout(SECOND, again).await.expect("the other request waits").unwrap());
    drop(two);
    let detached = || peers[0].acquire_detached(Request::new("r").request_id("10"));
    let id = detached().await.unwrap().detach();
    assert_eq!(detached().await.unwrap().id(), &id, "also without handles");
    peers[0].renew(&id).await.unwrap();
    peers[0].release(&id).await.unwrap();
    all_free(&peers, "r", 2).await;
}

#[tokio::test(start_paused = true)]
async fn peer_that_has_left_has_no_grants_and_refuses_requests() {
    let peers = peers(2, 22).await;
    let held = peers[0].acquire("r").await.unwrap();
    let waits = peers[0].acquire("r");
    let next = peers[1].acquire("r");
    sleep(SECOND).await;
    peers[0].leave().await;
    assert!(held.is_lost());
    assert_eq!(waits.await.unwrap_err(), Error::Stopped);
    assert_eq!(held.release().await, Err(Error::Stopped));
    assert_eq!(peers[0].acquire("r").await.unwrap_err(), Error::Stopped);
    assert_eq!(peers[0].inspect().await, Err(Error::Stopped));
    drop(timeout(5 * SECOND, next).await.expect("no session has to end first").unwrap());
}

/// A peer with a grant is not dropped, since a grant is a handle, too.
#[tokio::test(start_paused = true)]
async fn peer_without_handles_leaves() {
    let mut peers = peers(2, 23).await;
    let held = peers[0].acquire("r").await.unwrap();
    let waits = peers[1].acquire("r");
    drop(peers.remove(0));
    sleep(60 * SECOND).await;
    assert!(!held.is_lost());
    drop(held);
    drop(timeout(5 * SECOND, waits).await.expect("no session has to end first").unwrap());
    let up = peers[0].peers().await.unwrap().iter().filter(|peer| peer.up).count();
    assert_eq!(up, 1, "the other is alone");
}

#[tokio::test(start_paused = true)]
async fn join_without_members_fails() {
    let network = Network::new(48);
    let builder = Service::builder().clock(Clock::pausable()).join("memory:9");
    let error = builder.start(network.endpoint(PeerId::new(2))).await.unwrap_err();
    assert_eq!(error, Error::NoPeer { tried: vec![("memory:9".into(), "no answer".into())] });
}

/// Meanwhile the leases have expired by the clocks of other peers.
#[tokio::test(start_paused = true)]
async fn grants_are_lost_after_a_suspend() {
    let (peer, clock) = start(&Network::new(31), 1).await;
    let persistent = peer.acquire(Request::new("renewed").ttl(30 * SECOND)).await.unwrap();
    let detached = peer.acquire_detached(Request::new("detached").ttl(30 * SECOND)).await.unwrap().detach();
    sleep(5 * SECOND).await;
    let deadline = persistent.deadline();
    clock.suspend(60 * SECOND);
    timeout(2 * SECOND, persistent.lost()).await.expect("the clock is read although no timer has expired");
    assert_eq!(persistent.deadline(), deadline, "an expired lease is not renewed");
    assert_eq!(peer.renew(&detached).await.unwrap_err(), Error::Lost);
}

/// In real time: virtual time does not advance while a task is busy.
#[tokio::test]
async fn leases_expire_under_a_steady_load_of_queries() {
    let network = Network::new(33);
    let peer = Service::builder().votes_from_memory().start(network.endpoint(PeerId::new(1))).await.unwrap();
    let held = peer.hold(Request::new("r").ttl(SECOND / 5)).await.unwrap();
    for _ in 0..32 {
        let peer = peer.clone();
        tokio::spawn(async move { while peer.health().await.is_ok() {} });
    }
    let _next = timeout(20 * SECOND, peer.acquire("r")).await.expect("the lease has expired").unwrap();
    assert!(held.is_lost());
}

/// The first command after a suspend precedes every timer. The session is still valid, but a lease has expired.
#[tokio::test(start_paused = true)]
async fn expired_leases_end_before_a_command_is_answered() {
    let (peer, clock) = start(&Network::new(32), 1).await;
    let mut last = 0;
    for tries in [true, false] {
        let held = peer.hold(Request::new("r").ttl(3 * SECOND)).await.unwrap();
        assert!(held.fencing() > last);
        last = held.fencing();
        clock.suspend(4 * SECOND);
        if tries {
            let next = peer.acquire(Request::new("r").try_only()).await.unwrap();
            assert!(held.is_lost() && next.fencing() > last);
            next.release().await.unwrap();
        } else {
            assert_eq!(held.release().await, Err(Error::Lost), "the slot may have been granted since");
        }
        sleep(10 * SECOND).await;
    }
    assert_eq!(peer.counters().await.unwrap().sessions_lost, 0);
}
