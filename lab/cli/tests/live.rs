//! `peerlock-lab live` as a person or a script sees it.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use assert_cmd::Command;
use tempfile::tempdir;

fn live(arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("peerlock-lab").unwrap();
    command.arg("live").args(arguments);
    command
}

const SMALL: [&str; 10] =
    ["--protocol", "bv95", "--peers", "6", "--entries", "3", "--processes", "2", "--speed", "200"];

#[test]
fn both_worlds_stand_on_one_page_as_figures_and_a_table() {
    let out = tempdir().unwrap();
    let run = live(&SMALL).args(["--compare", "--out"]).arg(out.path()).assert().success();
    let said = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let page = out.path().join("live.html");
    assert!(said.ends_with(&format!("\n{}\n", page.display())), "{said}");
    assert!(said.contains("entries per second") && said.contains("the busiest gets, per entry"), "{said}");
    let html = std::fs::read_to_string(page).unwrap();
    for heading in
        ["Messages per entry", "Mean wait", "Long waits", "Throughput", "Load of the busiest peer", "All numbers"]
    {
        assert!(html.contains(&format!("<h2>{heading}</h2>")), "{heading}");
    }
    assert!(html.contains("--protocol bv95") && !html.contains("<script"), "{html}");
    let numbers = std::fs::read_to_string(out.path().join("live.json")).unwrap();
    let numbers: serde_json::Value = serde_json::from_str(&numbers).unwrap();
    let real = &numbers[0]["real"];
    assert_eq!((real["entries"].as_u64(), real["violations"].as_u64()), (Some(18), Some(0)));
    // Six peers, three slots, stays of 10 s: at most three entries in ten seconds, and not much less.
    assert!((0.1..0.6).contains(&real["throughput"].as_f64().unwrap()), "{real}");
    assert!((0.0..6.0).contains(&real["busiest"].as_f64().unwrap()), "{real}");
}

/// Two addresses of this machine stand for two machines; their clocks are compared, and it is said how well.
#[test]
fn machines_that_are_told_to_take_part() {
    let program = assert_cmd::cargo::cargo_bin("peerlock-lab");
    let places = ["127.0.0.1", "127.0.0.2"].map(|address| format!("{address}={}", program.display()));
    let run = live(&SMALL).args(["--json", "--on", &places[0], "--on", &places[1]]).assert().success();
    let json: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!((json["entries"].as_u64(), json["violations"].as_u64()), (Some(18), Some(0)));
    let apart = json["live"]["clocks_apart"].as_f64().unwrap();
    assert!(apart > 0.0 && apart < 0.5, "{apart}");
}

/// Who may be killed has a process of its own, and that nobody was killed is said.
#[test]
fn a_kill_that_finds_nobody() {
    let killing = ["--kill", "2@5s", "--kill", "2@10s", "--backups", "2", "--count-violations"];
    let run = live(&SMALL).args(killing).assert().success();
    let said = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(said.contains("real peers in 3 processes"), "{said}");
    assert!(said.matches("killed at").count() == 1 && said.contains("nobody was killed by 2@10s"), "{said}");
    let run = live(&SMALL).args(killing).arg("--json").assert().success();
    let json: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!((&json["live"]["processes"], &json["live"]["spared"]), (&3.into(), &serde_json::json!(["2@10s"])));
}

#[test]
fn what_cannot_be_is_said() {
    for (arguments, words) in [
        (&["--protocol", "bv95", "--out", "x"][..], "--compare|--table"),
        (&["--table", "protocols", "--speed", "20"][..], "cannot be used with '--speed"),
        (&["--protocol", "bv95", "--processes", "1", "--cut", "1s/2s"][..], "nothing to cut it off from"),
        (&["--protocol", "bv95", "--on", "ten=ssh ten peerlock"][..], "use ADDRESS=COMMAND"),
        (&["--protocol", "bv95", "--on", "127.0.0.1=/nowhere/peerlock"][..], "it has ended before it was told to"),
        (&["--protocol", "bv95", "--on", "192.0.2.1=peerlock-is-not-here"][..], "it has ended before it was told to"),
    ] {
        let run = live(arguments).assert().failure();
        let error = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(error.contains(words), "{error}");
    }
}
