//! Clients that disconnect with unread bytes behind their request.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::time::Duration;

use common::{LONG, Stand, token};
use peerlock_http::Endpoint;
use peerlock_service::Request;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Raw = BufReader<Box<dyn Stream>>;

/// A superfluous newline, which some clients send.
const TOO_MANY: &str = "\n";
const NEXT: &str = "GET /v1/peers HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Sends a request about `a` and more bytes on a plain connection.
async fn raw(endpoint: &Endpoint, verb: &str, body: &str, behind: &str) -> Raw {
    let mut stream: Box<dyn Stream> = match endpoint {
        Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await.unwrap()),
        Endpoint::Tcp(address) => Box::new(TcpStream::connect(address).await.unwrap()),
        endpoint => panic!("{endpoint}"),
    };
    let (token, length) = (token(), body.len());
    let head = format!("POST /v1/resources/a/{verb} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n");
    let request = format!("{head}Authorization: Bearer {}\r\n\r\n{body}{behind}", token.as_str());
    stream.write_all(request.as_bytes()).await.unwrap();
    BufReader::new(stream)
}

async fn read_until(stream: &mut Raw, what: &str) {
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        let read = timeout(LONG, stream.read_line(&mut line)).await.expect("a line").unwrap();
        assert!(read > 0, "it ended before {what}");
    }
}

const LONG_LEASE: &str = r#"{"ttl_ms":600000}"#;

#[tokio::test]
async fn extra_byte_does_not_hide_a_holders_disconnect() {
    for behind in [TOO_MANY, NEXT] {
        let stand = Stand::start().await;
        for endpoint in [&stand.unix, &stand.tcp] {
            let mut inside = raw(endpoint, "hold", LONG_LEASE, behind).await;
            read_until(&mut inside, "granted").await;
            let waits = raw(endpoint, "hold", LONG_LEASE, behind).await;
            stand.until("in line", |shown| shown.queue.len() == 1).await;
            let mut next = raw(endpoint, "hold", LONG_LEASE, behind).await;
            stand.until("behind it", |shown| shown.queue.len() == 2).await;

            drop(waits);
            stand.until("withdrawn", |shown| shown.queue.len() == 1).await;
            if endpoint == &stand.tcp {
                break;
            }
            drop(inside);
            read_until(&mut next, "granted").await;
            drop(next);
            stand.until("free", |shown| shown.holders[0].free).await;
        }
    }
}

async fn until_left(stand: &Stand, count: usize) {
    let ended = timeout(LONG, async {
        while stand.connections() > count {
            sleep(Duration::from_millis(5)).await;
        }
    });
    ended.await.expect("closed by the agent");
}

