//! `peerlock-lab simulate`.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::process::Output;
use std::time::Duration;

use assert_cmd::Command;
use peerlock_catalogue::Setting;
use serde_json::Value;

fn peerlock(arguments: &str) -> Output {
    Command::cargo_bin("peerlock-lab").unwrap().args(arguments.split_whitespace()).output().unwrap()
}

fn json(arguments: &str) -> Value {
    let output = peerlock(&format!("simulate --json {arguments}"));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

const SMALL: &str = "--peers 20 --entries 60 --trials 3";

#[test]
fn json_has_every_stable_field() {
    let object = json(SMALL);
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    for field in [
        "protocol",
        "peers",
        "slots",
        "trials",
        "seed",
        "entries",
        "wait",
        "steady",
        "per_peer_max",
        "messages_per_entry",
        "messages",
        "idle_while_waiting",
        "violations",
        "events",
        "events_per_second",
    ] {
        assert!(keys(&object).contains(&field.to_string()), "{field} is missing in {object}");
    }
    let waits = ["max", "mean", "mean_of_trial_max", "p50", "p90", "p99", "spread"];
    assert_eq!(keys(&object["wait"]), waits);
    assert_eq!(keys(&object["steady"]), waits);
    assert_eq!(keys(&object["per_peer_max"]), ["max", "min", "p10", "p50", "p90"]);
    assert_eq!(keys(&object["messages"]), ["child", "request", "token", "token_locations"]);
    assert_eq!(object["entries"], 20 * 60 * 3);
    assert_eq!(object["violations"], 0);
}

/// The printer needs no line of its own for a watcher's count.
#[test]
fn all_counts_are_printed_by_name() {
    let (line, open) = (format!("{SMALL} --crash 300s/5s --count-violations"), format!("--protocol sigma {OPEN}"));
    let object = json(&line);
    let numbers = &object["numbers"];
    for (field, name) in
        [("idle_while_waiting", "idle while waiting"), ("order_inversions", "order inversions"), ("crashed", "crashed")]
    {
        assert_eq!(object[field], numbers[name], "{object}");
    }
    assert!(numbers["crashed"].as_u64().unwrap() > 0 && numbers["asked"].is_u64(), "counts are integers: {object}");
    assert_eq!(
        json(&open)["numbers"]["nanoseconds measured"],
        json(&open)["trials"].as_u64().unwrap() * 100_000_000_000
    );
    let table = String::from_utf8(peerlock(&format!("simulate {line}")).stdout).unwrap();
    let shown = |name: &str, number: &Value| match number.as_f64().unwrap() {
        whole if whole.fract() == 0.0 => format!("{name}: {whole}"),
        other => format!("{name}: {other:.3}"),
    };
    for name in ["longest standstill, ms", "messages to the busiest", "seconds to the last entry"] {
        assert!(table.contains(&shown(name, &numbers[name])), "{name}: {table}{numbers}");
    }
    assert!(
        !table.contains("idle while waiting") && !table.contains(": 0;"),
        "once, and not what did not happen: {table}"
    );
    assert!(table.lines().all(|line| line.chars().count() <= 120), "{table}");
}

#[test]
fn setting_of_a_result_repeats_it() {
    for line in [
        SMALL.to_string(),
        format!("--protocol sigma {OPEN} --loss 0.01 --count-violations --seed 7"),
        format!("--protocol coordinator --form printed --overlay chord {SWARM} --count-violations"),
    ] {
        let mut first = json(&line);
        let setting: Setting = serde_json::from_value(first["setting"].clone()).unwrap();
        let mut again = json(&setting.arguments().join(" "));
        for object in [&mut first, &mut again] {
            object.as_object_mut().unwrap().remove("events_per_second").unwrap();
        }
        assert_eq!(first, again, "{line}");
        assert!(first["setting"].as_object().unwrap().values().all(|value| !value.is_null()), "{first}");
    }
    let setting = json(SMALL)["setting"].clone();
    assert_eq!((&setting["think-rate"], &setting["latency"]), (&0.5.into(), &"constant:1s".into()));
}

#[test]
fn unwritable_file_is_refused_before_the_run() {
    let mut command = Command::cargo_bin("peerlock-lab").unwrap();
    let long = "simulate --peers 1000 --entries 1000000000 --trials-csv /nowhere/trials.csv";
    let run = command.args(long.split_whitespace()).timeout(Duration::from_secs(60)).assert().code(66);
    let error = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(error.starts_with("peerlock-lab: cannot use /nowhere/trials.csv: "), "{error}");
}

#[test]
fn trials_are_written_if_standard_output_is_closed() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trials.csv");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_peerlock-lab"));
    let run = command.args(["simulate", "--trials-csv"]).arg(&file).args(SMALL.split_whitespace()).stdout(writer);
    assert_eq!(run.status().unwrap().code(), Some(0));
    assert_eq!(std::fs::read_to_string(file).unwrap().lines().count(), 4);
}

