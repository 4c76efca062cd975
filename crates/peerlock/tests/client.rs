//! The client, at a peer and at an agent.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::time::Duration;

use peerlock::testing::Network;
use peerlock::{Agent, Class, Client, Endpoint, Error, Event, Listing, Peer, Request, Stop};
use peerlock_http::{App, Listener, serve};
use peerlock_service::{PeerId, Service, memory};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

struct Stand {
    peer: Peer,
    agent: Agent,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
    _dir: TempDir,
}

async fn until(what: &str, mut is: impl AsyncFnMut() -> bool) {
    let looked = timeout(LONG, async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(looked.await.is_ok(), "never {what}");
}

impl Stand {
    async fn start() -> Self {
        let peer = Network::new().peer().await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let endpoint = Endpoint::Unix(dir.path().join("agent.sock"));
        let listener = Listener::bind(&endpoint, None, 1024).await.unwrap();
        let (stop, stopped) = oneshot::channel();
        let app = App::new(peer.service().clone());
        let server = tokio::spawn(serve(vec![listener], app, async { _ = stopped.await }));
        Self { peer, agent: Agent::at(endpoint, None), stop, server, _dir: dir }
    }

    fn clients(&self) -> [Client; 2] {
        [self.peer.client(), self.agent.client()]
    }
}

#[tokio::test]
async fn peer_and_agent_behave_alike() {
    let stand = Stand::start().await;
    let mut last = 0;
    for client in stand.clients() {
        let mut events = client.events(Some("a")).await.unwrap();
        let grant = client.acquire(Request::new("a").slots(1).label("me")).await.unwrap();
        assert!(grant.fencing() > last && grant.slot() == 0 && grant.name().as_str() == "a" && !grant.is_lost());
        last = grant.fencing();
        let shown = client.show("a").await.unwrap();
        assert_eq!(shown.holders[0].client.as_ref().unwrap().label, "me");
        assert_eq!(client.resources().await.unwrap()[0].holding_here, 1);
        assert!(client.peers().await.unwrap()[0].is_me);

        assert!(client.try_acquire("a").await.unwrap().is_none());
        let waited = Request::new("a").wait(Duration::from_millis(1));
        assert_eq!(client.acquire(waited).await.unwrap_err().class(), Class::NotAcquired);
        assert!(matches!(client.show("b").await, Err(Error::NoSuchResource { .. })));
        for bad in [Request::new("").slots(1), Request::new("b").try_only().wait(LONG)] {
            assert_eq!(client.acquire(bad).await.unwrap_err().class(), Class::BadRequest);
        }
        drop(grant);
        client.acquire("a").await.unwrap().release().await.unwrap();
        loop {
            let happening = timeout(LONG, events.next()).await.expect("an event").unwrap().unwrap();
            if let Event::Released { name, .. } = happening.event {
                break assert_eq!(name.as_str(), "a");
            }
        }
    }
}

#[tokio::test]
async fn administration_works_at_peer_and_agent() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let granted = client.acquire_detached("a").await.unwrap();
        assert!(matches!(client.remove("a").await, Err(Error::InUse { .. })));
        client.resize("a", 2).await.unwrap();
        assert_eq!(client.show("a").await.unwrap().slots, 2);
        assert!(matches!(client.resize("c", 2).await, Err(Error::NoSuchResource { .. })));
        assert!(matches!(client.resize("a", 0).await, Err(Error::BadSlots { slots: 0 })));
        client.release("a", &granted.grant).await.unwrap();
        client.remove("a").await.unwrap();
        assert!(client.list(&Listing::of("a")).await.unwrap().is_empty());
        let granted = client.acquire_detached("b").await.unwrap();
        client.evict("b", client.cluster().await.unwrap().peers[0].peer).await.unwrap();
        assert!(client.release("b", &granted.grant).await.is_err(), "its host was evicted");
        client.set_voters(None).await.unwrap();
    }
}

