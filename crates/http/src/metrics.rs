//! What Prometheus asks for.

use std::fmt;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use peerlock_service::{Counters, Event, Happening, PeerView, ResourceView};
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{App, Failure};

/// The route that Prometheus scrapes.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(metrics))
}

/// What has to be added up as it happens. Not by resource: there may be any number of those.
#[derive(Clone, Debug)]
pub struct Times {
    waits: Histogram,
    holds: Histogram,
}

impl Times {
    /// Adds up what happens from now on, for as long as the peer is there.
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
                    Err(RecvError::Lagged(missed)) => tracing::debug!(missed, "events that are in no histogram"),
                    Err(RecvError::Closed) => break,
                }
            }
        });
        times
    }
}

/// Counters, gauges and histograms of this agent, in the text format of OpenMetrics, which Prometheus reads.
#[utoipa::path(
    get,
    path = "/metrics",
    responses(
        (status = 200, body = String, content_type = "application/openmetrics-text"),
        (status = "default", body = Failure)
    )
)]
async fn metrics(State(app): State<App>) -> Result<impl IntoResponse, Failure> {
    let service = app.service();
    let (counters, peers) = (service.counters().await?, service.peers().await?);
    let text = render(app.times(), &counters, &peers, &service.resources().await?);
    // Writing into memory cannot fail.
    let text = text.unwrap_or_default();
    Ok(([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text))
}

fn render(
    times: &Times,
    counters: &Counters,
    peers: &[PeerView],
    resources: &[ResourceView],
) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("peerlock");
    let c = counters;
    for (name, help, value) in [
        ("asked", "Requests of clients", c.asked),
        ("granted", "Slots that were granted", c.granted),
        ("released", "Grants that were released in time", c.released),
        ("lost", "Grants whose lease ended", c.lost),
        ("refused", "Requests that ended without a grant", c.refused),
        ("received", "Frames from other peers", c.received),
        ("sent", "Frames to other peers", c.sent),
        ("malformed", "Frames of no version or format that is known", c.malformed),
        ("strange", "Messages that made no sense", c.strange),
        ("strangers", "Connections of nobody who belongs to the cluster", c.strangers),
        ("sessions_lost", "Sessions of this peer that were over before it left", c.sessions_lost),
    ] {
        registry.register(name, help, ConstCounter::new(value));
    }
    for (name, help, value) in [
        ("waiting", "Clients that wait now", c.waiting),
        ("holding", "Clients that are inside now", c.holding),
        ("peers", "Peers that are known, with this one", peers.len() as u64),
        ("peers_up", "Of those, connected now, with this one", peers.iter().filter(|peer| peer.up).count() as u64),
        ("resources", "Resources that are known", resources.len() as u64),
    ] {
        registry.register(name, help, ConstGauge::new(value));
    }
    registry.register_with_unit("wait", "How long clients waited for a slot", Unit::Seconds, times.waits.clone());
    registry.register_with_unit("hold", "How long clients had a slot", Unit::Seconds, times.holds.clone());
    let mut text = String::new();
    encode(&mut text, &registry)?;
    Ok(text)
}
