//! `peerlock doctor`: with and without an agent, and without a quorum.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::{Dir, eventually};

/// Returns the exit code and the findings, as `level about what do`.
pub fn doctor(dir: &Dir) -> (i32, Vec<String>) {
    let output = dir.peerlock("doctor --json").output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let line = |finding: &Value| {
        let field = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        [field("level"), field("about"), field("what"), field("do")].join(" ")
    };
    let lines: Vec<String> = json["findings"].as_array().unwrap().iter().map(line).collect();
    (output.status.code().unwrap(), lines)
}

fn about<'a>(lines: &'a [String], what: &str) -> &'a str {
    let found = lines.iter().find(|line| line.split(' ').nth(1) == Some(what));
    found.unwrap_or_else(|| panic!("nothing about {what}: {lines:#?}"))
}

pub fn healthz(dir: &Dir) -> String {
    get(dir, "/healthz")
}

pub fn get(dir: &Dir, path: &str) -> String {
    let mut stream = UnixStream::connect(dir.socket()).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn doctor_reports_with_and_without_an_agent() {
    let dir = Dir::new();
    let (code, lines) = doctor(&dir);
    assert_eq!(
        (code, about(&lines, "agent")),
        (
            1,
            "bad agent no agent is running, and none has run here Start it with `peerlock agent`; `peerlock run` \
             starts one automatically."
        )
    );
    assert!(!dir.path("data").exists() && !dir.socket().exists(), "nothing is created");

    let (mut agent, _) = dir.agent("");
    let (code, lines) = doctor(&dir);
    assert_eq!(code, 0, "{lines:#?}");
    for what in ["agent", "session", "cluster", "voters", "versions", "ports", "resources", "clock", "rate", "disk"] {
        assert!(!about(&lines, what).starts_with("bad"), "{lines:#?}");
    }
    assert!(about(&lines, "agent").contains(&format!("process {}", agent.pid())), "{lines:#?}");
    assert!(
        about(&lines, "voters").contains("1 of 1 connected") && about(&lines, "voters").contains("(leads)"),
        "{lines:#?}"
    );
    assert!(healthz(&dir).starts_with("HTTP/1.1 200 "), "{}", healthz(&dir));
    let output = dir.peerlock("doctor").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text.lines().count(), lines.len(), "{text}");
    assert!(text.starts_with("ok    agent      version ") && !text.contains('\x1b'), "{text}");
    let script = format!("{} doctor --json | :; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_peerlock"));
    let mut shell = dir.in_environment("bash");
    shell.args(["-c", &script]);
    assert_eq!(shell.status().unwrap().code(), Some(0));

    agent.send(Signal::SIGKILL);
    agent.ends();
    let (code, lines) = doctor(&dir);
    assert_eq!(code, 1, "{lines:#?}");
    let killed = format!("bad agent no agent is running; the last one (process {}) was killed", agent.pid());
    assert!(about(&lines, "agent").starts_with(&killed), "{lines:#?}");
    assert!(about(&lines, "voters").starts_with("warn voters this host is a voter"), "{lines:#?}");
    assert!(about(&lines, "cluster").contains(" belongs to "), "{lines:#?}");
    std::fs::write(dir.path("data/registry"), "something else").unwrap();
    let (_, lines) = doctor(&dir);
    assert!(
        about(&lines, "voters").starts_with("bad voters") && about(&lines, "voters").contains("is damaged"),
        "{lines:#?}"
    );
}

/// The killed agent is the only voter.
#[test]
fn doctor_without_quorum_names_the_missing_voters() {
    let (one, two) = (Dir::new(), Dir::new());
    let (mut first, address) = one.agent("--session 2s");
    let (_second, _) = two.agent(&format!("--session 2s {}", one.join(&address)));
    let (code, lines) = doctor(&two);
    assert_eq!(code, 0, "{lines:#?}");
    assert!(about(&lines, "cluster").contains("with 2 members"), "{lines:#?}");
    first.send(Signal::SIGKILL);
    first.ends();
    let lines = eventually("no session", || {
        let (code, lines) = doctor(&two);
        (code == 1 && about(&lines, "session").starts_with("bad")).then_some(lines)
    });
    assert!(about(&lines, "session").contains("no connection to the voters "), "{lines:#?}");
    assert!(about(&lines, "voters").starts_with("bad voters 0 of 1 connected"), "{lines:#?}");
    assert!(about(&lines, "resources").starts_with("bad"), "{lines:#?}");
    let answer = healthz(&two);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("no connection to the voters"), "{answer}");
    let metrics = get(&two, "/metrics");
    for line in ["peerlock_session 0", "peerlock_voters 1", "peerlock_voters_up 0", "peerlock_sessions_lost_total 1"] {
        assert!(metrics.lines().any(|it| it == line), "{line}: {metrics}");
    }
}
