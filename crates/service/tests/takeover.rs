//! A client's process goes on while that of its peer is replaced: what becomes of its slot, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use peerlock_service::memory::Network;
use peerlock_service::store::{Known, Store};
use peerlock_service::{Clock, ClusterId, Error, GrantFile, PeerId, Request, Service};
use tokio::time::{sleep, timeout};

const SECOND: Duration = Duration::from_secs(1);
/// How long a session stands, and a lease in it: far longer than it takes to be back.
const SESSION: Duration = Duration::from_secs(60);

/// What a process with the number 1 founds.
const CLUSTER: ClusterId = ClusterId::new(1);
const VOTER: PeerId = PeerId::new(1);
const HOST: PeerId = PeerId::new(2);

/// A host that votes, and one that does not and whose processes leave their grants to the next.
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
        let file = std::env::temp_dir().join(format!("peerlock-heir-{test}-{}", std::process::id()));
        Self { network, clock, voter, file, processes: 1 }
    }

    /// The next process of the host. The one before is dead.
    async fn process(&mut self) -> Service {
        let endpoint = self.network.endpoint(HOST);
        sleep(Duration::from_millis(1)).await;
        self.processes += 1;
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

/// Its client has given up asking, and is inside all the same until the end that it was told.
#[tokio::test(start_paused = true)]
async fn who_does_not_wait_to_go_on_has_its_slot_until_its_end() {
    let mut world = World::new("parked").await;
    let first = world.process().await;
    let held = first.hold(Request::new("r").ttl(SESSION)).await.unwrap();
    let (until, name, id) = (held.deadline(), held.name().clone(), held.id().clone());
    world.network.cut(VOTER, HOST);
    let second = world.process().await;
    let next = world.voter.acquire("r");
    drop(second.resume(name.clone(), id.clone()));
    let gives_up = timeout(SECOND, second.resume(name.clone(), id.clone())).await;
    assert!(gives_up.is_err(), "there is no majority yet: {gives_up:?}");
    world.network.heal(VOTER, HOST);
    let next = next.await.unwrap();
    assert!(next.deadline() > until && world.voter.now() >= until, "somebody came in beside it");
    let lost = second.resume(name, id).await.unwrap_err();
    assert_eq!(lost, Error::Lost);
    drop((first, held));
}

/// It is gone when the answer comes: what it was not told it does not have to give back.
#[tokio::test(start_paused = true)]
async fn an_answer_that_finds_nobody_gives_no_slot_back() {
    let mut world = World::new("unheard").await;
    let first = world.process().await;
    let held = first.hold(Request::new("r").ttl(SESSION)).await.unwrap();
    let (until, name, id) = (held.deadline(), held.name().clone(), held.id().clone());
    let second = world.process().await;
    let next = world.voter.acquire("r");
    // Before it was heard that somebody asks, and after it was answered.
    drop(second.resume(name.clone(), id.clone()));
    let answered = second.resume(name.clone(), id.clone());
    sleep(SECOND).await;
    drop(answered);
    let early = timeout(SESSION / 2, next).await;
    assert!(early.is_err(), "somebody came in beside it: {early:?}");
    // And who comes then has it for as long as it wants it, and no longer.
    let resumed = second.resume(name, id).await.unwrap();
    assert!(resumed.deadline() > until);
    drop(resumed);
    drop(timeout(SECOND, world.voter.acquire("r")).await.expect("it was given back").unwrap());
    drop((first, held));
}

/// The session comes while somebody waits to hear of a grant, and it is not known yet what was granted before.
#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_stop_does_not_say_so() {
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
    assert_eq!(second.renew(&"d0".parse().unwrap()).await, Err(Error::Lost), "now it knows that there is none");
}

/// What `docs/api.md` says of it: the register knows the grant, and not what it was asked for by.
#[tokio::test(start_paused = true)]
async fn a_request_id_is_known_to_its_process_only() {
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
