//! `peerlock demo` as a process, and the live page in headless Chromium.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod browser;

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use browser::Browser;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(120);

struct Demo {
    process: Child,
    output: BufReader<ChildStdout>,
    page: String,
    /// The directory of files that a killed demo leaves behind.
    dir: tempfile::TempDir,
}

impl Demo {
    fn start(options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        let dir = tempfile::tempdir().unwrap();
        command.arg("demo").args(options).env("TMPDIR", dir.path()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let page = line.trim().split_once("The page: ").unwrap_or_else(|| panic!("{line:?}")).1.to_owned();
        Self { process, output, page, dir }
    }

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

struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

const HELP: &str = "const all = (what) => [...document.querySelectorAll(what)];\
    const text = (what) => all(what).map((one) => one.textContent).join('|');\
    const row = (peer) => all('#peer-rows tr').find((one) => one.firstChild.textContent === peer);\
    const act = (peer, what) => row(peer).querySelector(`[data-act=${what}]`);";

fn value(browser: &Browser, expression: &str) -> Value {
    browser.run(&format!("{HELP} return {expression}"))
}

fn wait_for(browser: &Browser, what: &str, expression: &str) {
    let started = Instant::now();
    while value(browser, expression) != true {
        assert!(started.elapsed() < PATIENCE, "{what}; the page shows: {}", value(browser, "document.body.innerText"));
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn shows_all(browser: &Browser) {
    for (what, expression) in [
        ("the ring shows eight peers", "all('#ring-picture .peers > g').length === 8"),
        ("they have numbers", "text('#ring-picture .name').split('|').sort().join('') === '12345678'"),
        ("one of them is the coordinator", "all('#ring-picture .peer.keeps').length === 1"),
        ("the others point to it", "all('#ring-picture .pointer').length === 7"),
        ("three tokens are on the ring", "all('#ring-picture .tokens .token').length === 3"),
        ("each token has its row", "all('#tokens tr').length === 3"),
        ("a client holds a slot", "/job \\d\\.\\d/.test(text('#tokens .client'))"),
        ("a client waits", "/job \\d\\.\\d/.test(text('#queue .client'))"),
        ("the first waiter is marked at its peer", "/\\b1\\b/.test(text('#ring-picture .places'))"),
        ("a holder has a successor", "all('#ring-picture .next').length > 0"),
        ("waits have numbers", "all('#numbers dd').every((number) => /\\d/.test(number.textContent))"),
        (
            "waits are drawn",
            "all('#chart > path').length === 3 && all('#chart > path').every((path) => path.getAttribute('d'))",
        ),
        ("there is no problem", "text('#status') === ''"),
    ] {
        wait_for(browser, what, expression);
    }
}

#[test]
fn page_shows_the_running_demo() {
    let Some(browser) = Browser::start() else { return };
    let options = ["--hold", "150ms", "--think", "50ms", "--for", "300s"];
    let demo = Demo::start(&options);
    browser.open(&demo.page);
    shows_all(&browser);

    for (what, expression) in [
        ("the queue moves", "all('#queue tr')[0]?.dataset.key ?? ''"),
        ("tokens move", "text('#tokens .peer-name')"),
        ("grants are counted", "text('#entries')"),
    ] {
        let before = value(&browser, expression);
        wait_for(&browser, what, &format!("({expression}) !== {before}"));
    }

    value(&browser, "all('#list button')[1].click()");
    wait_for(&browser, "another resource can be selected", "text('#list [aria-pressed=true] .label') === 'deploy'");
    wait_for(&browser, "it has tokens, too", "all('#tokens tr').length === 3");
    for width in [1280, 500] {
        browser.resize(width, 800);
        wait_for(&browser, "the page fits the window", "document.documentElement.scrollWidth <= innerWidth");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console has no errors");

    let place = demo.page.trim_start_matches("http://").split('/').next().unwrap().to_owned();
    let (status, output) = demo.end("-TERM");
    assert!(status.success() && output.contains(" grants in "), "{status}: {output}");
    wait_for(&browser, "the page reports the missing answer", "/does not answer; retrying/.test(text('#status'))");
    let demo = Demo::start(&[&options[..], &["--http", &place]].concat());
    wait_for(&browser, "the previous token is refused", "/requires a token/.test(text('#status'))");
    browser.open(&demo.page);
    shows_all(&browser);
}

/// No client releases a slot here, so the killed peer's slots are recreated.
#[test]
fn slots_of_a_killed_peer_are_recreated() {
    let Some(browser) = Browser::start() else { return };
    // Hold times are random: with a mean of ten minutes, one of three clients would release within ten seconds in every
    // twentieth run.
    let demo = Demo::start(&["--hold", "1000h", "--think", "50ms", "--for", "300s"]);
    browser.open(&demo.page);
    wait_for(&browser, "three clients hold slots", "all('#tokens tr:not(.lost) .client:not(.unheld)').length === 3");
    // Records what the page shows for some seconds only.
    browser.run(
        "window.most = 0; new MutationObserver(() => {const [lost, all] = ['.token.lost', '.token'].map((what) => \
         document.querySelectorAll(`.tokens ${what}`).length);window.most = Math.max(window.most, lost, all > 3 ? 99 : \
         0);}).observe(document.querySelector('.tokens'), { subtree: true, childList: true, attributes: true })",
    );
    value(&browser, "document.getElementById('strike').click()");
    for (what, expression) in [
        ("the peer is killed", "text('#ring-picture .word') === 'killed'"),
        ("its tokens are lost", "most >= 1"),
        ("there are never more than three", "most <= 3"),
        ("the tokens are recreated", "all('#ring-picture .token.lost').length === 0"),
        ("other clients hold the slots", "all('#tokens tr:not(.lost) .client:not(.unheld)').length === 3"),
        ("there is no problem", "text('#problem') === ''"),
        ("the peer is still down", "text('#ring-picture .word') === 'killed' && all('#peer-rows .gone').length === 1"),
    ] {
        wait_for(&browser, what, expression);
    }
    let killed = value(&browser, "text('#peer-rows .gone .peer-label')");
    value(&browser, &format!("act({killed}, 'bring_back').click()"));
    wait_for(
        &browser,
        "the peer is back",
        "all('#peer-rows .gone').length === 0 && text('#ring-picture .word') === ''",
    );
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console has no errors");
}

#[test]
fn controls_of_a_peer_act_and_are_undone() {
    let Some(browser) = Browser::start() else { return };
    let demo = Demo::start(&["--hold", "50ms", "--think", "50ms", "--session", "2s", "--for", "300s"]);
    browser.open(&demo.page);
    wait_for(&browser, "eight peers are listed", "all('#peer-rows tr').length === 8");
    for (peer, what, word) in [("3", "freeze", "frozen"), ("5", "cut_off", "cut off"), ("5", "kill", "killed")] {
        browser.run(&format!("{HELP} const button = act('{peer}', '{what}'); button.focus(); button.click()"));
        wait_for(&browser, word, &format!("row('{peer}').querySelector('.state').textContent === '{word}'"));
        let back = format!("document.activeElement === act('{peer}', 'bring_back')");
        wait_for(&browser, "the keyboard focus is on the opposite control", &back);
        let over = format!("row('{peer}').querySelector('.session').textContent === 'none'");
        wait_for(&browser, "its session has expired at the others", &over);
        let before = value(&browser, "text('#entries')");
        wait_for(&browser, "the others continue", &format!("text('#entries') !== {before}"));
        value(&browser, &format!("act('{peer}', 'bring_back').click()"));
        let back = format!("/^\\d/.test(row('{peer}').querySelector('.session').textContent)");
        wait_for(&browser, "the peer has a new session", &back);
        wait_for(
            &browser,
            "the peer is running",
            &format!("row('{peer}').querySelector('.state').textContent === 'runs'"),
        );
    }
    for (id, of, now) in [("clients", "clients per peer", "4"), ("slots", "slots", "4")] {
        let button = format!("all('[aria-label=\"one more: {of}\"]')[0]");
        browser.run(&format!("{HELP} {button}.focus(); {button}.click()"));
        wait_for(&browser, of, &format!("text('#{id}') === '{now}'"));
        // Only a redraw of the page could lose the focus.
        browser.run("return new Promise(requestAnimationFrame)");
        assert_eq!(value(&browser, &format!("document.activeElement === {button}")), true, "the focus remains: {of}");
    }
    wait_for(&browser, "the new slot is used", "all('#tokens tr').length === 4");
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console has no errors");
}

#[test]
fn resource_is_found_by_search_and_by_address() {
    let Some(browser) = Browser::start() else { return };
    let demo = Demo::start(&["--peers", "3", "--resources", "64", "--for", "300s"]);
    let (_, token) = demo.page.split_once('#').unwrap();
    browser.open(&format!("{}&name=deploy-4", demo.page));
    let chosen =
        |name: &str| format!("text('#list [aria-pressed=true] .label') === '{name}' && all('#tokens tr').length === 3");
    wait_for(&browser, "the resource of the address is selected", &chosen("deploy-4"));
    assert_eq!(value(&browser, "all('#list button').length"), 64);
    value(&browser, "all('#list button').find((one) => one.textContent.startsWith('vacuum-10')).focus()");
    browser.run(
        "const box = document.getElementById('search'); box.value = 'VACUUM-1'; box.dispatchEvent(new Event('input'))",
    );
    wait_for(&browser, "the search result", "text('#list .label') === 'vacuum-10'");
    let stays = value(&browser, "document.activeElement.textContent.startsWith('vacuum-10')");
    assert_eq!(stays, true, "the keyboard focus stays on the remaining entry");
    value(&browser, "all('#list button')[0].click()");
    wait_for(&browser, "the found resource is selected", &chosen("vacuum-10"));
    assert_eq!(
        value(&browser, "location.hash"),
        format!("#{token}&name=vacuum-10"),
        "the token remains in the address"
    );
    value(&browser, "history.back()");
    wait_for(&browser, "the previous resource is selected again", "text('#summary').includes('deploy-4 with')");
    value(&browser, &format!("void (location.hash = '#{token}&name=nothing')"));
    wait_for(&browser, "an unknown resource is reported", "/There is no resource nothing yet/.test(text('#unknown'))");
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console has no errors");
}

#[test]
fn page_of_an_agent_shows_its_peer_without_controls() {
    let Some(browser) = Browser::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    command.args(["agent", "--listen", "127.0.0.1:0", "--http", &address, "--data-dir"]).arg(dir.path());
    command.env("XDG_RUNTIME_DIR", dir.path()).args(["--http", "unix:agent.sock"]).current_dir(&dir);
    let _agent = Agent(command.stderr(Stdio::null()).spawn().unwrap());
    let started = Instant::now();
    while TcpStream::connect(&address).is_err() {
        assert!(started.elapsed() < PATIENCE, "the agent does not answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    let token = dir.path().join("token");
    browser.open(&format!("http://{address}/#token={}", std::fs::read_to_string(&token).unwrap().trim()));
    wait_for(&browser, "the list is empty", "!document.getElementById('empty').hidden");

    let label = "<b id=bold>me</b>";
    for wait in ["5s", "0s"] {
        let mut acquire = Command::new(env!("CARGO_BIN_EXE_peerlock"));
        acquire.args(["acquire", "--agent", &address, "--ttl", "10m", "--wait", wait, "--label", label, "backup"]);
        acquire.arg("--token-file").arg(&token);
        assert_eq!(acquire.output().unwrap().status.success(), wait == "5s", "there is one slot");
    }
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    for (what, expression) in [
        ("the ring shows one peer", "all('#ring-picture .peers > g').length === 1"),
        (
            "the peer has its host's name, or the first part of it",
            &format!("[{host:?}, {host:?}.split('.')[0]].includes(text('#ring-picture .name'))"),
        ),
        ("it leads, with a session", "/^.*\\|this agent\\|leads\\|\\d+ · .*s$/.test(text('#peer-rows td'))"),
        ("the client holds the slot", &format!("text('#tokens .client') === {label:?}")),
        ("the label is not markup", "document.getElementById('bold') === null"),
        ("no client waits", "text('#more') === 'No client waits.'"),
        ("one grant is counted", "text('#entries') === '1'"),
        (
            "an agent has no controls",
            "document.getElementById('controls') === null && all('#peers button').length === 0",
        ),
    ] {
        wait_for(&browser, what, expression);
    }
    browser.run(
        "window.asked = []; const token = new URLSearchParams(location.hash.slice(1)).get('token');const headers = { \
         authorization: `Bearer ${token}` };for (const path of ['/demo', '/assets/controls.js', '/openapi.json']) \
         {fetch(path, { headers }).then(async (answer) => asked.push(`${answer.status} ${(await \
         answer.text()).includes('/demo\"')}`)) }",
    );
    wait_for(&browser, "the routes are absent", "asked.sort().join() === '200 false,404 false,404 false'");
    assert!(browser.complaints().iter().all(|line| line.contains("404")), "only the expected errors");
    assert_eq!(browser.complaints(), Vec::<String>::new(), "the console has no errors");
}

#[test]
fn demo_with_a_time_limit_exits_with_a_summary() {
    let mut demo = Demo::start(&["--peers", "3", "--slots", "1", "--hold", "1ms", "--think", "1ms", "--for", "500ms"]);
    assert!(demo.page.starts_with("http://127.0.0.1:"), "{}", demo.page);
    let mut output = String::new();
    demo.output.read_to_string(&mut output).unwrap();
    assert!(demo.process.wait().unwrap().success());
    assert_eq!(demo.dir.path().read_dir().unwrap().count(), 0, "the directory is empty");
    let grants: u64 = output.lines().last().unwrap().split_once(" grants in ").unwrap().0.parse().unwrap();
    assert!(grants > 0, "{output}");
}

#[test]
fn invalid_options_of_the_demo_are_refused() {
    for (options, code, words) in [
        (&["--http", "0.0.0.0:0"][..], 64, "served on loopback only: give --http 127.0.0.1:0"),
        (&["--peers", "1"], 64, "--peers"),
        (&["--hold", "soon"], 64, "is not a duration"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_peerlock")).arg("demo").args(options).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(code) && stderr.contains(words), "{options:?}: {stderr}");
    }
    let mut nowhere = Command::new(env!("CARGO_BIN_EXE_peerlock"));
    let output = nowhere.args(["demo", "--no-open"]).env("TMPDIR", "/proc").output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(73) && stderr.contains("Set TMPDIR"), "{stderr}");
}
