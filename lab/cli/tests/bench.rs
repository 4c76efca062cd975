//! `peerlock-lab bench`: it ends, prints all results, and leaves no process behind. Speed is not tested.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// A bench and all its processes, which have the mark in their environment.
struct Bench {
    mark: String,
    child: Option<Child>,
    dir: tempfile::TempDir,
}

impl Bench {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mark = format!("PEERLOCK_TEST_MARK={name}-{}", std::process::id());
        let (key, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock-lab"));
        let dir = tempfile::tempdir().unwrap();
        command.arg("bench").args(arguments).env(key, value).env("TMPDIR", dir.path());
        let child = Some(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        Self { mark, child, dir }
    }

    fn temporary_files(&self) -> usize {
        fs::read_dir(self.dir.path()).unwrap().count()
    }

    fn groups(&self) -> BTreeMap<String, usize> {
        let mut groups = BTreeMap::new();
        for id in self.processes() {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            // The fields after the name are state, parent and group.
            if let Some(group) = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2)) {
                *groups.entry(group.to_owned()).or_default() += 1;
            }
        }
        groups
    }

    /// Returns all processes with the mark; a zombie has none.
    fn processes(&self) -> Vec<u32> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment.split(|byte| *byte == 0).any(|pair| pair == self.mark.as_bytes()) {
                found.push(id);
            }
        }
        found
    }

    fn wait_for_processes(&self, what: &str, enough: impl Fn(usize) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !enough(self.processes().len()) {
            assert!(Instant::now() < until, "{what}: {:?}", self.processes());
            sleep(Duration::from_millis(20));
        }
    }

    fn signal(&self, signal: &str) {
        let id = self.child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    fn output(&mut self) -> Output {
        self.child.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for id in self.processes() {
            _ = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        }
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

fn servers() -> Vec<&'static str> {
    let has_zookeeper = is_installed("java") && Path::new("/usr/share/java/zookeeper.jar").is_file();
    let mut servers = Vec::new();
    for (server, is_here) in
        [("etcd", is_installed("etcd")), ("redis", is_installed("redis-server")), ("zookeeper", has_zookeeper)]
    {
        if is_here {
            servers.push(server);
        } else {
            eprintln!("{server} is not installed: skipped");
        }
    }
    servers
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn quick_run_has_all_numbers_and_leaves_no_process_behind() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/directory");
    let mut arguments = vec!["--quick", "--json", "--delay", "5ms", "--out", out.to_str().unwrap()];
    let servers = servers();
    arguments.extend(servers.iter().flat_map(|server| ["--against", server]));
    let mut bench = Bench::start("quick", &arguments);
    let output = bench.output();
    assert!(output.status.success(), "{}", words(&output.stderr));
    bench.wait_for_processes("children are left", |count| count == 0);

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for kind in ["one_core", "one_core_after_rest", "two_cores", "two_cores_after_rest"] {
        let times = &report["messages"][kind];
        assert!(times["count"].as_u64().unwrap() > 0 && times["p50_us"].as_f64().unwrap() > 0.0, "{kind}");
    }
    let through = |report: &Value| report["through"].as_str().unwrap().to_owned();
    let alone: Vec<String> = report["uncontended"].as_array().unwrap().iter().map(through).collect();
    assert_eq!(alone, ["the library", "an agent's socket"]);
    let cases = report["cases"].as_array().unwrap();
    let names: Vec<String> = cases.iter().map(checked_name).collect();
    // With a core for each process, the case in which they share cores is a duplicate.
    let shared = std::thread::available_parallelism().map_or(1, usize::from) < 8;
    let crowded = |peer: &str| {
        let cases = ["32 1 0 0", "8 1 1 0"].map(|case| format!("{peer} {case}"));
        cases[usize::from(!shared)..].to_vec()
    };
    let ours = ["2 1 0 0", "8 1 0 0", "32 1 0 0", "100 1 0 0"].map(|case| format!("peerlock {case}"));
    let mut expected = [&ours[..], &crowded("peerlock"), &["peerlock 100 3 10 0".to_owned()]].concat();
    let semaphore = expected.len() - 1;
    let occupied = cases[semaphore + 1..][..3].iter().map(|case| case["occupied"].as_u64().unwrap());
    assert!(occupied.eq([1, 2, 9]) && cases[semaphore]["occupied"] == 0, "{cases:?}");
    expected.extend(["8 2 1 0", "8 3 1 0", "8 10 1 0"].map(|case| format!("peerlock {case}")));
    let theirs = |server: &&str| [vec![format!("{server} 32 1 0 0")], crowded(server)].concat();
    expected.extend(servers.iter().flat_map(theirs));
    for hold in ["0", "10"] {
        expected.extend(["peerlock"].iter().chain(&servers).map(|peer| format!("{peer} 8 1 {hold} 5")));
    }
    assert_eq!(names, expected);
    assert!(cases[semaphore]["held"]["p50_us"].as_f64().unwrap() >= 10_000.0, "{}", cases[semaphore]);
    assert_eq!(report["memory"]["waiting"], 1000);
    check_delays(&report);

    assert_eq!(fs::read(out.join("bench.json")).unwrap(), output.stdout);
    let page = fs::read_to_string(out.join("bench.html")).unwrap();
    let case = "8 clients in 8 processes, hold time 10 ms, delay 5 ms";
    for text in ["<h2>Hand-over with delayed messages</h2>", case, "--quick"] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(servers.iter().all(|peer| page.contains(&format!("<span class=\"name\">{peer}</span>"))), "{page}");
    assert!(!page.contains("NaN") && !page.contains("inf%"), "{page}");
}

/// Checks the numbers of a case, and returns its system, clients, slots, hold time and delay.
fn checked_name(case: &Value) -> String {
    let (whole, number) = (|key: &str| case[key].as_u64().unwrap(), |key: &str| case[key].as_f64().unwrap());
    assert!(whole("entries") > 0 && case["gap"]["count"].as_u64().unwrap() <= whole("entries"), "{case}");
    assert!(number("spread_ms") >= 0.0 && case["wait"]["max_us"].as_f64().unwrap() > 0.0, "{case}");
    assert!(number("longest_wait_over_mean") >= 1.0 && whole("out_of_order") <= whole("entries"), "{case}");
    assert!((2..=8).contains(&whole("processes")), "{case}");
    let (peer, hold, delay) = (case["system"].as_str().unwrap(), number("hold_ms"), number("delay_ms"));
    format!("{peer} {} {} {hold} {delay}", whole("clients"), whole("slots"))
}

/// With a delay of 5 ms a message takes at least that, a hand-over takes one message, and through a server two.
fn check_delays(report: &Value) {
    let message = &report["delayed"][0];
    assert!(message["delay_ms"] == 5.0 && message["times"]["p50_us"].as_f64().unwrap() >= 5_000.0, "{message}");
    for case in report["cases"].as_array().unwrap().iter().filter(|case| case["delay_ms"] == 5.0) {
        let least = if case["system"] == "peerlock" { 5_000.0 } else { 10_000.0 };
        let count = case["gap"]["count"].as_u64().unwrap();
        assert!(count > 0 || case["hold_ms"] == 0.0, "no hand-over: {case}");
        assert!(count == 0 || case["gap"]["p50_us"].as_f64().unwrap() >= least, "{case}");
    }
}

#[test]
fn recovery_measures_the_time_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().display().to_string();
    let mut bench = Bench::start("recovery", &["--recovery", "--lease", "5s", "--times", "1", "--json", "--out", &out]);
    let output = bench.output();
    assert!(output.status.success(), "{}", words(&output.stderr));
    bench.wait_for_processes("children are left", |count| count == 0);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let peer: Vec<&str> = rows.iter().map(|row| row["system"].as_str().unwrap()).collect();
    let servers = servers();
    let expected: Vec<&str> = ["etcd", "redis"].into_iter().filter(|peer| servers.contains(peer)).collect();
    assert_eq!(peer, [&["peerlock"], &expected[..]].concat());
    assert_eq!(report["left_out"].as_array().unwrap().len() + expected.len(), 2);
    for row in rows {
        assert!(row["lease_s"] == 5.0 && row["seconds"].as_array().unwrap().len() == 1, "{row}");
        assert!(row["median_s"].as_f64().unwrap() > 0.0, "{row}");
    }
    assert_eq!(fs::read(dir.path().join("bench.json")).unwrap(), output.stdout);
    let page = fs::read_to_string(dir.path().join("bench.html")).unwrap();
    assert!(page.contains("<h1>Recovery, measured</h1>") && page.contains("<td>peerlock</td>"), "{page}");
}

