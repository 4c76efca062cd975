//! The order of clients: of several slots while one client keeps its slot, and across the restart of an agent.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

use super::client::NAME;
use super::deaths::waiting;
use super::world::{AN_HOUR, Agent, ENDLESS, SESSION, World, until};

/// The number of grants of the other clients. Without a bound, almost all of them would pass a waiter.
const ENTRIES: usize = 100;

/// Two slots and one long holder: 2 k (L + 2) (lab/docs/papers/fair-k-late.md).
const BOUND: usize = 12;

#[tokio::test]
async fn passes_are_bounded_beside_a_client_that_stays() {
    // Much longer than a message takes on a busy machine: each holder's peer knows its successor before the release.
    let mut world = World::new(2, Duration::from_secs(60), AN_HOUR);
    let agents = world.cluster(3).await;
    let holder = world.client(&agents[0], 1, true);
    until("a long holder", async || (world.tally().of(holder.number) > 0).then_some(())).await;
    world.stay = Duration::from_millis(40);
    let mut others: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
    until("many entries", async || (world.tally().all() > ENTRIES).then_some(())).await;
    world.stop();
    for client in &mut others {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    world.kill(&holder);
    let summary = world.check();
    let most = world.with_log(|log| log.passed()).into_iter().max();
    println!("{:?}, most passes of one wait: {most:?}", summary.entries);
    assert!(most.is_some_and(|most| most <= BOUND), "passed by {most:?}: {:?}", summary.entries);
    for client in &others {
        assert!(summary.of(client.number) > ENTRIES / 10, "client {}: {:?}", client.number, summary.entries);
    }
}

fn run(agent: &Agent, script: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    command.args(["run", "--agent"]).arg(&agent.socket).args([NAME, "--", "sh", "-c", script]);
    command.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

#[tokio::test]
async fn waiter_keeps_its_position_at_the_next_agent() {
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let mut world = World::new(1, Duration::from_secs(60), AN_HOUR);
        world.session = Some(SESSION);
        let mut agents = world.cluster(3).await;
        let (entered, release) = (world.path("entered"), world.path("release"));
        let enter = |name| format!("echo {name} >> {}", entered.display());
        let until_released = format!("{}; until [ -e {} ]; do sleep 0.05; done", enter("holder"), release.display());
        let mut jobs = vec![run(&agents[0], &until_released)];
        until("the holder", async || entered.exists().then_some(())).await;
        for (at, name) in [(1, "first"), (2, "second")] {
            jobs.push(run(&agents[at], &enter(name)));
            waiting(&agents[0], at).await;
            // Until the arrival number is confirmed and recorded.
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        agents[1].process.signal(signal);
        let ended = agents.remove(1);
        agents.insert(1, world.restart(ended).await);
        waiting(&agents[0], 2).await;
        fs::write(&release, "").unwrap();
        for mut job in jobs {
            until("the end of a job", async || job.try_wait().unwrap()).await;
        }
        assert_eq!(fs::read_to_string(&entered).unwrap(), "holder\nfirst\nsecond\n", "{signal}");
    }
}