/// Fair-K paper, §4: 355 s.
#[test]
fn published_plateau_is_reproduced() {
    let object = json("--entries 200 --trials 2 --think-rate 0.5");
    let mean = object["steady"]["mean"].as_f64().unwrap();
    assert!((mean / 354.667 - 1.0).abs() < 1e-3, "{mean}");
}

#[test]
fn output_does_not_depend_on_the_number_of_threads() {
    let without_speed = |threads| {
        let mut object = json(&format!("{SMALL} --latency king --hold exp:3s --threads {threads}"));
        object.as_object_mut().unwrap().remove("events_per_second").unwrap();
        object.to_string()
    };
    assert_eq!(without_speed(1), without_speed(2));
    assert_eq!(without_speed(2), without_speed(7));
}

#[test]
fn every_protocol_and_every_model_runs() {
    for protocol in ["fair-k", "fair-k-late", "bv95", "bv95-round-robin", "bv95-plain-last-held", "ideal"] {
        for rest in [
            "--hold 1s --latency constant:10ms",
            "--hold exp:1s --latency uniform:0s..200ms --links unordered",
            "--hold two-point:1s/100s --long-share 0.5 --latency jitter:0s..200ms --links unordered",
            "--latency king --slots 40",
        ] {
            assert_eq!(json(&format!("--protocol {protocol} {SMALL} {rest}"))["violations"], 0, "{protocol} {rest}");
        }
    }
}

const OPEN: &str = "--replicas 8 --arrival-rate 1 --settle 20s --measure 100s --trials 2";

#[test]
fn open_run_has_a_throughput() {
    let (closed, open) = (json(SMALL), json(&format!("--protocol sigma {OPEN}")));
    for field in closed.as_object().unwrap().keys() {
        assert!(open.get(field).is_some(), "{field} is missing in {open}");
    }
    assert_eq!(closed.get("throughput"), None);
    assert_eq!((&open["replicas"], &open["votes"], &open["form"]), (&8.into(), &6.into(), &"repaired".into()));
    let throughput = open["throughput"].as_f64().unwrap();
    assert!((0.7..1.3).contains(&throughput), "{throughput}");
    assert_eq!(open["violations"], 0);
    let table = String::from_utf8(peerlock(&format!("simulate --protocol sigma {OPEN}")).stdout).unwrap();
    assert!(table.contains("throughput: ") && table.lines().all(|line| line.chars().count() <= 120), "{table}");
    assert!(table.lines().count() < 18, "{table}");
}

#[test]
fn every_protocol_with_replicas_runs_and_every_fault_happens() {
    let faulty = "--loss 0.01 --duplication 0.01 --client-crash 0.1 --replica-life 200s --lease 5s --hold 500ms";
    for protocol in [
        "sigma",
        "sigma --form printed",
        "sigma-once",
        "strawman",
        "strawman-retry",
        "coordinator",
        "coordinator --form printed",
    ] {
        for latency in ["constant:100ms", "uniform:50ms..150ms", "jitter:0s..200ms --links unordered"] {
            let run = format!("--protocol {protocol} {OPEN} --latency {latency} --count-violations");
            assert_eq!(json(&run)["resets"], 0, "{run}");
            let faulty = json(&format!("{run} {faulty}"));
            assert!(faulty["crashed"].as_u64() > Some(0) && faulty["resets"].as_u64() > Some(0), "{run}: {faulty}");
        }
    }
}

