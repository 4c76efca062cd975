//! Agents that lose with each kill what they have written and not synced, as a machine does that loses power.
//!
//! `unsynced.c` is a library for LD_PRELOAD, compiled by the C compiler that links Rust programs, too. It keeps writes
//! to the files of a data directory in memory until they are synced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::world::{SESSION, World, rounds, served, voted};

const A_MOMENT: Duration = Duration::from_millis(5);
const ON_AND_ON: u64 = u64::MAX;

/// Compiles the library.
fn shim(world: &World) -> PathBuf {
    let (source, library) = (Path::new(env!("CARGO_MANIFEST_DIR")), world.path("unsynced.so"));
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"]).arg(&library);
    compile.arg(source.join("tests/processes/unsynced.c")).arg("-ldl");
    let compiled = compile.status().expect("a Rust program is linked by `cc`");
    assert!(compiled.success(), "{compile:?}");
    library
}

/// How many writes were not synced, each of which is synced by itself if it is. The agents have ended.
fn lost(log: &Path) -> usize {
    let notes = fs::read(log).unwrap();
    fs::remove_file(log).unwrap();
    let synced = notes.iter().filter(|note| **note == b's').count();
    notes.len() - 2 * synced
}

/// Three agents that vote are killed at once, with their clients, and started again, so often. Half of the clients hold
/// slots that end with their agents' sessions, the others detached grants, each of which is an entry of the registry.
/// What the checker says of it, and how many writes were lost.
async fn agents_are_killed(how: &str, often: usize) -> (Result<usize, String>, usize) {
    let mut world = World::new(2, Duration::from_secs(2), A_MOMENT);
    world.session = Some(SESSION);
    let (library, log) = (shim(&world), world.path("unsynced"));
    let env = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    world.env.push(env("LD_PRELOAD", library.to_str().unwrap()));
    world.env.push(env("UNSYNCED_LOG", log.to_str().unwrap()));
    let mut agents = world.cluster(3).await;
    voted(&agents, 3).await;
    world.env.push(env("UNSYNCED", how));
    let mut all_lost = 0;
    for _ in 0..often {
        let clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ON_AND_ON, n % 2 == 0)).collect();
        served(&world, &clients).await;
        agents.iter().for_each(|agent| agent.process.signal(Signal::SIGKILL));
        clients.iter().for_each(|client| world.kill(client));
        drop(clients);
        for agent in &mut agents {
            agent.process.ends().await;
        }
        all_lost += lost(&log);
        if let Err(wrong) = world.with_log(|log| log.check(world.slots as usize)) {
            return (Err(wrong), all_lost);
        }
        agents = world.restart_all(agents).await;
    }
    let late: Vec<_> = agents.iter().map(|agent| world.client(agent, ON_AND_ON, true)).collect();
    served(&world, &late).await;
    late.iter().for_each(|client| world.kill(client));
    drop(late);
    let checked = world.with_log(|log| log.check(world.slots as usize));
    (checked.map(|_| world.tally().all()), all_lost)
}

#[tokio::test]
async fn agents_that_lose_unsynced_writes_keep_promises() {
    let often = rounds(4);
    let (checked, lost) = agents_are_killed("", often).await;
    println!("{checked:?} entries in {often} rounds, {lost} writes were lost");
    checked.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(lost > 0, "nothing was lost: this test says nothing");
}

/// The same where a sync does nothing: that must be seen.
#[tokio::test]
async fn disk_that_does_not_sync_is_seen_by_the_checker() {
    let (checked, lost) = agents_are_killed("lies", 4).await;
    println!("{checked:?}, {lost} writes were lost");
    checked.expect_err("all that was confirmed is forgotten, and the checker does not see it");
}
