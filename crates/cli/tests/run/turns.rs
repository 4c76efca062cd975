//! Runs exclude each other, both through an agent that the first of them starts and as peers of their own.

use nix::sys::signal::Signal;

use crate::common::{Dir, Running};

#[test]
fn second_run_waits_for_the_first() {
    let dir = Dir::new();
    let (_agent, address) = dir.agent("");
    let other = Dir::new(); // Another machine with the same secret.
    let options = format!("{} r", dir.join(&address));
    let mut first = other.peer(&options, &dir.until("go"));
    first.notifies("granted");
    let mut second = other.peer(&options, "echo second");
    second.waits_behind(0);
    let mut third = other.peer(&options, "echo third");
    third.waits_behind(1);
    dir.touch("go");
    first.ends_with(0);
    assert_eq!(second.ends_with(0), "second\n");
    assert_eq!(third.ends_with(0), "third\n");
    let numbers = [&first, &second, &third].map(|run| run.notifies("granted")["fencing"].as_u64().unwrap());
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn concurrent_first_runs_share_one_agent() {
    let dir = Dir::new();
    let mut runs: Vec<Running> = (0..8).map(|_| dir.run("r", &dir.until("go"))).collect();
    let waiting = |run: &Running| {
        run.line(|line| {
            let object = serde_json::from_str::<serde_json::Value>(line).ok()?;
            object.get("granted").map(|_| None).or_else(|| object["waiting"]["ahead"].as_u64().map(Some))
        })
    };
    let mut places: Vec<_> = runs.iter().map(waiting).collect();
    places.sort();
    assert_eq!(places.iter().filter(|place| place.is_none()).count(), 1, "one holds the slot: {places:?}");
    dir.touch("go");
    for run in &mut runs {
        run.ends_with(0);
    }
    let mut numbers: Vec<u64> = runs.iter().map(|run| run.notifies("granted")["fencing"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert!(numbers.is_sorted_by(|a, b| a + 1 == *b), "one cluster: {numbers:?}");
}

#[test]
fn limited_wait_fails_with_75_or_the_given_code() {
    let dir = Dir::new();
    let mut first = dir.run("r", &dir.until("go"));
    first.notifies("granted");
    for (options, code) in [("--try", 75), ("-w 0s", 75), ("-w 50ms", 75), ("--try -E 9", 9), ("--try -E 0", 0)] {
        let mut run = dir.run(&format!("{options} r"), "echo run");
        assert_eq!(run.ends_with(code), "", "{options}");
        assert_eq!(run.notifies("failed")["code"], code, "{options}");
    }
    let (code, _, stderr) = dir.run("-n 2 r", "true").ends();
    assert_eq!(code, 64);
    assert!(stderr.contains("r has 1 slot, not 2"), "{stderr}");
    dir.run("--try other", "true").ends_with(0);
    dir.touch("go");
    first.ends_with(0);
}

#[test]
fn two_slots_run_two_commands_at_once() {
    let dir = Dir::new();
    let mut runs: Vec<Running> = (0..2).map(|_| dir.run("-n 2 r", &dir.until("go"))).collect();
    let slots: Vec<_> = runs.iter().map(|run| run.notifies("granted")["slot"].as_u64().unwrap()).collect();
    assert_ne!(slots[0], slots[1]);
    dir.run("-n 2 --try r", "true").ends_with(75);
    dir.touch("go");
    for run in &mut runs {
        run.ends_with(0);
    }
}

#[test]
fn signal_while_waiting_withdraws_the_request() {
    let dir = Dir::new();
    let mut first = dir.run("r", &dir.until("go"));
    first.notifies("granted");
    // After a signal from the keyboard, `run` dies by that signal, so that a shell ends the script around it.
    let signals = [(Signal::SIGINT, -2), (Signal::SIGQUIT, -3), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)];
    for (signal, code) in signals {
        let mut run = dir.run("r", "echo run");
        run.waits_behind(0);
        run.send(signal);
        assert_eq!(run.ends_with(code), "", "{signal}");
    }
    // An ignored signal stays ignored, as in `nohup peerlock run …`.
    let mut command = dir.in_environment("sh");
    let run = "trap '' HUP; exec \"$0\" run --json r -- echo run";
    let mut run = Running::start(command.args(["-c", run, env!("CARGO_BIN_EXE_peerlock")]));
    run.waits_behind(0);
    run.send(Signal::SIGHUP);
    dir.touch("go");
    assert_eq!(run.ends_with(0), "run\n");
    first.ends_with(0);
}

#[test]
fn signal_while_running_is_forwarded_to_the_command() {
    let dir = Dir::new();
    let script = format!("trap 'exit 5' TERM; echo > {}; while :; do sleep 0.01; done", dir.path("ready").display());
    let mut run = dir.run("r", &script);
    dir.written("ready");
    run.send(Signal::SIGTERM);
    run.ends_with(5);
}

#[test]
fn unreachable_join_target_is_named_with_advice() {
    let dir = Dir::new();
    // Joining needs the cluster's own secret, so none is created.
    let (code, _, stderr) = dir.peer("--join 127.0.0.1:1 r", "true").ends();
    assert_eq!(code, 66, "{stderr}");
    assert!(stderr.contains("data/secret") && !dir.path("data/secret").exists(), "{stderr}");
    dir.secret("another");
    let (code, _, stderr) = dir.peer("--join 127.0.0.1:1 r", "true").ends();
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("127.0.0.1:1") && stderr.contains("its port is open"), "{stderr}");

    let (code, _, stderr) = dir.peer("--join no-such-name.invalid r", "true").ends();
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("no-such-name.invalid"), "{stderr}");
}

#[test]
fn join_with_another_secret_reports_the_difference() {
    let dir = Dir::new();
    let first = dir.peer("--alone r", "sleep 1000");
    let address = first.notifies("listening").as_str().unwrap().to_owned();
    let unauthenticated = Dir::new();
    unauthenticated.secret("another");
    let (code, _, stderr) = unauthenticated.peer(&format!("--join {address} r"), "true").ends();
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("secrets differ"), "{stderr}");
}
