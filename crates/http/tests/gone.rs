//! Clients that are gone, whatever they have said before.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use common::{LONG, Stand, token};
use peerlock_http::Endpoint;
use peerlock_service::Request;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Raw = BufReader<Box<dyn Stream>>;

/// What a client says that has sent a newline too many, as some do.
const TOO_MANY: &str = "\n";
/// What a client says that does not wait for an answer before it asks for the next.
const NEXT: &str = "GET /v1/peers HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection without any client of ours, that has asked for something of `a` and then said something more.
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

/// A lease that nobody waits for the end of.
const LONG_LEASE: &str = r#"{"ttl_ms":600000}"#;

#[tokio::test]
async fn a_byte_behind_a_request_does_not_hide_that_its_holder_is_gone() {
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
            stand.until("out of the line", |shown| shown.queue.len() == 1).await;
            drop(inside);
            read_until(&mut next, "granted").await;
            drop(next);
            stand.until("free", |shown| shown.holders[0].free).await;
        }
    }
}

#[tokio::test]
async fn a_byte_behind_a_request_does_not_keep_a_place_in_line() {
    for behind in [TOO_MANY, NEXT] {
        let stand = Stand::start().await;
        for endpoint in [&stand.unix, &stand.tcp] {
            let granted = stand.unix().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
            let waits = raw(endpoint, "acquire", LONG_LEASE, behind).await;
            stand.until("in line", |shown| shown.queue.len() == 1).await;
            drop(waits);
            stand.until("out of the line", |shown| shown.queue.is_empty()).await;
            stand.unix().release("a", &granted.grant).await.unwrap();
            stand.until("free", |shown| shown.holders[0].free).await;
        }
    }
}

/// Closing the sending half withdraws, too, as it does without that byte.
#[tokio::test]
async fn who_stops_sending_is_out_of_the_line() {
    let stand = Stand::start().await;
    stand.unix().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
    for endpoint in [&stand.unix, &stand.tcp] {
        for (verb, behind) in [("acquire", ""), ("acquire", TOO_MANY), ("hold", ""), ("hold", TOO_MANY)] {
            let mut waits = raw(endpoint, verb, LONG_LEASE, behind).await;
            stand.until("in line", |shown| shown.queue.len() == 1).await;
            waits.shutdown().await.unwrap();
            stand.until("out of the line", |shown| shown.queue.is_empty()).await;
            _ = timeout(LONG, waits.read_to_end(&mut Vec::new())).await.expect("its connection ends, too");
        }
    }
}

/// It does not wait for the answer, but it has said all of it.
#[tokio::test]
async fn who_leaves_right_behind_its_last_word_was_heard() {
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
