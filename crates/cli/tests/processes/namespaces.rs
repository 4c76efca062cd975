//! Agents on machines that are partitioned.

use std::time::{Duration, Instant};

use peerlock::{Request, Voter};

use super::client::NAME;
use super::network::{address, launch_on, network};
use super::world::{Agent, ENDLESS, SESSION, World, api_at, meet, metric, served, until, voted};

#[tokio::test]
async fn cut_off_machine_returns_to_its_cluster() {
    let Some(network) = network(3) else { return };
    let mut world = World::new(2, Duration::from_secs(3), Duration::from_millis(2));
    let mut agents = Vec::new();
    for (machine, join) in [(1, &[][..]), (2, &[1]), (3, &[1])] {
        let started = launch_on(&mut world, &network, machine, join, &[]);
        agents.push(world.answers(started).await);
    }
    meet(&agents, 3).await;
    for (agent, others) in agents.iter().zip([[2, 3], [1, 3], [1, 2]]) {
        let peers = agent.api.peers().await.unwrap();
        let mut observed: Vec<_> = peers.iter().filter(|peer| !peer.is_me).map(|peer| peer.address.clone()).collect();
        observed.sort();
        assert_eq!(observed, others.map(|machine| address(machine).to_string()), "dialled at their observed addresses");
    }
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ENDLESS, n % 2 == 0)).collect();
    world.more(50).await;

    network.plug(3, "down");
    meet(&agents[..2], 2).await;
    network.plug(3, "up");
    meet(&agents, 3).await;

    clients.extend(agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect::<Vec<_>>());
    for client in &clients[6..] {
        until("grants to new clients", async || (world.tally().of(client.number) > 0).then_some(())).await;
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, failed: {:?}", summary.all(), summary.errors);
}

/// Two slots are held on the first machine, and the first waiter's machine is cut off. While its session is valid, a
/// released slot is granted to the second waiter. When it is back, the first waiter precedes later requests.
#[tokio::test]
async fn released_slot_skips_a_waiter_that_is_cut_off() {
    let Some(network) = network(3) else { return };
    let mut world = World::new(2, Duration::from_secs(60), Duration::ZERO);
    world.session = Some(Duration::from_secs(40));
    let mut agents = Vec::new();
    for (machine, join) in [(1, &[][..]), (2, &[1]), (3, &[1])] {
        let started = launch_on(&mut world, &network, machine, join, &[]);
        agents.push(world.answers(started).await);
    }
    meet(&agents, 3).await;
    let hour = || Request::new(NAME).slots(2).ttl(Duration::from_secs(3600));
    let waits = |agent: &Agent| {
        let api = api_at(&agent.socket);
        tokio::spawn(async move { api.acquire(&hour()).await })
    };
    let queued = async |waiting: usize| {
        until("all of them in the queue", async || {
            (agents[0].api.show(NAME).await.ok()?.queue.len() == waiting).then_some(())
        })
        .await;
    };
    let one = agents[0].api.acquire(&hour()).await.unwrap();
    let other = agents[0].api.acquire(&hour()).await.unwrap();
    let cut_off = waits(&agents[2]);
    queued(1).await;
    let next = waits(&agents[1]);
    queued(2).await;

    network.plug(3, "down");
    tokio::time::sleep(Duration::from_secs(8)).await;
    agents[0].api.release(NAME, &one.grant).await.unwrap();
    until("the next waiter", async || next.is_finished().then_some(())).await;
    next.await.unwrap().unwrap();
    assert_eq!(metric(&agents[2], "sessions_lost_total"), 0, "its session is still valid");
    assert!(!cut_off.is_finished());

    network.plug(3, "up");
    meet(&agents, 3).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let last = waits(&agents[1]);
    queued(2).await;
    agents[0].api.release(NAME, &other.grant).await.unwrap();
    until("the waiter that was cut off", async || cut_off.is_finished().then_some(())).await;
    cut_off.await.unwrap().unwrap();
    assert_eq!(metric(&agents[2], "sessions_lost_total"), 0);
    assert!(!last.is_finished(), "it asked later");
    last.abort();
}

