//! The data of the live page, combined from one or several peers.
//!
//! A demo has all peers of its cluster in one process and shows them completely. An agent shows the ring, and its own
//! pointers, tokens and clients. It asks the other peers about the selected resource only; every other resource is one
//! line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use peerlock_service::{
    ClientView, Key, Name, PartView, PeerId, PeerView, PeriodView, ResourceDetails, ResourceView, TicketView, Voter,
};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::DemoState;
use crate::input::About;
use crate::waits::{Second, Waits};
use crate::watch::{Found, Watch};

const MOST_SHOWN: usize = 100;
/// The message for a resource in recovery of which this peer knows nothing else.
const RECOVERING: &str = "A participating peer has died, or the capacity was changed: counting the tokens.";

/// Returns the route of the live page's data.
pub fn routes(watch: Arc<Watch>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(view)).with_state(watch)
}

/// The data of the live page: peers, pointers, tokens, queues and waits.
#[utoipa::path(
    get,
    path = "/v1/view",
    tag = "looking",
    params(About),
    responses((status = 200, description = "The data of the live page", body = View))
)]
async fn view(State(watch): State<Arc<Watch>>, About { name }: About) -> Json<View> {
    Json(watch.view(name.as_ref()).await)
}

/// A snapshot of the cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct View {
    /// Whether all peers are included, so that tokens and queues are complete: only in a demo.
    pub whole: bool,
    /// The current second since the start.
    pub now_s: u64,
    /// Why nothing is granted here, if an agent has no session.
    pub problem: Option<String>,
    /// The peers in ring order.
    pub peers: Vec<ViewPeer>,
    /// One line per known resource: stalled ones first, then by name.
    pub resources: Vec<ViewSummary>,
    /// The requested resource, or the first; absent if it is unknown.
    pub chosen: Option<ViewResource>,
}

/// A peer on the ring.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ViewPeer {
    /// The peer's number, in decimal digits.
    pub peer: String,
    /// Its label: its number in a demo, else its host name, or its address if two hosts have the same name.
    pub label: String,
    /// Its listening address.
    pub address: String,
    /// Its position on the ring, from 0 to 1 clockwise.
    pub place: f64,
    /// Whether it is connected.
    pub up: bool,
    /// For how long it is or is not connected, if known.
    pub since_ms: Option<u64>,
    /// Whether its internal state is included.
    pub observed: bool,
    /// Its voter role.
    pub voter: Voter,
    /// The ID of its session, if it has one.
    pub session: Option<u64>,
    /// When the session expires unless it is renewed, if the peer's state is included.
    pub session_ms: Option<u64>,
    /// Its state in a demo.
    pub state: Option<DemoState>,
}

/// A resource in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewSummary {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its capacity; absent while it is being created.
    pub slots: Option<u32>,
    /// How many clients of the included peers hold slots.
    pub inside: usize,
    /// How many clients of the included peers wait.
    pub waiting: usize,
    /// Why it is stalled, if it is.
    pub problem: Option<String>,
}

/// The selected resource, as the included or asked peers know it.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct ViewResource {
    /// Its name.
    #[schema(value_type = String)]
    pub name: Name,
    /// Its capacity; absent while it is being created.
    pub slots: Option<u32>,
    /// The coordinator, if that peer was included or asked.
    pub keeper: Option<String>,
    /// Where each peer sends its requests.
    pub pointers: Vec<Pointer>,
    /// The known tokens by slot. A token in transit may be missing.
    pub tokens: Vec<ViewToken>,
    /// The first hundred waiters in order.
    pub queue: Vec<ViewWaiter>,
    /// How many clients wait; if the coordinator was not asked, those of the included peers.
    pub waiting: usize,
    /// How many grants the included peers have made since the start.
    pub entries: u64,
    /// The waits of clients, for each second of the last two minutes with a grant.
    pub waits: Vec<Second>,
    /// Why it is stalled, or why the other peers could not be asked.
    pub problem: Option<String>,
    /// The latest run, if runs take place once per period.
    pub period: Option<PeriodView>,
}

/// Where a peer sends its requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pointer {
    /// The sending peer.
    pub from: String,
    /// The coordinator, as far as that peer knows.
    pub to: String,
}

/// The token of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewToken {
    /// The slot.
    pub slot: u32,
    /// The peer that has it.
    pub peer: String,
    /// Whether no client holds it.
    pub free: bool,
    /// The holder, if known.
    pub holder: Option<ClientView>,
    /// The peer that gets it next, if that is decided.
    pub next: Option<String>,
}