#[tokio::test]
async fn held_slot_stays_held_when_a_tcp_connection_ends() {
    let stand = Stand::start().await;
    for half in [true, false] {
        let mut inside = raw(&stand.tcp, "hold", LONG_LEASE, "").await;
        let granted = granted(&mut inside).await;
        if half {
            inside.shutdown().await.unwrap();
            _ = timeout(LONG, inside.read_to_end(&mut Vec::new())).await.expect("closed by the agent");
        }
        drop(inside);
        until_left(&stand, 0).await;
        assert!(!stand.show().await.holders[0].free, "its holder may still be running");
        // Its ID still renews, resumes and releases it.
        stand.tcp().renew("a", &granted).await.unwrap();
        let body = format!(r#"{{"grant":"{granted}"}}"#);
        let mut resumed = raw(&stand.tcp, "resume", &body, "").await;
        read_until(&mut resumed, "granted").await;
        assert!(!stand.show().await.holders[0].free);
        stand.tcp().release("a", &granted).await.unwrap();
        stand.until("free", |shown| shown.holders[0].free).await;
    }
}

#[tokio::test]
async fn resumed_slot_outlives_the_end_of_its_earlier_tcp_connection() {
    let stand = Stand::start().await;
    let mut earlier = raw(&stand.tcp, "hold", LONG_LEASE, "").await;
    let granted = granted(&mut earlier).await;
    let mut later = raw(&stand.tcp, "resume", &format!(r#"{{"grant":"{granted}"}}"#), "").await;
    read_until(&mut later, "granted").await;
    drop(earlier);
    until_left(&stand, 2).await;
    assert!(!stand.show().await.holders[0].free);
    stand.tcp().release("a", &granted).await.unwrap();
    read_until(&mut later, "lost").await;
}

#[tokio::test]
async fn lost_slot_is_kept_for_its_holder_when_a_tcp_connection_ends() {
    let stand = Stand::start().await;
    let mut inside = raw(&stand.tcp, "hold", LONG_LEASE, "").await;
    read_until(&mut inside, "granted").await;
    let fencing = stand.show().await.holders[0].client.as_ref().unwrap().fencing.unwrap();
    let revokes = tokio::spawn({
        let service = stand.service.clone();
        async move { service.revoke("a", fencing).await }
    });
    read_until(&mut inside, "lost").await;
    drop(inside);
    until_left(&stand, 0).await;
    assert!(!stand.show().await.holders[0].free && !revokes.is_finished());
    revokes.abort();
}

#[tokio::test]
async fn stream_over_tcp_has_keep_alive_lines() {
    let stand = Stand::start().await;
    let mut inside = raw(&stand.tcp, "hold", LONG_LEASE, "").await;
    read_until(&mut inside, "granted").await;
    for _ in 0..2 {
        read_until(&mut inside, r#"{"alive":{"every_ms":4000}}"#).await;
    }
    let mut waits = raw(&stand.tcp, "hold", LONG_LEASE, "").await;
    read_until(&mut waits, "waiting").await;
    read_until(&mut waits, "alive").await;
}

async fn granted(stream: &mut Raw) -> String {
    let mut line = String::new();
    while !line.starts_with(r#"{"granted""#) {
        line.clear();
        timeout(LONG, stream.read_line(&mut line)).await.expect("a line").unwrap();
    }
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    line["granted"]["grant"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn extra_byte_does_not_keep_a_request_queued() {
    for behind in [TOO_MANY, NEXT] {
        let stand = Stand::start().await;
        for endpoint in [&stand.unix, &stand.tcp] {
            let granted = stand.unix().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
            let waits = raw(endpoint, "acquire", LONG_LEASE, behind).await;
            stand.until("in line", |shown| shown.queue.len() == 1).await;
            drop(waits);
            stand.until("withdrawn", |shown| shown.queue.is_empty()).await;
            stand.unix().release("a", &granted.grant).await.unwrap();
            stand.until("free", |shown| shown.holders[0].free).await;
        }
    }
}

#[tokio::test]
async fn half_closed_client_leaves_the_queue() {
    let stand = Stand::start().await;
    stand.unix().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
    for endpoint in [&stand.unix, &stand.tcp] {
        for (verb, behind) in [("acquire", ""), ("acquire", TOO_MANY), ("hold", ""), ("hold", TOO_MANY)] {
            let mut waits = raw(endpoint, verb, LONG_LEASE, behind).await;
            stand.until("in line", |shown| shown.queue.len() == 1).await;
            waits.shutdown().await.unwrap();
            stand.until("withdrawn", |shown| shown.queue.is_empty()).await;
            _ = timeout(LONG, waits.read_to_end(&mut Vec::new())).await.expect("its connection ends");
        }
    }
}

/// The client does not wait for the answer, but has sent its whole request.
#[tokio::test]
async fn request_of_a_client_that_closes_at_once_is_processed() {
    let stand = Stand::start().await;
    for endpoint in [&stand.unix, &stand.tcp] {
        for behind in ["", TOO_MANY] {
            let granted = stand.unix().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
            let body = format!(r#"{{"grant":"{}"}}"#, granted.grant);
            drop(raw(endpoint, "release", &body, behind).await);
            stand.until("free", |shown| shown.holders[0].free).await;
        }
    }
}