#[tokio::test]
async fn position_is_reported_and_dropping_withdraws() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let grant = client.acquire("a").await.unwrap();
        let (notified, mut is_notified) = tokio::sync::mpsc::unbounded_channel();
        let waiter = client.clone();
        let waiting =
            tokio::spawn(async move { waiter.acquire_showing("a", |place| _ = notified.send(place)).await.map(drop) });
        while timeout(LONG, is_notified.recv()).await.expect("a position").unwrap().ahead != Some(0) {}
        waiting.abort();
        until("withdrawn", async || client.show("a").await.unwrap().queue.is_empty()).await;
        drop(grant);
    }
}

#[tokio::test]
async fn detached_grant_is_renewed_and_released_by_id() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let granted = client.acquire_detached(Request::new("a").ttl(LONG)).await.unwrap();
        assert!(client.renew("a", &granted.grant).await.unwrap() >= LONG);
        client.release("a", &granted.grant).await.unwrap();
        assert_eq!(client.release("a", &granted.grant).await, Err(Error::Lost));
        assert_eq!(client.renew("a", &granted.grant).await, Err(Error::Lost));
    }
}

#[tokio::test]
async fn grant_is_renewed_in_the_background_and_hold_is_not() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let short = || Request::new("a").ttl(Duration::from_millis(600)).grace(Duration::from_millis(200));
        let grant = client.acquire(short()).await.unwrap();
        let first = grant.deadline();
        until("renewed", async || grant.deadline() >= first + Duration::from_millis(600)).await;
        assert!(!grant.is_lost());
        grant.release().await.unwrap();

        let hold = client.hold(short(), |_| {}).await.unwrap();
        until("free", async || client.show("a").await.unwrap().holders[0].free).await;
        assert_eq!(hold.renew().await, Err(Error::Lost));
    }
}

#[tokio::test]
async fn revocation_notifies_the_holder() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let revoked = Error::Revoked { name: "a".parse().unwrap(), forced: false };
        let grant = client.acquire("a").await.unwrap();
        let found = client.show("a").await.unwrap();
        assert_eq!(found.holders[0].client.as_ref().unwrap().pid, Some(std::process::id()));
        assert_eq!(client.revoke("a", grant.fencing() + 1).await, Err(Error::Lost), "there is no such grant");
        assert!(!grant.is_lost() && grant.why_lost().is_none());
        let fencing = grant.fencing();
        let stops = async {
            grant.lost().await;
            assert_eq!(grant.why_lost(), Some(revoked.clone()));
            drop(grant);
        };
        let both = async { tokio::join!(client.revoke("a", fencing), stops) };
        let (asked, ()) = timeout(LONG, both).await.unwrap();
        asked.unwrap();

        let mut hold = client.hold("a", |_| {}).await.unwrap();
        let fencing = hold.granted().fencing;
        let asked = tokio::spawn({
            let client = client.clone();
            async move { client.revoke("a", fencing).await }
        });
        assert_eq!(timeout(LONG, hold.maintain(|_, _| {}, |_| {}, async || {})).await.unwrap(), Stop::InGrace);
        assert_eq!(hold.why_lost(), Some(&revoked));
        drop(hold);
        asked.await.unwrap().unwrap();

        let granted = client.acquire_detached(Request::new("a").ttl(LONG)).await.unwrap();
        client.revoke("a", granted.fencing).await.unwrap();
        assert_eq!(client.renew("a", &granted.grant).await, Err(revoked.clone()));
        assert!(client.try_acquire("a").await.unwrap().is_some(), "it is free");
    }
}

