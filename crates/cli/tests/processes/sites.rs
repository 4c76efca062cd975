//! Two sites with a distance between them, by a relay that keeps everything back for a while.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use futures_util::future::join_all;
use peerlock::{Error, Granted, Request};
use tokio::time::sleep;

use super::world::{Agent, World, meet, rounds};

const APART: Duration = Duration::from_millis(25);
/// How many names are asked for at a time.
const AT_ONCE: usize = 10;

/// The relay of `peerlock bench --delay`, a process of its own that does not outlive its test.
struct Relay {
    child: Child,
    told: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Relay {
    fn new(delay: Duration) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.args(["bench-child", "relay"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (told, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut relay = Self { child, told, answers };
        assert_eq!(relay.answer(), "end");
        writeln!(relay.told, "delay {}", delay.as_nanos()).unwrap();
        assert_eq!(relay.answer(), "end");
        relay
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Where others have to go who want to reach this address.
    fn to(&mut self, address: SocketAddr) -> SocketAddr {
        writeln!(self.told, "to {address}").unwrap();
        let relayed = self.answer().parse().unwrap();
        assert_eq!(self.answer(), "end");
        relayed
    }
}

/// An agent that others reach through the relay only.
async fn agent(world: &mut World, relay: &mut Relay, join: &[SocketAddr]) -> (Agent, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let relayed = relay.to(free);
    let (mut command, socket) = world.agent_command(free, join, "ours");
    command.args(["--advertise", &relayed.to_string()]);
    (world.start_agent(command, socket).await, relayed)
}

/// Somebody at each of the sites wants the same new name in the same moment, and does not want to wait.
#[tokio::test]
async fn a_new_name_has_one_holder_at_two_sites() {
    let mut relay = Relay::new(APART);
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let (first, address) = agent(&mut world, &mut relay, &[]).await;
    let (second, _) = agent(&mut world, &mut relay, &[address]).await;
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
    assert!(holders[1] > 0, "somebody has to have come in");
}

/// Who of the two gets it. Half of the names are asked for at once, the others at the second site a moment later.
async fn both(sites: &[Agent; 2], name: String, late: Duration) -> Vec<Granted> {
    let request = Request::new(name).ttl(Duration::from_secs(3_600)).try_only();
    let late = if late.as_millis().is_multiple_of(2) { Duration::ZERO } else { late };
    let second = async {
        sleep(late).await;
        sites[1].talk.acquire(&request).await
    };
    let (first, second) = tokio::join!(sites[0].talk.acquire(&request), second);
    let granted = |outcome: Result<Granted, Error>| match outcome {
        Ok(granted) => Some(granted),
        Err(Error::NotAcquired { .. }) => None,
        Err(error) => panic!("{error}"),
    };
    [first, second].into_iter().filter_map(granted).collect()
}
