//! `peerlock demo` from outside: as a process, and the live page in headless Chromium.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod browser;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use browser::Browser;
use serde_json::Value;

/// Longer than anything takes, even on a machine with ten times as much to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// A demo that runs. It is ended whatever happens.
struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    page: String,
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        command.arg("demo").args(options).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let page = line.trim().split_once("The page: ").unwrap_or_else(|| panic!("{line:?}")).1.to_owned();
        Self { process, output, page }
    }

    /// Sends it a signal; how it ended, and what else it has said.
    fn end(mut self, signal: &str) -> (ExitStatus, String) {
        let id = self.process.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let status = self.process.wait().unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        (status, rest)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// An agent that runs. It is ended whatever happens.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// What the expressions below are made of.
const HELP: &str = "const all = (what) => [...document.querySelectorAll(what)];\
    const text = (what) => all(what).map((one) => one.textContent).join('|');";

/// The value of an expression in the page.
fn value(browser: &Browser, expression: &str) -> Value {
    browser.run(&format!("{HELP} return {expression}"))
}

/// Waits until an expression is true in the page.
fn wait_for(browser: &Browser, what: &str, expression: &str) {
    let began = Instant::now();
    while value(browser, expression) != true {
        assert!(began.elapsed() < PATIENCE, "{what}; the page says: {}", value(browser, "document.body.innerText"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn shows_all(browser: &Browser) {
    for (what, expression) in [
        ("eight peers stand on the ring", "all('#ring-picture .peers > g').length === 8"),
        ("they have numbers", "text('#ring-picture .name').split('|').sort().join('') === '12345678'"),
        ("one of them keeps the line", "all('#ring-picture .peer.keeps').length === 1"),
        ("seven point to it", "all('#ring-picture .pointer').length === 7"),
        ("three tokens are on the ring", "all('#ring-picture .tokens .token').length === 3"),
        ("each of them has its row", "all('#tokens tr').length === 3"),
        ("somebody is inside", "/job \\d\\.\\d/.test(text('#tokens .client'))"),
        ("somebody waits", "/job \\d\\.\\d/.test(text('#queue .client'))"),
        ("the first in line is marked at its peer", "/\\b1\\b/.test(text('#ring-picture .places'))"),
        ("somebody knows who comes next", "all('#ring-picture .next').length > 0"),
        ("waits have numbers", "all('#numbers dd').every((number) => /\\d/.test(number.textContent))"),
        (
            "waits are drawn",
            "all('#chart > path').length === 3 && all('#chart > path').every((path) => path.getAttribute('d'))",
        ),
        ("there is nothing to complain of", "text('#status') === ''"),
    ] {
        wait_for(browser, what, expression);
    }
}

#[test]
fn the_page_shows_what_happens() {
    let Some(browser) = Browser::start() else { return };
    let options = ["--hold", "150ms", "--think", "50ms", "--for", "300s"];
    let demo = Demo::start(&options);
    browser.open(&demo.page);
    shows_all(&browser);

    // Things move.
    for (what, expression) in [
        ("the line moves", "all('#queue tr')[0]?.dataset.key ?? ''"),
        ("tokens move", "text('#tokens .peer-name')"),
        ("entries are counted", "text('#entries')"),
    ] {
        let before = value(&browser, expression);
        wait_for(&browser, what, &format!("({expression}) !== {before}"));
    }

    // Another resource, and a narrow window.
    value(&browser, "all('#resources button')[1].click()");
    wait_for(&browser, "another can be chosen", "text('#resources [aria-pressed=true]') === 'deploy'");
    wait_for(&browser, "it has tokens, too", "all('#tokens tr').length === 3");
    for width in [1280, 500] {
        browser.resize(width, 800);
        wait_for(&browser, "nothing sticks out", "document.documentElement.scrollWidth <= innerWidth");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console is quiet");

    // The demo ends, and begins again at the same place.
    let place = demo.page.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let (status, said) = demo.end("-TERM");
    assert!(status.success() && said.contains(" entries in "), "{status}: {said}");
    wait_for(&browser, "it says that nobody answers", "/does not answer; retrying/.test(text('#status'))");
    let demo = Demo::start(&[&options[..], &["--http", &place]].concat());
    wait_for(&browser, "the token of before is not good any more", "/wants a token/.test(text('#status'))");
    browser.open(&demo.page);
    shows_all(&browser);
}

/// An agent sees one peer from the inside, and asks the others for the rest.
#[test]
fn the_page_of_an_agent() {
    let Some(browser) = Browser::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--http", &address, "--data-dir"]).arg(folder.path());
    command.env("XDG_RUNTIME_DIR", folder.path()).args(["--http", "unix:agent.sock"]).current_dir(&folder);
    let _agent = Agent(command.stderr(Stdio::null()).spawn().unwrap());
    let began = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(began.elapsed() < PATIENCE, "the agent does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let token = folder.path().join("token");
    browser.open(&format!("http://{address}/#token={}", std::fs::read_to_string(&token).unwrap().trim()));
    wait_for(&browser, "nobody has been here", "!document.getElementById('empty').hidden");

    // What clients call themselves is text, and nothing else.
    let label = "<b id=bold>me</b>";
    for wait in ["5s", "0s"] {
        let mut acquire = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        acquire.args(["acquire", "--agent", &address, "--ttl", "10m", "--wait", wait, "--label", label, "backup"]);
        acquire.arg("--token-file").arg(&token);
        assert_eq!(acquire.output().unwrap().status.success(), wait == "5s", "there is one slot");
    }
    for (what, expression) in [
        ("one peer stands on the ring", "all('#ring-picture .peers > g').length === 1"),
        ("its address stands beside it", "/^127\\.0\\.0\\.1:\\d+$/.test(text('#ring-picture .name'))"),
        ("the client is inside", &format!("text('#tokens .client') === {label:?}")),
        ("and nothing more than text", "document.getElementById('bold') === null"),
        ("nobody waits", "text('#more') === 'Nobody waits.'"),
        ("one has come in", "text('#entries') === '1'"),
    ] {
        wait_for(&browser, what, expression);
    }
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console is quiet");
}

#[test]
fn it_ends_by_itself_and_says_what_was() {
    let mut demo = Demo::start(&["--peers", "3", "--slots", "1", "--hold", "1ms", "--think", "1ms", "--for", "500ms"]);
    assert!(demo.page.starts_with("http://127.0.0.1:"), "{}", demo.page);
    let mut said = String::new();
    demo.output.read_to_string(&mut said).unwrap();
    assert!(demo.process.wait().unwrap().success());
    let entries: u64 = said.lines().last().unwrap().split_once(" entries in ").unwrap().0.parse().unwrap();
    assert!(entries > 0, "{said}");
}

#[test]
fn what_cannot_be_is_refused() {
    for (options, code, words) in [
        (&["--http", "0.0.0.0:0"][..], 64, "for this machine only: give --http 127.0.0.1:0"),
        (&["--peers", "1"], 64, "--peers"),
        (&["--hold", "soon"], 64, "is not a duration"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_peerlock")).arg("demo").args(options).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(words), "{options:?}: {said}");
    }
}