#[tokio::test]
async fn stopping_agent_notifies_holders() {
    let stand = Stand::start().await;
    let client = stand.agent.client();
    let grant = client.acquire("a").await.unwrap();
    let mut hold = client.hold("b", |_| {}).await.unwrap();
    stand.stop.send(()).unwrap();
    let (stop, ()) = timeout(LONG, async { tokio::join!(hold.maintain(|_, _| {}, |_| {}, async || {}), grant.lost()) })
        .await
        .unwrap();
    assert_eq!(stop, Stop::InGrace);
    assert!(grant.is_lost());
    stand.server.await.unwrap();
    assert!(matches!(client.peers().await, Err(Error::NoAgent { .. })));
}

/// The agent still runs, and frees the slot when the connection ends.
#[tokio::test]
async fn holder_stops_at_once_when_its_connection_breaks() {
    let stand = Stand::start().await;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("proxy.sock");
    let proxy = tokio::net::UnixListener::bind(&path).unwrap();
    let Endpoint::Unix(behind) = stand.agent.endpoint().clone() else { panic!("it is one") };
    let cut = tokio::sync::broadcast::Sender::<()>::new(1);
    let wires = cut.clone();
    tokio::spawn(async move {
        loop {
            let (mut near, _) = proxy.accept().await.unwrap();
            let mut far = tokio::net::UnixStream::connect(&behind).await.unwrap();
            let mut is_cut = wires.subscribe();
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    _ = is_cut.recv() => {}
                }
            });
        }
    });
    let client = Agent::at(Endpoint::Unix(path), None).client();
    let mut hold = client.hold("a", |_| {}).await.unwrap();
    let grant = client.acquire("b").await.unwrap();
    cut.send(()).unwrap();
    let stop = timeout(LONG, async { tokio::join!(hold.maintain(|_, _| {}, |_| {}, async || {}), grant.lost()) }).await;
    assert_eq!(stop.expect("long before the leases expire").0, Stop::AtOnce);
}

#[test]
fn blocking_client_acquires_and_waits() {
    use peerlock::blocking;
    let builder = Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(peerlock::Secret::generate());
    let client = blocking::Client::peer(builder).unwrap();
    let grant = client.acquire("a").unwrap();
    assert!(client.try_acquire("a").unwrap().is_none());
    assert!(!grant.is_lost() && !grant.is_lost_within(Duration::from_millis(1)));
    assert_eq!(client.show("a").unwrap().holders[0].client.as_ref().unwrap().fencing, Some(grant.fencing()));
    let waiting = {
        let client = client.clone();
        std::thread::spawn(move || client.acquire("a").map(|grant| grant.fencing()))
    };
    while client.resources().unwrap()[0].waiting_here == 0 {
        std::thread::yield_now();
    }
    let before = grant.fencing();
    grant.release().unwrap();
    assert!(waiting.join().unwrap().unwrap() > before);
    assert_eq!(client.peers().unwrap().len(), 1);
    let last = client.acquire("a").unwrap();
    drop(client);
    assert!(!last.is_lost(), "the grant is a handle, too");
}

#[test]
fn blocking_client_has_every_verb() {
    use peerlock::blocking;
    let builder = Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(peerlock::Secret::generate());
    let client = blocking::Client::peer(builder).unwrap();
    let mut events = client.events(Some("a")).unwrap();

    let hold = client.hold("a", |_| ()).unwrap();
    assert!(hold.renew().unwrap() > Duration::ZERO);
    let about = events.next().unwrap().unwrap();
    assert!(about.event.is_about(&hold.granted().name), "{about:?}");
    assert!(matches!(client.remove("a"), Err(Error::InUse { .. })));
    hold.release().unwrap();

    client.resize("a", 2).unwrap();
    assert_eq!(client.show("a").unwrap().slots, 2);
    let mut places = Vec::new();
    let grant = client.acquire_showing("a", |place| places.push(place)).unwrap();
    let detached = client.acquire_detached(Request::new("a").ttl(LONG)).unwrap();
    assert_ne!(detached.slot, grant.slot());
    assert!(client.renew("a", &detached.grant).unwrap() > Duration::ZERO);
    client.release("a", &detached.grant).unwrap();
    assert_eq!(client.renew("a", &detached.grant), Err(Error::Lost));

    let (asks, fencing) = (client.clone(), grant.fencing());
    std::thread::scope(|threads| {
        threads.spawn(move || asks.revoke("a", fencing).unwrap());
        assert!(grant.is_lost_within(LONG));
        drop(grant); // Otherwise the revocation waits until the lease expires.
    });
    let me = client.peers().unwrap()[0].peer;
    client.evict("a", me).unwrap();
    client.set_voters(None).unwrap();
    assert_eq!(client.cluster().unwrap().peers.len(), 1);
    client.acquire_detached("b").map(|it| client.release("b", &it.grant).unwrap()).unwrap();
    client.remove("b").unwrap();
    assert!(client.resources().unwrap().iter().all(|it| it.name.as_str() != "b"));
}

