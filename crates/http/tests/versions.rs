//! Agents and clients of different versions.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::time::Duration;

use common::{LONG, Stand, token};
use peerlock_http::client::Agent;
use peerlock_http::{Endpoint, Line};
use peerlock_service::{Class, Error, Event, Request};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;
use tokio::time::timeout;

const GRANTED: &str =
    r#"{"granted":{"grant":"h1","name":"a","slot":0,"fencing":1,"ttl_ms":2000,"waited_ms":0,"new":{}}}"#;

/// An agent that sends this answer to each request, and nothing after it.
fn scripted(status: &'static str, lines: &[&str]) -> (Agent, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let body = lines.join("\n");
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
            stream.write_all(format!("HTTP/1.1 {status}\r\n\r\n{body}\n").as_bytes()).await.unwrap();
            if status.starts_with('2') {
                open.push(stream);
            }
        }
    });
    (Agent::new(Endpoint::Unix(path), None), dir)
}

#[tokio::test]
async fn unknown_lines_of_a_newer_agent_are_ignored() {
    let lines = [
        r#"{"from_the_future":{"a":[1]}}"#,
        r#"{"waiting":{"ahead":3,"new":true},"new":1}"#,
        r#"{"bare":null}"#,
        GRANTED,
        r#"{"another":"word"}"#,
        r#"{"lost":{"why":{"error":"from_the_future","message":"the reason","more":{}},"new":0}}"#,
    ];
    let (agent, _dir) = scripted("200 OK", &lines);
    let mut hold = agent.hold(&Request::new("a")).await.unwrap();
    let mut next = async || timeout(LONG, hold.next()).await.expect("a line").unwrap();
    let Line::Waiting(place) = next().await else { panic!("it waits") };
    assert_eq!(place.ahead, Some(3));
    let Line::Granted(granted) = next().await else { panic!("not granted") };
    assert_eq!((granted.fencing, granted.slot), (1, 0));
    let Line::Lost { why: Some(why) } = next().await else { panic!("not lost") };
    assert_eq!(why.0.to_string(), "the reason");
}

#[tokio::test]
async fn unknown_refusal_of_a_newer_agent_is_no_broken_connection() {
    let body = r#"{"error":"from_the_future","message":"the reason","more":{}}"#;
    for (status, class) in [("410 Gone", Class::Lost), ("400 Bad", Class::BadRequest), ("503 No", Class::Unavailable)] {
        let (agent, _dir) = scripted(status, &[body]);
        let refused = agent.renew("a", "h1").await.unwrap_err();
        assert_eq!(refused, Error::Refused { class, message: "the reason".into() });
    }
}

#[tokio::test]
async fn unknown_events_of_a_newer_agent_are_ignored() {
    let lines = [
        r#"data: {"at_ms":1,"event":"from_the_future","more":[1]}"#,
        r#"data: {"at_ms":2,"event":"missed","count":7,"more":{}}"#,
    ];
    let (agent, _dir) = scripted("200 OK", &lines);
    let mut events = agent.events(None).await.unwrap();
    let event = timeout(LONG, events.next()).await.expect("an event").unwrap().unwrap().event;
    assert!(matches!(event, Event::Missed { count: 7 }), "{event:?}");
}

#[tokio::test]
async fn unknown_fields_are_refused_where_they_could_restrict() {
    let stand = Stand::start().await;
    for (verb, body) in [
        ("acquire", r#"{"new":1}"#),
        ("hold", r#"{"new":1}"#),
        ("resize", r#"{"slots":1,"new":1}"#),
        ("evict", r#"{"peer":"1","new":1}"#),
        ("revoke", r#"{"fencing":1,"new":1}"#),
    ] {
        let answer = stand.ask("POST", &format!("/v1/resources/a/{verb}"), &[], body).await;
        assert_eq!(answer.status, 400, "{verb}: {}", answer.body);
        assert!(answer.json()["message"].as_str().unwrap().contains("new"), "{verb}: {}", answer.body);
    }
}

#[tokio::test]
async fn unknown_fields_about_a_grant_are_ignored() {
    let stand = Stand::start().await;
    let granted = stand.tcp().acquire(&Request::new("a").ttl(10 * LONG)).await.unwrap();
    let body = format!(r#"{{"grant":"{}","new":1}}"#, granted.grant);
    for verb in ["renew", "release"] {
        let answer = stand.ask("POST", &format!("/v1/resources/a/{verb}"), &[], &body).await;
        assert_eq!(answer.status, 200, "{verb}: {}", answer.body);
    }
}

#[tokio::test]
async fn missing_keep_alive_lines_end_a_connection() {
    let lines = [GRANTED, r#"{"alive":{"every_ms":30,"new":1}}"#];
    let (agent, _dir) = scripted("200 OK", &lines);
    let mut hold = agent.hold(&Request::new("a")).await.unwrap();
    assert!(matches!(hold.next().await.unwrap(), Line::Granted(_)));
    let silent = timeout(LONG, hold.next()).await.expect("noticed in time").unwrap_err();
    assert!(matches!(&silent, Error::Broken { why, .. } if why.contains("nothing")), "{silent}");
}

#[tokio::test]
async fn keep_alive_lines_count_when_they_are_read_late() {
    let lines = [GRANTED, r#"{"alive":{"every_ms":30}}"#, r#"{"waiting":{"ahead":1}}"#, r#"{"lost":{}}"#];
    let (agent, _dir) = scripted("200 OK", &lines);
    let mut hold = agent.hold(&Request::new("a")).await.unwrap();
    assert!(matches!(hold.next().await.unwrap(), Line::Granted(_)));
    assert!(matches!(hold.next().await.unwrap(), Line::Waiting(_)));
    std::thread::sleep(Duration::from_millis(200));
    assert!(matches!(hold.next().await.unwrap(), Line::Lost { why: None }));
}

#[tokio::test]
async fn idle_connections_are_few_and_closed_in_time() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::Tcp(listener.local_addr().unwrap().to_string());
    let agent = Agent::new(endpoint, Some(token()));
    let (opened, mut streams) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        loop {
            opened.send(listener.accept().await.unwrap().0).unwrap();
        }
    });
    let calls: Vec<_> = (0..40)
        .map(|_| {
            tokio::spawn({
                let agent = agent.clone();
                async move { agent.renew("a", "h1").await.unwrap() }
            })
        })
        .collect();
    let mut asked = Vec::new();
    for _ in 0..calls.len() {
        let mut stream = streams.recv().await.unwrap();
        stream.read_buf(&mut Vec::with_capacity(4096)).await.unwrap();
        asked.push(stream);
    }
    for stream in &mut asked {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{\"ttl_ms\":200}").await.unwrap();
    }
    for call in calls {
        call.await.unwrap();
    }
    let mut ends = JoinSet::new();
    for mut stream in asked {
        ends.spawn(async move { stream.read(&mut [0]).await.unwrap() });
    }
    for _ in 16..40 {
        let ended = timeout(LONG, ends.join_next()).await.expect("surplus connections are closed");
        assert_eq!(ended.unwrap().unwrap(), 0);
    }
    assert_eq!(ends.len(), 16);
    tokio::time::pause();
    while let Some(ended) = timeout(LONG, ends.join_next()).await.expect("idle connections are closed") {
        assert_eq!(ended.unwrap(), 0);
    }
    drop(agent);
}
