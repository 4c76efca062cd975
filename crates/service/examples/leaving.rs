//! What it costs others when a peer leaves that has used many names: three real peers on loopback in this process,
//! every name used at two of them, then the first leaves, and some of the names are asked for at the third, all at
//! once. Numbers to be read by people; `docs/notes/2026-11-19-hardening.md` has them.
//!
//! `cargo run -p peerlock-service --example leaving -- NAMES [ASKED [SLOTS]]`

use std::time::{Duration, Instant};

use peerlock_net::{Config, Net};
use peerlock_service::{Identity, RealNetwork, Request, Secret, Service, Voter};
use tokio::task::JoinSet;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// So many clients use names at a time.
const AT_ONCE: usize = 256;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<Vec<usize>, _>>()?;
    let number = |at: usize, default| arguments.get(at).copied().unwrap_or(default);
    let (names, slots) = (number(0, 1_000), number(2, 1).try_into()?);
    let asked = number(1, 200).clamp(1, names);

    let secret = Secret::generate();
    let (first, address) = peer("first", &secret, None).await?;
    let (second, _) = peer("second", &secret, Some(&address)).await?;
    let (third, _) = peer("third", &secret, Some(&address)).await?;
    while first.cluster().await?.peers.iter().filter(|peer| matches!(peer.voter, Voter::Votes | Voter::Leads)).count()
        < 3
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let clock_start = Instant::now();
    for peer in [&first, &second] {
        use_all(peer, names, slots).await?;
    }
    println!("{names} names of {slots} slots used at two peers in {:.1} s", clock_start.elapsed().as_secs_f64());

    let clock_start = Instant::now();
    let gone = first.leave().await;
    println!("gone after {:.2} s: {gone:?}", clock_start.elapsed().as_secs_f64());
    let clock_start = Instant::now();
    let mut clients = JoinSet::new();
    for name in (0..asked).map(|at| name(at * names / asked)) {
        let third = third.clone();
        clients.spawn(async move {
            let grant = third.acquire(Request::new(name)).await?;
            let waited = clock_start.elapsed();
            grant.release().await?;
            Ok::<Duration, peerlock_service::Error>(waited)
        });
    }
    let mut waits = Vec::new();
    while let Some(client) = clients.join_next().await {
        waits.push(client??.as_secs_f64());
    }
    waits.sort_by(f64::total_cmp);
    let (median, slowest) = (waits[waits.len() / 2], waits[waits.len() - 1]);
    println!("{asked} of them asked for at the third: median {median:.2} s, slowest {slowest:.2} s");
    use_all(&third, names, slots).await?;
    println!("all of them used at the third {:.1} s after the first was gone", clock_start.elapsed().as_secs_f64());
    Ok(())
}

fn name(number: usize) -> String {
    format!("a-resource-with-a-name-{number}")
}

async fn peer(name: &str, secret: &Secret, join: Option<&String>) -> Result<(Service, String), Failure> {
    let net = Net::start(Config::new("127.0.0.1:0".parse()?), Identity::generate(), secret.clone()).await?;
    let address = net.address().to_string();
    let builder = Service::builder().name(name).votes_from_memory();
    let builder = join.into_iter().fold(builder, |builder, address| builder.join(address));
    Ok((builder.start(RealNetwork::new(net)).await?, address))
}

/// Takes and releases every name once, many at a time.
async fn use_all(peer: &Service, names: usize, slots: u32) -> Result<(), Failure> {
    let mut clients: JoinSet<Result<(), peerlock_service::Error>> = JoinSet::new();
    for name in (0..names).map(name) {
        if clients.len() >= AT_ONCE {
            clients.join_next().await.ok_or("nobody is there")???;
        }
        let peer = peer.clone();
        clients.spawn(async move { peer.acquire(Request::new(name).slots(slots)).await?.release().await });
    }
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}