#[test]
fn every_fault_can_be_injected_into_every_workload() {
    let runs = [
        "--protocol fair-k-late --peers 8 --entries 20 --trials 2".to_string(),
        "--protocol sigma --peers 8 --replicas 5 --entries 20 --trials 2".into(),
        format!("--protocol coordinator {OPEN} --hold 1s"),
        format!("--protocol e2e {SWARM}"),
    ];
    let faults = [
        ("--loss 0.01", None),
        ("--duplication 0.01", None),
        ("--delay 0.01/1s", None),
        ("--crash 20s/2s", Some("restarted")),
        ("--death 40s", Some("crashed")),
        ("--client-crash 0.05", Some("crashed")),
        ("--freeze 20s/5s", None),
        ("--partition partial:20s/5s", None),
        ("--cut-off 0.1/5s", None),
        ("--withdrawal 0.2", Some("withdrawn")),
        ("--clocks 1s/200", None),
    ];
    for run in &runs {
        let calm = json(&format!("{run} --count-violations"));
        for (fault, counted) in faults {
            let line = format!("{run} {fault} --count-violations");
            let rough = json(&line);
            let has_effect = counted.map_or(rough["events"] != calm["events"], |name| rough[name].as_u64() > Some(0));
            assert!(has_effect || fault.starts_with("--clocks"), "{line}: {rough}");
            assert_eq!(rough["wait"], json(&line)["wait"], "{line}");
        }
    }
}

/// Three replicas that are reset every 2 s elect two holders.
#[test]
fn violation_stops_the_run_unless_counted() {
    let run = "--protocol sigma --replicas 3 --votes 2 --replica-life 2s --hold 1s --arrival-rate 1 --trials 1";
    let output = peerlock(&format!("simulate {run}"));
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("enters as holder 2 of 1") && error.contains("To repeat: "), "{error}");
    assert!(json(&format!("{run} --count-violations"))["violations"].as_u64() > Some(0));
}

#[test]
fn short_run_has_no_steady_state() {
    assert_eq!(json("--peers 3 --entries 5 --trials 1")["steady"], Value::Null);
    let table = String::from_utf8(peerlock("simulate --peers 3 --entries 5 --trials 1").stdout).unwrap();
    assert!(table.contains("steady state   none: a peer needs more than 20 entries"), "{table}");
}

#[test]
fn table_is_short_and_a_pipe_gets_no_progress_bar() {
    let output = peerlock(&format!("simulate {SMALL}"));
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(table.lines().count() < 16 && table.lines().all(|line| line.chars().count() <= 120), "{table}");
    assert!(output.stderr.is_empty());
}

