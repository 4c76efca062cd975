//! Clients and agents that are killed, frozen or drained do not disturb the others.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::checker::Summary;
use super::client::now;
use super::world::{AN_HOUR, Agent, ENDLESS, Process, World, meet, served, until};

const SHORT: Duration = Duration::from_secs(3);
const BRIEF: Duration = Duration::from_millis(2);

async fn finish(world: &World, clients: &mut [Process]) -> Summary {
    world.stop();
    for client in clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    world.check()
}

fn slot_of(world: &World, client: u64) -> Option<(u64, u64)> {
    let log = std::fs::read_to_string(world.log()).unwrap_or_default();
    let number = client.to_string();
    let mine = log.lines().rev().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let words: Vec<&str> = mine.split(' ').collect();
    (words[0] == "enter").then(|| (words[4].parse().unwrap(), words[3].parse().unwrap()))
}

#[tokio::test]
async fn killed_clients_free_slots_and_positions_at_once() {
    let mut world = World::new(2, AN_HOUR, BRIEF);
    let agents = world.cluster(3).await;
    let mut clients: Vec<_> = (0..9).map(|n| world.client(&agents[n % 3], ENDLESS, true)).collect();
    world.more(50).await;
    for round in 0..25 {
        let victim = match round % 5 {
            0 => frozen_holder(&world, &mut clients).await,
            _ => clients.swap_remove(world.rng.below(9) as usize),
        };
        world.kill(&victim);
        let agent = &agents[world.rng.below(3) as usize];
        clients.push(world.client(agent, ENDLESS, true));
        world.more(20).await;
    }
    let summary = finish(&world, &mut clients).await;
    assert_eq!((&summary.lost[..], &summary.errors[..]), (&[][..], &[][..]));
}

async fn frozen_holder(world: &World, clients: &mut Vec<Process>) -> Process {
    let inside = until("a frozen holder", async || {
        for (index, client) in clients.iter().enumerate() {
            client.freeze().await;
            if slot_of(world, client.number).is_some() {
                return Some(index);
            }
            client.signal(Signal::SIGCONT);
        }
        None
    });
    let inside = inside.await;
    clients.swap_remove(inside)
}

/// Of a holder and two waiters, the first waiter is killed, then the holder. Only the second waiter acquires the slot.
#[tokio::test]
async fn killed_waiter_and_killed_holder_are_skipped() {
    let mut world = World::new(1, AN_HOUR, AN_HOUR);
    let agents = world.cluster(2).await;
    let holder = world.client(&agents[0], 1, true);
    until("a holder", async || slot_of(&world, holder.number)).await;
    world.stay = Duration::ZERO;
    let first = world.client(&agents[1], 1, true);
    waiting(&agents[0], 1).await;
    let mut second = world.client(&agents[0], 1, true);
    waiting(&agents[0], 2).await;
    world.kill(&first);
    waiting(&agents[0], 1).await;
    assert_eq!(world.tally().all(), 1, "no other client holds it yet");
    world.kill(&holder);
    assert!(second.ends().await.success());
    let summary = world.check();
    assert_eq!((summary.all(), summary.of(second.number)), (2, 1));
}

pub async fn waiting(agent: &Agent, clients: usize) {
    until("waiting clients", async || {
        let shown = agent.api.show(super::client::NAME).await.ok()?;
        (shown.queue.len() == clients).then_some(())
    })
    .await;
}

