//! Prints the time from the kill of the holder's agent to the next grant. Only overlaps fail the test. `ROUNDS=20`
//! repeats it, also with sessions of 15 s.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::Voter;
use tokio::time::sleep;

use super::client::now;
use super::world::{AN_HOUR, World, meet, rounds, until};

#[tokio::test]
async fn killed_agent_of_a_holder_delays_the_next_grant() {
    next_entry(Duration::from_secs(2)).await;
    if std::env::var_os("ROUNDS").is_some() {
        next_entry(Duration::from_secs(15)).await;
    }
}

async fn next_entry(session: Duration) {
    let mut world = World::new(1, AN_HOUR, AN_HOUR);
    world.session = Some(session);
    let mut agents = world.cluster(5).await;
    let (mut all, mut of_others) = (Vec::new(), Vec::new());
    for _ in 0..rounds(2) {
        let index = world.rng.below(agents.len() as u64) as usize;
        world.stay = AN_HOUR;
        let mut holder = world.client(&agents[index], 1, true);
        until("a holder", async || (world.tally().of(holder.number) > 0).then_some(())).await;
        world.stay = Duration::ZERO;
        let mut next = world.client(&agents[(index + 1) % agents.len()], 1, true);
        until("a waiter", async || world.with_log(|log| log.waits(next.number)).then_some(())).await;
        sleep(Duration::from_millis(500 + world.rng.below(session.as_millis() as u64 / 2))).await;
        let cluster = agents[index].api.cluster().await.unwrap();
        let leads = cluster.peers.iter().any(|peer| peer.is_me && peer.voter == Voter::Leads);
        let killed = now();
        agents[index].process.signal(Signal::SIGKILL);
        assert!(next.ends().await.success());
        assert!(!holder.ends().await.success(), "it fails with its agent");
        let entered = world.with_log(|log| log.next_entry(killed)).unwrap();
        let took = Duration::from_nanos(entered - killed);
        println!(
            "session {session:?}: {took:.2?} after the kill{}",
            if leads { " of the registry leader" } else { "" }
        );
        all.push(took);
        of_others.extend((!leads).then_some(took));
        let victim = agents.remove(index);
        agents.insert(index, world.restart(victim).await);
        meet(&agents, 5).await;
    }
    world.check();
    println!(
        "session {session:?}: median {:.2?} of {}, {:.2?} of the {} that did not lead, longest {:.2?}",
        median(&mut all),
        all.len(),
        median(&mut of_others),
        of_others.len(),
        all.iter().max().unwrap()
    );
}

fn median(times: &mut [Duration]) -> Option<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied()
}
