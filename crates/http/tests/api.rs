//! An agent's API with its own client, on real sockets.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;

use std::time::Duration;

use common::{LONG, Stand};
use peerlock_http::Line;
use peerlock_http::client::Hold;
use peerlock_service::{Error, Event, Listing, PeerId, Request};
use tokio::time::timeout;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

async fn line(hold: &mut Hold) -> Result<Line, Error> {
    timeout(LONG, hold.next()).await.expect("a line")
}

#[tokio::test]
async fn slot_is_acquired_renewed_and_released() {
    let stand = Stand::start().await;
    for agent in [stand.unix(), stand.tcp()] {
        let granted = agent.acquire(&Request::new("a/b ☂").label("me").slots(1)).await.unwrap();
        assert_eq!((granted.name.as_str(), granted.slot), ("a/b ☂", 0));
        assert!((ms(1)..=ms(30_000)).contains(&granted.ttl), "{granted:?}");
        assert!(agent.renew("a/b ☂", &granted.grant).await.unwrap() >= Duration::from_secs(30));

        let shown = agent.show("a/b ☂").await.unwrap();
        let client = shown.holders[0].client.clone().unwrap();
        assert_eq!((client.label.as_str(), client.fencing), ("me", Some(granted.fencing)));
        let listed = agent.list(&Listing::of("a/")).await.unwrap();
        assert_eq!((listed[0].name.as_str(), listed[0].slots, listed[0].holding_here), ("a/b ☂", Some(1), 1));

        agent.release("a/b ☂", &granted.grant).await.unwrap();
        for lost in [
            agent.release("a/b ☂", &granted.grant).await.map(|()| Duration::ZERO),
            agent.renew("a/b ☂", &granted.grant).await,
        ] {
            assert!(matches!(lost, Err(Error::Lost)), "{lost:?}");
        }
    }
    let peers = stand.tcp().peers().await.unwrap();
    assert_eq!((peers.len(), peers[0].is_me, peers[0].peer), (1, true, PeerId::new(1)));
}

#[tokio::test]
async fn names_are_listed_by_prefix_and_page() {
    let stand = Stand::start().await;
    for name in ["a", "b/1", "b/2", "b/3 &", "c"] {
        drop(stand.service.acquire(Request::new(name)).await.unwrap());
    }
    let listing = |prefix: &str, after: Option<&str>, limit| Listing {
        prefix: prefix.to_owned(),
        after: after.map(|name| name.parse().unwrap()),
        limit,
    };
    for (listing, found) in [
        (Listing::default(), &["a", "b/1", "b/2", "b/3 &", "c"][..]),
        (listing("b/", None, None), &["b/1", "b/2", "b/3 &"]),
        (listing("b/", None, Some(2)), &["b/1", "b/2"]),
        (listing("b/", Some("b/2"), Some(2)), &["b/3 &"]),
        (listing("b/3 ", None, None), &["b/3 &"]),
        (listing("", Some("b/3 &"), None), &["c"]),
        (listing("x", None, None), &[]),
        (listing("b", None, Some(0)), &[]),
    ] {
        let listed = stand.unix().list(&listing).await.unwrap();
        assert_eq!(listed.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), found, "{listing:?}");
    }
    let refused = stand.unix().list(&Listing::of("two\nlines")).await;
    assert!(matches!(&refused, Err(Error::BadName { name, .. }) if name == "two\nlines"), "{refused:?}");
}

#[tokio::test]
async fn grant_is_valid_only_at_its_resource_and_agent() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let granted = agent.acquire(&Request::new("a")).await.unwrap();
    let other = Stand::start().await;
    let elsewhere = other.unix().acquire(&Request::new("a")).await.unwrap();
    let number = granted.grant.split('-').next().unwrap();
    for (name, grant) in
        [("b", granted.grant.as_str()), ("a", &elsewhere.grant), ("a", number), ("a", ""), ("a", "x-1")]
    {
        let lost = agent.release(name, grant).await;
        assert!(matches!(lost, Err(Error::Lost)), "{name} {grant:?} {lost:?}");
    }
    agent.release("a", &granted.grant).await.unwrap();
}

