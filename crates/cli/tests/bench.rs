//! `peerlock bench` as a process: that it comes to its end, says what it should, and leaves nobody behind. How fast
//! anything is does not matter here.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

/// One bench, and all processes that it starts: they have this in their environment.
struct Bench {
    mark: String,
    child: Option<Child>,
}

impl Bench {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let mark = format!("PEERLOCK_TEST_MARK={name}-{}", std::process::id());
        let (key, value) = mark.split_once('=').unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.arg("bench").args(arguments).env(key, value).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = Some(command.spawn().unwrap());
        Self { mark, child }
    }

    /// All processes with the mark, but for those that are dead and not yet buried.
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
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_quick_run_has_all_numbers_and_leaves_nobody_behind() {
    let mut arguments = vec!["--quick", "--json"];
    let mut servers = Vec::new();
    for (server, program) in [("etcd", "etcd"), ("redis", "redis-server")] {
        if is_installed(program) {
            arguments.extend(["--against", server]);
            servers.push(server);
        } else {
            eprintln!("{program} is not installed: the comparison with {server} is not tried");
        }
    }
    let mut bench = Bench::start("quick", &arguments);
    let output = bench.output();
    assert!(output.status.success(), "{}", words(&output.stderr));
    assert_eq!(bench.processes(), Vec::<u32>::new(), "children that stayed");

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for floor in ["floor", "floor_after_rest"] {
        assert!(report[floor]["count"].as_u64().unwrap() > 0 && report[floor]["p50_us"].as_f64().unwrap() > 0.0);
    }
    let through = |report: &Value| report["through"].as_str().unwrap().to_owned();
    let alone: Vec<String> = report["uncontended"].as_array().unwrap().iter().map(through).collect();
    assert_eq!(alone, ["the library", "an agent's socket"]);
    let cases = report["cases"].as_array().unwrap();
    let what = |case: &Value| {
        let number = |key: &str| case[key].as_u64().unwrap();
        assert!(number("entries") > 0 && case["gap"]["count"].as_u64().unwrap() <= number("entries"), "{case}");
        assert!(case["spread_ms"].as_f64().unwrap() >= 0.0 && case["wait"]["max_us"].as_f64().unwrap() > 0.0, "{case}");
        assert!((2..=8).contains(&number("processes")), "{case}");
        format!("{} {} {}", case["who"].as_str().unwrap(), number("clients"), number("slots"))
    };
    let names: Vec<String> = cases.iter().map(what).collect();
    let ours = ["2 1", "8 1", "32 1", "100 1", "32 1", "8 1", "100 3"].map(|case| format!("peerlock {case}"));
    let theirs = servers.iter().map(|server| format!("{server} 32 1"));
    assert_eq!(names, ours.into_iter().chain(theirs).collect::<Vec<_>>());
    // Clients that stay inside for 10 ms cannot be let in more often than that.
    assert!(cases[6]["held"]["p50_us"].as_f64().unwrap() >= 10_000.0, "{}", cases[6]);
    assert_eq!(report["memory"]["waiting"], 1000);
    assert!(report["targets"].as_array().unwrap().iter().all(|target| target["met"].is_boolean()));
}

#[test]
fn interrupted_or_killed_it_leaves_nobody_behind() {
    for (signal, code) in [("-INT", Some(130)), ("-TERM", Some(130)), ("-KILL", None)] {
        let mut bench = Bench::start(signal, &[]);
        bench.wait_for_processes("peers are started", |count| count > 4);
        bench.signal(signal);
        let output = bench.output();
        assert_eq!(output.status.code(), code, "{signal}: {}", words(&output.stderr));
        assert!(output.stdout.is_empty());
        bench.wait_for_processes("all end", |count| count == 0);
    }
}

#[test]
fn what_cannot_be_compared_is_said_at_once() {
    let bench = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.arg("bench").args(arguments).env("PATH", "/nowhere").output().unwrap()
    };
    for (arguments, code, says) in [
        (&["--against", "zookeeper"][..], 64, "zookeeper"),
        (&["--json=yes"], 64, "json"),
        (&["--against", "etcd"], 69, "install it (etcd-server in Debian)"),
        (&["--against", "redis"], 69, "do without --against redis"),
    ] {
        let output = bench(arguments);
        let stderr = words(&output.stderr);
        assert_eq!((output.status.code(), stderr.contains(says)), (Some(code), true), "{arguments:?}: {stderr}");
    }
}
