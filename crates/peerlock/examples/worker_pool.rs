//! A pool of workers on several machines, of which three work at a time.
//!
//! `cargo run -p peerlock --example worker_pool`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use peerlock::testing::Network;
use peerlock::{Client, Error, Request};
use tokio::task::JoinSet;
use tokio::time::sleep;

const SLOTS: u32 = 3;

#[tokio::main]
pub(crate) async fn main() -> Result<(), Error> {
    // Two machines, without sockets.
    let network = Network::new();
    let machines = [network.peer().await?.client(), network.peer().await?.client()];

    let working = Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for (job, client) in machines.iter().cycle().take(12).enumerate() {
        workers.spawn(work(client.clone(), job, working.clone()));
    }
    while let Some(done) = workers.join_next().await {
        done.expect("no worker panics")?;
    }
    Ok(())
}

async fn work(client: Client, job: usize, working: Arc<AtomicUsize>) -> Result<(), Error> {
    let request = Request::new("transcode").slots(SLOTS).label(format!("job {job}"));
    let grant = client.acquire_showing(request, |place| println!("job {job}: {:?} ahead", place.ahead)).await?;
    let others = working.fetch_add(1, Ordering::SeqCst);
    assert!(others < SLOTS as usize, "one too many");
    println!("job {job} works in slot {}", grant.slot());
    sleep(Duration::from_millis(10)).await;
    working.fetch_sub(1, Ordering::SeqCst);
    grant.release().await
}