#[test]
fn interrupted_bench_leaves_no_process_behind() {
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-HUP", Some(130)), ("-KILL", None)] {
        let mut bench = Bench::start(signal, &[]);
        // The processes with a temporary directory start last.
        bench.wait_for_processes("peers are started", |count| count > 13);
        assert!(bench.temporary_files() > 0);
        // A terminal signals a whole group: only the bench must be in it.
        assert!(bench.groups().values().all(|count| *count == 1), "{:?}", bench.groups());
        bench.signal(signal);
        let output = bench.output();
        assert_eq!(output.status.code(), code, "{signal}: {}", words(&output.stderr));
        assert!(output.stdout.is_empty());
        bench.wait_for_processes("all end", |count| count == 0);
        assert!(bench.temporary_files() == 0 || code.is_none(), "{signal}");
    }
}

#[test]
fn directory_name_need_not_be_utf8() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join(OsStr::from_bytes(b"\xff"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock-lab"));
    command
        .args(["bench", "--recovery", "--lease", "2s", "--times", "1"])
        .env("PATH", "/nowhere")
        .arg("--out")
        .arg(&out);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", words(&output.stderr));
    assert!(fs::read_to_string(out.join("bench.html")).unwrap().contains("--recovery"));
}

#[test]
fn server_that_exits_at_once_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let server = dir.path().join("redis-server");
    fs::write(&server, "#!/bin/sh\necho 'Address already in use'\nexit 7\n").unwrap();
    fs::set_permissions(&server, fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock-lab"));
    let output = command.args(["bench", "--quick", "--against", "redis"]).env("PATH", dir.path()).output().unwrap();
    let stderr = words(&output.stderr);
    assert!(stderr.contains("it exited (exit status: 7). Its last output: Address already in use"), "{stderr}");
}

#[test]
fn invalid_options_are_refused_at_once() {
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock-lab"));
        command.arg("bench").args(arguments).env("PATH", "/nowhere").output().unwrap()
    };
    for (arguments, code, message) in [
        (&["--against", "consul"][..], 64, "[possible values: etcd, redis, zookeeper]"),
        (&["--json=yes"], 64, "json"),
        (&["--delay", "0"], 64, "--delay"),
        (&["--delay", "0ms"], 64, "a delay is from 1ms to 200ms"),
        (&["--delay", "5ms,1h"], 64, "a delay is from 1ms to 200ms"),
        (&["--delay", "x"], 64, "--delay"),
        (&["--delay"], 64, "--delay"),
        (&["--lease", "2s"], 64, "--recovery"),
        (&["--recovery", "--lease", "1s"], 64, "whole seconds, from 2s to 120s"),
        (&["--recovery", "--delay", "5ms"], 64, "cannot be used with"),
        (&["--recovery", "--times", "0"], 64, "--times"),
        (&["--out", "/proc/self/exe"], 73, "choose another directory with --out"),
        (&["--out", "/proc/nowhere"], 73, "choose another directory with --out"),
        (&["--against", "etcd"], 69, "Install it (etcd-server in Debian)"),
        (&["--against", "redis"], 69, "omit --against redis"),
        (&["--against", "zookeeper"], 69, "java is missing"),
    ] {
        let output = bench(arguments);
        let stderr = words(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(message)), (Some(code), true), "{arguments:?}: {stderr}");
    }
}
