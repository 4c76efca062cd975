//! What the live page draws: one or several peers from the inside, put together.
//!
//! A demo has all peers of its cluster in one process, and shows the whole of it. An agent shows its own peer: where
//! the others lie, and its own pointers, tokens and clients; of one resource, the one that is looked at, it also asks
//! the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use futures_util::future::join_all;
use peerlock_service::{
    ClientView, Event, Happening, Inspection, Key, Name, Part, PeerId, PeerView, ResourceDetails, Service, TicketView,
};
use serde::Serialize;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::Failure;
use crate::input::About;
use crate::waits::{Second, Waits};

/// At most this many of those who wait are shown by name.
const MOST_SHOWN: usize = 100;
/// How long the others have to answer. Well within the time that the page waits for us.
const PATIENCE: Duration = Duration::from_secs(2);
/// The waits of at most this many resources are kept.
const MOST_RESOURCES: usize = 1000;

/// Watches peers without changing anything.
#[derive(Debug)]
pub struct Watch {
    services: Vec<Service>,
    began: Instant,
    waits: Arc<Mutex<BTreeMap<Name, Waits>>>,
}

impl Watch {
    /// Begins to watch. What it counts, it counts from now on.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn new(services: Vec<Service>) -> Self {
        let (began, waits) = (Instant::now(), Arc::default());
        for service in &services {
            tokio::spawn(collect(service.events(), began, Arc::clone(&waits)));
        }
        Self { services, began, waits }
    }

    /// How it looks now, and most of all this resource, or the first. Peers that have stopped are left out.
    pub async fn view(&self, name: Option<&Name>) -> View {
        let mut view = self.seen().await;
        let named = view.resources.iter().position(|resource| name.is_some_and(|name| *name == resource.name));
        if !view.whole
            && let Some(resource) = view.resources.get_mut(named.unwrap_or(0))
            && let Some(service) = self.services.first()
        {
            match timeout(PATIENCE, service.show(resource.name.as_str())).await {
                Ok(Ok(details)) => resource.join(details),
                Ok(Err(error)) => resource.trouble = Some(error.to_string()),
                Err(_) => resource.trouble = Some("The other peers do not answer; retrying.".to_owned()),
            }
        }
        view
    }

    /// What can be seen from the inside.
    async fn seen(&self) -> View {
        let seen = join_all(self.services.iter().map(Service::inspect)).await.into_iter().flatten().collect::<Vec<_>>();
        let known = match self.services.first() {
            Some(service) => service.peers().await.unwrap_or_default(),
            None => Vec::new(),
        };
        let waits = self.waits.lock().unwrap_or_else(PoisonError::into_inner);
        let numbers = self.services.iter().map(Service::me).zip(1..).collect();
        View::of(&seen, &known, &numbers, &waits, self.began.elapsed().as_secs())
    }
}

/// Counts the entries at one peer until it stops.
async fn collect(mut events: broadcast::Receiver<Happening>, began: Instant, waits: Arc<Mutex<BTreeMap<Name, Waits>>>) {
    loop {
        let (name, waited) = match events.recv().await {
            Ok(Happening { event: Event::Granted { name, waited, .. }, .. }) => (name, waited),
            // Too slow for some of them: those are not counted.
            Ok(_) | Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
        if waits.len() < MOST_RESOURCES || waits.contains_key(&name) {
            waits.entry(name).or_default().enter(began.elapsed().as_secs(), waited);
        }
    }
}

/// The routes of the live page's data.
pub fn routes(watch: Arc<Watch>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(view)).with_state(watch)
}

/// What the live page draws: the peers on their ring, pointers, tokens, lines and waits.
#[utoipa::path(
    get,
    path = "/v1/view",
    params(About),
    responses((status = 200, body = View), (status = "default", body = Failure))
)]
async fn view(State(watch): State<Arc<Watch>>, About { name }: About) -> Json<View> {
    Json(watch.view(name.as_ref()).await)
}

/// Peers from the inside, at about one moment.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct View {
    /// All peers are seen from the inside, not only one: tokens and lines are complete.
    pub whole: bool,
    /// The current second, counted from when the watch began.
    pub now_s: u64,
    /// The peers in the order of the ring.
    pub peers: Vec<ViewPeer>,
    /// The resources that are known, by name.
    pub resources: Vec<ViewResource>,
}

/// A peer on the ring.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ViewPeer {
    /// The peer's number, in decimal digits.
    pub peer: String,
    /// What to call it: its number in a demo, else its address.
    pub label: String,
    /// Where it listens.
    pub address: String,
    /// Where it lies on the ring, from 0 to 1 clockwise.
    pub place: f64,
    /// Whether it is connected.
    pub up: bool,
    /// Whether it is seen from the inside.
    pub seen: bool,
}

