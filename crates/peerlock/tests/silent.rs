//! An agent that ends, and a next one that does not answer.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use peerlock::{Agent, Endpoint, Grant, Request};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// Nothing takes so long, however loaded the machine is.
const LONG: Duration = Duration::from_secs(60);

/// Answers what a holder asks for, but not who wants to go on with a slot; hands out the connections of both.
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

/// Connections that were asked for something, and what.
type Connections = mpsc::UnboundedReceiver<(&'static str, UnixStream)>;

/// A grant whose agent has ended, and the connection on which it asks the next one for its slot.
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
    let (verb, resumed) = timeout(LONG, connections.recv()).await.expect("it wants to go on").unwrap();
    assert_eq!(verb, "resume");
    (grant, resumed, connections, dir)
}

/// The next agent would keep its slot until the end of the lease.
#[tokio::test]
async fn what_is_dropped_while_there_is_no_agent_is_given_back_to_the_next_one() {
    let (grant, _resumed, mut connections, _dir) = left_alone().await;
    drop(grant);
    let (verb, _) = timeout(LONG, connections.recv()).await.expect("it gives the slot back").unwrap();
    assert_eq!(verb, "release");
}

/// The answer may be under way when it gives up waiting for it, and the slot would be free with the connection.
#[tokio::test]
async fn who_must_stop_keeps_the_connection_that_its_slot_may_belong_to() {
    let (grant, mut resumed, mut connections, _dir) = left_alone().await;
    timeout(LONG, grant.lost()).await.expect("nobody renews its lease");
    let closed = timeout(Duration::from_millis(200), resumed.read(&mut [0])).await;
    assert!(closed.is_err(), "it is still inside: {closed:?}");
    drop(grant);
    let (verb, _released) = timeout(LONG, connections.recv()).await.expect("it gives the slot back").unwrap();
    assert_eq!(verb, "release");
    let closed = timeout(LONG, resumed.read(&mut [0])).await.expect("nothing is left of it");
    assert_eq!(closed.unwrap(), 0);
}
