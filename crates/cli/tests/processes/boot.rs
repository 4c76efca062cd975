//! Five machines start at once, while {1, 2} and {3, 4, 5} cannot connect at first.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::{Error, Request};
use tokio::time::sleep;

use super::network::{Network, launch_on, network};
use super::world::{Agent, BRIEF, ENDLESS, SESSION, Started, World, meet, rounds, served, until, voted};

const MACHINES: [usize; 5] = [1, 2, 3, 4, 5];
const FAR: [usize; 3] = [3, 4, 5];

fn world() -> World {
    let mut world = World::new(1, Duration::from_secs(60), BRIEF);
    (world.session, world.persists) = (Some(SESSION), true);
    world
}

fn first_boot(world: &mut World, network: &Network) -> Vec<Started> {
    MACHINES.iter().map(|machine| launch_on(world, network, *machine, &MACHINES, &["--expect", "5"])).collect()
}

async fn answers(world: &World, started: Vec<Started>) -> Vec<Agent> {
    let mut agents = Vec::new();
    for agent in started {
        agents.push(world.answers(agent).await);
    }
    agents
}

#[tokio::test]
async fn first_boot_in_a_partition_creates_one_cluster() {
    let Some(network) = network(5) else { return };
    for round in 0..rounds(1) {
        let mut world = world();
        network.split(&FAR);
        let started = first_boot(&mut world, &network);
        let agents = answers(&world, started).await;
        let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
        meet(&agents[..2], 2).await;
        meet(&agents[2..], 3).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.tally().all(), 0, "nothing is granted without a cluster");
        network.split(&[]);
        served(&world, &clients).await;
        let mut clusters = Vec::new();
        for agent in &agents {
            clusters.push(agent.api.cluster().await.unwrap().cluster);
        }
        clusters.dedup();
        assert_eq!(clusters.len(), 1, "{clusters:?}");
        world.stop();
        for client in &mut clients {
            client.ends().await;
        }
        println!("round {round}: {} entries", world.check().all());
    }
}

/// All members are killed and start again in a partition. At most one side continues, and no earlier grant is given
/// again.
#[tokio::test]
async fn boot_in_a_partition_continues_on_one_side() {
    let Some(network) = network(5) else { return };
    let mut world = world();
    let started = first_boot(&mut world, &network);
    let mut agents = answers(&world, started).await;
    let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
    served(&world, &clients).await;
    let hour = Request::new("for an hour").ttl(Duration::from_secs(3_600)).try_only();
    let retained = until("a grant for an hour", async || agents[4].api.acquire(&hour).await.ok()).await;
    for round in 0..rounds(2) {
        voted(&agents, 3).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        network.split(&FAR);
        // Alternately with the same command, and without --join.
        let launch_on = if round % 2 == 0 { World::relaunch_as_before } else { World::relaunch };
        let started = agents.into_iter().map(|agent| launch_on(&world, agent)).collect();
        agents = answers(&world, started).await;
        let before = world.tally();
        world.more(3).await;
        for agent in [&agents[0], &agents[4]] {
            match agent.api.acquire(&hour).await {
                Err(Error::NotAcquired { .. } | Error::NoMajority { .. } | Error::Recovering { .. }) => {}
                other => panic!("{other:?} beside {retained:?}"),
            }
        }
        let come = |side: &[usize]| {
            let of = |machine: &usize| world.tally().of(clients[machine - 1].number);
            side.iter().any(|machine| of(machine) > before.of(clients[machine - 1].number))
        };
        let sides = [come(&MACHINES[..2]), come(&FAR)];
        assert_eq!(sides.iter().filter(|come| **come).count(), 1, "{sides:?}");
        network.split(&[]);
        served(&world, &clients).await;
        println!("round {round}");
    }
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    println!("{} entries in {} rounds", world.check().all(), rounds(2));
}