/// A resource, with what the peers that are seen or were asked know of it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ViewResource {
    /// The name by which clients ask for it.
    #[schema(value_type = String)]
    pub name: Name,
    /// How many may be inside at a time; nothing while it is being founded.
    pub slots: Option<u32>,
    /// Who keeps the line, if that peer is seen from the inside or was asked.
    pub keeper: Option<String>,
    /// To whom each peer sends its requests.
    pub pointers: Vec<Pointer>,
    /// The tokens at the peers that are seen or were asked, by slot. One that is under way may be missing.
    pub tokens: Vec<ViewToken>,
    /// Who waits, the next first: a hundred at most.
    pub queue: Vec<ViewWaiter>,
    /// How many wait.
    pub waiting: usize,
    /// How many have come in at the peers that are seen, since the watch began.
    pub entries: u64,
    /// How long they had waited, for each second of the last two minutes in which somebody came in.
    pub waits: Vec<Second>,
    /// Why the others could not be asked, if they could not.
    pub trouble: Option<String>,
}

/// Where a peer sends its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pointer {
    /// Whose pointer it is.
    pub from: String,
    /// Who keeps the line, as far as that peer knows.
    pub to: String,
}

/// The token of one slot, and where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewToken {
    /// The slot that it stands for.
    pub slot: u32,
    /// Where it is.
    pub peer: String,
    /// Nobody is inside with it.
    pub free: bool,
    /// Who is inside with it, if that is known.
    pub holder: Option<ClientView>,
    /// The peer that it goes to next, as far as that is settled.
    pub next: Option<String>,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewWaiter {
    /// The number of the peer where it waits.
    pub peer: String,
    /// Which of that peer's tickets; its place in line if the peer that keeps the line was asked.
    pub ticket: u64,
    /// More of it, if its peer is seen or was asked.
    pub client: Option<ClientView>,
}

impl ViewResource {
    /// Takes over what the whole cluster says, where this peer alone cannot see it.
    fn join(&mut self, details: ResourceDetails) {
        let next = |slot| self.tokens.iter().find(|token| token.slot == slot)?.next.clone();
        let tokens = details.holders.into_iter().map(|held| {
            let next = next(held.slot);
            ViewToken { slot: held.slot, peer: held.peer.to_string(), free: held.free, holder: held.client, next }
        });
        self.tokens = tokens.collect();
        self.keeper = details.coordinator.map(|peer| peer.to_string());
        self.waiting = details.queue.len();
        let waiters = (0..).zip(details.queue).take(MOST_SHOWN).map(|(ticket, waiter)| ViewWaiter {
            peer: waiter.peer.to_string(),
            ticket,
            client: waiter.client,
        });
        self.queue = waiters.collect();
    }
}

impl View {
    /// Puts together what several peers show, and whom the first of them knows.
    fn of(
        seen: &[Inspection],
        known: &[PeerView],
        numbers: &BTreeMap<PeerId, usize>,
        waits: &BTreeMap<Name, Waits>,
        now_s: u64,
    ) -> Self {
        let names: BTreeSet<&Name> = seen.iter().flat_map(|peer| &peer.parts).map(|part| &part.name).collect();
        let resources = names.into_iter().map(|name| {
            let parts = seen.iter().flat_map(|peer| {
                let part = peer.parts.iter().find(|part| part.name == *name);
                part.map(|part| (peer.peer, part))
            });
            resource(name, &parts.collect(), waits.get(name), now_s)
        });
        Self { whole: numbers.len() > 1, now_s, resources: resources.collect(), peers: peers(seen, known, numbers) }
    }
}

fn peers(seen: &[Inspection], known: &[PeerView], numbers: &BTreeMap<PeerId, usize>) -> Vec<ViewPeer> {
    let mut places: BTreeMap<PeerId, Key> = seen.iter().flat_map(|peer| peer.others.iter().copied()).collect();
    places.extend(seen.iter().map(|peer| (peer.peer, peer.place)));
    let whole = numbers.len() > 1;
    // In a demo whoever has stopped is gone, even if the others wait a while for it to come back.
    places.retain(|peer, _| !whole || seen.iter().any(|seen| seen.peer == *peer));
    let mut peers: Vec<_> = places.into_iter().map(|(peer, key)| (key, peer)).collect();
    peers.sort();
    let view = |(key, peer): (Key, PeerId)| {
        let known = known.iter().find(|known| known.peer == peer);
        let address = known.map_or(String::new(), |known| known.address.clone());
        let label = match numbers.get(&peer) {
            Some(number) if whole => number.to_string(),
            _ if address.is_empty() => peer.to_string(),
            _ => address.clone(),
        };
        let seen = seen.iter().any(|seen| seen.peer == peer);
        let up = seen || known.is_some_and(|known| known.up);
        ViewPeer { peer: peer.to_string(), label, address, place: turn(key), up, seen }
    };
    peers.into_iter().map(view).collect()
}

