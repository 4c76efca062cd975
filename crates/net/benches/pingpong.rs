//! Round trip of 128 bytes on loopback, over plain TCP and over links, in one run.
//!
//! `cargo bench -p peerlock-net --bench pingpong -- [ROUNDS]`

use std::time::{Duration, Instant};

use bytes::Bytes;
use peerlock_net::{Config, Event, Identity, Net, Secret};
use peerlock_types::PeerId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const LENGTH: usize = 128;
/// Alternating, so that load affects both.
const TURNS: usize = 5;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main]
async fn main() -> Result<()> {
    let rounds: usize =
        std::env::args().nth(1).filter(|text| text != "--bench").map_or(Ok(10_000), |text| text.parse())?;
    let (mut raw, mut links) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        raw.extend(bare(rounds).await?);
        links.extend(ours(rounds).await?);
    }
    println!("{LENGTH} bytes there and back, {} rounds each   p50        p99   p50 / bare TCP", TURNS * rounds);
    let floor = quantile(&mut raw, 0.5);
    for (name, times) in [("our link", &mut links), ("tokio TCP", &mut raw)] {
        let (half, most) = (quantile(times, 0.5), quantile(times, 0.99));
        let ratio = half.as_secs_f64() / floor.as_secs_f64();
        println!("{name:<40} {:>7.1} µs {:>7.1} µs {ratio:>10.2}", micros(half), micros(most));
    }
    Ok(())
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    times[((times.len() - 1) as f64 * share) as usize]
}

async fn bare(rounds: usize) -> Result<Vec<Duration>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; LENGTH];
        while stream.read_exact(&mut buffer).await.is_ok() {
            stream.write_all(&buffer).await?;
        }
        std::io::Result::Ok(())
    });
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = [0; LENGTH];
    let mut times = Vec::with_capacity(rounds);
    // In a task like its partner.
    let times = tokio::spawn(async move {
        for _ in 0..rounds {
            let start = Instant::now();
            stream.write_all(&buffer).await?;
            stream.read_exact(&mut buffer).await?;
            times.push(start.elapsed());
        }
        std::io::Result::Ok(times)
    })
    .await??;
    echo.await??;
    Ok(times)
}

async fn up(net: &mut Net) -> (PeerId, u64) {
    loop {
        if let Event::Up { peer, epoch, .. } = net.next().await {
            return (peer, epoch);
        }
    }
}

async fn ours(rounds: usize) -> Result<Vec<Duration>> {
    let start = async || {
        let secret = Secret::new(b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")?;
        Net::start(Config::new("127.0.0.1:0".parse().expect("this is an address")), Identity::generate(), secret).await
    };
    let (mut ping, mut pong) = (start().await?, start().await?);
    ping.dial(pong.address())?;
    let (to, epoch) = up(&mut ping).await;
    let echo = tokio::spawn(async move {
        loop {
            match pong.next().await {
                Event::Message { from, epoch, bytes } => drop(pong.send(from, epoch, bytes)),
                Event::Down { .. } => return,
                Event::Up { .. } | Event::Unreached { .. } => {}
            }
        }
    });
    let (ping, times) = tokio::spawn(async move {
        let message = Bytes::from_static(&[7; LENGTH]);
        let mut times = Vec::with_capacity(rounds);
        for _ in 0..rounds {
            let start = Instant::now();
            let sent = ping.send(to, epoch, message.clone());
            let back = ping.next().await;
            times.push(start.elapsed());
            assert!(sent.is_ok() && matches!(back, Event::Message { .. }), "{back:?}");
        }
        (ping, times)
    })
    .await?;
    ping.shutdown().await;
    echo.await?;
    Ok(times)
}
