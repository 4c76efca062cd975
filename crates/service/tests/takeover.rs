//! The process of a peer is replaced while its clients continue, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use peerlock_service::memory::Network;
use peerlock_service::store::{Known, Store};
use peerlock_service::{Clock, ClusterId, Error, GrantFile, Moment, PeerId, Request, Service};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// The length of sessions and leases: far longer than a restart.
const SESSION: Duration = Duration::from_secs(60);

const CLUSTER: ClusterId = ClusterId::new(1);
const VOTER: PeerId = PeerId::new(1);
const HOST: PeerId = PeerId::new(2);

struct World {
    network: Network,
    clock: Clock,
    voter: Service,
    file: PathBuf,
    processes: u64,
}

impl World {
    async fn new(test: &str) -> Self {
        let (network, clock) = (Network::new(1), Clock::pausable());
        let voter = Service::builder().process_number(1).clock(clock.clone()).session(SESSION).votes_from_memory();
        let voter = voter.start(network.endpoint(VOTER)).await.unwrap();
        let file = std::env::temp_dir().join(format!("peerlock-takeover-{test}-{}", std::process::id()));
        Self { network, clock, voter, file, processes: 1 }
    }

    async fn process(&mut self) -> Service {
        let endpoint = self.network.endpoint(HOST);
        sleep(Duration::from_millis(1)).await;
        self.processes += 1;
        // The file is checked by the machine's clock, which must not be behind the virtual one.
        while Moment::now() < self.clock.now() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (file, predecessor) = GrantFile::open(Path::new(&self.file), HOST).unwrap();
        let known = Known { cluster: Some(CLUSTER), ..Known::default() };
        let builder = Service::builder().process_number(self.processes).clock(self.clock.clone()).session(SESSION);
        let builder = builder.join(Network::address(VOTER)).dir(Store::memory(), known).grants(file, predecessor);
        builder.start(endpoint).await.unwrap()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.file);
    }
}

/// A client that gives up resuming may still use its slot until its deadline.
#[tokio::test(start_paused = true)]
async fn abandoned_resume_keeps_the_slot_until_its_deadline() {
    let mut world = World::new("parked").await;
    let first = world.process().await;
    let held = first.hold(Request::new("r").ttl(SESSION)).await.unwrap();
    let (until, name, id) = (held.deadline(), held.name().clone(), held.id().clone());
    world.network.cut(VOTER, HOST);
    let second = world.process().await;
    let next = world.voter.acquire("r");
    drop(second.resume(name.clone(), id.clone()));
    let gives_up = timeout(SECOND, second.resume(name.clone(), id.clone())).await;
    assert!(gives_up.is_err(), "there is no quorum yet: {gives_up:?}");
    world.network.heal(VOTER, HOST);
    let next = next.await.unwrap();
    assert!(next.deadline() > until && world.voter.now() >= until, "granted too early");
    let lost = second.resume(name, id).await.unwrap_err();
    assert_eq!(lost, Error::Lost);
    drop((first, held));
}

#[tokio::test(start_paused = true)]
async fn dropped_resume_does_not_release_the_slot() {
    let mut world = World::new("dropped").await;
    let first = world.process().await;
    let held = first.hold(Request::new("r").ttl(SESSION)).await.unwrap();
    let (until, name, id) = (held.deadline(), held.name().clone(), held.id().clone());
    let second = world.process().await;
    let next = world.voter.acquire("r");
    // Dropped before the command is received, and dropped after it is answered.
    drop(second.resume(name.clone(), id.clone()));
    let answered = second.resume(name.clone(), id.clone());
    sleep(SECOND).await;
    drop(answered);
    let early = timeout(SESSION / 2, next).await;
    assert!(early.is_err(), "granted too early: {early:?}");
    let resumed = second.resume(name, id).await.unwrap();
    assert!(resumed.deadline() > until);
    drop(resumed);
    drop(timeout(SECOND, world.voter.acquire("r")).await.expect("it was released").unwrap());
    drop((first, held));
}

#[tokio::test(start_paused = true)]
async fn renewal_before_grants_are_known_is_not_answered_stopped() {
    let mut world = World::new("returned").await;
    drop(world.process().await);
    world.network.cut(VOTER, HOST);
    let second = world.process().await;
    let renewed = tokio::spawn({
        let second = second.clone();
        async move { second.renew(&"d0".parse().unwrap()).await }
    });
    sleep(15 * SECOND / 2).await;
    world.network.heal(VOTER, HOST);
    let refused = renewed.await.unwrap().unwrap_err();
    assert_ne!(refused, Error::Stopped);
    sleep(5 * SECOND).await;
    assert_eq!(second.renew(&"d0".parse().unwrap()).await, Err(Error::Lost), "the grant does not exist");
}

/// The registry stores the grant, not the request ID.
#[tokio::test(start_paused = true)]
async fn request_id_is_known_to_its_process_only() {
    let mut world = World::new("request").await;
    let ask = |peer: &Service| peer.acquire_detached(Request::new("r").ttl(SESSION).request_id("7").try_only());
    let first = world.process().await;
    let id = ask(&first).await.unwrap().detach();
    assert_eq!(ask(&first).await.unwrap().detach(), id);
    let second = world.process().await;
    sleep(5 * SECOND).await;
    let refused = ask(&second).await.unwrap_err();
    assert!(matches!(refused, Error::NotAcquired { .. }), "{refused:?}");
    second.release(&id).await.unwrap();
    assert_ne!(ask(&second).await.unwrap().detach(), id);
}
