//! The cost of idle agents, and whether writes of the registry delay hand-overs. For a machine without other load.
//!
//! `cargo bench -p peerlock-cli --bench agents` takes three and a half minutes; `AGENTS=20` starts fewer than a hundred
//! agents. Agents and clients are those of `tests/processes`.
#![allow(clippy::unwrap_used, reason = "a measurement may fail loudly")]
#![allow(dead_code, reason = "shared with the tests")]

#[path = "../tests/processes/checker.rs"]
mod checker;
#[path = "../tests/processes/client.rs"]
mod client;
#[path = "../tests/run/secret.rs"]
mod secret;
#[path = "../tests/processes/world.rs"]
mod world;

use std::time::Duration;

use peerlock::Request;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use self::client::now;
use self::world::{Agent, World, meet, metric, served};

fn main() {
    if client::is_client() {
        return client::run_task();
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        idle_agents().await;
        hand_overs_while_the_registry_writes().await;
    });
}

async fn idle_agents() {
    let number = std::env::var("AGENTS").map_or(100, |agents| agents.parse().expect("AGENTS is a number"));
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let agents = world.cluster(number).await;
    sleep(Duration::from_secs(30)).await;
    let look = |agent: &Agent| {
        let (ticks, memory) = agent.process.cost();
        (ticks, memory, metric(agent, "sent_total"))
    };
    let before: Vec<_> = agents.iter().map(look).collect();
    let started = Instant::now();
    sleep(Duration::from_secs(60)).await;
    let seconds = started.elapsed().as_secs_f64();
    let mut all: Vec<_> = agents
        .iter()
        .map(look)
        .zip(before)
        .map(|(now, then)| {
            let (ticks, frames) = ((now.0 - then.0) as f64, (now.2 - then.2) as f64);
            (ticks / seconds, frames / seconds, now.1 as f64 / 1e6)
        })
        .collect();
    all.sort_by(|a, b| a.1.total_cmp(&b.1));
    let mean = |of: fn(&(f64, f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / number as f64;
    println!(
        "{number} idle agents: each {:.2} % of a core, {:.1} frames sent a second, {:.1} MB; the busiest {:.2} % and \
         {:.1}",
        mean(|it| it.0),
        mean(|it| it.1),
        mean(|it| it.2),
        all.iter().map(|it| it.0).fold(0.0, f64::max),
        all[number - 1].1
    );
}

/// Two clients at two agents take turns with one slot, alternately while the registry is idle and while it writes.
async fn hand_overs_while_the_registry_writes() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let agents = world.cluster(2).await;
    let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, u64::MAX, true)).collect();
    served(&world, &clients).await;
    let (mut quiet, mut writing, mut written) = (Vec::new(), Vec::new(), 0);
    for turn in 0..20 {
        let (from, before) = (now(), applied(&agents[0]).await);
        let mut writers = JoinSet::new();
        for writer in 0..if turn % 2 == 0 { 0 } else { 4 } {
            let (api, name) = (agents[0].api.clone(), format!("written {writer}"));
            // A detached grant is an entry of the registry, and so is its release.
            writers.spawn(async move {
                loop {
                    let granted = api.acquire(&Request::new(name.as_str()).ttl(Duration::from_secs(60))).await.unwrap();
                    api.release(&name, &granted.grant).await.unwrap();
                }
            });
        }
        sleep(Duration::from_secs(3)).await;
        writers.shutdown().await;
        let gaps = world.with_log(|log| log.gaps(from, now()));
        match turn % 2 {
            0 => quiet.extend(gaps),
            _ => {
                written += applied(&agents[0]).await - before;
                writing.extend(gaps);
            }
        }
        meet(&agents, 2).await;
        sleep(Duration::from_secs(1)).await;
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    world.check();
    println!("{written} entries of the registry in 30 s");
    for (what, mut gaps) in [("quiet", quiet), ("writing", writing)] {
        gaps.sort_unstable();
        let at = |share: usize| gaps[gaps.len() * share / 1000] as f64 / 1e3;
        println!(
            "{what}: {} hand-overs, gap {:.0} µs, 99 % within {:.0}, 99.9 % {:.0}",
            gaps.len(),
            at(500),
            at(990),
            at(999)
        );
    }
}

async fn applied(agent: &Agent) -> u64 {
    agent.api.cluster().await.unwrap().applied.unwrap_or_default()
}
