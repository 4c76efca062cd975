//! Agents are killed and restarted, one after another or at once, while clients continue; also checks the order of
//! waiting clients. `MINUTES=30` sets the duration of the kills, a quarter of a minute by default.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use nix::sys::signal::Signal;
use tokio::time::{Instant, sleep};

use super::client::NAME;
use super::world::{AN_HOUR, Agent, BRIEF, ENDLESS, Process, SESSION, World, agent_of, rounds, served, until};

fn time_to_kill() -> Duration {
    let minutes = std::env::var("MINUTES").map_or(0.25, |minutes| minutes.parse().expect("MINUTES is a number"));
    Duration::from_secs_f64(60.0 * minutes)
}

async fn at_work(agents: usize) -> (World, Vec<Agent>, Vec<Process>) {
    let mut world = World::new(3, Duration::from_secs(60), BRIEF);
    (world.session, world.persists) = (Some(SESSION), true);
    let agents = world.cluster(agents).await;
    let clients: Vec<_> =
        (0..2 * agents.len()).map(|n| world.client(&agents[n % agents.len()], ENDLESS, true)).collect();
    served(&world, &clients).await;
    (world, agents, clients)
}

/// Waits until all clients are served once more, stops them, checks the log and prints statistics.
async fn finish(world: &World, mut clients: Vec<Process>, what: &str) {
    served(world, &clients).await;
    world.stop();
    for client in &mut clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    let summary = world.check();
    let mut reasons = BTreeMap::<&str, usize>::new();
    for (_, why) in &summary.failed {
        *reasons.entry(&why[..why.len().min(40)]).or_default() += 1;
    }
    let (passed, (standstill, slot), wait) =
        world.with_log(|log| (log.passed(), log.standstills(), log.longest_wait()));
    let of = |bound: usize| passed.iter().filter(|passed| **passed > bound).count();
    let seconds = |nanos: u64| Duration::from_nanos(nanos).as_secs_f64();
    println!(
        "{what}: {} entries of {} clients, {} lost; {} with a known position, passed by more than 3, 10, 100 \
         later requests: {}, {}, {} (at most {}); no grant for {:.2} s, of one slot for {:.2} s; longest wait {:.2} s; \
         failed: {reasons:?}",
        summary.all(),
        clients.len(),
        summary.lost.len(),
        passed.len(),
        of(3),
        of(10),
        of(100),
        passed.iter().max().unwrap_or(&0),
        seconds(standstill),
        seconds(slot),
        seconds(wait)
    );
}

#[tokio::test]
async fn random_agent_killed_every_few_seconds_recovers() {
    let (mut world, mut agents, clients) = at_work(8).await;
    let end = Instant::now() + time_to_kill();
    let mut kills = 0;
    while Instant::now() < end {
        let mut dead = Vec::new();
        for _ in 0..if world.rng.below(4) == 0 { 2 } else { 1 } {
            let victim = agents.swap_remove(world.rng.below(agents.len() as u64) as usize);
            victim.process.signal(Signal::SIGKILL);
            dead.push(victim);
        }
        kills += dead.len();
        sleep(Duration::from_millis(world.rng.below(3_000))).await;
        for victim in dead {
            agents.push(world.restart(victim).await);
        }
        sleep(Duration::from_millis(500 + world.rng.below(3_000))).await;
    }
    finish(&world, clients, &format!("{kills} kills in {:?}", time_to_kill())).await;
}

#[tokio::test]
async fn cluster_stopped_under_load_continues() {
    let (world, mut agents, clients) = at_work(5).await;
    for round in 0..rounds(2) {
        let how = if round % 2 == 0 { Signal::SIGTERM } else { Signal::SIGKILL };
        agents.iter().for_each(|agent| agent.process.signal(how));
        for agent in &mut agents {
            agent.process.ends().await;
        }
        agents = world.restart_all(agents).await;
        served(&world, &clients).await;
    }
    finish(&world, clients, &format!("all five stopped {} times", rounds(2))).await;
}

#[derive(Clone, Copy, Debug)]
enum Victims {
    Coordinator,
    Waiter,
    Holder,
    WaiterAndHolder,
}

#[tokio::test]
async fn waiters_keep_their_order_after_kills() {
    for _ in 0..rounds(1) {
        let all = [Victims::Coordinator, Victims::Waiter, Victims::Holder, Victims::WaiterAndHolder];
        join_all(all.map(in_order)).await;
    }
}

async fn in_order(victims: Victims) {
    let mut world = World::new(1, AN_HOUR, AN_HOUR);
    world.session = Some(SESSION);
    let agents = world.cluster(5).await;
    // The first agent does not participate in the resource, so it can be queried. The last one is the coordinator,
    // since it requests first.
    world.stay = BRIEF;
    let mut founder = world.client(&agents[4], 1, true);
    founder.ends().await;
    world.stay = AN_HOUR;
    let holder = world.client(&agents[1], 1, true);
    until("a holder", async || (world.tally().of(holder.number) > 0).then_some(())).await;
    world.stay = BRIEF;
    let mut line = Vec::new();
    for n in 0..9 {
        let at = 2 + n % 3;
        let client = world.client(&agents[at], 1, true);
        until("a waiting client", async || world.with_log(|log| log.waits(client.number)).then_some(())).await;
        line.push((at, client));
    }
    // Positions are sent within a tenth of a second. A waiter without one may be queued last after the kill.
    sleep(Duration::from_secs(1)).await;
    let coordinator = agent_of(&agents, async || agents[0].api.show(NAME).await.ok()?.coordinator).await;
    let waiter = line[1].0;
    let dead: Vec<usize> = match victims {
        Victims::Coordinator => vec![coordinator],
        Victims::Waiter => vec![waiter],
        Victims::Holder => vec![1],
        Victims::WaiterAndHolder => vec![waiter, 1],
    };
    dead.iter().for_each(|index| agents[*index].process.signal(Signal::SIGKILL));
    let (mut gone, mut rest): (Vec<_>, Vec<_>) = line.into_iter().partition(|(at, _)| dead.contains(at));
    for (_, client) in &mut gone {
        assert!(!client.ends().await.success(), "it fails with its agent");
    }
    // If its agent is alive, the holder has the slot until it is killed.
    world.kill(&holder);
    for (_, client) in &mut rest {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    let expected: Vec<u64> =
        [founder.number, holder.number].into_iter().chain(rest.iter().map(|(_, client)| client.number)).collect();
    let order = world.with_log(|log| log.order());
    assert_eq!(order, expected, "{victims:?}, agents {dead:?}, the coordinator was {coordinator}");
    world.check();
}
