//! Peers on real sockets, in one process.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use peerlock_net::{Config, Identity, Net, Secret};
use peerlock_service::{PeerView, RealNetwork, Request, Service, Voter};
use tokio::time::timeout;

async fn start(join: Option<&str>) -> (Service, String) {
    let secret = Secret::new(b"a secret that is long enough for a test").unwrap();
    let net = Net::start(Config::new("127.0.0.1:0".parse().unwrap()), Identity::generate(), secret).await.unwrap();
    let address = net.address().to_string();
    let builder =
        join.into_iter().fold(Service::builder().votes_from_memory(), |builder, address| builder.join(address));
    (builder.start(RealNetwork::new(net)).await.unwrap(), address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_peers_with_three_clients_each_and_two_slots() {
    let (first, address) = start(None).await;
    let mut peers = vec![first];
    for _ in 0..3 {
        peers.push(start(Some(&address)).await.0);
    }
    let inside = Arc::new(Mutex::new((BTreeSet::new(), BTreeSet::new())));
    let mut clients = Vec::new();
    for peer in peers.iter().cycle().take(12) {
        let (peer, inside) = (peer.clone(), inside.clone());
        clients.push(tokio::spawn(async move {
            for _ in 0..100 {
                let grant = peer.acquire(Request::new("r").slots(2)).await.unwrap();
                {
                    let mut inside = inside.lock().unwrap();
                    assert!(inside.0.insert(grant.slot()) && inside.0.len() <= 2, "one too many");
                    assert!(inside.1.insert(grant.fencing()), "{} was given before", grant.fencing());
                }
                tokio::task::yield_now().await;
                inside.lock().unwrap().0.remove(&grant.slot());
            }
        }));
    }
    for client in clients {
        timeout(Duration::from_secs(60), client).await.expect("all come in").unwrap();
    }
    assert_eq!(inside.lock().unwrap().1.len(), 1200);

    // Whoever founded it leaves, and the others go on.
    let votes = |peer: &&PeerView| matches!(peer.voter, Voter::Votes | Voter::Leads);
    let three_vote = async {
        while peers[0].cluster().await.unwrap().peers.iter().filter(votes).count() < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(Duration::from_secs(60), three_vote).await.expect("three of four vote");
    peers.remove(0).leave().await;
    for peer in &peers {
        let grant = timeout(Duration::from_secs(20), peer.acquire("r")).await.expect("it goes on").unwrap();
        assert!(inside.lock().unwrap().1.insert(grant.fencing()), "{} was given before", grant.fencing());
    }
}
