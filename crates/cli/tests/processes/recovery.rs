//! How long it takes until the next one comes in when the agent of who is inside is killed. It is printed and not
//! judged; that nobody comes in too early is. `ROUNDS=20` measures so often, and with sessions of 15 s, too.

use std::time::Duration;

use nix::sys::signal::Signal;
use peerlock::Voter;
use tokio::time::sleep;

use super::client::now;
use super::world::{World, meet, rounds, until};

const NEVER: Duration = Duration::from_secs(3_600);

#[tokio::test]
async fn the_holders_agent_is_killed() {
    next_entry(Duration::from_secs(2)).await;
    if std::env::var_os("ROUNDS").is_some() {
        next_entry(Duration::from_secs(15)).await;
    }
}

async fn next_entry(session: Duration) {
    let mut world = World::new(1, NEVER, NEVER);
    world.session = Some(session);
    let mut agents = world.cluster(5).await;
    let (mut all, mut of_others) = (Vec::new(), Vec::new());
    for _ in 0..rounds(2) {
        let index = world.rng.below(agents.len() as u64) as usize;
        world.stay = NEVER;
        let mut holder = world.client(&agents[index], 1, true);
        until("one inside", async || (world.tally().of(holder.number) > 0).then_some(())).await;
        world.stay = Duration::ZERO;
        let mut next = world.client(&agents[(index + 1) % agents.len()], 1, true);
        until("one in line", async || world.with_log(|log| log.waits(next.number)).then_some(())).await;
        // At any moment between two renewals of the session.
        sleep(Duration::from_millis(500 + world.rng.below(session.as_millis() as u64 / 2))).await;
        let cluster = agents[index].talk.cluster().await.unwrap();
        let leads = cluster.peers.iter().any(|peer| peer.is_me && peer.voter == Voter::Leads);
        let killed = now();
        agents[index].process.signal(Signal::SIGKILL);
        assert!(next.ends().await.success());
        assert!(!holder.ends().await.success(), "it is told that its agent is gone");
        let entered = world.with_log(|log| log.next_entry(killed)).unwrap();
        let took = Duration::from_nanos(entered - killed);
        println!(
            "session {session:?}: {took:.2?} after the kill{}",
            if leads { " of the register's leader" } else { "" }
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
