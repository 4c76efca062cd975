//! Agents that end while a client waits.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use peerlock::{Agent, Client, Endpoint, Error, Request};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

const WAITING: &str = r#"{"waiting":{"ahead":1}}"#;
const GRANTED: &str = r#"{"granted":{"grant":"h1","name":"a","slot":0,"fencing":7,"ttl_ms":20000,"waited_ms":0}}"#;
const RENEWED: &str = r#"{"ttl_ms":20000}"#;

fn place() -> (TempDir, PathBuf, Client) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let client = Agent::at(Endpoint::Unix(path.clone()), None).client();
    (dir, path, client)
}

fn listen(path: &Path) -> UnixListener {
    _ = std::fs::remove_file(path);
    UnixListener::bind(path).unwrap()
}

async fn next_request(listener: &UnixListener) -> (String, UnixStream) {
    let (mut stream, _) = timeout(LONG, listener.accept()).await.expect("a client").unwrap();
    let mut text = Vec::new();
    while !text.ends_with(b"}") {
        assert_ne!(stream.read_buf(&mut text).await.unwrap(), 0, "it ended");
    }
    (String::from_utf8(text).unwrap(), stream)
}

fn wait(request: &str) -> u32 {
    request.split(r#""wait_ms":"#).nth(1).unwrap().split(['}', ',']).next().unwrap().parse().unwrap()
}

async fn answer(stream: &mut UnixStream, line: &str) {
    stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{line}\n").as_bytes()).await.unwrap();
}

#[tokio::test]
async fn request_is_repeated_at_the_next_agent() {
    let (_dir, path, client) = place();
    let first = listen(&path);
    let waits = tokio::spawn(async move { client.acquire(Request::new("a").wait(LONG)).await });
    let (request, mut stream) = next_request(&first).await;
    let first_wait = wait(&request);
    assert!((1..=60_000).contains(&first_wait), "{request}");
    answer(&mut stream, WAITING).await;
    drop((first, stream));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waits.is_finished());

    let next = listen(&path);
    let (request, mut stream) = next_request(&next).await;
    assert!((1..=first_wait - 300).contains(&wait(&request)), "the rest: {request}");
    answer(&mut stream, GRANTED).await;
    let (request, mut renewal) = next_request(&next).await;
    assert!(request.contains("/renew "), "{request}");
    renewal
        .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", RENEWED.len()).as_bytes())
        .await
        .unwrap();
    renewal.write_all(RENEWED.as_bytes()).await.unwrap();
    let grant = timeout(LONG, waits).await.expect("it is granted").unwrap().unwrap();
    assert_eq!(grant.fencing(), 7);
}

#[tokio::test]
async fn wait_ends_in_time_without_an_agent() {
    let (_dir, path, client) = place();
    let first = listen(&path);
    let waits = tokio::spawn(async move { client.acquire(Request::new("a").wait(Duration::from_millis(500))).await });
    let (_, mut stream) = next_request(&first).await;
    answer(&mut stream, WAITING).await;
    drop((first, stream));
    let ended = timeout(LONG / 4, waits).await.expect("it does not wait for an agent").unwrap();
    assert!(matches!(ended, Err(Error::NotAcquired { .. })), "{ended:?}");
}

#[tokio::test]
async fn try_is_not_repeated_at_the_next_agent() {
    let (_dir, path, client) = place();
    let first = listen(&path);
    let tries = tokio::spawn(async move { client.try_acquire("a").await });
    drop(next_request(&first).await);
    let ended = timeout(LONG, tries).await.expect("it ends").unwrap();
    assert!(matches!(ended, Err(Error::Broken { .. })), "{ended:?}");
}

#[tokio::test]
async fn absent_agent_is_an_error_at_once() {
    let (_dir, _, client) = place();
    let ended = timeout(LONG / 4, client.acquire("a")).await.expect("it does not wait for an agent");
    assert!(matches!(ended, Err(Error::NoAgent { .. })), "{ended:?}");
}
