//! Two sites, connected by a relay that delays all traffic.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use peerlock::{Error, Granted, Request};
use tokio::time::sleep;

use super::world::{Agent, World, meet, rounds};

const APART: Duration = Duration::from_millis(25);
const AT_ONCE: usize = 10;

/// Delays all traffic to an address. Its threads end with their connections, or with the test program.
struct Relay {
    delay: Duration,
}

impl Relay {
    fn to(&self, address: SocketAddr) -> SocketAddr {
        let (listener, delay) = (TcpListener::bind("127.0.0.1:0").unwrap(), self.delay);
        let relayed = listener.local_addr().unwrap();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                // If the target does not listen yet, the dialling process gets a closed connection, and retries.
                let Ok(far) = TcpStream::connect(address) else { continue };
                for (from, to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                    forward(from, to, delay);
                }
            }
        });
        relayed
    }
}

/// Forwards one direction of a connection. One thread stamps incoming data with the time when it is due, and the other
/// waits for that time.
fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (stamped, due) = channel::<(Instant, Vec<u8>)>();
    to.set_nodelay(true).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 16 * 1024];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if stamped.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        _ = from.shutdown(Shutdown::Read);
    });
    thread::spawn(move || {
        for (then, bytes) in due {
            thread::sleep(then.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        _ = to.shutdown(Shutdown::Both);
    });
}

async fn agent(world: &mut World, relay: &Relay, join: &[SocketAddr]) -> (Agent, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relayed = relay.to(free);
    let (mut command, socket) = world.agent_command(free, join, "ours");
    command.args(["--advertise", &relayed.to_string()]);
    (world.start_agent(command, socket).await, relayed)
}

#[tokio::test]
async fn new_name_requested_at_two_sites_has_one_holder() {
    let relay = Relay { delay: APART };
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let (first, address) = agent(&mut world, &relay, &[]).await;
    let (second, _) = agent(&mut world, &relay, &[address]).await;
    let sites = [first, second];
    meet(&sites, 2).await;
    let (mut holders, names) = ([0; 3], 50 * rounds(2));
    for first in (0..names).step_by(AT_ONCE) {
        let late: Vec<_> = (0..AT_ONCE).map(|_| Duration::from_millis(world.rng.below(60))).collect();
        let each = late.into_iter().enumerate().map(|(n, late)| both(&sites, format!("name {}", first + n), late));
        for granted in join_all(each).await {
            assert!(granted.len() < 2, "two holders: {granted:?}");
            holders[granted.len()] += 1;
        }
    }
    println!(
        "{names} names, 25 ms apart: {} with one holder, {} with none, {} with two",
        holders[1], holders[0], holders[2]
    );
    assert!(holders[1] > 0, "some name has a holder");
}

/// Requests names at both sites, half of them at once, the others with a delay at one site. Returns the grants.
async fn both(sites: &[Agent; 2], name: String, late: Duration) -> Vec<Granted> {
    let request = Request::new(name).ttl(Duration::from_secs(3_600)).try_only();
    let late = if late.as_millis().is_multiple_of(2) { Duration::ZERO } else { late };
    let second = async {
        sleep(late).await;
        sites[1].api.acquire(&request).await
    };
    let (first, second) = tokio::join!(sites[0].api.acquire(&request), second);
    let granted = |outcome: Result<Granted, Error>| match outcome {
        Ok(granted) => Some(granted),
        Err(Error::NotAcquired { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    [first, second].into_iter().filter_map(granted).collect()
}
