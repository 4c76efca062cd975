//! Event streams, and connections that either side ends.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use common::{LONG, Stand};
use peerlock_http::client::Events;
use peerlock_http::{Endpoint, Line, ListenError, Listener};
use peerlock_service::{Error, Event, Happening, Request};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

async fn next(events: &mut Events) -> Option<Happening> {
    timeout(LONG, events.next()).await.expect("an event").unwrap()
}

#[tokio::test]
async fn events_are_streamed_and_filtered_by_resource() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let mut all = agent.events(None).await.unwrap();
    let mut of_b = agent.events(Some("b/ü")).await.unwrap();
    let mut last = 0;
    for name in ["a", "b/ü"] {
        let granted = agent.acquire(&Request::new(name).label("me")).await.unwrap();
        agent.release(name, &granted.grant).await.unwrap();
        last = granted.fencing;
    }
    let mut kinds = Vec::new();
    while kinds.len() < 4 {
        let event = next(&mut all).await.unwrap().event;
        if !matches!(event, Event::Waiting { .. }) {
            kinds.push((event.client().unwrap().0.to_string(), event.kind()));
        }
    }
    let expected = [("a", "granted"), ("a", "released"), ("b/ü", "granted"), ("b/ü", "released")];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    loop {
        let event = next(&mut of_b).await.unwrap().event;
        assert_eq!(event.client().unwrap().0.as_str(), "b/ü");
        if let Event::Granted { label, fencing, .. } = event {
            break assert_eq!((label.as_str(), fencing), ("me", last));
        }
    }
}

#[tokio::test]
async fn slow_reader_receives_the_number_of_missed_events() {
    let stand = Stand::start().await;
    // The stream is not read until the socket and the queue behind it overflow.
    let mut events = stand.unix().events(Some("a")).await.unwrap();
    for _ in 0..20_000 {
        drop(stand.service.acquire(Request::new("a").label("x".repeat(200))).await.unwrap());
    }
    let (mut observed, mut missed) = (0, 0);
    while missed == 0 {
        match next(&mut events).await.unwrap().event {
            Event::Missed { count } => missed += count,
            _ => observed += 1,
        }
    }
    assert!(observed > 0 && missed > 1000, "{observed} {missed}");
}

async fn received(stand: &Stand, headers: &str, kinds: &[&str], count: usize) -> Vec<(String, String)> {
    let Endpoint::Unix(path) = &stand.unix else { panic!("a Unix socket") };
    let mut stream = UnixStream::connect(path).await.unwrap();
    let request = format!("GET /v1/events?name=a HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut lines, mut received, mut id) = (BufReader::new(stream).lines(), Vec::new(), String::new());
    while received.len() < count {
        let line = timeout(LONG, lines.next_line()).await.expect("a line").unwrap().expect("the stream continues");
        if let Some(given) = line.strip_prefix("id: ") {
            id = given.to_owned();
        } else if let Some(kind) = line.strip_prefix("event: ").filter(|kind| kinds.contains(kind)) {
            received.push((std::mem::take(&mut id), kind.to_owned()));
        }
    }
    received
}

/// With one slot, grants and releases alternate; a reader that continues from an ID gets the same rest.
#[tokio::test]
async fn release_precedes_next_grant_and_ids_resume() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let mut all = agent.events(Some("a")).await.unwrap();
    let mut inside = agent.hold(&Request::new("a")).await.unwrap();
    assert!(matches!(inside.next().await.unwrap(), Line::Granted(_)));
    for _ in 0..10 {
        let mut next = agent.hold(&Request::new("a")).await.unwrap();
        assert!(matches!(next.next().await.unwrap(), Line::Waiting(_)));
        drop(inside);
        while matches!(next.next().await.unwrap(), Line::Waiting(_)) {}
        inside = next;
    }
    let mut kinds = Vec::new();
    while kinds.len() < 21 {
        let event = next(&mut all).await.unwrap().event;
        if matches!(event, Event::Granted { .. } | Event::Released { .. }) {
            kinds.push(event.kind());
        }
    }
    let turns: Vec<&str> = ["granted", "released"].into_iter().cycle().take(21).collect();
    assert_eq!(kinds, turns);
    // An ID of an earlier process: all recent events.
    let both = ["granted", "released"];
    let again = received(&stand, "Last-Event-ID: 00000000-5\r\n", &both, 21).await;
    assert_eq!(again.iter().map(|(_, kind)| &kind[..]).collect::<Vec<_>>(), turns);
    let rest = received(&stand, &format!("Last-Event-ID: {}\r\n", again[14].0), &both, 6).await;
    assert_eq!(rest, again[15..]);
    let numbers = again.iter().map(|(id, _)| id.split_once('-').unwrap().1.parse::<u64>().unwrap());
    assert!(numbers.is_sorted_by(|a, b| a < b), "{again:?}");
}