#[tokio::test]
async fn repeated_request_id_returns_the_same_grant() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let same = |name| Request::new(name).request_id("0123456789abcdef");
    let first = agent.acquire(&same("a")).await.unwrap();
    let again = agent.acquire(&same("a")).await.unwrap();
    assert_eq!((first.grant.as_str(), first.fencing), (again.grant.as_str(), again.fencing));
    let other = agent.acquire(&same("b")).await.unwrap();
    assert_eq!(other.name.as_str(), "b");
    agent.release("a", &again.grant).await.unwrap();
    assert_ne!(agent.acquire(&same("a")).await.unwrap().fencing, first.fencing);
}

#[tokio::test]
async fn refused_request_has_a_reason() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    agent.acquire(&Request::new("a").slots(1)).await.unwrap();
    let name = || "a".parse().unwrap();
    let a = || Request::new("a");
    let (ttl, grace) = (ms(10), ms(2));
    for (request, error) in [
        (a().slots(2), Error::SlotsMismatch { name: name(), has: 1, asked: 2 }),
        (a().slots(0), Error::BadSlots { slots: 0 }),
        (a().ttl(ttl), Error::BadLease { ttl, grace }),
    ] {
        assert_eq!(agent.acquire(&request).await.unwrap_err(), error);
        assert_eq!(agent.hold(&request).await.unwrap().next().await.unwrap_err(), error);
    }
    for request in [a().try_only(), a().wait(ms(1))] {
        let refused = agent.acquire(&request).await;
        assert!(matches!(refused, Err(Error::NotAcquired { .. })), "{refused:?}");
    }
    assert!(matches!(agent.show("b").await, Err(Error::NoSuchResource { .. })));
    assert!(matches!(agent.acquire(&Request::new("")).await, Err(Error::BadName { .. })));
}

#[tokio::test]
async fn hold_queues_and_ends_with_its_connection() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let mut first = agent.hold(&Request::new("a").label("first")).await.unwrap();
    let Line::Granted(before) = line(&mut first).await.unwrap() else { panic!("not granted") };
    let mut second = agent.hold(&Request::new("a").label("second")).await.unwrap();
    let Line::Waiting(waiting) = line(&mut second).await.unwrap() else { panic!("expected a queue position") };
    assert_eq!(waiting.ahead, Some(0));
    drop(first);
    loop {
        match line(&mut second).await.unwrap() {
            Line::Waiting(_) => {}
            Line::Granted(granted) => break assert_eq!(granted.fencing, before.fencing + 1),
            line => panic!("{line:?}"),
        }
    }
}

#[tokio::test]
async fn dropped_request_leaves_the_queue() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let granted = agent.acquire(&Request::new("a").label("inside")).await.unwrap();
    let hold = agent.hold(&Request::new("a").label("one")).await.unwrap();
    let other = stand.tcp();
    let acquire = tokio::spawn(async move { other.acquire(&Request::new("a").label("two")).await });
    stand.until("both wait", |shown| shown.queue.len() == 2).await;
    drop(hold);
    stand.until("one waiter less", |shown| shown.queue.len() == 1).await;
    acquire.abort();
    stand.until("nobody waits", |shown| shown.queue.is_empty()).await;
    agent.release("a", &granted.grant).await.unwrap();
}

#[tokio::test]
async fn hold_is_lost_unless_renewed() {
    let stand = Stand::start().await;
    let agent = stand.unix();
    let mut events = agent.events(Some("a")).await.unwrap();
    let mut idle = agent.hold(&Request::new("a").ttl(ms(1000)).grace(ms(400))).await.unwrap();
    assert!(matches!(line(&mut idle).await.unwrap(), Line::Granted(_)));
    assert!(matches!(line(&mut idle).await.unwrap(), Line::Lost { .. }));
    assert!(matches!(line(&mut idle).await, Err(Error::Broken { .. })), "no further line");
    assert!(stand.show().await.holders[0].free, "its lease has expired");
    loop {
        let happening = timeout(LONG, events.next()).await.expect("an event").unwrap().unwrap();
        if let Event::Released { held, .. } = happening.event {
            break assert!(held >= ms(1000), "the holder keeps the slot until its lease expires: {held:?}");
        }
    }

    let mut held = agent.hold(&Request::new("a").ttl(ms(60_000))).await.unwrap();
    let Line::Granted(granted) = line(&mut held).await.unwrap() else { panic!("not granted") };
    let valid = agent.renew("a", &granted.grant).await.unwrap();
    assert!(valid > ms(5_000) && valid <= ms(15_000), "limited by the session of the agent: {valid:?}");
    agent.release("a", &granted.grant).await.unwrap();
    assert!(matches!(line(&mut held).await.unwrap(), Line::Lost { .. }));
}
