//! What a peer shows of itself, and that looking changes nothing.

use std::time::Duration;

use peerlock_service::{Error, Inspection, Part, PeerId, Request, TicketView};

use crate::world::Cluster;

async fn inspect_all(cluster: &Cluster) -> Vec<Inspection> {
    let mut all = Vec::new();
    for peer in cluster.peers.values() {
        all.push(peer.inspect().await.unwrap());
    }
    all
}

fn parts(all: &[Inspection]) -> Vec<(PeerId, &Part)> {
    all.iter().flat_map(|seen| seen.parts.iter().map(|part| (seen.peer, part))).collect()
}

#[tokio::test(start_paused = true)]
async fn the_ring_closes_and_all_agree_where_everybody_lies() {
    let cluster = Cluster::of(5, 21).await;
    tokio::time::sleep(Duration::from_secs(60)).await; // A few rounds of the overlay's upkeep.
    let mut all = inspect_all(&cluster).await;
    all.sort_by_key(|seen| seen.place);
    for (at, seen) in all.iter().enumerate() {
        let neighbour = |step: usize| Some(all[(at + step) % all.len()].peer);
        assert_eq!((seen.successor, seen.predecessor), (neighbour(1), neighbour(4)), "{seen:?}");
        let mut known = seen.others.clone();
        known.push((seen.peer, seen.place));
        known.sort_by_key(|(_, place)| *place);
        assert_eq!(known, all.iter().map(|other| (other.peer, other.place)).collect::<Vec<_>>());
    }

    let alone = Cluster::of(1, 1).await.peer(1).inspect().await.unwrap();
    assert_eq!((alone.successor, alone.predecessor, alone.others, alone.parts), (None, None, vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn one_keeps_the_line_and_the_tokens_are_where_the_clients_are() {
    let cluster = Cluster::of(3, 22).await;
    let mut inside = Vec::new();
    for number in [1, 2] {
        inside.push(cluster.peer(number).acquire(Request::new("r").slots(2).label("in")).await.unwrap());
    }
    let waits = [3, 1, 2].map(|number| cluster.peer(number).acquire(Request::new("r").label(number.to_string())));
    tokio::time::sleep(Duration::from_secs(1)).await;

    let all = inspect_all(&cluster).await;
    let parts = parts(&all);
    let keepers: Vec<_> = parts.iter().filter(|(_, part)| part.line.is_some()).collect();
    let [(keeper, kept)] = keepers[..] else { panic!("one keeps the line: {keepers:?}") };
    assert!(parts.iter().all(|(_, part)| part.keeper == Some(*keeper) && part.slots == Some(2)), "{parts:?}");

    let line = kept.line.as_ref().unwrap();
    let label = |at: &TicketView| {
        let (_, part) = parts.iter().find(|(peer, _)| *peer == at.peer).unwrap();
        let client = part.clients.iter().find(|client| client.ticket == at.ticket).unwrap();
        assert!(client.slot.is_none() && client.client.fencing.is_none(), "it waits: {client:?}");
        assert!(client.client.age >= Duration::from_secs(1), "{client:?}");
        client.client.label.clone()
    };
    let mut labels: Vec<_> = line.iter().map(label).collect();
    labels.sort();
    assert_eq!(labels, ["1", "2", "3"]);

    let tokens: Vec<_> = parts.iter().flat_map(|(peer, part)| part.tokens.iter().map(move |at| (*peer, at))).collect();
    assert_eq!(tokens.len(), 2);
    for (peer, token) in tokens {
        let (_, part) = parts.iter().find(|(other, _)| *other == peer).unwrap();
        let holder = part.clients.iter().find(|client| client.slot == Some(token.slot)).unwrap();
        assert_eq!((holder.client.label.as_str(), token.free), ("in", false));
        assert!(line.contains(&token.next.unwrap()), "the next of a token stands in line: {token:?}");
    }

    drop((inside, waits));
    tokio::time::sleep(Duration::from_secs(1)).await;
    let all = inspect_all(&cluster).await;
    for (peer, part) in self::parts(&all) {
        assert!(part.clients.is_empty() && part.tokens.iter().all(|token| token.free), "{peer}: {part:?}");
        assert!(part.line.as_ref().is_none_or(Vec::is_empty), "{peer}: {part:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn looking_asks_nobody_and_changes_nothing() {
    let cluster = Cluster::of(3, 23).await;
    let grant = cluster.peer(1).acquire("r").await.unwrap();
    let waits = cluster.peer(2).acquire("r");
    tokio::time::sleep(Duration::from_secs(1)).await;

    let counters = async || {
        let mut all = Vec::new();
        for peer in cluster.peers.values() {
            all.push(peer.counters().await.unwrap());
        }
        all
    };
    let (before, seen) = (counters().await, inspect_all(&cluster).await);
    for _ in 0..100 {
        assert_eq!(inspect_all(&cluster).await, seen); // The clock stands still, and so does everything else.
    }
    assert_eq!(counters().await, before);

    drop((grant, waits));
    cluster.peer(3).leave().await;
    assert_eq!(cluster.peer(3).inspect().await, Err(Error::Stopped));
}
