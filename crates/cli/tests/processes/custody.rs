//! Nothing is lost with an agent, and nothing is given twice: agents that are killed, frozen and started again, with the
//! data folders that they had. `ROUNDS=100` repeats each story so often; by default it is told twice.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::{Error, Request, Voter};

use super::client::NAME;
use super::world::{Agent, World, meet, until};

/// As short as sessions may be where machines are not too busy.
const SESSION: Duration = Duration::from_secs(3);
const A_MOMENT: Duration = Duration::from_millis(5);
const ON_AND_ON: u64 = u64::MAX;

fn rounds() -> usize {
    std::env::var("ROUNDS").map_or(2, |rounds| rounds.parse().expect("ROUNDS is a number"))
}

/// Waits until a client of this agent has come in some more.
async fn comes_in(world: &World, client: u64) {
    let before = world.tally().of(client);
    until("a client that comes in", async || (world.tally().of(client) >= before + 3).then_some(())).await;
}

/// Who had a slot for an hour has it still when its agent was killed and started again.
#[tokio::test]
async fn a_detached_grant_outlives_its_agent() {
    let mut world = World::new(1, Duration::from_secs(60), Duration::ZERO);
    let mut agent = world.agent(&[]).await;
    let hour = || Request::new(NAME).ttl(Duration::from_secs(3600)).try_only();
    let first = agent.talk.acquire(&hour()).await.unwrap();
    for _ in 0..rounds() {
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

/// The story of the first machine: it is stopped and started again as it was, and somebody there tries at once.
#[tokio::test]
async fn the_first_agent_starts_again() {
    let mut world = World::new(1, Duration::from_secs(60), A_MOMENT);
    let mut agents = world.cluster(2).await;
    let mut clients = vec![world.client(&agents[1], ON_AND_ON, true)];
    world.more(20).await;
    for _ in 0..rounds() {
        let mut first = agents.remove(0);
        first.process.signal(Signal::SIGTERM);
        first.process.ends().await;
        agents.insert(0, world.restart(first).await);
        let client = world.client(&agents[0], ON_AND_ON, true);
        comes_in(&world, client.number).await;
        comes_in(&world, clients[0].number).await;
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
}

async fn index_of(agents: &[Agent], victim: Victim) -> usize {
    until("the victim", async || {
        let peer = match victim {
            Victim::Coordinator => agents[0].talk.show(NAME).await.ok()?.coordinator?,
            Victim::Holder => agents[0].talk.show(NAME).await.ok()?.holders.first()?.peer,
            Victim::Leader => {
                let cluster = agents[0].talk.cluster().await.ok()?;
                cluster.peers.iter().find(|peer| peer.voter == Voter::Leads)?.peer
            }
        };
        for (index, agent) in agents.iter().enumerate() {
            if agent.talk.peers().await.ok()?.first()?.peer == peer {
                return Some(index);
            }
        }
        None
    })
    .await
}

/// Killed, or frozen for longer than its session: clients elsewhere are served again, and nobody twice.
#[tokio::test]
async fn whichever_agent_is_killed_or_frozen_the_others_go_on() {
    let mut world = World::new(2, Duration::from_secs(60), A_MOMENT);
    world.session = Some(SESSION);
    let mut agents = world.cluster(5).await;
    let three_vote = async || {
        let peers = agents[0].talk.cluster().await.ok()?.peers;
        let votes = peers.iter().filter(|peer| matches!(peer.voter, Voter::Votes | Voter::Leads)).count();
        (votes == 3).then_some(())
    };
    until("three voters", three_vote).await;
    let mut all: Vec<_> = (0..10).map(|n| (n % 5, world.client(&agents[n % 5], ON_AND_ON, true))).collect();
    world.more(30).await;
    for victim in [Victim::Holder, Victim::Coordinator, Victim::Leader] {
        for freeze in [false, true] {
            let index = index_of(&agents, victim).await;
            let (mut gone, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| *at == index);
            let began = std::time::Instant::now();
            match freeze {
                true => agents[index].process.freeze().await,
                false => agents[index].process.signal(Signal::SIGKILL),
            }
            for (_, client) in &rest {
                comes_in(&world, client.number).await;
            }
            println!("{victim:?}, frozen: {freeze}: everybody else was served again after {:?}", began.elapsed());
            match freeze {
                true => agents[index].process.signal(Signal::SIGCONT),
                false => {
                    let victim = agents.remove(index);
                    agents.insert(index, world.restart(victim).await);
                }
            }
            for (_, client) in &mut gone {
                world.kill(client);
            }
            all = rest;
            let newcomers: Vec<_> = (0..2).map(|_| (index, world.client(&agents[index], ON_AND_ON, true))).collect();
            comes_in(&world, newcomers[0].1.number).await;
            all.extend(newcomers);
            meet(&agents, 5).await;
        }
    }
    world.stop();
    for (_, client) in &mut all {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    let summary = world.check();
    assert!(summary.all() > 100, "{summary:?}");
}

/// Everybody is killed at once and started again: slots and numbers go on where they were.
#[tokio::test]
async fn five_agents_that_are_killed_at_once_go_on_where_they_were() {
    let mut world = World::new(3, Duration::from_secs(60), A_MOMENT);
    world.session = Some(SESSION);
    let mut agents = world.cluster(5).await;
    for _ in 0..rounds() {
        let clients: Vec<_> = (0..10).map(|n| world.client(&agents[n % 5], ON_AND_ON, true)).collect();
        world.more(50).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        clients.iter().for_each(|client| world.kill(client));
        let mut again = Vec::new();
        for agent in agents {
            again.push(world.begin_again(agent));
        }
        agents = Vec::new();
        for agent in again {
            agents.push(world.answers(agent).await);
        }
        let late: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
        for client in &late {
            comes_in(&world, client.number).await;
        }
        late.iter().for_each(|client| world.kill(client));
    }
    println!("{} entries", world.check().all());
}