#[test]
fn invalid_input_gives_one_line_and_its_exit_code() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (ragged, words, small) =
        (file("ragged", "0 1 2\n1 0\n2 1 0\n"), file("words", "0 one\none 0\n"), file("small", "0 5\n5 0\n"));
    for (arguments, code, part) in [
        ("--peers 0", 64, "peers must be at least 1"),
        ("--slots 0", 64, "slots must be at least 1"),
        ("--entries 0", 64, "entries must be at least 1"),
        ("--trials 0", 64, "trials must be at least 1"),
        ("--threads 0", 64, "0 is not in 1.."),
        ("--peers -5", 64, "-5 is not in 0.."),
        ("--peers many", 64, "invalid value 'many' for '--peers <PEERS>'"),
        ("--hold 0s", 64, "the hold time \"0s\" is zero"),
        ("--hold -1s", 64, "the duration \"-1s\" is negative"),
        ("--hold 10", 64, "\"10\" is not a duration"),
        ("--hold two-point:1s", 64, "is not a hold time"),
        ("--think-rate 0", 64, "think-rate 0 must be a number above 0"),
        ("--think-rate -1", 64, "think-rate -1 must be"),
        ("--think-rate NaN", 64, "think-rate NaN must be"),
        ("--form odd", 64, "unknown form \"odd\""),
        ("--protocol ideal --form printed", 64, "ideal has only one form"),
        ("--long-share 0.5", 64, "long-share needs a two-point hold, such as hold two-point:1s/100s"),
        ("--hold two-point:1s/9s --long-share 2", 64, "long-share 2 must be a share from 0 to 1"),
        ("--latency constant:-1s", 64, "is negative"),
        ("--latency uniform:1s", 64, "needs a range"),
        ("--latency soon", 64, "unknown latency \"soon\""),
        ("--links maybe", 64, "unknown links \"maybe\""),
        ("--protocol raft", 64, "unknown protocol \"raft\": use fair-k"),
        ("--protocol fairk", 64, "unknown protocol \"fairk\": did you mean fair-k?"),
        ("--protcol fair-k", 64, "unexpected argument '--protcol' found"),
        ("--arrival-rate 3", 64, "arrival-rate has no effect on fair-k among 100 peers: leave it out"),
        ("--protocol sigma --slots 5", 64, "slots has no effect on sigma with 32 replicas: leave it out"),
        ("--protocol strawman --peers 9 --measure 5s", 64, "measure has no effect on strawman among 9 peers with 32"),
        ("--crash 60s", 64, "'--crash <EVERY/TIME>': \"60s\" is not two values separated by a slash"),
        ("--partition half:60s/5s", 64, "unknown partition \"half\": use whole, one-way, partial or pairs"),
        ("--protocol ideal --loss 0.1", 64, "ideal is a bound without faults: leave faults out"),
        ("--replica-life 30s", 64, "fair-k has no replicas to reset: leave replica-life out"),
        ("--protocol strawman --form printed", 64, "strawman has only one form"),
        ("--protocol sigma --replicas 0", 64, "replicas 0 must be from 1 to 64"),
        ("--protocol sigma --replicas 65", 64, "replicas 65 must be from 1 to 64"),
        ("--protocol sigma --votes 16", 64, "16 votes of 32 replicas are not a quorum: use 17 to 32"),
        ("--protocol sigma --replicas 3 --votes 4", 64, "4 votes of 3 replicas are not a quorum: use 2 to 3"),
        ("--protocol sigma --arrival-rate 0", 64, "arrival-rate 0 must be a number above 0"),
        ("--protocol sigma --arrival-rate inf", 64, "arrival-rate inf must be"),
        ("--protocol sigma --loss 1.5", 64, "loss 1.5 must be a share from 0 to 1"),
        ("--protocol sigma --duplication -1", 64, "duplication -1 must be a share"),
        ("--protocol sigma --client-crash NaN", 64, "client-crash NaN must be a share"),
        ("--protocol sigma --measure 0s", 64, "measure must be more than 0s"),
        ("--protocol sigma --lease 0s", 64, "lease must be more than 0s"),
        ("--protocol sigma --replica-life 0s", 64, "replica-life must be more than 0s"),
        ("--protocol sigma --replica-life 30", 64, "\"30\" is not a duration"),
        ("--protocol sigma --settle -1s", 64, "the duration \"-1s\" is negative"),
        ("--protocol sigma --latency king", 64, "latency king has a fixed number of hosts"),
        ("--no-such-option", 64, "unexpected argument '--no-such-option'"),
        ("--latency matrix:/no/such/file", 66, "cannot read the latency matrix /no/such/file"),
        (&format!("--latency matrix:{ragged} --peers 2"), 66, "line 2"),
        (&format!("--latency matrix:{words} --peers 2"), 66, "line 1"),
        (&format!("--latency matrix:{small} --peers 3"), 66, "has 2 hosts, too few for 3 peers"),
    ] {
        let output = peerlock(&format!("simulate {arguments}"));
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments}: {error}");
        assert!(output.stdout.is_empty(), "{arguments}");
        assert!(error.starts_with("peerlock-lab: ") && error.trim_end().lines().count() == 1, "{arguments}: {error}");
        assert!(error.contains(part), "{arguments}: {error}");
    }
}

