//! Metrics for Prometheus.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use peerlock_service::{Counters, Event, Happening, Health, Name, PeerView, ResourceHealth, Voter};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{App, Failure, Program};

/// Limit of resources with their own metrics. With eight series each, an agent has at most a few thousand series.
const MOST_RESOURCES: usize = 200;

/// Returns the metrics route.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// Histograms over all resources, since the number of resources is unbounded.
#[derive(Clone, Debug)]
pub struct Times {
    waits: Histogram,
    holds: Histogram,
}

impl Times {
    /// Collects durations until the peer stops.
    pub fn collect(mut events: Receiver<Happening>) -> Self {
        // From 0.1 ms to 14 min, by a factor of 4.
        let buckets = || Histogram::new(exponential_buckets(0.0001, 4.0, 12));
        let times = Self { waits: buckets(), holds: buckets() };
        let Self { waits, holds } = times.clone();
        tokio::spawn(async move {
            loop {
                match events.recv().await.map(|happening| happening.event) {
                    Ok(Event::Granted { waited, .. }) => waits.observe(waited.as_secs_f64()),
                    Ok(Event::Released { held, .. }) => holds.observe(held.as_secs_f64()),
                    Ok(_) => {}
                    Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "events missing in the histograms"),
                    Err(RecvError::Closed) => break,
                }
            }
        });
        times
    }
}

/// The resources with their own metrics. A resource keeps them as long as the agent knows it, so that series do not
/// disappear and return with the load.
#[derive(Debug, Default)]
pub struct Labelled(Mutex<BTreeSet<Name>>);

impl Labelled {
    /// Selects the same resources as before, then more by name while there is room.
    fn choose<'a>(&self, known: &'a [ResourceHealth]) -> Vec<&'a ResourceHealth> {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        log.retain(|name| known.binary_search_by(|resource| resource.name.cmp(name)).is_ok());
        let room = MOST_RESOURCES.saturating_sub(log.len());
        let new: Vec<Name> =
            known.iter().map(|it| &it.name).filter(|name| !log.contains(*name)).take(room).cloned().collect();
        log.extend(new);
        known.iter().filter(|resource| log.contains(&resource.name)).collect()
    }
}

/// Counters, gauges and histograms of this agent, in the OpenMetrics text format.
/// Answers without asking other peers, so it works without a quorum.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "agent",
    responses(
        (
            status = 200,
            description = "The metrics in the OpenMetrics format",
            body = String,
            content_type = "application/openmetrics-text"
        )
    )
)]
async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Failure> {
    let service = app.service();
    let (counters, peers, health) = (service.counters().await?, service.peers().await?, service.health().await?);
    let mut registry = Registry::with_prefix("peerlock");
    build(&mut registry, app.program());
    clients(&mut registry, &counters, app.times());
    cluster(&mut registry, &counters, &peers, &health);
    resources(&mut registry, &health.resources, &app.labelled().choose(&health.resources));
    // Writing to memory cannot fail.
    let text = render(&registry).unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    Ok(text)
}

fn build(registry: &mut Registry, program: &Program) {
    let labels = vec![("version", program.version.clone()), ("commit", program.commit.clone())];
    registry.register("build", "Version and commit of the agent", Info::new(labels));
}

fn count(registry: &mut Registry, counts: &[(&str, &str, u64)]) {
    for (name, help, value) in counts {
        registry.register(*name, *help, ConstCounter::new(*value));
    }
}

fn gauge(registry: &mut Registry, gauges: &[(&str, &str, usize)]) {
    for (name, help, value) in gauges {
        registry.register(*name, *help, ConstGauge::new(*value as u64));
    }
}

fn clients(registry: &mut Registry, counters: &Counters, times: &Times) {
    let c = counters;
    count(
        registry,
        &[
            ("asked", "Requests of clients", c.asked),
            ("granted", "Requests granted", c.granted),
            ("released", "Grants released before their lease expired", c.released),
            ("lost", "Grants whose lease expired", c.lost),
            ("refused", "Requests without a grant", c.refused),
        ],
    );
    registry.register("waiting", "Waiting clients", ConstGauge::new(c.waiting));
    registry.register("holding", "Clients that hold a slot", ConstGauge::new(c.holding));
    registry.register_with_unit("wait", "How long clients waited for a slot", Unit::Seconds, times.waits.clone());
    registry.register_with_unit("hold", "How long clients held a slot", Unit::Seconds, times.holds.clone());
}

fn cluster(registry: &mut Registry, counters: &Counters, peers: &[PeerView], health: &Health) {
    let c = counters;
    count(
        registry,
        &[
            ("received", "Frames from other peers", c.received),
            ("sent", "Frames to other peers", c.sent),
            ("malformed", "Frames of an unknown version or format", c.malformed),
            ("unexpected_messages", "Unexpected messages", c.unexpected),
            ("unauthenticated_connections", "Connections that did not prove membership", c.unauthenticated),
            ("sessions_lost", "Sessions of this peer that expired before it left", c.sessions_lost),
        ],
    );
    let those = |is: &dyn Fn(&PeerView) -> bool| peers.iter().filter(|peer| is(peer)).count();
    let votes = |peer: &PeerView| matches!(peer.voter, Voter::Votes | Voter::Leads);
    gauge(
        registry,
        &[
            ("peers", "Known peers, including this one", peers.len()),
            ("peers_up", "Known peers that are connected, including this one", those(&|peer| peer.up)),
            ("members", "Hosts in the registry, including this one", those(&|peer| peer.version.is_some())),
            ("voters", "Voters of the registry", those(&votes)),
            ("voters_up", "Voters that are connected, or this one", those(&|peer| votes(peer) && peer.up)),
            ("leads", "Whether this peer is the leader", those(&|peer| peer.is_me && peer.voter == Voter::Leads)),
            ("session", "Whether this peer has a valid session", usize::from(health.session.is_some())),
            (
                "registry_fault",
                "Whether the registry of this host lacks confirmed entries, or has halted",
                usize::from(health.registry_fault.is_some()),
            ),
            ("other_cluster_hosts", "Hosts of other clusters with the same secret", health.others.len()),
            (
                "other_cluster_joined",
                "Join addresses of this peer that belong to another cluster",
                health.others.iter().filter(|other| other.is_joined).count(),
            ),
        ],
    );
    let left = health.ends.unwrap_or_default();
    let help = "Time until the session of this peer expires unless it is renewed, 0 without one";
    registry.register_with_unit("session_left", help, Unit::Seconds, ConstGauge::new(left.as_secs_f64()));
}