async fn voters(agents: &[Agent], asked: &Agent) -> Option<(Vec<usize>, Option<usize>)> {
    let peers = asked.api.cluster().await.ok()?.peers;
    let (mut voters, mut leader) = (Vec::new(), None);
    for (machine, agent) in (1..).zip(agents) {
        let me = agent.api.peers().await.ok()?.first()?.peer;
        match peers.iter().find(|peer| peer.peer == me)?.voter {
            Voter::Leads => leader = Some(machine),
            Voter::Votes => {}
            _ => continue,
        }
        voters.push(machine);
    }
    Some((voters, leader))
}

#[derive(Clone, Copy, Debug)]
enum Cut {
    /// The link of this machine is down.
    Plug(usize),
    /// These machines cannot communicate with the others.
    Between(&'static [usize]),
    /// Messages from the first machine to the others are lost.
    Deaf(usize, &'static [usize]),
}

/// Returns these machines or all others, depending on where the majority of the voters is.
fn majority(voters: &[usize], some: &[usize]) -> Vec<usize> {
    let is_theirs = voters.iter().filter(|voter| some.contains(voter)).count() >= 2;
    (1..=5).filter(|machine| some.contains(machine) == is_theirs).collect()
}

/// Machines are cut off, entirely or in one direction, for longer than a session. Those with the majority of the voters
/// are served again meanwhile, even if two of them are connected only through a third; after the cut all are.
#[tokio::test]
async fn cuts_cause_no_second_holder_and_heal() {
    let Some(network) = network(5) else { return };
    let mut world = World::new(2, Duration::from_secs(60), Duration::from_millis(5));
    (world.session, world.persists) = (Some(SESSION), true);
    let mut agents = Vec::new();
    for machine in 1..=5 {
        let join: &[usize] = if machine == 1 { &[] } else { &[1] };
        let started = launch_on(&mut world, &network, machine, join, &[]);
        agents.push(world.answers(started).await);
    }
    meet(&agents, 5).await;
    let mut clients: Vec<_> = (0..10).map(|n| world.client(&agents[n % 5], ENDLESS, true)).collect();
    served(&world, &clients).await;
    for cut in [
        Cut::Plug(5),
        Cut::Plug(1),
        Cut::Between(&[3, 4, 5]),
        Cut::Deaf(2, &[1, 3, 4, 5]),
        Cut::Deaf(4, &[1]),
        Cut::Deaf(1, &[2]),
    ] {
        voted(&agents, 3).await;
        let (voted, _) =
            until("three voters", async || voters(&agents, &agents[0]).await.filter(|(voters, _)| voters.len() == 3))
                .await;
        match cut {
            Cut::Plug(machine) => network.plug(machine, "down"),
            Cut::Between(far) => network.split(far),
            Cut::Deaf(from, to) => network.deafen(from, to),
        }
        let started = Instant::now();
        // Effects appear only after a session has expired.
        tokio::time::sleep(2 * SESSION).await;
        let before = world.tally();
        let side = until("those with the majority are served", async || {
            let side = match cut {
                Cut::Plug(other) | Cut::Deaf(other, [_, _, ..]) => majority(&voted, &[other]),
                Cut::Between(far) => majority(&voted, far),
                // Messages are relayed through the leader. A machine that cannot reach the leader has no session.
                Cut::Deaf(from, to) => {
                    let (_, leader) = voters(&agents, &agents[2]).await?;
                    let lost = |machine| {
                        (machine == from && leader == Some(to[0])) || (machine == to[0] && leader == Some(from))
                    };
                    (1..=5).filter(|machine| !lost(*machine)).collect()
                }
            };
            let tally = world.tally();
            let mut theirs = clients.iter().enumerate().filter(|(n, _)| side.contains(&(n % 5 + 1)));
            let are_served = theirs.all(|(_, client)| tally.of(client.number) >= before.of(client.number) + 3);
            are_served.then_some(side)
        })
        .await;
        println!("{cut:?}: {side:?} were served again, {:.2?} after the cut", started.elapsed());
        match cut {
            Cut::Plug(machine) => network.plug(machine, "up"),
            Cut::Between(_) => network.split(&[]),
            Cut::Deaf(from, to) => network.undeafen(from, to),
        }
        let healed = Instant::now();
        served(&world, &clients).await;
        println!("{cut:?}: all were served {:.2?} after it was healed", healed.elapsed());
        meet(&agents, 5).await;
    }
    world.stop();
    for client in &mut clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    println!("{} entries", world.check().all());
}
