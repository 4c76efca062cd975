//! `peerlock-lab live`.

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
fn compare_writes_a_page_and_its_data() {
    let out = tempdir().unwrap();
    let run = live(&SMALL).args(["--compare", "--out"]).arg(out.path()).assert().success();
    let printed = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    let page = out.path().join("live.html");
    assert!(printed.ends_with(&format!("\n{}\n", page.display())), "{printed}");
    assert!(
        printed.contains("entries per second") && printed.contains("busiest peer receives, per entry"),
        "{printed}"
    );
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
    // Six peers, three slots, holds of 10 s: at most three entries in ten seconds, and not much less.
    assert!((0.1..0.6).contains(&real["throughput"].as_f64().unwrap()), "{real}");
    assert!((0.0..6.0).contains(&real["busiest"].as_f64().unwrap()), "{real}");
}

/// Two addresses of this machine represent two machines.
#[test]
fn other_machines_take_part_with_their_own_clocks() {
    let program = assert_cmd::cargo::cargo_bin("peerlock-lab");
    let places = ["127.0.0.1", "127.0.0.2"].map(|address| format!("{address}={}", program.display()));
    let run = live(&SMALL).args(["--json", "--on", &places[0], "--on", &places[1]]).assert().success();
    let json: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!((json["entries"].as_u64(), json["violations"].as_u64()), (Some(18), Some(0)));
    let apart = json["live"]["clocks_apart"].as_f64().unwrap();
    assert!(apart > 0.0 && apart < 0.5, "{apart}");
}

/// Every potential victim has its own process.
#[test]
fn kill_without_victim_is_reported() {
    let killing = ["--kill", "2@5s", "--kill", "2@10s", "--backups", "2", "--count-violations"];
    let run = live(&SMALL).args(killing).assert().success();
    let printed = String::from_utf8(run.get_output().stdout.clone()).unwrap();
    assert!(printed.contains("real peers in 3 processes"), "{printed}");
    assert!(printed.matches("killed at").count() == 1 && printed.contains("no effect of 2@10s"), "{printed}");
    let run = live(&SMALL).args(killing).arg("--json").assert().success();
    let json: serde_json::Value = serde_json::from_slice(&run.get_output().stdout).unwrap();
    assert_eq!((&json["live"]["processes"], &json["live"]["spared"]), (&3.into(), &serde_json::json!(["2@10s"])));
}

#[test]
fn impossible_runs_are_refused() {
    for (arguments, message) in [
        (&["--protocol", "bv95", "--out", "x"][..], "--compare|--table"),
        (&["--table", "protocols", "--speed", "20"][..], "cannot be used with '--speed"),
        (&["--protocol", "bv95", "--processes", "1", "--cut", "1s/2s"][..], "needs two processes"),
        (&["--protocol", "bv95", "--on", "ten=ssh ten peerlock"][..], "use ADDRESS=COMMAND"),
        (&["--protocol", "bv95", "--on", "127.0.0.1=/nowhere/peerlock"][..], "it exited before the end of the run"),
        (&["--protocol", "bv95", "--on", "192.0.2.1=peerlock-is-not-here"][..], "it exited before the end of the run"),
    ] {
        let run = live(arguments).assert().failure();
        let error = String::from_utf8(run.get_output().stderr.clone()).unwrap();
        assert!(error.contains(message), "{error}");
    }
}
