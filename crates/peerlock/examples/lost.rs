//! Loss and cancellation: work that stops when its slot is lost, and three ways to limit a wait.
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

    let grant = peer.client().acquire("deploy").await?;
    give_up(&other.client()).await?;

    // The peer stops, as an agent does on SIGTERM: the holder is notified, and has the grace to stop.
    let (worked, ()) = tokio::join!(work(grant), peer.drain());
    assert!(!worked, "the slot was lost before the work was done");
    peer.leave().await;

    other.client().acquire("deploy").await?.release().await
}

/// Works until the slot is lost. Returns whether the work was done before.
async fn work(grant: Grant) -> bool {
    let done = tokio::select! {
        () = sleep(Duration::from_secs(3600)) => true,
        () = grant.lost() => false,
    };
    println!("{}", if done { "done" } else { "lost: undoing the work" });
    done
}

/// Three ways to limit a wait. After each of them no slot is held, and no request waits.
async fn give_up(client: &Client) -> Result<(), Error> {
    let a_moment = Duration::from_millis(50);
    let late = client.acquire(Request::new("deploy").wait(a_moment)).await.expect_err("the slot is held");
    assert_eq!(late.class(), Class::NotAcquired);
    println!("{late}");

    let cancelled = timeout(a_moment, client.acquire("deploy")).await;
    assert!(cancelled.is_err());

    assert!(client.try_acquire("deploy").await?.is_none());
    let shown = client.show("deploy").await?;
    assert!(shown.queue.is_empty(), "no request waits: {shown:?}");
    Ok(())
}
