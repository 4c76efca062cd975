//! Real peers on loopback. Every wait is for an event, with a deadline; nothing measures time.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod fault;
mod nonsense;
mod rogue;
mod rotation;
mod talk;
mod unauthenticated;

use std::net::SocketAddr;
use std::time::Duration;

use peerlock_net::{Config, Event, Identity, Net, Secret, Unreached, Why};
use peerlock_types::PeerId;
use tokio::time::timeout;

const SECRET: &[u8] = b"0123456789abcdef00112233445566778899aabbccddeeff0123456789abcdef";
/// For a loaded machine; a test that waits for it has failed.
const DEADLINE: Duration = Duration::from_secs(30);

fn config() -> Config {
    let mut config = Config::new("127.0.0.1:0".parse().unwrap());
    config.redial = Duration::from_millis(20);
    config
}

fn impatient() -> Config {
    Config { beat: Duration::from_millis(40), missed: 4, rest: Duration::from_millis(200), ..config() }
}

fn restful() -> Config {
    Config { rest: Duration::from_secs(3600), ..impatient() }
}

fn secret() -> Secret {
    Secret::new(SECRET).unwrap()
}

async fn start(config: Config) -> Net {
    Net::start(config, Identity::generate(), secret()).await.unwrap()
}

async fn next(net: &mut Net) -> Event {
    timeout(DEADLINE, net.next()).await.expect("an event before the deadline")
}

async fn up(net: &mut Net) -> (PeerId, u64, SocketAddr) {
    match next(net).await {
        Event::Up { peer, epoch, address } => (peer, epoch, address),
        other => panic!("{other:?} instead of Up"),
    }
}

async fn down(net: &mut Net) -> (PeerId, u64, Why) {
    match next(net).await {
        Event::Down { peer, epoch, why } => (peer, epoch, why),
        other => panic!("{other:?} instead of Down"),
    }
}

async fn message(net: &mut Net) -> (PeerId, u64, Vec<u8>) {
    match next(net).await {
        Event::Message { from, epoch, bytes } => (from, epoch, bytes.to_vec()),
        other => panic!("{other:?} instead of a message"),
    }
}

async fn unreached(net: &mut Net) -> (SocketAddr, Unreached) {
    match next(net).await {
        Event::Unreached { address, why } => (address, why),
        other => panic!("{other:?} instead of Unreached"),
    }
}

async fn until(net: &Net, what: impl Fn(&peerlock_net::Metrics) -> bool) {
    let counted = async {
        while !what(&net.metrics()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, counted).await.unwrap_or_else(|_| panic!("{:?}", net.metrics()));
}

/// The second peer dialled the first. Returns number and epoch of each as the other knows them.
async fn pair() -> ((Net, PeerId, u64), (Net, PeerId, u64)) {
    let (mut a, mut b) = (start(config()).await, start(config()).await);
    b.dial(a.address()).unwrap();
    let (of_a, epoch_a, _) = up(&mut a).await;
    let (of_b, epoch_b, _) = up(&mut b).await;
    assert_eq!((of_a, of_b), (b.me(), a.me()));
    ((a, of_a, epoch_a), (b, of_b, epoch_b))
}

fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut rng = peerlock_types::Rng::new(seed);
    (0..length).map(|_| rng.bits() as u8).collect()
}
