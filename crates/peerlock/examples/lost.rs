//! Lost and cancelled: work that stops when its slot is lost, and a wait that is given up.
//!
//! `cargo run -p peerlock --example lost`

use std::time::Duration;

use peerlock::testing::Network;
use peerlock::{Class, Client, Error, Grant, Request};
use tokio::time::{sleep, timeout};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    let network = Network::new();
    let (peer, other) = (network.peer().await?, network.peer().await?);

    let inside = peer.client().acquire("deploy").await?;
    give_up(&other.client()).await?;

    // The peer stops, as an agent does on SIGTERM: whoever is inside is told, and has the grace to stop in.
    let (worked, ()) = tokio::join!(work(inside), peer.drain());
    assert!(!worked, "the slot was lost before the work was done");
    peer.leave().await;

    // Whoever waited elsewhere goes on.
    other.client().acquire("deploy").await?.release().await
}

/// Works for as long as the slot is ours: whether that was long enough.
async fn work(grant: Grant) -> bool {
    let done = tokio::select! {
        () = sleep(Duration::from_secs(3600)) => true,
        () = grant.lost() => false,
    };
    println!("{}", if done { "done" } else { "lost: what was begun is undone" });
    done
}

/// Three ways not to wait for ever. After each of them nothing is held, and nothing waited for.
async fn give_up(client: &Client) -> Result<(), Error> {
    let a_moment = Duration::from_millis(50);
    let late = client.acquire(Request::new("deploy").wait(a_moment)).await.expect_err("somebody is inside");
    assert_eq!(late.class(), Class::NotAcquired);
    println!("{late}");

    // Dropping the future withdraws, however that comes about.
    let cancelled = timeout(a_moment, client.acquire("deploy")).await;
    assert!(cancelled.is_err());

    assert!(client.try_acquire("deploy").await?.is_none());
    let shown = client.show("deploy").await?;
    assert!(shown.queue.is_empty(), "nobody waits: {shown:?}");
    Ok(())
}
