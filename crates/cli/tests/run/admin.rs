//! Commands of an administrator: revoke a slot, also on another machine; resize and remove resources.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Dir, Running, eventually, is_gone, with_program_on_path};

/// Two machines with one agent each, in one cluster.
struct Cluster {
    here: Dir,
    there: Dir,
    there_agent: Running,
    _agent: Running,
}

impl Cluster {
    fn new() -> Self {
        let (here, there) = (Dir::new(), Dir::new());
        let (agent, address) = here.agent("");
        let (there_agent, _) = there.agent(&here.join(&address));
        Self { here, there, there_agent, _agent: agent }
    }
}

fn ends(dir: &Dir, arguments: &str) -> (i32, String, String) {
    Running::start(&mut dir.peerlock(arguments)).ends()
}

/// Returns a script that writes its process ID, and executes `then` on SIGTERM.
fn sleeps(dir: &Dir, file: &str, then: &str) -> String {
    let file = dir.path(file);
    format!("trap '{then}' TERM; echo $$ > {}; while :; do sleep 0.01; done", file.display())
}

#[test]
fn holder_on_another_machine_is_asked_to_stop() {
    let Cluster { here, there, .. } = &Cluster::new();
    let mut holder = there.run("--ttl 1h r", &sleeps(there, "pid", "echo asked; exit 0"));
    there.written("pid");
    let mut waits = here.run("r", "echo next");
    waits.waits_behind(0);

    let observed = eventually("the holder", || {
        Some(here.show("r")).filter(|observed| observed["holders"][0]["client"]["pid"].is_u64())
    });
    let client = &observed["holders"][0]["client"];
    assert_eq!(client["pid"], u64::from(holder.pid().as_raw().cast_unsigned()), "{observed}");
    assert_eq!(client["fencing"], holder.notifies("granted")["fencing"]);
    assert!(client["ends_ms"].as_u64().unwrap() <= 15_000 && observed["generation"].is_u64(), "{observed}");
    let (_, table, _) = ends(here, "show r");
    let pid = holder.pid().to_string();
    let row = table.lines().find(|line| line.starts_with("slot 0")).unwrap();
    assert!(row.split_whitespace().any(|word| word == pid) && row.ends_with(": sh"), "{table}");

    let (code, _, stderr) = ends(here, "release r --slot 0");
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("slot 0 of r") && stderr.contains(&format!("process {pid}")), "{stderr}");
    assert_eq!(holder.ends_with(76), "asked\n");
    assert!(holder.notifies("lost").as_str().unwrap().contains("revoked by an administrator"));
    assert_eq!(waits.ends_with(0), "next\n");
}

#[test]
fn stubborn_holder_is_dead_before_its_slot_is_free() {
    let Cluster { here, there, .. } = &Cluster::new();
    let mut holder = there.run("--ttl 1h --grace 1s r", &sleeps(there, "pid", ""));
    let pid = there.written("pid");
    let (code, _, stderr) = ends(here, "release --slot 0 r");
    assert_eq!(code, 0, "{stderr}");
    assert!(is_gone(&pid), "the slot is free before the command is dead");
    here.run("--try r", "true").ends_with(0);
    holder.ends_with(76);
}

#[test]
fn acquired_slot_is_revoked_immediately() {
    let Cluster { here, there, .. } = &Cluster::new();
    let (code, granted, stderr) = ends(there, "acquire --json --label nightly --ttl 1h r");
    assert_eq!(code, 0, "{stderr}");
    let granted: Value = serde_json::from_str(&granted).unwrap();

    let (code, _, stderr) = ends(here, "release r");
    assert_eq!(code, 64, "a release without a grant revokes nothing: {stderr}");
    assert!(stderr.contains("--slot") && stderr.contains("nightly") && stderr.contains("PEERLOCK_GRANT"), "{stderr}");
    here.run("--try r", "true").ends_with(75);

    let (code, _, stderr) = ends(here, "release r --slot 0");
    assert_eq!(code, 0, "{stderr}");
    here.run("--try r", "true").ends_with(0);
    let (code, _, stderr) = ends(there, &format!("renew r --grant {}", granted["grant"].as_str().unwrap()));
    assert_eq!(code, 76, "{stderr}");
    assert!(stderr.contains("revoked by an administrator"), "{stderr}");
}

