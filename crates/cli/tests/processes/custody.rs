//! Nothing is lost with an agent, and nothing is given twice: agents that are killed, frozen and started again, with
//! the data folders that they had. `ROUNDS=100` repeats each story so often; by default they are told twice.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::{Error, Request, Voter};
use peerlock_http::client::Agent as Talk;

use super::client::NAME;
use super::world::{Agent, SESSION, World, agent_of, meet, rounds, served, until, voted};

const A_MOMENT: Duration = Duration::from_millis(5);
const ON_AND_ON: u64 = u64::MAX;

/// Who had a slot for an hour has it still when its agent was killed and started again.
#[tokio::test]
async fn a_detached_grant_outlives_its_agent() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let mut agent = world.agent(&[]).await;
    let hour = || Request::new(NAME).ttl(Duration::from_secs(3600)).try_only();
    let first = agent.talk.acquire(&hour()).await.unwrap();
    for _ in 0..rounds(2) {
        agent.process.signal(Signal::SIGKILL);
        agent = world.restart(agent).await;
        let refused = until("an answer", async || match agent.talk.acquire(&hour()).await {
            Ok(second) => panic!("a second holder: {second:?} beside {first:?}"),
            // It counts what is there first.
            Err(Error::Recovering { .. } | Error::NoMajority { .. }) => None,
            Err(error) => Some(error),
        })
        .await;
        assert!(matches!(refused, Error::NotAcquired { .. }), "{refused}");
        agent.talk.renew(NAME, &first.grant).await.unwrap();
    }
    agent.talk.release(NAME, &first.grant).await.unwrap();
    let next = until("a free slot", async || agent.talk.acquire(&hour()).await.ok()).await;
    assert!(next.fencing > first.fencing, "{next:?} after {first:?}");
}

/// An agent that has just begun and reaches no majority says so, and names the voters that are missing.
#[tokio::test]
async fn agent_without_a_majority_names_missing_voters_at_once() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let agents = world.cluster(3).await;
    voted(&agents, 3).await;
    agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
    let alone = agents.into_iter().next_back().unwrap();
    let socket = alone.socket.clone();
    let _begun = world.begin_again(alone);
    let talk = Talk::new(socket.to_str().unwrap().parse().unwrap(), None);
    let error = until("an answer", async || match talk.acquire(&Request::new(NAME).try_only()).await {
        Ok(granted) => panic!("granted without a majority: {granted:?}"),
        Err(Error::Broken { .. } | Error::NoAgent { .. }) => None, // It does not listen yet.
        Err(error) => Some(error),
    })
    .await;
    assert!(matches!(&error, Error::NoMajority { missing, .. } if missing.len() == 2), "{error}");
}

/// The story of the first machine: it is stopped and started again as it was, and somebody there tries at once.
#[tokio::test]
async fn the_first_agent_starts_again() {
    let mut world = World::new(1, Duration::from_secs(60), A_MOMENT);
    let mut agents = world.cluster(2).await;
    let mut clients = vec![world.client(&agents[1], ON_AND_ON, true)];
    world.more(20).await;
    for _ in 0..rounds(2) {
        let mut first = agents.remove(0);
        first.process.signal(Signal::SIGTERM);
        first.process.ends().await;
        agents.insert(0, world.restart(first).await);
        let client = world.client(&agents[0], ON_AND_ON, true);
        served(&world, [&client, &clients[0]]).await;
        clients.push(client);
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, given up: {:?}", summary.all(), summary.errors);
}

/// Which agent is to suffer.
#[derive(Clone, Copy, Debug)]
enum Victim {
    /// Who keeps the line.
    Coordinator,
    /// Who leads the register.
    Leader,
    /// Whose client is, or was just now, inside.
    Holder,
    /// Whose client waits, or did just now.
    Waiter,
    /// The one that has founded the cluster.
    First,
}

async fn index_of(agents: &[Agent], victim: Victim) -> usize {
    let shown = async || agents[0].talk.show(NAME).await.ok();
    agent_of(agents, async || match victim {
        Victim::Coordinator => shown().await?.coordinator,
        Victim::Holder => Some(shown().await?.holders.first()?.peer),
        Victim::Waiter => Some(shown().await?.queue.first()?.peer),
        Victim::First => Some(agents[0].talk.peers().await.ok()?.first()?.peer),
        Victim::Leader => {
            let cluster = agents[0].talk.cluster().await.ok()?;
            Some(cluster.peers.iter().find(|peer| peer.voter == Voter::Leads)?.peer)
        }
    })
    .await
}

/// Killed, or frozen for longer than its session, alone or with the next one: clients elsewhere are served again, and
/// nobody twice. Clients of who was killed find it again when it is back.
async fn the_others_go_on(freeze: bool) {
    let mut world = World::new(2, Duration::from_secs(60), A_MOMENT);
    (world.session, world.persists) = (Some(SESSION), true);
    let mut agents = world.cluster(7).await;
    voted(&agents, 5).await;
    let mut clients: Vec<_> = (0..14).map(|n| world.client(&agents[n % 7], ON_AND_ON, true)).collect();
    served(&world, &clients).await;
    let alone = [Victim::Holder, Victim::Coordinator, Victim::Leader, Victim::Waiter, Victim::First].map(|it| (it, 1));
    for (victim, at_once) in alone.into_iter().chain([(Victim::Leader, 2)]) {
        let index = index_of(&agents, victim).await;
        let victims: Vec<usize> = (index..index + at_once).map(|index| index % 7).collect();
        let started = std::time::Instant::now();
        for index in &victims {
            match freeze {
                true => agents[*index].process.freeze().await,
                false => agents[*index].process.signal(Signal::SIGKILL),
            }
        }
        served(&world, (0..14).filter(|n| !victims.contains(&(n % 7))).map(|n| &clients[n])).await;
        let what = if freeze { "frozen" } else { "killed" };
        println!("{victim:?} {what}, {at_once} in all: everybody else was served again after {:?}", started.elapsed());
        if freeze {
            tokio::time::sleep((2 * SESSION).saturating_sub(started.elapsed())).await;
        }
        for index in &victims {
            match freeze {
                true => agents[*index].process.signal(Signal::SIGCONT),
                false => {
                    let victim = agents.remove(*index);
                    agents.insert(*index, world.restart(victim).await);
                }
            }
        }
        served(&world, &clients).await;
        meet(&agents, 7).await;
    }
    world.stop();
    for client in &mut clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    println!("{} entries", world.check().all());
}

#[tokio::test]
async fn whichever_agent_is_killed_the_others_go_on() {
    the_others_go_on(false).await;
}

#[tokio::test]
async fn whichever_agent_is_frozen_the_others_go_on() {
    the_others_go_on(true).await;
}

/// Everybody is killed at once and started again: slots and numbers go on where they were.
#[tokio::test]
async fn five_agents_that_are_killed_at_once_go_on_where_they_were() {
    let mut world = World::new(3, Duration::from_secs(60), A_MOMENT);
    world.session = Some(SESSION);
    let mut agents = world.cluster(5).await;
    for _ in 0..rounds(2) {
        let clients: Vec<_> = (0..10).map(|n| world.client(&agents[n % 5], ON_AND_ON, true)).collect();
        world.more(50).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        clients.iter().for_each(|client| world.kill(client));
        agents = world.restart_all(agents).await;
        let late: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
        served(&world, &late).await;
        late.iter().for_each(|client| world.kill(client));
    }
    println!("{} entries", world.check().all());
}
