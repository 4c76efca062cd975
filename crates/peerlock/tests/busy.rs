//! A blocked runtime.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use peerlock::testing::Network;
use peerlock::{Agent, Endpoint, Request};
use peerlock_http::{App, Listener, serve};
use tokio::runtime::Builder;

/// A timeout that a loaded machine does not reach, shorter than the leases.
const LONG: Duration = Duration::from_secs(60);

fn agent(path: PathBuf) {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let peer = Network::new().peer().await.unwrap();
            let listener = Listener::bind(&Endpoint::Unix(path), None, 64).await.unwrap();
            ready.send(()).unwrap();
            serve(vec![listener], App::new(peer.service().clone()), std::future::pending()).await;
        });
    });
    is_ready.recv().unwrap();
}

/// Acquires the slot over a plain socket, without yielding to the runtime.
fn acquire_blocking(path: &PathBuf) {
    let mut stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.write_all(b"POST /v1/resources/a/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n").unwrap();
    let granted = BufReader::new(stream).lines().any(|line| line.expect("it is free in time").contains("granted"));
    assert!(granted);
}

#[test]
fn dropping_releases_while_the_runtime_is_blocked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    agent(path.clone());
    Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
        let client = Agent::at(Endpoint::Unix(path.clone()), None).client();
        let request = || Request::new("a").ttl(10 * LONG);
        let grant = client.acquire(request()).await.unwrap();
        drop(grant);
        acquire_blocking(&path);
        let hold = client.hold(request(), |_| {}).await.unwrap();
        drop(hold);
        acquire_blocking(&path);
    });
}
