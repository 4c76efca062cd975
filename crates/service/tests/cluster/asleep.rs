//! A machine that sleeps: its clock jumps, and its timers stand where they stood.

use std::time::Duration;

use peerlock_service::{Error, Request};
use tokio::time::{Instant, sleep, timeout};

use crate::world::Cluster;

const SECOND: Duration = Duration::from_secs(1);

/// Everybody else has counted on while it slept. Nothing was renewed meanwhile, and nothing can be when it wakes up.
#[tokio::test(start_paused = true)]
async fn who_wakes_up_has_lost_what_it_held() {
    let cluster = Cluster::of(2, 31).await;
    let peer = cluster.peer(1);
    let kept = peer.acquire(Request::new("kept").ttl(30 * SECOND)).await.unwrap();
    let detached = peer.acquire_detached(Request::new("detached").ttl(30 * SECOND)).await.unwrap().detach();
    sleep(5 * SECOND).await;
    let (deadline, woke) = (kept.deadline(), Instant::now());
    cluster.clocks[&1].suspend(60 * SECOND);
    timeout(2 * SECOND, kept.lost()).await.expect("it looks at the clock although no timer has expired");
    assert_eq!(kept.deadline(), deadline, "a lease that has ended is not renewed, not even by who keeps it");
    assert_eq!(peer.renew(&detached).await.unwrap_err(), Error::Lost);
    assert!(woke.elapsed() < 2 * SECOND);
}

/// The first thing that is asked of it after it has woken up, before any timer has expired.
#[tokio::test(start_paused = true)]
async fn leases_are_looked_at_before_anything_is_answered() {
    let cluster = Cluster::of(1, 32).await;
    let peer = cluster.peer(1);
    let held = peer.acquire(Request::new("r").ttl(30 * SECOND)).await.unwrap();
    cluster.clocks[&1].suspend(60 * SECOND);
    let before = Instant::now();
    // The slot is free: its lease has ended. Who looked at the request first would find it held.
    let next = peer.acquire(Request::new("r").try_only()).await.unwrap();
    assert!(held.is_lost() && next.fencing() > held.fencing());
    assert!(before.elapsed() < SECOND, "no timer was waited for: {:?}", before.elapsed());
}
