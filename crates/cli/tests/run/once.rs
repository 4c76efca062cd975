//! `run --once-per`: exit codes and messages, for one user with one agent.

use nix::sys::signal::Signal;

use crate::common::{Dir, Running, eventually};

/// Options, script, expected exit code.
type Step = (&'static str, &'static str, i32);

fn ends(dir: &Dir, options: &str, script: &str) -> (i32, String, String) {
    Running::start(dir.peerlock(&format!("run {options} r")).args(["--", "sh", "-c", script])).ends()
}

#[test]
fn success_skips_later_runs_without_output() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    assert_eq!(ends(&dir, "--once-per 1h", "echo ran").1, "ran\n");
    for options in ["--once-per 1h", "--once-per 1h --try", "--once-per 1h -w 1s", "--once-per 20h --even-if-failed"] {
        assert_eq!(ends(&dir, options, "echo again"), (0, String::new(), String::new()), "{options}");
    }
    let mut run = dir.run("--once-per 1h r", "echo again");
    assert_eq!(run.ends_with(0), "");
    assert_eq!(run.notifies("skipped")["succeeded"], true);
    let text = Running::start(&mut dir.peerlock("show r")).ends().1;
    assert!(text.contains("r ran until ") && text.contains(", next from "), "{text}");
    assert_eq!(ends(&dir, "--try", "echo beside").0, 75, "a run without a period waits for its end");
    assert_eq!(Running::start(&mut dir.peerlock("release --slot 0 r")).ends().0, 0);
    assert_eq!(ends(&dir, "--once-per 1h", "echo ran").1, "ran\n");
}

#[test]
fn failures_are_repeated_up_to_the_last_attempt() {
    let steps: [&[Step]; 3] = [
        &[
            ("--attempts 2", "exit 3", 3),
            ("--attempts 2", "exit 4", 4),
            ("--attempts 2", "exit 0", 75),
            ("-E 9", "exit 0", 9),
        ],
        &[("", "exit 3", 3), ("", "kill -9 $$", 137), ("", "exit 0", 0), ("", "exit 5", 0)],
        &[("--even-if-failed", "exit 3", 3), ("", "exit 5", 0)],
    ];
    for steps in steps {
        let dir = Dir::new();
        let (_agent, _) = dir.agent("");
        for (options, script, code) in steps {
            let (got, _, stderr) = ends(&dir, &format!("--once-per 1h {options}"), script);
            assert_eq!(got, *code, "{options} {script}: {stderr}");
            assert_eq!(stderr.contains("failed 2 times"), script == &"exit 0" && *code > 0, "{stderr}");
        }
    }
}

#[test]
fn waiting_run_learns_the_outcome() {
    for (outcome, code, runs) in [("exit 0", 0, false), ("exit 7", 7, true)] {
        let dir = Dir::new();
        let (_agent, _) = dir.agent("");
        let mut first = dir.run("--once-per 1h r", &format!("{}; {outcome}", dir.until("go")));
        first.notifies("granted");
        let mut second = dir.run("--once-per 1h r", "echo second");
        second.waits_behind(0);
        dir.touch("go");
        first.ends_with(code);
        assert_eq!(second.ends_with(0) == "second\n", runs, "{outcome}");
    }
}

/// The job goes on, and the next agent records its end.
#[test]
fn end_of_a_run_is_recorded_at_the_next_agent() {
    let dir = Dir::new();
    let (mut agent, _) = dir.agent("");
    let mut run = dir.run("--once-per 1h r", &dir.until("go"));
    run.notifies("granted");
    // Each restart opens a generation: the grant is of an earlier one.
    for _ in 0..2 {
        agent.send(Signal::SIGKILL);
        agent.ends();
        agent = dir.agent("").0;
        eventually("the grant", || dir.show("r")["holders"][0]["client"]["pid"].as_u64());
    }
    dir.touch("go");
    run.ends_with(0);
    assert_eq!(ends(&dir, "--once-per 1h", "echo again"), (0, String::new(), String::new()));
}

#[test]
fn signal_to_the_job_does_not_prevent_the_record() {
    for (signal, script, code, failures) in [
        (Signal::SIGHUP, "trap : HUP; ", 0, 0),
        (Signal::SIGTERM, "trap 'exit 0' TERM; ", 0, 0),
        (Signal::SIGTERM, "", 143, 1),
    ] {
        let dir = Dir::new();
        let (_agent, _) = dir.agent("");
        // SIGHUP ends the `sleep` of the loop, whose code would be that of the loop.
        let script = format!("{script}echo > {}; {}; true", dir.path("held").display(), dir.until("go"));
        let mut run = dir.run("--once-per 1h r", &script);
        dir.written("held");
        run.send(signal);
        if signal == Signal::SIGHUP {
            dir.touch("go");
        }
        run.ends_with(code);
        assert_eq!(dir.show("r")["period"]["failures"], failures, "{signal}, {code}");
        assert_eq!(ends(&dir, "--once-per 1h", "echo again").1.is_empty(), failures == 0, "{signal}, {code}");
    }
}

#[test]
fn record_of_a_failure_prevents_no_removal() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    assert_eq!(ends(&dir, "--once-per 720h", "exit 3").0, 3);
    assert_eq!(Running::start(&mut dir.peerlock("remove r")).ends().0, 0);
    assert_eq!(ends(&dir, "--once-per 720h", "exit 0").0, 0);
    assert_eq!(Running::start(&mut dir.peerlock("remove r")).ends().0, 75);
}

#[test]
fn wrong_options_change_nothing() {
    let dir = Dir::new();
    let (_agent, _) = dir.agent("");
    assert_eq!(ends(&dir, "-n 2", "true").0, 0);
    for (options, words) in [
        ("--once-per 0", "--once-per is out of range"),
        ("--once-per 721h", "--once-per is out of range"),
        ("--once-per 1h --hold-for 0s", "--hold-for is out of range"),
        ("--once-per 1h --attempts 0", "0 is not in 1..=1000"),
        ("--once-per 1h -n 2", "leave -n out"),
        ("--once-per 1h --alone", "leave --alone out"),
        ("--once-per 1h", "r has 2 slots, not 1"),
        ("--hold-for 1h", "--once-per"),
    ] {
        let (code, stdout, stderr) = ends(&dir, options, "echo ran");
        assert_eq!((code, stdout.as_str()), (64, ""), "{options}: {stderr}");
        assert!(stderr.contains(words), "{options}: {stderr}");
    }
    assert!(dir.show("r")["period"].is_null());
}