#[test]
fn missing_command_prints_the_help() {
    let output = peerlock("");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(64));
    assert!(error.contains("Usage: peerlock-lab") && error.contains("simulate"), "{error}");
}

#[test]
fn matrix_of_sufficient_size_is_used() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("three");
    std::fs::write(&path, "0 20 40\n20 0 60\n40 60 0\n").unwrap();
    let object = json(&format!("--peers 3 --slots 1 --entries 50 --trials 1 --latency matrix:{}", path.display()));
    assert_eq!(object["violations"], 0);
}

/// Duplicated messages make Fair-K violate its own invariants.
#[test]
fn panic_of_a_peer_is_reported_as_a_violation() {
    let run = "simulate --protocol fair-k --peers 20 --entries 50 --duplication 0.02";
    let output = peerlock(&format!("{run} --count-violations"));
    let (error, shown) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert_eq!((output.status.code(), error.as_str()), (Some(0), ""), "{shown}");
    assert!(shown.contains("stopped trials: ") && shown.contains("a peer has panicked: "), "{shown}");
    let output = peerlock(run);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.starts_with("peerlock-lab: trial ") && error.contains("a peer has panicked: "), "{error}");
}

#[test]
fn clock_overflow_is_an_error() {
    let output = peerlock("simulate --peers 10 --entries 100 --trials 1 --hold 9000000000s");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("the clock has run out"), "{error}");
    assert!(error.contains("To repeat: "), "{error}");
}

const SWARM: &str = "--peers 60 --resources 3 --replicas 5 --rounds 4 --requests 6 --trials 2";

#[test]
fn overlay_run_has_the_stable_fields_and_its_own() {
    let stable: Vec<String> = json(SMALL).as_object().unwrap().keys().cloned().collect();
    for run in ["e2e", "non-e2e --overlay chord", "coordinator --overlay pastry", "sigma --overlay chord"] {
        let object = json(&format!("--protocol {run} {SWARM}"));
        for field in stable.iter().map(String::as_str).chain(["overlay", "grants", "stuck", "hops", "received"]) {
            assert!(object.get(field).is_some(), "{run}: {field} is missing in {object}");
        }
        assert_eq!((&object["violations"], &object["stuck"]), (&0.into(), &0.into()), "{run}");
        assert!(object["grants"].as_u64().unwrap() > 0, "{run}: {object}");
    }
}

#[test]
fn overlay_options_are_refused_without_overlay_and_vice_versa() {
    for (arguments, sentence) in [
        (
            "--protocol fair-k --overlay pastry",
            "fair-k does not run on an overlay: leave overlay pastry out, or use sigma, coordinator, e2e, non-e2e",
        ),
        ("--protocol sigma --churn 10", "churn has no effect on sigma with 32 replicas: leave it out"),
        ("--protocol e2e --arrival-rate 3", "arrival-rate has no effect on e2e on pastry, 6500 peers: leave it out"),
        ("--protocol e2e --peers 10 --churn 20", "churn 20 removes all 10 peers"),
        ("--protocol e2e --peers 10 --churn 2 --latency king", "latency king has a fixed number of hosts"),
        (
            "--protocol sigma --overlay pastry --form printed",
            "sigma has only one form on an overlay: leave form printed out",
        ),
    ] {
        let output = peerlock(&format!("simulate {arguments}"));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(64), "{arguments}: {words}");
        assert!(words.starts_with(&format!("peerlock-lab: {sentence}")), "{arguments}: {words}");
    }
}
