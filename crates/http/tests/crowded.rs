//! Connection limits under load.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use common::{LONG, Stand, token};
use peerlock_http::client::Agent;
use peerlock_http::{LONGEST_LEASE, Line};
use peerlock_service::{Class, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

const MOST: usize = 8;

async fn streams(stand: &Stand, token: &str) -> (TcpStream, String) {
    let mut stream = TcpStream::connect(stand.address()).await.unwrap();
    let request = format!("GET /v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0; 12];
    let received = timeout(LONG, stream.read_exact(&mut head)).await.expect("an answer or the end");
    (stream, received.map_or_else(|_| String::new(), |_| String::from_utf8(head.to_vec()).unwrap()))
}

async fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("closed by the agent");
}

/// Another user's connections fill the port.
#[tokio::test]
async fn event_streams_at_the_port_do_not_block_the_socket() {
    let stand = Stand::with(MOST, LONGEST_LEASE).await;
    let agent = stand.unix();
    let mut hold = agent.hold(&Request::new("a")).await.unwrap();
    let Line::Granted(granted) = hold.next().await.unwrap() else { panic!("not granted") };
    let mut open = Vec::new();
    for _ in 0..MOST {
        let (stream, received) = streams(&stand, token().as_str()).await;
        assert_eq!(received, "HTTP/1.1 200");
        open.push(stream);
    }
    for _ in 0..10 * MOST {
        let (_, received) = streams(&stand, token().as_str()).await;
        assert!(["HTTP/1.1 503", ""].contains(&received.as_str()), "{received}");
    }
    let refused = stand.tcp().peers().await.unwrap_err();
    assert_eq!(refused.class(), Class::Busy, "{refused}");
    assert!(refused.to_string().contains("the limit of 8 connections"), "{refused}");
    agent.renew("a", &granted.grant).await.unwrap();
    stand.unix().peers().await.unwrap();
    drop(open);
    let again = async { while stand.tcp().peers().await.is_err() {} };
    timeout(LONG, again).await.expect("admitted after they have left");
}

#[tokio::test]
async fn port_displaces_oldest_connection_without_token() {
    let stand = Stand::with(MOST, LONGEST_LEASE).await;
    let (_proved, received) = streams(&stand, token().as_str()).await;
    assert_eq!(received, "HTTP/1.1 200");
    let mut silent = Vec::new();
    for _ in 0..2 * MOST {
        silent.push(TcpStream::connect(stand.address()).await.unwrap());
    }
    let (guesses, received) = streams(&stand, "wrong-token-0123456789").await;
    assert_eq!(received, "HTTP/1.1 401");
    silent.push(guesses);
    is_closed(&mut silent[0]).await;
    let mut members = Vec::new();
    for _ in 1..MOST {
        let (stream, received) = streams(&stand, token().as_str()).await;
        assert_eq!(received, "HTTP/1.1 200");
        members.push(stream);
    }
    for stream in &mut silent {
        is_closed(stream).await;
    }
    assert_eq!(stand.tcp().peers().await.unwrap_err().class(), Class::Busy, "connections with the token stay");
}

/// A refused connection gets an answer, too.
#[tokio::test]
async fn socket_gives_a_user_three_quarters() {
    let stand = Stand::with(MOST, LONGEST_LEASE).await;
    let peerlock_http::Endpoint::Unix(path) = &stand.unix else { panic!("a Unix socket") };
    let mut open = Vec::new();
    for _ in 0..MOST - MOST / 4 {
        open.push(UnixStream::connect(path).await.unwrap());
    }
    let refused = Agent::new(stand.unix.clone(), None).peers().await.unwrap_err();
    assert_eq!(refused.class(), Class::Busy, "{refused}");
    open.pop();
    let again = async { while stand.unix().peers().await.is_err() {} };
    timeout(LONG, again).await.expect("admitted after one has left");
}