#[test]
fn revoked_slot_must_be_unambiguous_and_exist() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    let (code, _, stderr) = ends(&dir, "release r --slot 0");
    assert_eq!(code, 66, "no such resource: {stderr}");
    let holders = ["one", "two"].map(|label| {
        let (code, granted, stderr) = ends(&dir, &format!("acquire --json -n 3 --label {label} --ttl 1h r"));
        assert_eq!(code, 0, "{stderr}");
        serde_json::from_str::<Value>(&granted).unwrap()["slot"].as_u64().unwrap()
    });
    let free = (0..3).find(|slot| !holders.contains(slot)).unwrap();
    for (options, expected, words) in [
        ("--slot 3".to_owned(), 64, &["no slot 3", "slots are 0 to 2"][..]),
        (format!("--slot {free}"), 0, &["is free"]),
        ("--force".to_owned(), 64, &["several slots", "one", "two"]),
        (format!("--slot {} --grant x", holders[0]), 64, &["--grant"]),
    ] {
        let (code, _, stderr) = ends(&dir, &format!("release r {options}"));
        assert_eq!(code, expected, "{options}: {stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{options}: {stderr}");
    }
    let (code, _, stderr) = ends(&dir, &format!("release r --slot {}", holders[0]));
    assert_eq!(code, 0, "{stderr}");
    let observed = dir.show("r");
    let held: Vec<&str> = {
        let slots = observed["holders"].as_array().unwrap().iter();
        slots.filter(|slot| slot["free"] == false).map(|slot| slot["client"]["label"].as_str().unwrap()).collect()
    };
    assert_eq!(held, ["two"], "{observed}");
}

#[test]
fn force_frees_the_slot_and_kills_the_holder() {
    let Cluster { here, there, .. } = &Cluster::new();
    let mut holder = there.run("--ttl 1h r", &sleeps(there, "pid", ""));
    let pid = there.written("pid");
    let mut waits = here.run("r", "echo next");
    waits.waits_behind(0);
    let (code, _, stderr) = ends(here, "release r --slot 0 --force");
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("by force") && stderr.contains("may run beside others"), "{stderr}");
    assert_eq!(waits.ends_with(0), "next\n");
    // The slot may have another holder already, so the command gets no grace.
    holder.ends_with(76);
    assert!(is_gone(&pid));
    assert!(holder.notifies("lost").as_str().unwrap().contains("by force"));
}

#[test]
fn holder_on_a_frozen_machine_cannot_be_asked() {
    let cluster = Cluster::new();
    let Cluster { here, there, there_agent, .. } = &cluster;
    // The peer of the first request is the coordinator, and the frozen one must not be.
    here.run("r", "true").ends_with(0);
    let _holder = there.run("--ttl 1h r", &sleeps(there, "pid", ""));
    there.written("pid");
    there_agent.send(Signal::SIGSTOP);
    let (code, _, stderr) = ends(here, "release r --slot 0");
    there_agent.send(Signal::SIGCONT);
    assert_eq!(code, 69, "{stderr}");
    assert!(stderr.contains("session"), "{stderr}");
}

