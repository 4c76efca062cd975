//! Five machines start at once, and the switch between {1, 2} and {3, 4, 5} comes up late.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::{Error, Request};
use tokio::time::sleep;

use super::network::{Network, begin, network};
use super::world::{Agent, SESSION, Started, World, meet, rounds, served, until, voted};

const MACHINES: [usize; 5] = [1, 2, 3, 4, 5];
/// Those behind the switch.
const FAR: [usize; 3] = [3, 4, 5];
const A_MOMENT: Duration = Duration::from_millis(5);
const ON_AND_ON: u64 = u64::MAX;

fn world() -> World {
    let mut world = World::new(1, Duration::from_secs(60), A_MOMENT);
    (world.session, world.persists) = (Some(SESSION), true);
    world
}

/// All five for the first time, by the same command.
fn first_boot(world: &mut World, network: &Network) -> Vec<Started> {
    MACHINES.iter().map(|machine| begin(world, network, *machine, &MACHINES, &["--expect", "5"])).collect()
}

async fn answers(world: &World, started: Vec<Started>) -> Vec<Agent> {
    let mut agents = Vec::new();
    for agent in started {
        agents.push(world.answers(agent).await);
    }
    agents
}

/// Nobody knows a cluster yet: none is founded before all five have met, and then one.
#[tokio::test]
async fn the_switch_is_late_at_the_first_boot() {
    let Some(network) = network(5) else { return };
    for round in 0..rounds(1) {
        let mut world = world();
        network.split(&FAR);
        let started = first_boot(&mut world, &network);
        let agents = answers(&world, started).await;
        let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
        meet(&agents[..2], 2).await;
        meet(&agents[2..], 3).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(world.tally().all(), 0, "nobody comes in without a cluster");
        network.split(&[]);
        served(&world, &clients).await;
        let mut clusters = Vec::new();
        for agent in &agents {
            clusters.push(agent.talk.cluster().await.unwrap().cluster);
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

/// They have been a cluster. All are killed, and come back while the network is split: at most one side goes on, and
/// what was granted for an hour before is granted to nobody else.
#[tokio::test]
async fn the_switch_is_late_after_a_loss_of_power() {
    let Some(network) = network(5) else { return };
    let mut world = world();
    let started = first_boot(&mut world, &network);
    let mut agents = answers(&world, started).await;
    let mut clients: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
    served(&world, &clients).await;
    let hour = Request::new("for an hour").ttl(Duration::from_secs(3_600)).try_only();
    let retained = until("a grant for an hour", async || agents[4].talk.acquire(&hour).await.ok()).await;
    for round in 0..rounds(2) {
        voted(&agents, 3).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        network.split(&FAR);
        // By turns with the same command, and with what their folders know only.
        let begin = if round % 2 == 0 { World::begin_as_before } else { World::begin_again };
        let started = agents.into_iter().map(|agent| begin(&world, agent)).collect();
        agents = answers(&world, started).await;
        let before = world.tally();
        world.more(3).await;
        for agent in [&agents[0], &agents[4]] {
            match agent.talk.acquire(&hour).await {
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
