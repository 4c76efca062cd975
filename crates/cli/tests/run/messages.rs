//! The output of commands: one line for a change, and a warning if the agent does not answer.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::common::{Dir, Running, eventually};

fn ends(dir: &Dir, arguments: &str) -> (i32, String, String) {
    Running::start(&mut dir.peerlock(arguments)).ends()
}

#[test]
fn silence_of_the_agent_is_reported_once() {
    let dir = Dir::new();
    let (agent, _) = dir.agent("");
    dir.run("r", "true").ends_with(0);
    agent.send(Signal::SIGSTOP);
    let start = |options: &str| Running::start(&mut dir.peerlock(&format!("run {options} -- true")));
    let (mut log, mut json, mut quiet) = (start("a"), start("--json b"), start("-q c"));
    let mut acquire = Running::start(&mut dir.peerlock("acquire --ttl 1s d"));
    let text = "has not answered for 10 s; still waiting for it. `peerlock doctor` checks it";
    log.line(|line| line.contains(text).then_some(()));
    acquire.line(|line| line.contains(text).then_some(()));
    assert!(json.notifies("notice").as_str().unwrap().contains(text));
    std::thread::sleep(Duration::from_secs(6));
    agent.send(Signal::SIGCONT);
    assert_eq!(json.ends().0, 0);
    for command in [&mut log, &mut acquire] {
        let (code, _, stderr) = command.ends();
        assert!(code == 0 && stderr.lines().count() == 1, "{code}: {stderr}");
    }
    let (code, _, stderr) = quiet.ends();
    assert_eq!((code, stderr.as_str()), (0, ""));
}

#[test]
fn failed_run_names_the_holder_unless_it_is_expected() {
    let dir = Dir::new();
    let mut holder = dir.run("--label ada r", &dir.until("go"));
    holder.notifies("granted");
    for (options, expected, words) in [
        ("--try", 75, &["r was not acquired: next in the queue; held by ada", " for "][..]),
        ("-w 1s", 75, &["; held by ada"]),
        ("--try -q", 75, &["r was not acquired: next in the queue\n"]),
        ("--try -E 0", 0, &[]),
        ("-w 1s -E 0", 0, &[]),
        ("--try -q -E 0", 0, &[]),
    ] {
        let (code, _, stderr) = ends(&dir, &format!("run {options} r -- true"));
        assert_eq!(code, expected, "{options}: {stderr}");
        assert!(words.iter().all(|word| stderr.contains(word)), "{options}: {stderr}");
        assert_eq!(stderr.is_empty(), words.is_empty(), "{options}: {stderr}");
    }
    let (code, _, stderr) = ends(&dir, "acquire --try --ttl 1s r");
    assert!(code == 75 && stderr.contains("r was not acquired: next in the queue; held by ada"), "{code}: {stderr}");
    dir.touch("go");
    holder.ends_with(0);
}

#[test]
fn changes_are_confirmed_with_one_line() {
    let dir = Dir::new();
    let (mut agent, address) = dir.agent("");
    let other = Dir::new();
    let (mut left, _) = other.agent(&dir.join(&address));
    let acquire = || {
        let (code, granted, stderr) = ends(&dir, "acquire --json --ttl 10m r");
        assert_eq!(code, 0, "{stderr}");
        let granted: serde_json::Value = serde_json::from_str(&granted).unwrap();
        granted["grant"].as_str().unwrap().to_owned()
    };
    let grant = acquire();
    let me = dir.peerlock("peers --json").output().unwrap().stdout;
    let peers: serde_json::Value = serde_json::from_slice(&me).unwrap();
    let (me, it) = (peers[0]["peer"].as_str().unwrap(), peers[1]["peer"].as_str().unwrap());
    left.send(Signal::SIGTERM);
    left.ends_with(0);
    for (command, text) in [
        (format!("renew --grant {grant} r"), "r is renewed for 10 min".to_owned()),
        (format!("release --grant {grant} r"), "r is released".to_owned()),
        ("resize r 1".to_owned(), "r has 1 slot".to_owned()),
        ("resize r 3".to_owned(), "r has 3 slots".to_owned()),
        ("remove r".to_owned(), "r is removed".to_owned()),
        ("remove --prefix r".to_owned(), "0 of 0 names removed".to_owned()),
        (format!("voters --set {me}"), format!("the voter is {me}")),
        ("voters --auto".to_owned(), "the cluster chooses the voters".to_owned()),
    ] {
        assert_eq!(ends(&dir, &command), (0, text + "\n", String::new()), "{command}");
    }
    let forgotten = eventually("the end of its session", || {
        Some(ends(&dir, &format!("peers --forget {it}"))).filter(|(code, ..)| *code == 0)
    });
    assert_eq!(forgotten.1, format!("{it} is no longer a member\n"));
    assert_eq!(ends(&dir, &format!("release --json --grant {} r", acquire())).1, "{}\n");
    let (code, out, stderr) = ends(&dir, "drain");
    agent.ends_with(0);
    assert!(code == 0 && stderr.is_empty() && out.lines().count() == 1, "{code}: {out}{stderr}");
    assert!(out.starts_with("drained: the agent has exited"), "{out}");
}