fn resources(registry: &mut Registry, all: &[ResourceHealth], labelled: &[&ResourceHealth]) {
    gauge(
        registry,
        &[
            ("resources", "Resources that this agent participates in or has clients of", all.len()),
            ("resources_stalled", "Resources that are stalled", all.iter().filter(|it| it.stall.is_some()).count()),
            ("resources_left_out", "Resources without their own metrics", all.len() - labelled.len()),
        ],
    );
    let seconds = |span: Option<Duration>| span.unwrap_or_default().as_secs_f64();
    let oldest = all.iter().filter_map(|resource| resource.oldest_wait).max();
    let help = "Longest current wait of a client of this agent, over all resources";
    registry.register_with_unit("oldest_wait", help, Unit::Seconds, ConstGauge::new(seconds(oldest)));
    type Label = [(&'static str, String); 1];
    let label = |resource: &ResourceHealth| [("resource", resource.name.to_string())];
    let own = registry.sub_registry_with_prefix("resource");
    type Of<T> = fn(&ResourceHealth) -> T;
    let gauges: [(&str, &str, Of<usize>); 5] = [
        ("holders", "Clients of this agent that hold a slot", |it| it.holding),
        ("waiting", "Clients of this agent that wait", |it| it.waiting),
        ("slots", "Capacity, 0 if this agent does not participate", |it| it.slots.unwrap_or(0) as usize),
        ("generation", "Generation, 0 if this agent does not participate", |it| it.generation as usize),
        ("stalled", "Whether it is stalled: no session, or a recovery", |it| usize::from(it.stall.is_some())),
    ];
    for (name, help, value) in gauges {
        let family = Family::<Label, Gauge<u64, AtomicU64>>::default();
        for resource in labelled {
            family.get_or_create(&label(resource)).set(value(resource) as u64);
        }
        own.register(name, help, family);
    }
    let spans: [(&str, &str, Of<Option<Duration>>); 2] = [
        ("oldest_wait", "Longest current wait of a client of this agent", |it| it.oldest_wait),
        ("stall", "For how long it has been stalled", |it| it.stall.as_ref().map(|stall| stall.since)),
    ];
    for (name, help, value) in spans {
        let family = Family::<Label, Gauge<f64, AtomicU64>>::default();
        for resource in labelled {
            family.get_or_create(&label(resource)).set(seconds(value(resource)));
        }
        own.register_with_unit(name, help, Unit::Seconds, family);
    }
    let recoveries = Family::<Label, Counter>::default();
    for resource in labelled {
        recoveries.get_or_create(&label(resource)).inc_by(resource.recoveries);
    }
    own.register("recoveries", "Generations that followed the first of this agent's session", recoveries);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known(names: impl IntoIterator<Item = String>) -> Vec<ResourceHealth> {
        let one = |name| json!({ "name": name, "holding": 0, "waiting": 0, "generation": 1, "recoveries": 0 });
        names.into_iter().map(|name| serde_json::from_value(one(name)).expect("a resource")).collect()
    }

    #[test]
    fn fault_of_the_registry_is_a_gauge() {
        for (fault, value) in [(None, 0), (Some("it has lost entries"), 1)] {
            let health = json!({ "since_ms": 1, "sessions_lost": 0, "leaves": false, "resources": [],
                "registry_fault": fault });
            let mut registry = Registry::default();
            let health = serde_json::from_value(health).expect("a health");
            cluster(&mut registry, &Counters::default(), &[], &health);
            let text = render(&registry).expect("writing to memory");
            assert!(text.contains(&format!("\nregistry_fault {value}\n")), "{text}");
        }
    }

    #[test]
    fn labelled_resources_are_stable_and_bounded() {
        let labelled = Labelled::default();
        let chosen = |known: &[ResourceHealth]| -> Vec<String> {
            labelled.choose(known).iter().map(|resource| resource.name.to_string()).collect()
        };
        assert_eq!(chosen(&known(["m".to_owned()])), ["m"]);
        let many = |from: usize| (from..from + 300).map(|number| format!("{number:04}")).chain(["m".to_owned()]);
        let first = chosen(&known(many(0)));
        assert_eq!(
            (first.len(), first.last()),
            (MOST_RESOURCES, Some(&"m".to_owned())),
            "though others come before it"
        );
        assert_eq!(chosen(&known(many(0))), first);
        let next = chosen(&known(many(100)));
        assert_eq!((next.len(), &next[0][..], next.last().map(|last| &last[..])), (MOST_RESOURCES, "0100", Some("m")));
    }
}