/// Opens a plain connection with a hold, like that of a process that is killed later.
async fn raw_hold(stand: &Stand, label: &str) -> BufReader<UnixStream> {
    let Endpoint::Unix(path) = &stand.unix else { panic!("a Unix socket") };
    let mut stream = UnixStream::connect(path).await.unwrap();
    let body = format!(r#"{{"label":"{label}"}}"#);
    let head = "POST /v1/resources/a/hold HTTP/1.1\r\nHost: localhost\r\nContent-Length:";
    stream.write_all(format!("{head} {}\r\n\r\n{body}", body.len()).as_bytes()).await.unwrap();
    BufReader::new(stream)
}

async fn read_until(stream: &mut BufReader<UnixStream>, what: &str) {
    let mut line = String::new();
    while !line.contains(what) {
        line.clear();
        let read = timeout(LONG, stream.read_line(&mut line)).await.expect("a line").unwrap();
        assert!(read > 0, "it ended before {what}");
    }
}

#[tokio::test]
async fn dead_client_frees_its_slot_and_position() {
    let stand = Stand::start().await;
    let mut inside = raw_hold(&stand, "inside").await;
    read_until(&mut inside, "granted").await;
    let mut first = raw_hold(&stand, "first").await;
    read_until(&mut first, "waiting").await;
    let mut second = raw_hold(&stand, "second").await;
    read_until(&mut second, "waiting").await;

    drop(first);
    stand.until("withdrawn", |shown| shown.queue.len() == 1).await;
    drop(inside);
    read_until(&mut second, "granted").await;
    assert_eq!(stand.show().await.holders[0].client.as_ref().unwrap().label, "second");
    drop(second);
    stand.until("free", |shown| shown.holders[0].free).await;
}

#[tokio::test]
async fn stopping_agent_ends_all_connections() {
    let mut stand = Stand::start().await;
    let agent = stand.unix();
    let mut events = stand.tcp().events(Some("none")).await.unwrap();
    let mut inside = agent.hold(&Request::new("a")).await.unwrap();
    assert!(matches!(inside.next().await.unwrap(), Line::Granted(_)));
    let mut waits = agent.hold(&Request::new("a")).await.unwrap();
    let other = stand.tcp();
    let acquire = tokio::spawn(async move { other.acquire(&Request::new("a")).await });
    stand.until("both wait", |shown| shown.queue.len() == 2).await;
    let Endpoint::Unix(path) = stand.unix.clone() else { panic!("a Unix socket") };
    // One connection without a request, and one whose client never reads.
    let mut silent = UnixStream::connect(&path).await.unwrap();
    let _deaf = raw_hold(&stand, "deaf").await;

    stand.stop().await;
    assert!(matches!(inside.next().await.unwrap(), Line::Lost { .. }));
    let stopped = loop {
        match waits.next().await {
            Ok(Line::Waiting(_)) => {}
            other => break other,
        }
    };
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    let stopped = acquire.await.unwrap();
    assert!(matches!(stopped, Err(Error::Stopped)), "{stopped:?}");
    assert_eq!(next(&mut events).await, None);
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    assert!(!path.exists(), "the socket's file is gone");
    assert!(matches!(agent.peers().await, Err(Error::NoAgent { .. })));

    // The holder has been notified, and has time to stop.
    let hurried = stand.service.acquire(Request::new("a").try_only()).await;
    assert!(matches!(hurried, Err(Error::NotAcquired { .. })), "{hurried:?}");
}

#[tokio::test]
async fn client_reconnects_to_a_restarted_agent() {
    let mut stand = Stand::start().await;
    let agent = stand.unix();
    let old = agent.acquire(&Request::new("a")).await.unwrap();
    stand.stop().await;
    let listener = Listener::bind(&stand.unix, None, 1024).await.unwrap();
    let app = peerlock_http::App::new(stand.service.clone());
    let server = tokio::spawn(peerlock_http::serve(vec![listener], app, std::future::pending()));
    agent.renew("a", &old.grant).await.unwrap();
    assert!(matches!(agent.renew("b", &old.grant).await, Err(Error::Lost)), "valid only for its resource");
    server.abort();
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn socket_admits_only_its_owner() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("deep/er/agent.sock");
    let endpoint = Endpoint::Unix(path.clone());
    let listener = Listener::bind(&endpoint, None, 1024).await.unwrap();
    assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
    assert!(path.metadata().unwrap().file_type().is_socket());
    let entries = path.parent().unwrap().read_dir().unwrap().count();
    assert_eq!(entries, 1, "no other file is left");

    let refused = Listener::bind(&endpoint, None, 1024).await.unwrap_err();
    assert!(matches!(refused, ListenError::InUse { .. }), "{refused}");
    drop(listener);
    assert!(!path.exists());

    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let listener = Listener::bind(&endpoint, None, 1024).await.unwrap();

    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "precious").unwrap();
    drop(listener);
    let refused = Listener::bind(&endpoint, None, 1024).await.unwrap_err();
    assert!(matches!(refused, ListenError::NoSocket { .. }), "{refused}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn socket_admits_its_group() {
    let directory = tempfile::tempdir().unwrap();
    // Root can assign any group, other users only their own.
    let own = directory.path().metadata().unwrap();
    let group = if own.uid() == 0 { 4242 } else { own.gid() };
    let path = directory.path().join("run/agent.sock");
    let listener = Listener::bind(&Endpoint::Unix(path.clone()), None, 100).await.unwrap();
    listener.admit(group).unwrap();
    let parent = path.parent().unwrap();
    assert_eq!((mode(&path), mode(parent)), (0o660, 0o710));
    assert_eq!((path.metadata().unwrap().gid(), parent.metadata().unwrap().gid()), (group, group));
    // A directory that all users can search is unchanged.
    std::fs::set_permissions(parent, std::fs::Permissions::from_mode(0o755)).unwrap();
    listener.admit(own.gid()).unwrap();
    assert_eq!((mode(parent), parent.metadata().unwrap().gid()), (0o755, group));
    assert_eq!((mode(&path), path.metadata().unwrap().gid()), (0o660, own.gid()));
}

#[tokio::test]
async fn health_is_ok_until_the_agent_leaves() {
    let stand = Stand::start().await;
    let answer = stand.ask("GET", "/healthz", &[], "").await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(answer.json()["ends_ms"].as_u64().unwrap() > 0, "{}", answer.body);
    let inside = stand.service.hold(Request::new("a").ttl(LONG)).await.unwrap();
    let drains = tokio::spawn({
        let service = stand.service.clone();
        async move { service.drain().await }
    });
    inside.lost().await;
    let answer = stand.ask("GET", "/healthz", &[], "").await;
    assert_eq!(answer.status, 503, "{}", answer.body);
    assert!(answer.json()["message"].as_str().unwrap().contains("stopping"), "{}", answer.body);
    drop(inside);
    drains.await.unwrap();
    stand.service.leave().await;
    assert_eq!(stand.ask("GET", "/healthz", &[], "").await.status, 503);
}

#[tokio::test]
async fn metrics_count_requests() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let granted = agent.acquire(&Request::new("a")).await.unwrap();
    agent.release("a", &granted.grant).await.unwrap();
    agent.acquire(&Request::new("b")).await.unwrap();
    agent.acquire(&Request::new("b").try_only()).await.unwrap_err();
    let has = |text: &str, line: &str| text.lines().any(|given| given == line);
    // The histograms lag behind the events.
    let text = timeout(LONG, async {
        loop {
            let text = stand.ask("GET", "/metrics", &[], "").await.body;
            if has(&text, "peerlock_wait_seconds_count 2") && has(&text, "peerlock_hold_seconds_count 1") {
                break text;
            }
            tokio::task::yield_now().await;
        }
    });
    let text = text.await.expect("counted in time");
    for line in [
        "peerlock_asked_total 3",
        "peerlock_granted_total 2",
        "peerlock_released_total 1",
        "peerlock_refused_total 1",
        "peerlock_holding 1",
        "peerlock_waiting 0",
        "peerlock_peers_up 1",
        "peerlock_resources 2",
        "# TYPE peerlock_wait_seconds histogram",
        "# EOF",
    ] {
        assert!(has(&text, line), "{line} is not in\n{text}");
    }
}