/// A waiter in the queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ViewWaiter {
    /// Its peer's ID.
    pub peer: String,
    /// Its ticket at that peer; its position if the coordinator was asked.
    pub ticket: u64,
    /// The client, if its peer was included or asked.
    pub client: Option<ClientView>,
}

impl ViewResource {
    /// Merges the cluster-wide details into what this peer knows.
    pub(crate) fn join(&mut self, details: ResourceDetails) {
        let next = |slot| self.tokens.iter().find(|token| token.slot == slot)?.next.clone();
        let tokens = details.holders.into_iter().map(|held| {
            let next = next(held.slot);
            ViewToken { slot: held.slot, peer: held.peer.to_string(), free: held.free, holder: held.client, next }
        });
        self.tokens = tokens.collect();
        self.keeper = details.coordinator.map(|peer| peer.to_string());
        self.waiting = details.queue.len();
        self.period = details.period;
        let waiters = (0..).zip(details.queue).take(MOST_SHOWN).map(|(ticket, waiter)| ViewWaiter {
            peer: waiter.peer.to_string(),
            ticket,
            client: waiter.client,
        });
        self.queue = waiters.collect();
    }
}

pub struct Looked<'a> {
    pub whole: bool,
    pub members: &'a [(PeerId, DemoState)],
    /// The peers that have answered.
    pub observed: &'a [Found],
    /// All peers, as one of them knows them.
    pub known: &'a [PeerView],
    pub listed: &'a [ResourceView],
    pub now_s: u64,
}

