//! Clients and agents that are killed, frozen or leave, while the others go on.

use std::time::Duration;

use nix::sys::signal::Signal;

use super::checker::Summary;
use super::client::now;
use super::world::{Agent, Process, World, meet, until};

/// Longer than any test: whatever happens in time has not happened because a lease ended.
const NEVER: Duration = Duration::from_secs(3_600);
/// As short as a lease may be useful.
const SHORT: Duration = Duration::from_secs(3);
const A_MOMENT: Duration = Duration::from_millis(2);
/// As often as there is time for.
const ON_AND_ON: u64 = u64::MAX;

async fn finish(world: &World, clients: &mut [Process]) -> Summary {
    world.stop();
    for client in clients {
        assert!(client.ends().await.success(), "client {}", client.number);
    }
    world.check()
}

/// Whoever is inside, and not frozen or killed since, as the log has it.
fn is_inside(world: &World, client: u64) -> Option<(u64, u64)> {
    let log = std::fs::read_to_string(world.log()).unwrap_or_default();
    let number = client.to_string();
    let mine = log.lines().rev().find(|line| line.split(' ').nth(2) == Some(&number))?;
    let words: Vec<&str> = mine.split(' ').collect();
    (words[0] == "enter").then(|| (words[4].parse().unwrap(), words[3].parse().unwrap()))
}

#[tokio::test]
async fn clients_that_are_killed_free_their_places_at_once() {
    let mut world = World::new(2, NEVER, A_MOMENT);
    let agents = world.cluster(3).await;
    let mut clients: Vec<_> = (0..9).map(|n| world.client(&agents[n % 3], ON_AND_ON, true)).collect();
    world.more(50).await;
    for round in 0..25 {
        // Most of them wait; every fifth is killed where it matters most.
        let victim = match round % 5 {
            0 => frozen_inside(&world, &mut clients).await,
            _ => clients.swap_remove(world.rng.below(9) as usize),
        };
        world.kill(&victim);
        let agent = &agents[world.rng.below(3) as usize];
        clients.push(world.client(agent, ON_AND_ON, true));
        world.more(20).await;
    }
    let summary = finish(&world, &mut clients).await;
    assert_eq!((&summary.lost[..], &summary.errors[..]), (&[][..], &[][..]));
}

/// Takes out of some clients one that is inside, and stays there: it is frozen.
async fn frozen_inside(world: &World, clients: &mut Vec<Process>) -> Process {
    let inside = until("a client that is frozen inside", async || {
        for (index, client) in clients.iter().enumerate() {
            client.freeze().await;
            if is_inside(world, client.number).is_some() {
                return Some(index);
            }
            client.signal(Signal::SIGCONT);
        }
        None
    });
    let inside = inside.await;
    clients.swap_remove(inside)
}

/// One inside, two waiting in order: the first of them dies, then the one inside. Nobody but the second comes in.
#[tokio::test]
async fn a_place_in_line_and_a_slot_are_free_when_their_clients_are_killed() {
    let mut world = World::new(1, NEVER, NEVER);
    let agents = world.cluster(2).await;
    let holder = world.client(&agents[0], 1, true);
    until("one inside", async || is_inside(&world, holder.number)).await;
    world.stay = Duration::ZERO;
    let first = world.client(&agents[1], 1, true);
    waiting(&agents[0], 1).await;
    let mut second = world.client(&agents[0], 1, true);
    waiting(&agents[0], 2).await;
    world.kill(&first);
    waiting(&agents[0], 1).await;
    assert_eq!(world.tally().all(), 1, "nobody else is in yet");
    world.kill(&holder);
    assert!(second.ends().await.success());
    let summary = world.check();
    assert_eq!((summary.all(), summary.of(second.number)), (2, 1));
}

/// Waits until this many are in line.
async fn waiting(agent: &Agent, clients: usize) {
    until("clients in line", async || {
        let shown = agent.talk.show(super::client::NAME).await.ok()?;
        (shown.queue.len() == clients).then_some(())
    })
    .await;
}

