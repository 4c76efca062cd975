//! Agents whose unsynced writes are lost at each kill, as in a power failure.
//!
//! `unsynced.c` is a library for LD_PRELOAD, compiled by the system's C compiler. It keeps writes to the files of a
//! data directory in memory until they are synced.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use tokio::time::timeout;

use super::world::{BRIEF, ENDLESS, SESSION, World, rounds, served, voted};

fn shim(world: &World) -> PathBuf {
    let (source, library) = (Path::new(env!("CARGO_MANIFEST_DIR")), world.path("unsynced.so"));
    let mut compile = Command::new("cc");
    compile.args(["-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"]).arg(&library);
    compile.arg(source.join("tests/processes/unsynced.c")).arg("-ldl");
    let compiled = compile.status().expect("`cc`, which also links Rust programs");
    assert!(compiled.success(), "{compile:?}");
    library
}

/// Returns how many writes were never synced, once the agents have exited. Each sync stores all earlier writes of its
/// file.
fn lost(log: &Path) -> usize {
    let notes = fs::read(log).unwrap();
    fs::remove_file(log).unwrap();
    let synced = notes.iter().filter(|note| **note == b's').count();
    notes.len() - 2 * synced
}

/// Repeatedly kills three voters with their clients at once, and restarts them. Half of the clients hold grants bound
/// to connections, the other half detached grants, which are entries of the registry. Returns the result of the checker
/// and the number of lost writes. With `patience`, ends early if the agents serve no client for that long.
async fn agents_are_killed(how: &str, often: usize, patience: Option<Duration>) -> (Result<usize, String>, usize) {
    let mut world = World::new(2, Duration::from_secs(2), BRIEF);
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
        let clients: Vec<_> = (0..6).map(|n| world.client(&agents[n % 3], ENDLESS, n % 2 == 0)).collect();
        match patience {
            None => served(&world, &clients).await,
            Some(patience) if timeout(patience, served(&world, &clients)).await.is_err() => break,
            Some(_) => {}
        }
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
    if patience.is_none() {
        let late: Vec<_> = agents.iter().map(|agent| world.client(agent, ENDLESS, true)).collect();
        served(&world, &late).await;
        late.iter().for_each(|client| world.kill(client));
    }
    let checked = world.with_log(|log| log.check(world.slots as usize));
    (checked.map(|_| world.tally().all()), all_lost)
}

#[tokio::test]
async fn agents_that_lose_unsynced_writes_keep_promises() {
    let often = rounds(4);
    let (checked, lost) = agents_are_killed("", often, None).await;
    println!("{checked:?} entries in {often} rounds, {lost} writes were lost");
    checked.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(lost > 0, "no write was lost, so nothing was tested");
}

/// With a sync that does nothing, the checker must find a violation. Agents that have forgotten different things may
/// also stop serving without a violation: then another cluster is tried.
#[tokio::test]
async fn disk_that_does_not_sync_is_detected() {
    for _ in 0..5 {
        let (checked, lost) = agents_are_killed("lies", 4, Some(Duration::from_secs(20))).await;
        println!("{checked:?}, {lost} writes were lost");
        if checked.is_err() {
            return;
        }
    }
    panic!("the checker does not detect lost writes");
}
