//! Headless Chromium, controlled by chromedriver over plain HTTP.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    process: String,
    /// Dropped after the browser.
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Starts a browser, installing it if possible. Without one the test is skipped, or fails in CI (`PEERLOCK_CI=1`).
    pub fn start() -> Option<Self> {
        if !is_installed() {
            let missing = "there is no Chromium to show the page: apt-get install chromium chromium-driver";
            assert!(std::env::var_os("PEERLOCK_CI").is_none(), "{missing}");
            eprintln!("skipped: {missing}");
            return None;
        }
        let driver = Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().unwrap();
        let (port, session, process) = (0, String::new(), String::new());
        let mut browser = Self { driver, port, session, process, _profile: tempfile::tempdir().unwrap() };
        let lines = BufReader::new(browser.driver.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            port.trim_end_matches('.').parse().ok()
        });
        browser.port = port.expect("a port");
        let dir = format!("--user-data-dir={}", browser._profile.path().display());
        let flags = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync --disable-dev-shm-usage \
                     --window-size=1280,800";
        let arguments: Vec<&str> = flags.split_whitespace().chain([dir.as_str()]).collect();
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments }, "goog:loggingPrefs": { "browser": "ALL" }
        } } });
        let session = browser.call("POST", "/session", &wanted);
        browser.process = session["capabilities"]["goog:processID"].to_string();
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        Some(browser)
    }

    pub fn open(&self, address: &str) {
        self.post("url", &json!({ "url": address }));
    }

    pub fn run(&self, script: &str) -> Value {
        self.post("execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub fn resize(&self, width: u32, height: u32) {
        self.post("window/rect", &json!({ "width": width, "height": height }));
    }

    pub fn complaints(&self) -> Vec<String> {
        let log = self.post("se/log", &json!({ "type": "browser" }));
        let all = log.as_array().unwrap().iter();
        let bad = all.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        bad.map(|entry| entry["message"].to_string()).collect()
    }

    fn post(&self, command: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}/{command}", self.session), body)
    }

    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.ask(method, path, &body.to_string()).unwrap();
        let mut body: Value = serde_json::from_str(&answer).unwrap();
        let value = body["value"].take();
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(Duration::from_secs(120)))?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        // The driver does not close the connection, so the header's length counts.
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        for line in answer.by_ref().lines() {
            let line = line?.to_ascii_lowercase();
            if let Some(number) = line.strip_prefix("content-length:") {
                length = number.trim().parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = String::new();
        answer.take(length).read_to_string(&mut body)?;
        Ok(body)
    }
}

fn is_installed() -> bool {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap();
    let programs = ["chromium", "chromedriver"];
    let is_there = || programs.iter().all(|program| Command::new(program).arg("--version").output().is_ok());
    if !is_there() {
        _ = Command::new("apt-get").args(["install", "-qq", "-y", "chromium", "chromium-driver"]).output();
    }
    is_there()
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // The browser exits with its session, unless the driver fails.
            _ = self.ask("DELETE", &self.session, "");
            _ = Command::new("kill").args(["-KILL", &self.process]).stderr(Stdio::null()).status();
        }
        _ = self.driver.kill();
        _ = self.driver.wait();
    }
}