#[tokio::test]
async fn frozen_clients_lose_their_slots_with_their_leases() {
    let mut world = World::new(2, SHORT, 10 * BRIEF);
    let agents = world.cluster(3).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ENDLESS, n % 2 == 0)).collect();
    world.more(20).await;
    for frozen in [0, 1] {
        let client = &clients[frozen];
        let (slot, fencing) = until("this client as a frozen holder", async || {
            client.freeze().await;
            let inside = slot_of(&world, client.number);
            if inside.is_none() {
                client.signal(Signal::SIGCONT);
            }
            inside
        })
        .await;
        until("another holder of its slot", async || {
            let log = std::fs::read_to_string(world.log()).unwrap();
            let entered = log.lines().filter(|line| line.starts_with("enter ")).any(|line| {
                let words: Vec<u64> = line.split(' ').skip(1).map(|word| word.parse().unwrap()).collect();
                words[3] == slot && words[2] > fencing
            });
            entered.then_some(())
        })
        .await;
        world.more(20).await;
        client.signal(Signal::SIGCONT);
        let number = client.number;
        until("its report of the loss", async || world.tally().lost.contains(&number).then_some(())).await;
    }
    let summary = finish(&world, &mut clients).await;
    assert_eq!(summary.errors, []);
    assert!(clients.iter().all(|client| summary.of(client.number) > 1), "all of them continue: {summary:?}");
}

/// Agents leave and join. Clients of the other agents are not affected. Only one of the leaving agents is a voter:
/// without two voters, the others would wait for a minute, until one is back or replaced.
#[tokio::test]
async fn leaving_agents_do_not_disturb_others() {
    let mut world = World::new(3, AN_HOUR, BRIEF);
    let mut agents = world.cluster(5).await;
    let staying = [1, 2];
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[staying[n % 2]], ENDLESS, n % 3 > 0)).collect();
    let going: Vec<_> = [4, 3, 0].map(|n| world.client(&agents[n], ENDLESS, true)).into_iter().collect();
    world.more(50).await;
    let join = [agents[1].address];
    let gone: Vec<u64> = going.iter().map(|client| client.number).collect();
    for (index, mut leaver) in [4, 3, 0].into_iter().zip(going) {
        let mut agent = agents.remove(index);
        agent.api.drain().await.unwrap();
        assert_eq!(agent.process.ends().await.code(), Some(0), "agent {}", agent.process.number);
        assert!(!leaver.ends().await.success(), "its client fails");
        world.more(50).await;
        agents.push(world.agent(&join).await);
        clients.push(world.client(agents.last().unwrap(), ENDLESS, true));
        world.more(20).await;
    }
    meet(&agents, 5).await;
    let summary = finish(&world, &mut clients).await;
    let notified: Vec<u64> = summary.errors.iter().map(|(client, _)| *client).collect();
    assert_eq!(notified, gone, "{:?}", summary.errors);
    assert!(summary.lost.iter().all(|client| gone.contains(client)), "{:?}", summary.lost);
    assert!(clients.iter().all(|client| summary.of(client.number) > 0), "{summary:?}");
}

#[tokio::test]
async fn killed_agent_delays_others_without_a_second_holder() {
    let mut world = World::new(2, SHORT, BRIEF);
    world.session = Some(SHORT);
    let mut agents = world.cluster(4).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ENDLESS, n % 2 == 0)).collect();
    let mut orphans: Vec<_> = (0..2).map(|_| world.client(&agents[3], ENDLESS, true)).collect();
    world.more(50).await;
    let killed = agents.pop().unwrap();
    killed.process.signal(Signal::SIGKILL);
    for orphan in &mut orphans {
        assert!(!orphan.ends().await.success(), "its clients fail");
    }
    served(&world, &clients).await;
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, {:?}", summary.all(), summary.errors);
}

#[tokio::test]
async fn frozen_agent_creates_no_second_holder() {
    let mut world = World::new(2, SHORT, BRIEF);
    world.session = Some(SHORT);
    let agents = world.cluster(4).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ENDLESS, n % 2 == 0)).collect();
    let mut frozen: Vec<_> = (0..2).map(|n| world.client(&agents[3], ENDLESS, n == 0)).collect();
    world.more(50).await;
    agents[3].process.freeze().await;
    let thaw = now() + 2 * SHORT.as_nanos() as u64;
    until("the expiry of its leases", async || (now() > thaw).then_some(())).await;
    agents[3].process.signal(Signal::SIGCONT);
    served(&world, &clients).await;
    world.stop();
    for client in clients.iter_mut().chain(&mut frozen) {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, {:?}", summary.all(), summary.errors);
}