#[test]
fn resource_in_use_is_resized() {
    let Cluster { here, there, .. } = &Cluster::new();
    let mut first = here.run("-n 1 it's", &sleeps(here, "first", "exit 0"));
    here.written("first");
    let mut wrong = there.run("-n 2 it's", "true");
    wrong.ends_with(64);
    let message = wrong.notifies("failed")["message"].as_str().unwrap().to_owned();
    let command = message.split('`').nth(1).unwrap_or_else(|| panic!("no command in {message}"));
    assert_eq!(command, r"peerlock resize 'it'\''s' 2");
    let mut shell = with_program_on_path(there.in_environment("sh"));
    shell.args(["-c", command]);
    Running::start(&mut shell).ends_with(0);

    let mut second = there.run("-n 2 it's", &sleeps(there, "second", "exit 0"));
    there.written("second");
    let (code, _, stderr) = ends(here, "resize it's 1");
    assert_eq!(code, 0, "{stderr}");
    let mut third = there.run("it's", "echo third");
    third.waits_behind(0);
    second.send(Signal::SIGTERM);
    second.ends_with(0);
    let observed = there.show("it's");
    assert_eq!((&observed["slots"], observed["queue"].as_array().unwrap().len()), (&Value::from(1), 1), "{observed}");
    first.send(Signal::SIGTERM);
    first.ends_with(0);
    assert_eq!(third.ends_with(0), "third\n");
    for (arguments, code) in [("resize it's 0", 64), ("resize it's 1025", 64), ("resize nothing 2", 66)] {
        assert_eq!(ends(here, arguments).0, code, "{arguments}");
    }
}

fn number(dir: &Dir, options: &str) -> u64 {
    let printed = dir.run(options, "echo $PEERLOCK_FENCING").ends_with(0);
    printed.trim().parse().unwrap_or_else(|_| panic!("no number: {printed}"))
}

fn names(dir: &Dir, prefix: &str) -> Vec<String> {
    let output = dir.peerlock(&format!("ls --json {prefix}")).output().unwrap();
    let listed: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    listed.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn removed_name_continues_its_fencing_numbers() {
    let Cluster { here, there, there_agent: _there, _agent: agent } = Cluster::new();
    let first = number(&here, "-n 3 r");
    let mut holder = there.run("r", &sleeps(&there, "pid", "exit 0"));
    there.written("pid");
    for dir in [&here, &there] {
        let (code, _, stderr) = ends(dir, "remove r");
        assert_eq!(code, 75, "{stderr}");
        assert!(stderr.contains("r was not removed: a client at") && stderr.contains("peerlock show r"), "{stderr}");
    }
    holder.send(Signal::SIGTERM);
    holder.ends_with(0);
    let last = number(&there, "r");
    assert!(last > first);
    assert_eq!(ends(&here, "remove r"), (0, "r is removed\n".to_owned(), String::new()));
    assert_eq!(names(&there, ""), [""; 0]);
    for gone in ["remove r", "show r", "resize r 2"] {
        assert_eq!(ends(&there, gone).0, 66, "{gone}");
    }
    agent.send(Signal::SIGKILL);
    drop(agent);
    let (_agent, _) = here.agent("");
    assert_eq!(names(&here, ""), [""; 0]);
    let again = number(&here, "-n 2 r");
    assert!(again > last, "{again} after {last}");
    assert_eq!(here.show("r")["slots"], 2);
}

#[test]
fn names_are_removed_by_prefix() {
    let Cluster { here, there, .. } = &Cluster::new();
    for name in ["b-1", "b-2", "b-3", "b", "c-1"] {
        number(if name == "b-2" { there } else { here }, name);
    }
    let (code, _, stderr) = ends(there, "acquire --ttl 1h b-4");
    assert_eq!(code, 0, "{stderr}");
    let (code, out, stderr) = ends(here, "remove --prefix b-");
    assert_eq!((code, out.as_str()), (75, "3 of 4 names removed\n"), "{stderr}");
    assert!(stderr.contains("b-4 was not removed"), "{stderr}");
    assert_eq!(names(here, ""), ["b", "b-4", "c-1"]);
    let (code, _, stderr) = ends(there, "remove b absent c-1");
    assert_eq!(code, 66, "{stderr}");
    assert!(stderr.contains("there is no resource absent"), "{stderr}");
    assert_eq!(names(here, ""), ["b-4"]);
    assert_eq!(ends(here, "remove --prefix nothing").0, 0);
    for bad in [&["remove"][..], &["remove", "--prefix", ""], &["remove", "--prefix", "b", "b"], &["remove", "a\nb"]] {
        let (code, _, stderr) = Running::start(here.peerlock("").args(bad)).ends();
        assert_eq!(code, 64, "{bad:?}: {stderr}");
    }
}
