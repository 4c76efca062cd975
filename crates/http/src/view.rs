//! What the live page draws: one or several peers from the inside, put together.
//!
//! A demo has all peers of its cluster in one process, and shows the whole of it. An agent shows its own peer: where
//! the others lie, and its own pointers, tokens and clients; of one resource, the one that is looked at, it also asks
//! the others. Only that one is shown from close by: of many there is a line each.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use peerlock_service::{
    ClientView, Key, Name, PartView, PeerId, PeerView, ResourceDetails, ResourceView, TicketView, Voter,
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::input::About;
use crate::waits::{Second, Waits};
use crate::watch::{Seen, Watch};
use crate::{Failure, Fate};

/// At most this many of those who wait are shown by name.
const MOST_SHOWN: usize = 100;
/// What is said of a resource that the register counts anew, and of which this peer knows no more.
const RECOVERING: &str = "Somebody who took part has died or it was resized: what is there is being counted.";

/// The routes of the live page's data.
pub fn routes(watch: Arc<Watch>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(view)).with_state(watch)
}

/// What the live page draws: the peers on their ring, pointers, tokens, lines and waits.
#[utoipa::path(
    get,
    path = "/v1/view",
    tag = "looking",
    params(About),
    responses(
        (status = 200, description = "What the live page draws", body = View),
        (status = "default", body = Failure)
    )
)]
async fn view(State(watch): State<Arc<Watch>>, About { name }: About) -> Json<View> {
    Json(watch.view(name.as_ref()).await)
}

/// Peers from the inside, at about one moment.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct View {
    /// All peers are seen from the inside, not only one: tokens and lines are complete. Only a demo is.
    pub whole: bool,
    /// The current second, counted from when the watch began.
    pub now_s: u64,
    /// Why nothing is granted here, in words, if an agent has no session.
    pub trouble: Option<String>,
    /// The peers in the order of the ring.
    pub peers: Vec<ViewPeer>,
    /// A line for each resource that is known: those in trouble first, and then by name.
    pub resources: Vec<ViewSummary>,
    /// The resource that was asked for, or the first: nothing if it is not known.
    pub chosen: Option<ViewResource>,
}

/// A peer on the ring.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ViewPeer {
    /// The peer's number, in decimal digits.
    pub peer: String,
    /// What to call it: its number in a demo, else the name of its host, or its address where two hosts have one name.
    pub label: String,
    /// Where it listens.
    pub address: String,
    /// Where it lies on the ring, from 0 to 1 clockwise.
    pub place: f64,
    /// Whether it is connected.
    pub up: bool,
    /// For how long it is, or is not, as far as that is known.
    pub since_ms: Option<u64>,
    /// Whether it is seen from the inside.
    pub seen: bool,
    /// Its part in keeping the register.
    pub voter: Voter,
    /// The number of its session, if the register has one open.
    pub session: Option<u64>,
    /// How long that stands unless it is renewed, if the peer is seen from the inside.
    pub session_ms: Option<u64>,
    /// What has become of it, in a demo.
    pub fate: Option<Fate>,
}

/// A resource among many.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewSummary {
    /// The name by which clients ask for it.
    #[schema(value_type = String)]
    pub name: Name,
    /// How many may be inside at a time; nothing while it is being founded.
    pub slots: Option<u32>,
    /// How many clients of the peers that are seen are inside.
    pub inside: usize,
    /// How many clients of those peers wait.
    pub waiting: usize,
    /// Why it does not move, in words, if it does not.
    pub trouble: Option<String>,
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
    /// How many wait; where nobody who is seen or was asked keeps the line, how many clients of those who are seen.
    pub waiting: usize,
    /// How many have come in at the peers that are seen, since the watch began.
    pub entries: u64,
    /// How long they had waited, for each second of the last two minutes in which somebody came in.
    pub waits: Vec<Second>,
    /// Why it does not move, or why the others could not be asked, in words.
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

/// A place in line, as the live page shows it.
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
    pub(crate) fn join(&mut self, details: ResourceDetails) {
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

/// What there is to be put together.
pub struct Looked<'a> {
    /// All peers of the cluster are members.
    pub whole: bool,
    /// The peers that are watched, and what has become of them.
    pub members: &'a [(PeerId, Fate)],
    /// Those of them that have answered.
    pub seen: &'a [Seen],
    /// Everybody, as one of them knows.
    pub known: &'a [PeerView],
    /// All resources, if they were asked for.
    pub listed: &'a [ResourceView],
    /// The current second.
    pub now_s: u64,
}