#[tokio::test]
async fn is_lost_reads_the_clock_while_the_runtime_is_blocked() {
    let stand = Stand::start().await;
    for client in stand.clients() {
        let short = Request::new("a").ttl(Duration::from_secs(2)).grace(Duration::from_millis(200));
        let grant = client.acquire(short).await.unwrap();
        assert!(!grant.is_lost());
        std::thread::sleep(Duration::from_millis(2100));
        assert!(grant.is_lost());
        assert_eq!(grant.why_lost(), Some(Error::Lost));
        drop(grant);
    }
}

/// Within a runtime as well, and without a panic.
#[tokio::test]
async fn dropped_blocking_peer_leaves() {
    use peerlock::blocking;
    let secret = peerlock::Secret::generate();
    let here = || Peer::builder().listen(([127, 0, 0, 1], 0).into()).secret(secret.clone());
    let first = here().service(|service| service.votes_from_memory()).start().await.unwrap();
    let builder = || here().join(first.address().to_string()).session(10 * LONG);
    let start = |builder| tokio::task::spawn_blocking(move || blocking::Client::peer(builder).unwrap());
    let alone =
        async || first.client().peers().await.unwrap().iter().filter(|peer| peer.session.is_some()).count() == 1;

    let client = start(builder()).await.unwrap();
    assert!(!alone().await);
    tokio::task::spawn_blocking(|| drop(client)).await.unwrap();
    until("alone again", alone).await;

    let client = start(builder()).await.unwrap();
    assert!(!alone().await);
    drop(client);
    until("alone again", alone).await;
}

/// An agent at its connection limit still renews leases. Virtual time passes far beyond its timeout of idle
/// connections.
#[tokio::test]
async fn long_lease_is_renewed_on_its_connection() {
    let network = memory::Network::new(1).endpoint(PeerId::new(1));
    let service = Service::builder().session(Duration::from_secs(600)).start(network).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let endpoint = Endpoint::Unix(dir.path().join("agent.sock"));
    let (listener, app) = (Listener::bind(&endpoint, None, 1024).await.unwrap(), App::new(service));
    let server = tokio::spawn(serve(vec![listener], app.clone(), std::future::pending()));
    let request = Request::new("a").ttl(Duration::from_secs(3600));
    let mut hold = Agent::at(endpoint, None).client().hold(request, |_| ()).await.unwrap();
    assert!(hold.renew().await.unwrap() > Duration::from_secs(300), "it is long");
    let (_, accepted) = app.connections();
    tokio::time::pause();
    let mut renewed = 0;
    let (enough, mut is_enough) = oneshot::channel();
    let mut enough = Some(enough);
    tokio::select! {
        stop = hold.maintain(
            |_, _| {
                renewed += 1;
                if renewed == 20 {
                    _ = enough.take().map(|enough| enough.send(()));
                }
            },
            |_| (),
            async || (),
        ) => panic!("{stop:?}"),
        _ = &mut is_enough => {}
    }
    assert_eq!(app.connections().1, accepted, "no other connection was needed");
    server.abort();
}
