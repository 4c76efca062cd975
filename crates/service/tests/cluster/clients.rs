//! What a client can do: wait, not wait, change its mind, die, be too slow.

use std::time::Duration;

use peerlock_base::Rng;
use peerlock_service::{Error, Event, PeerId, Request, Service};
use tokio::time::{Instant, sleep, timeout};

use crate::world::{Cluster, Log};

const SECOND: Duration = Duration::from_secs(1);

/// Nobody waits for a resource or is inside, and all slots are free.
async fn all_free(cluster: &Cluster, name: &str, slots: usize) {
    sleep(SECOND).await;
    for peer in cluster.peers.values() {
        let here = peer.resources().await.unwrap().into_iter().find(|resource| resource.name.as_str() == name).unwrap();
        assert_eq!((here.holding_here, here.waiting_here), (0, 0));
    }
    let details = cluster.peer(1).show(name).await.unwrap();
    assert_eq!(details.queue, []);
    assert!(details.holders.iter().all(|slot| slot.free), "{details:?}");
    let mut grants = Vec::new();
    for _ in 0..slots {
        grants.push(timeout(SECOND, cluster.peer(1).acquire(name)).await.unwrap().unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn first_come_first_served_across_peers_and_clients() {
    let cluster = Cluster::of(5, 11).await;
    let log = Log::new(1);
    let holder = cluster.peer(3).acquire("r").await.unwrap();
    let mut clients = Vec::new();
    for turn in 0..40u64 {
        let (peer, log) = (cluster.peer(1 + turn * 7 % 5).clone(), log.clone());
        clients.push(tokio::spawn(async move {
            let grant = peer.acquire("r").await.unwrap();
            log.enter(turn, &grant);
            sleep(Duration::from_millis(1)).await;
            log.leave(&grant);
        }));
        sleep(Duration::from_millis(10)).await; // Longer than any message takes: the order of asking is clear.
    }
    drop(holder);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(log.entries(), (0..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_in_time_and_tells_the_place() {
    let cluster = Cluster::of(3, 12).await;
    let _holder = cluster.peer(1).acquire("r").await.unwrap();
    let first = cluster.peer(2).acquire("r");
    sleep(SECOND).await;
    let began = Instant::now();
    let error = cluster.peer(3).acquire(Request::new("r").wait(5 * SECOND)).await.unwrap_err();
    assert_eq!(began.elapsed().as_millis() / 10, 500);
    assert!(matches!(error, Error::NotAcquired { place: Some(1), .. }), "{error}");
    assert_eq!(error.to_string(), "r was not acquired: 1 are ahead in line");
    assert_eq!(first.progress().borrow().ahead, Some(0));
}

#[tokio::test(start_paused = true)]
async fn who_only_tries_gets_a_free_slot_and_never_jumps_the_queue() {
    let cluster = Cluster::of(3, 13).await;
    let attempt = |peer: u64| cluster.peer(peer).acquire(Request::new("r").slots(2).try_only());
    let first = attempt(1).await.unwrap();
    let second = attempt(2).await.unwrap();
    let error = attempt(3).await.unwrap_err();
    assert!(matches!(error, Error::NotAcquired { place: Some(0), .. }), "{error}");
    let waits = cluster.peer(2).acquire("r");
    sleep(SECOND).await;
    for peer in 1..=3 {
        let error = attempt(peer).await.unwrap_err();
        assert!(matches!(error, Error::NotAcquired { place: Some(1), .. }), "{error}");
        sleep(SECOND).await; // For the coordinator to hear that it has gone.
    }
    drop(first);
    let third = waits.await.unwrap();
    drop((second, third));
    sleep(SECOND).await;
    for peer in [3, 1, 2] {
        drop(timeout(SECOND, attempt(peer)).await.expect("at once").unwrap());
        sleep(SECOND).await;
    }
}

/// Futures are dropped at random moments; nothing is left of any of them.
#[tokio::test(start_paused = true)]
async fn dropped_futures_leave_nothing_behind() {
    for seed in 0..8 {
        let cluster = Cluster::of(3, seed).await;
        let log = Log::new(2);
        let mut clients = Vec::new();
        for client in 0..9 {
            let peer: Service = cluster.peer(1 + client % 3).clone();
            let (log, mut rng) = (log.clone(), Rng::stream(seed, client));
            clients.push(tokio::spawn(async move {
                for _ in 0..60 {
                    let patience = Duration::from_micros(rng.below(20_000));
                    let acquire = peer.acquire(Request::new("r").slots(2));
                    if let Ok(grant) = timeout(patience, acquire).await {
                        let grant = grant.unwrap();
                        log.enter(client, &grant);
                        sleep(Duration::from_micros(rng.below(3_000))).await;
                        log.leave(&grant);
                        if rng.chance(0.5) {
                            _ = timeout(Duration::ZERO, grant.release()).await;
                        }
                    }
                }
            }));
        }
        for client in clients {
            client.await.unwrap();
        }
        assert!(log.entries().len() > 30, "seed {seed}: some come in");
        all_free(&cluster, "r", 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_session_ends_so_does_all_that_it_has() {
    let cluster = Cluster::of(2, 14).await;
    let session = cluster.peer(1).session();
    let held = session.acquire("r").await.unwrap();
    let waiting = session.acquire("r");
    let other = cluster.peer(2).acquire("r");
    sleep(SECOND).await;
    drop(session);
    assert_eq!(waiting.await.unwrap_err(), Error::SessionEnded);
    timeout(SECOND, held.lost()).await.expect("it is told");
    assert!(held.is_lost());
    drop(timeout(SECOND, other).await.expect("at once").unwrap());
    drop(held);
    all_free(&cluster, "r", 1).await;
}

#[tokio::test(start_paused = true)]
async fn the_same_request_of_the_same_session_is_asked_for_once() {
    let cluster = Cluster::of(1, 15).await;
    let peer = cluster.peer(1);
    let (session, stranger) = (peer.session(), peer.session());
    let ask = || session.acquire(Request::new("r").slots(2).request_id("7"));
    let (one, two) = (ask().await.unwrap(), ask().await.unwrap());
    assert_eq!((one.id(), one.fencing()), (two.id(), two.fencing()));
    let other = stranger.acquire(Request::new("r").request_id("7")).await.unwrap();
    assert_ne!(other.id(), one.id());
    let elsewhere = session.acquire(Request::new("another").request_id("7")).await.unwrap();
    assert_eq!(elsewhere.name().as_str(), "another");
    drop(one);
    assert!(!two.is_lost(), "one handle is left");
    let waits = stranger.acquire(Request::new("r").request_id("8"));
    let again = stranger.acquire(Request::new("r").request_id("8"));
    drop(waits);
    drop(other);
    drop(timeout(SECOND, again).await.expect("one who waits is left").unwrap());
    drop(two);
    let detached = || peer.acquire_detached(Request::new("r").request_id("9"));
    let id = detached().await.unwrap().detach();
    assert_eq!(detached().await.unwrap().id(), &id, "also when it has no handle any more");
    drop(session);
    peer.renew(&id).await.unwrap();
    peer.release(&id).await.unwrap();
    all_free(&cluster, "r", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_detached_grant_stands_as_long_as_it_is_renewed() {
    let cluster = Cluster::of(2, 16).await;
    let peer = cluster.peer(1);
    let mut events = peer.events();
    let grant = peer.acquire_detached(Request::new("r").ttl(10 * SECOND).grace(2 * SECOND)).await.unwrap();
    let id = grant.detach();
    let waits = cluster.peer(2).acquire("r");
    tokio::pin!(waits);
    for _ in 0..5 {
        sleep(7 * SECOND).await;
        let asked = peer.now();
        let deadline = peer.renew(&id).await.unwrap();
        assert_eq!(deadline, asked + 10 * SECOND, "counted from before the register was asked");
    }
    assert!(timeout(9 * SECOND, &mut waits).await.is_err(), "not before the lease ends");
    assert_eq!(peer.renew(&id).await.unwrap_err(), Error::Lost, "too late");
    drop(timeout(2 * SECOND, waits).await.expect("when the lease has ended").unwrap());
    assert_eq!(peer.release(&id).await.unwrap_err(), Error::Lost);
    let mut seen = Vec::new();
    while let Ok(happening) = events.try_recv() {
        seen.push(match happening.event {
            Event::Granted { .. } => "granted",
            Event::Lost { .. } => "lost",
            Event::Released { .. } => "released",
            _ => continue,
        });
    }
    assert_eq!(seen, ["granted", "lost", "released"]);
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_is_held_is_kept() {
    let cluster = Cluster::of(1, 17).await;
    let grant = cluster.peer(1).acquire(Request::new("r").ttl(SECOND)).await.unwrap();
    sleep(100 * SECOND).await;
    assert!(!grant.is_lost());
    assert!(grant.deadline() > cluster.peer(1).now());
    grant.release().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_for_is_told_at_once() {
    let cluster = Cluster::of(1, 18).await;
    let peer = cluster.peer(1);
    let error = |acquire: peerlock_service::Acquire| async { acquire.await.unwrap_err() };
    assert!(matches!(error(peer.acquire("a\nb")).await, Error::BadName { .. }));
    assert!(matches!(error(peer.acquire(Request::new("r").slots(0))).await, Error::BadSlots { slots: 0 }));
    assert!(matches!(
        error(peer.acquire(Request::new("r").ttl(Duration::from_millis(1)))).await,
        Error::BadLease { .. }
    ));
    assert!(matches!(peer.show("nobody knows").await, Err(Error::NoSuchResource { .. })));
}

#[tokio::test(start_paused = true)]
async fn everybody_can_see_who_holds_what_and_who_is_next() {
    let cluster = Cluster::of(4, 19).await;
    let holder = cluster.peer(2).acquire(Request::new("r").slots(2).label("host2: backup")).await.unwrap();
    let other = cluster.peer(1).acquire(Request::new("r").label("host1")).await.unwrap();
    sleep(SECOND).await;
    let _third = cluster.peer(3).acquire(Request::new("r").label("host3"));
    sleep(SECOND).await;
    let _fourth = cluster.peer(2).acquire(Request::new("r").label("host2: again"));
    sleep(SECOND).await;
    for peer in cluster.peers.values() {
        let details = peer.show("r").await.unwrap();
        assert_eq!((details.name.as_str(), details.slots), ("r", 2));
        let mut holders: Vec<_> = details
            .holders
            .iter()
            .map(|slot| {
                let client = slot.client.as_ref().unwrap();
                (slot.slot, slot.peer, client.label.as_str(), client.fencing.unwrap())
            })
            .collect();
        holders.sort_by_key(|holder| holder.1);
        let id = PeerId::new;
        let expected = [
            (other.slot(), id(1), "host1", other.fencing()),
            (holder.slot(), id(2), "host2: backup", holder.fencing()),
        ];
        assert_eq!(holders, expected);
        let queue: Vec<_> = details
            .queue
            .iter()
            .map(|waiter| {
                let client = waiter.client.as_ref().unwrap();
                (waiter.peer, client.label.as_str(), client.age.as_secs())
            })
            .collect();
        assert_eq!(queue, [(id(3), "host3", 2), (id(2), "host2: again", 1)]);
        assert_eq!(peer.resources().await.unwrap().len(), 1);
    }
}
