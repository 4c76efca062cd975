//! A lock: two peers on loopback take turns.
//!
//! `cargo run -p peerlock --example lock`

use std::error::Error;

use peerlock::{Client, Peer, Secret};

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    // With an agent, `peerlock::Agent::here()?.client()` replaces these lines.
    let secret = Secret::generate();
    let builder = || Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(secret.clone());
    let one = builder().start().await?;
    let two = builder().join(one.address().to_string()).start().await?;

    let turns = [one.client(), two.client()].map(|client| tokio::spawn(turn(client)));
    for turn in turns {
        turn.await??;
    }
    two.leave().await;
    one.leave().await;
    Ok(())
}

async fn turn(client: Client) -> Result<(), peerlock::Error> {
    let grant = client.acquire("nightly-backup").await?;
    println!("fencing number {}", grant.fencing());
    // … the work that must not run twice at a time
    grant.release().await
}