impl Looked<'_> {
    /// All of it, and this resource from close by, or the first.
    pub fn view(&self, waits: &BTreeMap<Name, Waits>, name: Option<&Name>) -> View {
        let resources = self.summaries();
        let chosen = match name {
            Some(name) => resources.iter().find(|resource| resource.name == *name),
            None => resources.first(),
        };
        let chosen = chosen.map(|summary| {
            let parts = self.seen.iter().flat_map(|Seen { inspection, .. }| {
                let part = inspection.parts.iter().find(|part| part.name == summary.name);
                part.map(|part| (inspection.peer, part))
            });
            resource(summary, &parts.collect(), waits.get(&summary.name), self.now_s)
        });
        let own = self.seen.first().filter(|_| !self.whole);
        let trouble = own.and_then(|seen| seen.health.trouble.clone());
        View { whole: self.whole, now_s: self.now_s, trouble, peers: self.peers(), resources, chosen }
    }

    fn summaries(&self) -> Vec<ViewSummary> {
        let mut all: BTreeMap<&Name, ViewSummary> = BTreeMap::new();
        let new = |name: &Name| ViewSummary { name: name.clone(), slots: None, inside: 0, waiting: 0, trouble: None };
        for resource in self.listed {
            let trouble = resource.recovering.then(|| RECOVERING.to_owned());
            all.insert(&resource.name, ViewSummary { slots: resource.slots, trouble, ..new(&resource.name) });
        }
        for resource in self.seen.iter().flat_map(|seen| &seen.health.resources) {
            let summary = all.entry(&resource.name).or_insert_with(|| new(&resource.name));
            summary.slots = summary.slots.or(resource.slots);
            summary.inside += resource.holding;
            summary.waiting += resource.waiting;
            if let Some(stall) = &resource.stall {
                summary.trouble = Some(stall.why.clone());
            }
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|summary| summary.trouble.is_none());
        all
    }

    fn peers(&self) -> Vec<ViewPeer> {
        // In a demo others may still wait for a peer of an earlier one that had the same port.
        let mut all: Vec<PeerId> = self.members.iter().map(|(peer, _)| *peer).collect();
        if !self.whole {
            let met = self.seen.iter().flat_map(|seen| seen.inspection.others.iter().copied());
            all.extend(met.chain(self.known.iter().map(|known| known.peer)));
        }
        let mut places: Vec<_> = all.into_iter().map(|peer| (Key::of_peer(peer), peer)).collect();
        places.sort();
        places.dedup();
        places.into_iter().map(|(key, peer)| self.peer(peer, key)).collect()
    }

    fn peer(&self, peer: PeerId, key: Key) -> ViewPeer {
        let known = self.known.iter().find(|known| known.peer == peer);
        let seen = self.seen.iter().find(|seen| seen.inspection.peer == peer);
        let member = self.members.iter().position(|(member, _)| *member == peer).filter(|_| self.whole);
        let fate = member.map(|number| self.members[number].1);
        let address = known.map_or(String::new(), |known| known.address.clone());
        let label = match (member, known) {
            (Some(number), _) => (number + 1).to_string(),
            (None, Some(known)) if self.is_called_alone(known) => known.name.clone(),
            (None, _) if address.is_empty() => peer.to_string(),
            (None, _) => address.clone(),
        };
        let up = fate.map_or_else(|| seen.is_some() || known.is_some_and(|known| known.up), |fate| fate == Fate::Runs);
        ViewPeer {
            peer: peer.to_string(),
            label,
            address,
            place: turn(key),
            up,
            // In a demo nobody is connected to a peer that is cut off, which for itself runs on.
            since_ms: known.filter(|known| known.up == up).map(|known| millis(known.since)),
            seen: seen.is_some(),
            voter: known.map_or(Voter::No, |known| known.voter),
            session: known.and_then(|known| known.session),
            session_ms: seen.and_then(|seen| seen.health.ends).map(millis),
            fate,
        }
    }

    /// Whether its host has a name, and no other has the same.
    fn is_called_alone(&self, known: &PeerView) -> bool {
        !known.name.is_empty() && self.known.iter().filter(|other| other.name == known.name).count() == 1
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// How far round the ring a key lies: as many bits as the number can have.
fn turn(key: Key) -> f64 {
    (key.get() >> (128 - f64::MANTISSA_DIGITS)) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}

fn resource(
    summary: &ViewSummary,
    parts: &BTreeMap<PeerId, &PartView>,
    waits: Option<&Waits>,
    now_s: u64,
) -> ViewResource {
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
        name: summary.name.clone(),
        slots: parts.values().find_map(|part| part.slots).or(summary.slots),
        keeper: keeper.map(|(peer, _)| peer.to_string()),
        pointers: pointers.collect(),
        tokens: tokens.into_values().collect(),
        queue: waiting().take(MOST_SHOWN).map(waiter).collect(),
        // Who keeps the line may be frozen or dead. Those who wait still do, in an order that nobody else knows.
        waiting: if keeper.is_some() { waiting().count() } else { summary.waiting },
        entries: waits.map_or(0, Waits::entries),
        waits: waits.map_or(Vec::new(), |waits| waits.until(now_s)),
        trouble: summary.trouble.clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peerlock_service::{Health, Inspection, PartClient, TokenView};
    use serde_json::json;

    use super::*;

    fn peer(number: u64) -> PeerId {
        PeerId::new(number)
    }

    /// A peer with a client inside with each of these slots, under ticket 1 and so on, and one more that waits.
    fn seen(number: u64, slots: &[u32], line: Option<Vec<TicketView>>) -> Seen {
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
        let part = PartView { name, slots: Some(3), keeper: Some(peer(1)), line, tokens, clients };
        let inspection = Inspection { peer: peer(number), others: vec![peer(7)], parts: vec![part] };
        Seen { inspection, health: health(slots.len(), None) }
    }

    /// With so many inside, and one who waits.
    fn health(holding: usize, stall: Option<&str>) -> Health {
        let stall = stall.map(|why| json!({ "since_ms": 1, "missing": [], "why": why }));
        let resource =
            json!({ "name": "r", "holding": holding, "waiting": 1, "generation": 1, "recoveries": 0, "stall": stall });
        let health = json!({ "session": 3, "since_ms": 0, "ends_ms": 900, "sessions_lost": 0, "leaves": false,
            "resources": [resource] });
        serde_json::from_value(health).expect("how it stands")
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
        let seen = [seen(3, &[1], None), seen(1, &[0, 2], Some(line.to_vec())), seen(2, &[], None)];
        let members = [(1, Fate::Runs), (2, Fate::CutOff), (3, Fate::Runs), (4, Fate::Killed)];
        let members = members.map(|(number, fate)| (peer(number), fate));
        let mut waits = Waits::default();
        waits.enter(4, Duration::from_millis(5));
        let name: Name = "r".parse().expect("a name");
        let known = [known(1, true), known(4, false)];
        let looked = Looked { whole: true, members: &members, seen: &seen, known: &known, listed: &[], now_s: 5 };
        let view = looked.view(&[(name, waits)].into(), None);

        assert!(view.whole && view.peers.is_sorted_by_key(|peer| peer.place));
        let mut peers: Vec<_> =
            view.peers.iter().map(|peer| (peer.label.as_str(), peer.up, peer.seen, peer.session_ms)).collect();
        peers.sort();
        let inside = Some(900);
        let expected = [("1", true, true, inside), ("2", false, true, inside), ("3", true, true, inside)];
        assert_eq!(peers, [&expected[..], &[("4", false, false, None)]].concat(), "peer 7 is not of this demo");
        let [summary] = &view.resources[..] else { panic!("one resource: {view:?}") };
        assert_eq!((summary.inside, summary.waiting, &summary.trouble), (3, 3, &None));
        let resource = view.chosen.as_ref().expect("the first");
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

    /// The peer that keeps the line is frozen, and is not seen: that somebody waits is known at the others.
    #[test]
    fn without_who_keeps_the_line_those_who_wait_are_counted() {
        let seen = [seen(2, &[0], None), seen(3, &[], None)];
        let members = [(1, Fate::Frozen), (2, Fate::Runs), (3, Fate::Runs)].map(|(number, fate)| (peer(number), fate));
        let looked = Looked { whole: true, members: &members, seen: &seen, known: &[], listed: &[], now_s: 0 };
        let resource = looked.view(&BTreeMap::new(), None).chosen.expect("the first");
        assert_eq!((resource.keeper, resource.queue.len(), resource.waiting), (None, 0, 2));
    }

    /// Those in trouble come first, and the first is chosen unless another is named.
    #[test]
    fn resources_in_trouble_come_first() {
        let listed = [("a", false), ("b", false), ("r", false), ("z", true)].map(|(name, recovering)| {
            let listed =
                json!({ "name": name, "slots": 2, "holding_here": 0, "waiting_here": 0, "recovering": recovering });
            serde_json::from_value(listed).expect("a resource")
        });
        let mut own = seen(1, &[0], None);
        own.health = health(1, Some("waits for host7"));
        let members = [(peer(1), Fate::Runs)];
        let looked = Looked { whole: false, members: &members, seen: &[own], known: &[], listed: &listed, now_s: 0 };
        let view = looked.view(&BTreeMap::new(), None);
        let all: Vec<_> = view.resources.iter().map(|one| (one.name.as_str(), one.trouble.as_deref())).collect();
        assert_eq!(all, [("r", Some("waits for host7")), ("z", Some(RECOVERING)), ("a", None), ("b", None)]);
        assert_eq!(view.chosen.map(|chosen| (chosen.name.to_string(), chosen.trouble)), {
            Some(("r".to_owned(), Some("waits for host7".to_owned())))
        });
        for (name, found) in [("b", true), ("c", false)] {
            let named = looked.view(&BTreeMap::new(), Some(&name.parse().expect("a name"))).chosen;
            assert_eq!(named.is_some_and(|chosen| chosen.name.as_str() == name && chosen.slots == Some(2)), found);
        }
    }

    #[test]
    fn an_agent_shows_its_peer_and_where_the_others_lie() {
        let line = vec![TicketView { peer: peer(7), ticket: 9 }];
        let known = [known(1, true), known(7, false), known(8, true)];
        let seen = [seen(1, &[0], Some(line))];
        let members = [(peer(1), Fate::Runs)];
        let looked = Looked { whole: false, members: &members, seen: &seen, known: &known, listed: &[], now_s: 0 };
        let view = looked.view(&BTreeMap::new(), None);
        assert!(!view.whole);
        let of = |view: &View| {
            let peers = view.peers.iter().map(|peer| (peer.label.clone(), peer.up, peer.seen, peer.fate.is_some()));
            peers.collect::<std::collections::BTreeSet<_>>()
        };
        let expected = [("host1", true, true), ("host7", false, false), ("host8", true, false)];
        assert_eq!(of(&view), expected.map(|(label, up, seen)| (label.to_owned(), up, seen, false)).into());
        // Two that are called the same are told apart.
        let mut alike = known.clone();
        alike[1].name = "host8".to_owned();
        let twice = Looked { known: &alike, ..looked }.view(&BTreeMap::new(), None);
        let labels: Vec<String> = of(&twice).into_iter().map(|(label, ..)| label).collect();
        assert_eq!(labels, ["10.0.0.7:7400", "10.0.0.8:7400", "host1"]);

        let mut resource = view.chosen.expect("the only one");
        assert_eq!(resource.queue, [ViewWaiter { peer: "7".to_owned(), ticket: 9, client: None }]);
        assert_eq!((resource.tokens.len(), resource.pointers.len(), resource.waits.len()), (1, 0, 0));

        // The others are asked of this one: their tokens and clients are there, too, and what only we know stays.
        let details = json!({ "name": "r", "slots": 3, "coordinator": "7", "generation": 1, "holders": [
            { "slot": 0, "peer": "1", "host": "a", "free": false, "detached": false,
                "client": { "label": "1.1", "age_ms": 7 } },
            { "slot": 1, "peer": "7", "host": "b", "free": false, "detached": false },
            { "slot": 2, "peer": "7", "host": "b", "free": true, "detached": false },
        ], "queue": [
            { "peer": "7", "host": "b", "client": { "label": "7.9", "age_ms": 1 } }, { "peer": "1", "host": "a" },
        ] });
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
