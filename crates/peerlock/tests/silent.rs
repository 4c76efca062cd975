//! An agent that ends, and a next one that does not answer.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use peerlock::{Agent, Endpoint, Grant, Request};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

/// Answers every request of a holder but `resume`. Passes on the connections of `hold`, `resume` and `release`.
async fn answer(mut stream: UnixStream, retained: mpsc::UnboundedSender<(&'static str, UnixStream)>) {
    let mut received = Vec::new();
    while let Ok(1..) = stream.read_buf(&mut received).await {
        let request = String::from_utf8_lossy(&received).into_owned();
        if !request.ends_with('}') {
            continue;
        }
        received.clear();
        if request.contains("/resume ") {
            return retained.send(("resume", stream)).unwrap();
        }
        if request.contains("/release ") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").await.unwrap();
            return retained.send(("release", stream)).unwrap();
        }
        let (kind, body) = match request.contains("/hold ") {
            true => {
                let granted = r#"{"grant":"h1","name":"a","slot":0,"fencing":1,"ttl_ms":2000,"waited_ms":0}"#;
                ("", format!("{{\"granted\":{granted}}}\n"))
            }
            false => ("Content-Length: 15\r\n", r#"{"ttl_ms":2000}"#.to_owned()),
        };
        stream.write_all(format!("HTTP/1.1 200 OK\r\n{kind}\r\n{body}").as_bytes()).await.unwrap();
        if kind.is_empty() {
            return retained.send(("hold", stream)).unwrap();
        }
    }
}

type Connections = mpsc::UnboundedReceiver<(&'static str, UnixStream)>;

/// Returns a grant whose agent has ended, and the connection on which it tries to resume.
async fn left_alone() -> (Grant, UnixStream, Connections, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let (retained, mut connections) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, retained.clone()));
        }
    });
    let client = Agent::at(Endpoint::Unix(path), None).client();
    let request = Request::new("a").ttl(Duration::from_secs(2)).grace(Duration::from_millis(800));
    let grant = timeout(LONG, client.acquire(request)).await.expect("it is answered").unwrap();
    let (verb, held) = connections.recv().await.unwrap();
    assert_eq!(verb, "hold");
    drop(held);
    let (verb, resumed) = timeout(LONG, connections.recv()).await.expect("it resumes").unwrap();
    assert_eq!(verb, "resume");
    (grant, resumed, connections, dir)
}

/// Otherwise the next agent holds the slot until its lease expires.
#[tokio::test]
async fn grant_dropped_without_an_agent_is_released_at_the_next() {
    let (grant, _resumed, mut connections, _dir) = left_alone().await;
    drop(grant);
    let (verb, _) = timeout(LONG, connections.recv()).await.expect("it releases the slot").unwrap();
    assert_eq!(verb, "release");
}

/// The answer may be in transit when the grant is lost, and the end of the connection would free the slot.
#[tokio::test]
async fn lost_grant_keeps_its_new_connection_until_dropped() {
    let (grant, mut resumed, mut connections, _dir) = left_alone().await;
    timeout(LONG, grant.lost()).await.expect("its lease is not renewed");
    let closed = timeout(Duration::from_millis(200), resumed.read(&mut [0])).await;
    assert!(closed.is_err(), "it still holds the slot: {closed:?}");
    drop(grant);
    let (verb, _released) = timeout(LONG, connections.recv()).await.expect("it releases the slot").unwrap();
    assert_eq!(verb, "release");
    let closed = timeout(LONG, resumed.read(&mut [0])).await.expect("it is closed");
    assert_eq!(closed.unwrap(), 0);
}