/// How far round the ring a key lies: as many bits as the number can have.
fn turn(key: Key) -> f64 {
    (key.get() >> (128 - f64::MANTISSA_DIGITS)) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}

fn resource(name: &Name, parts: &BTreeMap<PeerId, &Part>, waits: Option<&Waits>, now_s: u64) -> ViewResource {
    let keeper = parts.iter().find_map(|(peer, part)| Some((*peer, part.line.as_ref()?)));
    let client = |at: &TicketView| parts.get(&at.peer)?.clients.iter().find(|client| client.ticket == at.ticket);
    // Word that somebody has come in reaches the keeper a little later.
    let waiting =
        || keeper.iter().flat_map(|(_, line)| *line).filter(|at| client(at).is_none_or(|at| at.slot.is_none()));
    let waiter = |at: &TicketView| ViewWaiter {
        peer: at.peer.to_string(),
        ticket: at.ticket,
        client: client(at).map(|found| found.client.clone()),
    };
    let pointers = parts.iter().filter_map(|(peer, part)| {
        let to = part.keeper.filter(|keeper| keeper != peer)?;
        Some(Pointer { from: peer.to_string(), to: to.to_string() })
    });
    // The peers were asked one after the other: a token that moved meanwhile may have been met twice.
    let mut tokens = BTreeMap::new();
    for (peer, part) in parts {
        for token in &part.tokens {
            let holder = part.clients.iter().find(|client| client.slot == Some(token.slot));
            let holder = holder.map(|found| found.client.clone());
            let next = token.next.map(|next| next.peer.to_string());
            let token = ViewToken { slot: token.slot, peer: peer.to_string(), free: token.free, holder, next };
            tokens.insert(token.slot, token);
        }
    }
    ViewResource {
        name: name.clone(),
        slots: parts.values().find_map(|part| part.slots),
        keeper: keeper.map(|(peer, _)| peer.to_string()),
        pointers: pointers.collect(),
        tokens: tokens.into_values().collect(),
        queue: waiting().take(MOST_SHOWN).map(waiter).collect(),
        waiting: waiting().count(),
        entries: waits.map_or(0, Waits::entries),
        waits: waits.map_or(Vec::new(), |waits| waits.until(now_s)),
        trouble: None,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peerlock_service::{PartClient, TokenView};
    use serde_json::json;

    use super::*;

    fn peer(number: u64) -> PeerId {
        PeerId::new(number)
    }

    /// A peer with a client inside with each of these slots, under ticket 1 and so on, and one more that waits.
    fn seen(number: u64, slots: &[u32], line: Option<Vec<TicketView>>) -> Inspection {
        let client = |ticket, slot: Option<u32>| {
            let client = json!({ "label": format!("{number}.{ticket}"), "age_ms": 7, "fencing": slot });
            let client = serde_json::from_value(client).expect("a client");
            PartClient { ticket, slot, client }
        };
        let inside = (1..).zip(slots).map(|(ticket, slot)| client(ticket, Some(*slot)));
        let clients = inside.chain([client(slots.len() as u64 + 1, None)]).collect();
        let next = Some(TicketView { peer: peer(2), ticket: 1 });
        let tokens = slots.iter().map(|&slot| TokenView { slot, free: false, next }).collect();
        let name = "r".parse().expect("a name");
        let part = Part { name, slots: Some(3), keeper: Some(peer(1)), line, tokens, clients };
        let place = Key::new(u128::from(number) << 125);
        let others = vec![(peer(7), Key::new(7 << 125))];
        Inspection { peer: peer(number), place, successor: None, predecessor: None, others, parts: vec![part] }
    }

    fn known(number: u64, up: bool) -> PeerView {
        let (peer, address) = (number.to_string(), format!("10.0.0.{number}:7400"));
        let (is_me, name) = (number == 1, format!("host{number}"));
        let known = json!({ "peer": peer, "address": address, "up": up, "since_ms": 0, "is_me": is_me, "name": name,
            "voter": "no", "keeps": true });
        serde_json::from_value(known).expect("a peer")
    }

    #[test]
    fn a_demo_shows_the_whole_of_its_cluster() {
        // Ticket 1 of peer 3 is inside already: the keeper will hear of it.
        let line = [(2, 1), (3, 1), (1, 3)].map(|(at, ticket)| TicketView { peer: peer(at), ticket });
        let all = [seen(3, &[1], None), seen(1, &[0, 2], Some(line.to_vec())), seen(2, &[], None)];
        let numbers = [(peer(1), 1), (peer(2), 2), (peer(3), 3)].into();
        let mut waits = Waits::default();
        waits.enter(4, Duration::from_millis(5));
        let name: Name = "r".parse().expect("a name");
        let view = View::of(&all, &[known(1, true)], &numbers, &[(name, waits)].into(), 5);

        assert!(view.whole);
        let peers: Vec<_> = view.peers.iter().map(|peer| (peer.label.as_str(), peer.place)).collect();
        assert_eq!(peers, [("1", 0.125), ("2", 0.25), ("3", 0.375)], "peer 7 is not of this demo");
        let [resource] = &view.resources[..] else { panic!("one resource: {view:?}") };
        assert_eq!((resource.keeper.as_deref(), resource.waiting, resource.entries), (Some("1"), 2, 1));
        let pointers: Vec<_> = resource.pointers.iter().map(|pointer| (&*pointer.from, &*pointer.to)).collect();
        assert_eq!(pointers, [("2", "1"), ("3", "1")]);
        let label = |client: &Option<ClientView>| client.as_ref().expect("all peers are seen").label.clone();
        let queue: Vec<_> = resource.queue.iter().map(|waiter| (label(&waiter.client), waiter.ticket)).collect();
        assert_eq!(queue, [("2.1".to_owned(), 1), ("1.3".to_owned(), 3)]);
        let tokens: Vec<_> = resource.tokens.iter().map(|token| (token.slot, label(&token.holder))).collect();
        assert_eq!(tokens, [(0, "1.1".to_owned()), (1, "3.1".to_owned()), (2, "1.2".to_owned())]);
        assert!(resource.tokens.iter().all(|token| token.next.as_deref() == Some("2")));
        assert_eq!(resource.waits, [Second { at_s: 4, entries: 1, mean_ms: 5.0, max_ms: 5.0 }]);
    }

    #[test]
    fn an_agent_shows_its_peer_and_where_the_others_lie() {
        let line = vec![TicketView { peer: peer(7), ticket: 9 }];
        let numbers = [(peer(1), 1)].into();
        let known = [known(1, true), known(7, false)];
        let view = View::of(&[seen(1, &[0], Some(line))], &known, &numbers, &BTreeMap::new(), 0);
        assert!(!view.whole);
        let peers: Vec<_> = view.peers.iter().map(|peer| (peer.label.as_str(), peer.up, peer.seen)).collect();
        assert_eq!(peers, [("10.0.0.1:7400", true, true), ("10.0.0.7:7400", false, false)]);
        let mut resource = view.resources[0].clone();
        assert_eq!(resource.queue, [ViewWaiter { peer: "7".to_owned(), ticket: 9, client: None }]);
        assert_eq!((resource.tokens.len(), resource.pointers.len(), resource.waits.len()), (1, 0, 0));

        // The others are asked of this one: their tokens and clients are there, too, and what only we know stays.
        let details = json!({ "name": "r", "slots": 3, "coordinator": "7", "generation": 1, "holders": [
            { "slot": 0, "peer": "1", "host": "a", "free": false, "detached": false, "client": { "label": "1.1", "age_ms": 7 } },
            { "slot": 1, "peer": "7", "host": "b", "free": false, "detached": false },
            { "slot": 2, "peer": "7", "host": "b", "free": true, "detached": false },
        ], "queue": [{ "peer": "7", "host": "b", "client": { "label": "7.9", "age_ms": 1 } }, { "peer": "1", "host": "a" }] });
        resource.join(serde_json::from_value(details).expect("what `show` says"));
        assert_eq!((resource.keeper.as_deref(), resource.waiting), (Some("7"), 2));
        let tokens: Vec<_> =
            resource.tokens.iter().map(|token| (&*token.peer, token.free, token.next.is_some())).collect();
        assert_eq!(tokens, [("1", false, true), ("7", false, false), ("7", true, false)]);
        let queue: Vec<_> = resource.queue.iter().map(|at| (&*at.peer, at.ticket, at.client.is_some())).collect();
        assert_eq!(queue, [("7", 0, true), ("1", 1, false)]);
    }

    #[test]
    fn places_are_parts_of_a_turn() {
        for (key, expected) in [(0, 0.0), (1 << 127, 0.5), (3 << 126, 0.75)] {
            assert!((turn(Key::new(key)) - expected).abs() < 1e-12, "{key}");
        }
        assert!(turn(Key::new(u128::MAX)) < 1.0);
    }
}