/// A client that is frozen inside loses the slot when its lease ends, and not before; when it goes on it is told so.
#[tokio::test]
async fn clients_that_are_frozen_lose_their_leases_and_the_others_go_on() {
    let mut world = World::new(2, SHORT, 10 * A_MOMENT);
    let agents = world.cluster(3).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ON_AND_ON, n % 2 == 0)).collect();
    world.more(20).await;
    for frozen in [0, 1] {
        let client = &clients[frozen];
        let (slot, fencing) = until("this client frozen inside", async || {
            client.freeze().await;
            let inside = is_inside(&world, client.number);
            if inside.is_none() {
                client.signal(Signal::SIGCONT);
            }
            inside
        })
        .await;
        until("somebody else in its slot", async || {
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
        until("its being told", async || world.tally().lost.contains(&number).then_some(())).await;
    }
    let summary = finish(&world, &mut clients).await;
    assert_eq!(summary.errors, []);
    assert!(clients.iter().all(|client| summary.of(client.number) > 1), "all of them go on: {summary:?}");
}

/// Agents come and go; clients of those that stay do not notice. One of the three that vote is among those that go:
/// when two of them have gone, the others wait until they are back, or replaced after a minute.
#[tokio::test]
async fn agents_that_leave_take_nothing_with_them() {
    let mut world = World::new(3, NEVER, A_MOMENT);
    let mut agents = world.cluster(5).await;
    let staying = [1, 2];
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[staying[n % 2]], ON_AND_ON, n % 3 > 0)).collect();
    let going: Vec<_> = [4, 3, 0].map(|n| world.client(&agents[n], ON_AND_ON, true)).into_iter().collect();
    world.more(50).await;
    let join = [agents[1].address];
    let gone: Vec<u64> = going.iter().map(|client| client.number).collect();
    for (index, mut leaver) in [4, 3, 0].into_iter().zip(going) {
        let mut agent = agents.remove(index);
        agent.talk.drain().await.unwrap();
        assert_eq!(agent.process.ends().await.code(), Some(0), "agent {}", agent.process.number);
        assert!(!leaver.ends().await.success(), "its client is told");
        world.more(50).await;
        agents.push(world.agent(&join).await);
        clients.push(world.client(agents.last().unwrap(), ON_AND_ON, true));
        world.more(20).await;
    }
    meet(&agents, 5).await;
    let summary = finish(&world, &mut clients).await;
    let notified: Vec<u64> = summary.errors.iter().map(|(client, _)| *client).collect();
    assert_eq!(notified, gone, "{:?}", summary.errors);
    // Whoever is inside at an agent that drains is waited for.
    assert!(summary.lost.iter().all(|client| gone.contains(client)), "{:?}", summary.lost);
    assert!(clients.iter().all(|client| summary.of(client.number) > 0), "{summary:?}");
}

/// Waits until each of these has come in some more.
async fn go_on(world: &World, clients: &[Process]) {
    let before = world.tally();
    for client in clients {
        let number = client.number;
        until("another entry", async || {
            let summary = world.tally();
            if let Some((_, why)) = summary.errors.iter().find(|(host, _)| *host == number) {
                panic!("client {number} has given up: {why}");
            }
            (summary.of(number) >= before.of(number) + 3).then_some(())
        })
        .await;
    }
}

/// What a killed agent had goes on to others when its session has ended, and nobody comes in twice.
#[tokio::test]
async fn an_agent_that_is_killed_costs_the_others_a_moment_and_never_a_second_holder() {
    let mut world = World::new(2, SHORT, A_MOMENT);
    world.session = Some(SHORT);
    let mut agents = world.cluster(4).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ON_AND_ON, n % 2 == 0)).collect();
    let mut orphans: Vec<_> = (0..2).map(|_| world.client(&agents[3], ON_AND_ON, true)).collect();
    world.more(50).await;
    let killed = agents.pop().unwrap();
    killed.process.signal(Signal::SIGKILL);
    for orphan in &mut orphans {
        assert!(!orphan.ends().await.success(), "its clients are told");
    }
    go_on(&world, &clients).await;
    world.stop();
    for client in &mut clients {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, {:?}", summary.all(), summary.errors);
}

/// An agent that is frozen for longer than the leases, and goes on as if nothing had happened.
#[tokio::test]
async fn an_agent_that_is_frozen_is_no_second_holder_when_it_goes_on() {
    let mut world = World::new(2, SHORT, A_MOMENT);
    world.session = Some(SHORT);
    let agents = world.cluster(4).await;
    let mut clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ON_AND_ON, n % 2 == 0)).collect();
    let mut frozen: Vec<_> = (0..2).map(|n| world.client(&agents[3], ON_AND_ON, n == 0)).collect();
    world.more(50).await;
    agents[3].process.freeze().await;
    let thaw = now() + 2 * SHORT.as_nanos() as u64;
    until("the end of its leases", async || (now() > thaw).then_some(())).await;
    agents[3].process.signal(Signal::SIGCONT);
    go_on(&world, &clients).await;
    world.stop();
    for client in clients.iter_mut().chain(&mut frozen) {
        client.ends().await;
    }
    let summary = world.check();
    println!("{} entries, {:?}", summary.all(), summary.errors);
}
