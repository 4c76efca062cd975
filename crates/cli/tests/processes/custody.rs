//! Agents are killed, frozen and restarted with their data directories. No slot is lost or held twice. `ROUNDS=100`
//! repeats each test that often, instead of twice.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::{Error, Request, Voter};

use super::client::NAME;
use super::world::{Agent, BRIEF, ENDLESS, SESSION, World, agent_of, api_at, meet, rounds, served, until, voted};

#[tokio::test]
async fn detached_grant_outlives_its_agent() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let mut agent = world.agent(&[]).await;
    let hour = || Request::new(NAME).ttl(Duration::from_secs(3600)).try_only();
    let first = agent.api.acquire(&hour()).await.unwrap();
    for _ in 0..rounds(2) {
        agent.process.signal(Signal::SIGKILL);
        agent = world.restart(agent).await;
        let refused = until("an answer", async || match agent.api.acquire(&hour()).await {
            Ok(second) => panic!("a second holder: {second:?} beside {first:?}"),
            Err(Error::Recovering { .. } | Error::NoMajority { .. }) => None,
            Err(error) => Some(error),
        })
        .await;
        assert!(matches!(refused, Error::NotAcquired { .. }), "{refused}");
        agent.api.renew(NAME, &first.grant).await.unwrap();
    }
    agent.api.release(NAME, &first.grant).await.unwrap();
    let next = until("a free slot", async || agent.api.acquire(&hour()).await.ok()).await;
    assert!(next.fencing > first.fencing, "{next:?} after {first:?}");
}

#[tokio::test]
async fn agent_without_a_quorum_names_missing_voters() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let agents = world.cluster(3).await;
    voted(&agents, 3).await;
    agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
    let alone = agents.into_iter().next_back().unwrap();
    let socket = alone.socket.clone();
    let _starting = world.relaunch(alone);
    let api = api_at(&socket);
    let error = until("an answer", async || match api.acquire(&Request::new(NAME).try_only()).await {
        Ok(granted) => panic!("granted without a quorum: {granted:?}"),
        // It does not listen yet, or starts.
        Err(Error::Broken { .. } | Error::NoAgent { .. } | Error::Refused { .. }) => None,
        Err(error) => Some(error),
    })
    .await;
    assert!(matches!(&error, Error::NoMajority { missing, .. } if missing.len() == 2), "{error}");
}

#[tokio::test]
async fn restarted_first_agent_rejoins_its_cluster() {
    let mut world = World::new(1, Duration::from_secs(60), BRIEF);
    let mut agents = world.cluster(2).await;
    let mut clients = vec![world.client(&agents[1], ENDLESS, true)];
    world.more(20).await;
    for _ in 0..rounds(2) {
        let mut first = agents.remove(0);
        first.process.signal(Signal::SIGTERM);
        first.process.ends().await;
        agents.insert(0, world.restart(first).await);
        let client = world.client(&agents[0], ENDLESS, true);
        served(&world, [&client, &clients[0]]).await;
        clients.push(client);
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, failed: {:?}", summary.all(), summary.errors);
}

#[derive(Clone, Copy, Debug)]
enum Victim {
    Coordinator,
    Leader,
    Holder,
    Waiter,
    First,
}

async fn index_of(agents: &[Agent], victim: Victim) -> usize {
    let shown = async || agents[0].api.show(NAME).await.ok();
    agent_of(agents, async || match victim {
        Victim::Coordinator => shown().await?.coordinator,
        Victim::Holder => Some(shown().await?.holders.first()?.peer),
        Victim::Waiter => Some(shown().await?.queue.first()?.peer),
        Victim::First => Some(agents[0].api.peers().await.ok()?.first()?.peer),
        Victim::Leader => {
            let cluster = agents[0].api.cluster().await.ok()?;
            Some(cluster.peers.iter().find(|peer| peer.voter == Voter::Leads)?.peer)
        }
    })
    .await
}

/// Kills agents, or freezes them for longer than their session, one at a time and two at once. Clients of the other
/// agents are served again meanwhile, and those of the victims when their agents are back.
async fn others_continue(freeze: bool) {
    let mut world = World::new(2, Duration::from_secs(60), BRIEF);
    (world.session, world.persists) = (Some(SESSION), true);
    let mut agents = world.cluster(7).await;
    voted(&agents, 5).await;
    let mut clients: Vec<_> = (0..14).map(|n| world.client(&agents[n % 7], ENDLESS, true)).collect();
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
        println!("{victim:?} {what}, {at_once} in all: all others were served again after {:?}", started.elapsed());
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
async fn killed_agent_of_any_role_does_not_stop_others() {
    others_continue(false).await;
}

#[tokio::test]
async fn frozen_agent_of_any_role_does_not_stop_others() {
    others_continue(true).await;
}

#[tokio::test]
async fn five_agents_killed_at_once_continue() {
    let mut world = World::new(3, Duration::from_secs(60), BRIEF);
    world.session = Some(SESSION);
    let mut agents = world.cluster(5).await;
    for _ in 0..rounds(2) {
        let clients: Vec<_> = (0..10).map(|n| world.client(&agents[n % 5], ENDLESS, true)).collect();
        world.more(50).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        clients.iter().for_each(|client| world.kill(client));
        agents = world.restart_all(agents).await;
        let late: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
        served(&world, &late).await;
        late.iter().for_each(|client| world.kill(client));
    }
    println!("{} entries", world.check().all());
}