impl Looked<'_> {
    pub fn view(&self, waits: &BTreeMap<Name, Waits>, name: Option<&Name>) -> View {
        let resources = self.summaries();
        let chosen = match name {
            Some(name) => resources.iter().find(|resource| resource.name == *name),
            None => resources.first(),
        };
        let chosen = chosen.map(|summary| {
            let parts = self.observed.iter().flat_map(|Found { inspection, .. }| {
                let part = inspection.parts.iter().find(|part| part.name == summary.name);
                part.map(|part| (inspection.peer, part))
            });
            resource(summary, &parts.collect(), waits.get(&summary.name), self.now_s)
        });
        let own = self.observed.first().filter(|_| !self.whole);
        let problem = own.and_then(|observed| observed.health.problem.clone());
        View { whole: self.whole, now_s: self.now_s, problem, peers: self.peers(), resources, chosen }
    }

    fn summaries(&self) -> Vec<ViewSummary> {
        let mut all: BTreeMap<&Name, ViewSummary> = BTreeMap::new();
        let new = |name: &Name| ViewSummary { name: name.clone(), slots: None, inside: 0, waiting: 0, problem: None };
        for resource in self.listed {
            let problem = resource.recovering.then(|| RECOVERING.to_owned());
            all.insert(&resource.name, ViewSummary { slots: resource.slots, problem, ..new(&resource.name) });
        }
        for resource in self.observed.iter().flat_map(|observed| &observed.health.resources) {
            let summary = all.entry(&resource.name).or_insert_with(|| new(&resource.name));
            summary.slots = summary.slots.or(resource.slots);
            summary.inside += resource.holding;
            summary.waiting += resource.waiting;
            if let Some(stall) = &resource.stall {
                summary.problem = Some(stall.why.clone());
            }
        }
        let mut all: Vec<_> = all.into_values().collect();
        all.sort_by_key(|summary| summary.problem.is_none());
        all
    }

    fn peers(&self) -> Vec<ViewPeer> {
        // In a demo, peers may also know peers of an earlier demo on the same port.
        let mut all: Vec<PeerId> = self.members.iter().map(|(peer, _)| *peer).collect();
        if !self.whole {
            let met = self.observed.iter().flat_map(|observed| observed.inspection.others.iter().copied());
            all.extend(met.chain(self.known.iter().map(|known| known.peer)));
        }
        let mut places: Vec<_> = all.into_iter().map(|peer| (Key::of_peer(peer), peer)).collect();
        places.sort();
        places.dedup();
        places.into_iter().map(|(key, peer)| self.peer(peer, key)).collect()
    }

    fn peer(&self, peer: PeerId, key: Key) -> ViewPeer {
        let known = self.known.iter().find(|known| known.peer == peer);
        let observed = self.observed.iter().find(|observed| observed.inspection.peer == peer);
        let member = self.members.iter().position(|(member, _)| *member == peer).filter(|_| self.whole);
        let state = member.map(|number| self.members[number].1);
        let address = known.map_or(String::new(), |known| known.address.clone());
        let label = match (member, known) {
            (Some(number), _) => (number + 1).to_string(),
            (None, Some(known)) if self.is_called_alone(known) => known.name.clone(),
            (None, _) if address.is_empty() => peer.to_string(),
            (None, _) => address.clone(),
        };
        let up = state.map_or_else(
            || observed.is_some() || known.is_some_and(|known| known.up),
            |state| state == DemoState::Runs,
        );
        ViewPeer {
            peer: peer.to_string(),
            label,
            address,
            place: turn(key),
            up,
            // In a demo, a peer that is cut off runs, but the other peers report it as not connected.
            since_ms: known.filter(|known| known.up == up).map(|known| millis(known.since)),
            observed: observed.is_some(),
            voter: known.map_or(Voter::No, |known| known.voter),
            session: known.and_then(|known| known.session),
            session_ms: observed.and_then(|observed| observed.health.ends).map(millis),
            state,
        }
    }

    /// Returns whether the host has a name that no other host has.
    fn is_called_alone(&self, known: &PeerView) -> bool {
        !known.name.is_empty() && self.known.iter().filter(|other| other.name == known.name).count() == 1
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a key's position on the ring, from 0 to 1, with as many bits as a float has.
fn turn(key: Key) -> f64 {
    (key.get() >> (128 - f64::MANTISSA_DIGITS)) as f64 / (1_u64 << f64::MANTISSA_DIGITS) as f64
}

fn resource(
    summary: &ViewSummary,
    parts: &BTreeMap<PeerId, &PartView>,
    waits: Option<&Waits>,
    now_s: u64,
) -> ViewResource {
    let keeper = parts.iter().find_map(|(peer, part)| Some((*peer, part.queue.as_ref()?)));
    let client = |at: &TicketView| parts.get(&at.peer)?.clients.iter().find(|client| client.ticket == at.ticket);
    // The coordinator learns of a grant later than the client's peer.
    let waiting =
        || keeper.iter().flat_map(|(_, queue)| *queue).filter(|at| client(at).is_none_or(|at| at.slot.is_none()));
    let waiter = |at: &TicketView| ViewWaiter {
        peer: at.peer.to_string(),
        ticket: at.ticket,
        client: client(at).map(|found| found.client.clone()),
    };
    let pointers = parts.iter().filter_map(|(peer, part)| {
        let to = part.keeper.filter(|keeper| keeper != peer)?;
        Some(Pointer { from: peer.to_string(), to: to.to_string() })
    });
    // The peers were asked one after the other, so a token in transit may appear twice.
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
        // If the coordinator is frozen or dead, clients still wait, in an unknown order.
        waiting: if keeper.is_some() { waiting().count() } else { summary.waiting },
        entries: waits.map_or(0, Waits::entries),
        waits: waits.map_or(Vec::new(), |waits| waits.until(now_s)),
        problem: summary.problem.clone(),
        period: None,
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

    fn observed(number: u64, slots: &[u32], queue: Option<Vec<TicketView>>) -> Found {
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
        let part = PartView { name, slots: Some(3), keeper: Some(peer(1)), queue, tokens, clients };
        let inspection = Inspection { peer: peer(number), others: vec![peer(7)], parts: vec![part] };
        Found { inspection, health: health(slots.len(), None) }
    }

    fn health(holding: usize, stall: Option<&str>) -> Health {
        let stall = stall.map(|why| json!({ "since_ms": 1, "missing": [], "why": why }));
        let resource =
            json!({ "name": "r", "holding": holding, "waiting": 1, "generation": 1, "recoveries": 0, "stall": stall });
        let health = json!({ "session": 3, "since_ms": 0, "ends_ms": 900, "sessions_lost": 0, "leaves": false,
            "resources": [resource] });
        serde_json::from_value(health).expect("a health")
    }

    fn known(number: u64, up: bool) -> PeerView {
        let (peer, address) = (number.to_string(), format!("10.0.0.{number}:7400"));
        let (is_me, name) = (number == 1, format!("host{number}"));
        let known = json!({ "peer": peer, "address": address, "up": up, "since_ms": 0, "is_me": is_me, "name": name,
            "voter": "no", "keeps": true });
        serde_json::from_value(known).expect("a peer")
    }

    #[test]
    fn demo_view_is_complete() {
        // Ticket 1 of peer 3 already holds a slot, which the coordinator does not know yet.
        let queue = [(2, 1), (3, 1), (1, 3)].map(|(at, ticket)| TicketView { peer: peer(at), ticket });
        let observed = [observed(3, &[1], None), observed(1, &[0, 2], Some(queue.to_vec())), observed(2, &[], None)];
        let members = [(1, DemoState::Runs), (2, DemoState::CutOff), (3, DemoState::Runs), (4, DemoState::Killed)];
        let members = members.map(|(number, state)| (peer(number), state));
        let mut waits = Waits::default();
        waits.enter(4, Duration::from_millis(5));
        let name: Name = "r".parse().expect("a name");
        let known = [known(1, true), known(4, false)];
        let looked =
            Looked { whole: true, members: &members, observed: &observed, known: &known, listed: &[], now_s: 5 };
        let view = looked.view(&[(name, waits)].into(), None);

        assert!(view.whole && view.peers.is_sorted_by_key(|peer| peer.place));
        let mut peers: Vec<_> =
            view.peers.iter().map(|peer| (peer.label.as_str(), peer.up, peer.observed, peer.session_ms)).collect();
        peers.sort();
        let inside = Some(900);
        let expected = [("1", true, true, inside), ("2", false, true, inside), ("3", true, true, inside)];
        assert_eq!(peers, [&expected[..], &[("4", false, false, None)]].concat(), "peer 7 is not in this demo");
        let [summary] = &view.resources[..] else { panic!("one resource: {view:?}") };
        assert_eq!((summary.inside, summary.waiting, &summary.problem), (3, 3, &None));
        let resource = view.chosen.as_ref().expect("the first");
        assert_eq!((resource.keeper.as_deref(), resource.waiting, resource.entries), (Some("1"), 2, 1));
        let pointers: Vec<_> = resource.pointers.iter().map(|pointer| (&*pointer.from, &*pointer.to)).collect();
        assert_eq!(pointers, [("2", "1"), ("3", "1")]);
        let label = |client: &Option<ClientView>| client.as_ref().expect("every peer was asked").label.clone();
        let queue: Vec<_> = resource.queue.iter().map(|waiter| (label(&waiter.client), waiter.ticket)).collect();
        assert_eq!(queue, [("2.1".to_owned(), 1), ("1.3".to_owned(), 3)]);
        let tokens: Vec<_> = resource.tokens.iter().map(|token| (token.slot, label(&token.holder))).collect();
        assert_eq!(tokens, [(0, "1.1".to_owned()), (1, "3.1".to_owned()), (2, "1.2".to_owned())]);
        assert!(resource.tokens.iter().all(|token| token.next.as_deref() == Some("2")));
        assert_eq!(resource.waits, [Second { at_s: 4, entries: 1, mean_ms: 5.0, max_ms: 5.0 }]);
    }

    /// The coordinator is frozen: the other peers' waiters are counted.
    #[test]
    fn waiters_are_counted_without_the_coordinator() {
        let observed = [observed(2, &[0], None), observed(3, &[], None)];
        let members = [(1, DemoState::Frozen), (2, DemoState::Runs), (3, DemoState::Runs)]
            .map(|(number, state)| (peer(number), state));
        let looked = Looked { whole: true, members: &members, observed: &observed, known: &[], listed: &[], now_s: 0 };
        let resource = looked.view(&BTreeMap::new(), None).chosen.expect("the first");
        assert_eq!((resource.keeper, resource.queue.len(), resource.waiting), (None, 0, 2));
    }

    #[test]
    fn stalled_resources_come_first() {
        let listed = [("a", false), ("b", false), ("r", false), ("z", true)].map(|(name, recovering)| {
            let listed =
                json!({ "name": name, "slots": 2, "holding_here": 0, "waiting_here": 0, "recovering": recovering });
            serde_json::from_value(listed).expect("a resource")
        });
        let mut own = observed(1, &[0], None);
        own.health = health(1, Some("waits for host7"));
        let members = [(peer(1), DemoState::Runs)];
        let looked =
            Looked { whole: false, members: &members, observed: &[own], known: &[], listed: &listed, now_s: 0 };
        let view = looked.view(&BTreeMap::new(), None);
        let all: Vec<_> = view.resources.iter().map(|one| (one.name.as_str(), one.problem.as_deref())).collect();
        assert_eq!(all, [("r", Some("waits for host7")), ("z", Some(RECOVERING)), ("a", None), ("b", None)]);
        assert_eq!(view.chosen.map(|chosen| (chosen.name.to_string(), chosen.problem)), {
            Some(("r".to_owned(), Some("waits for host7".to_owned())))
        });
        for (name, found) in [("b", true), ("c", false)] {
            let named = looked.view(&BTreeMap::new(), Some(&name.parse().expect("a name"))).chosen;
            assert_eq!(named.is_some_and(|chosen| chosen.name.as_str() == name && chosen.slots == Some(2)), found);
        }
    }

    #[test]
    fn agent_view_has_its_peer_and_positions_of_others() {
        let queue = vec![TicketView { peer: peer(7), ticket: 9 }];
        let known = [known(1, true), known(7, false), known(8, true)];
        let observed = [observed(1, &[0], Some(queue))];
        let members = [(peer(1), DemoState::Runs)];
        let looked =
            Looked { whole: false, members: &members, observed: &observed, known: &known, listed: &[], now_s: 0 };
        let view = looked.view(&BTreeMap::new(), None);
        assert!(!view.whole);
        let of = |view: &View| {
            let peers =
                view.peers.iter().map(|peer| (peer.label.clone(), peer.up, peer.observed, peer.state.is_some()));
            peers.collect::<std::collections::BTreeSet<_>>()
        };
        let expected = [("host1", true, true), ("host7", false, false), ("host8", true, false)];
        assert_eq!(of(&view), expected.map(|(label, up, observed)| (label.to_owned(), up, observed, false)).into());
        // Equal names are distinguished by address.
        let mut alike = known.clone();
        alike[1].name = "host8".to_owned();
        let twice = Looked { known: &alike, ..looked }.view(&BTreeMap::new(), None);
        let labels: Vec<String> = of(&twice).into_iter().map(|(label, ..)| label).collect();
        assert_eq!(labels, ["10.0.0.7:7400", "10.0.0.8:7400", "host1"]);

        let mut resource = view.chosen.expect("the only one");
        assert_eq!(resource.queue, [ViewWaiter { peer: "7".to_owned(), ticket: 9, client: None }]);
        assert_eq!((resource.tokens.len(), resource.pointers.len(), resource.waits.len()), (1, 0, 0));

        // The other peers' tokens and clients are added; local details stay.
        let details = json!({ "name": "r", "slots": 3, "coordinator": "7", "generation": 1, "holders": [
            { "slot": 0, "peer": "1", "host": "a", "free": false, "detached": false,
                "client": { "label": "1.1", "age_ms": 7 } },
            { "slot": 1, "peer": "7", "host": "b", "free": false, "detached": false },
            { "slot": 2, "peer": "7", "host": "b", "free": true, "detached": false },
        ], "queue": [
            { "peer": "7", "host": "b", "client": { "label": "7.9", "age_ms": 1 } }, { "peer": "1", "host": "a" },
        ], "period": { "succeeded": true, "failures": 0, "holds": true, "host": "b", "label": "", "fencing": 4,
            "ended_ms": 5, "left_ms": 60 } });
        resource.join(serde_json::from_value(details).expect("details of a resource"));
        assert_eq!((resource.keeper.as_deref(), resource.waiting), (Some("7"), 2));
        assert_eq!(resource.period.as_ref().map(|period| period.host.as_str()), Some("b"));
        let tokens: Vec<_> =
            resource.tokens.iter().map(|token| (&*token.peer, token.free, token.next.is_some())).collect();
        assert_eq!(tokens, [("1", false, true), ("7", false, false), ("7", true, false)]);
        let queue: Vec<_> = resource.queue.iter().map(|at| (&*at.peer, at.ticket, at.client.is_some())).collect();
        assert_eq!(queue, [("7", 0, true), ("1", 1, false)]);
    }

    #[test]
    fn positions_are_fractions_of_the_ring() {
        for (key, expected) in [(0, 0.0), (1 << 127, 0.5), (3 << 126, 0.75)] {
            assert!((turn(Key::new(key)) - expected).abs() < 1e-12, "{key}");
        }
        assert!(turn(Key::new(u128::MAX)) < 1.0);
    }
}
