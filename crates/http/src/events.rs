//! What happens, as it happens.

use std::convert::Infallible;
use std::time::SystemTime;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::{Stream, StreamExt};
use peerlock_service::{Class, Event, Happening, Name};
use serde::Deserialize;
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError::Lagged;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{App, Failure};

/// This route.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events))
}

/// Which events.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Filter {
    /// Only those about this resource.
    #[param(value_type = Option<String>)]
    name: Option<Name>,
}

/// What happens at this agent from now on, as server-sent events. A reader that is too slow misses the oldest, and is
/// told how many by an event `missed`.
#[utoipa::path(
    get,
    path = "/v1/events",
    params(Filter),
    responses(
        (status = 200, body = Happening, content_type = "text/event-stream"),
        (status = "default", body = Failure)
    )
)]
async fn events(
    State(app): State<App>,
    filter: Result<Query<Filter>, QueryRejection>,
) -> Result<Sse<impl Stream<Item = Result<sse::Event, Infallible>>>, Failure> {
    let Query(Filter { name }) = filter.map_err(|error| {
        let message = format!("the query is not what this takes: {}. It takes `name`, a resource", error.body_text());
        Failure::new(Class::BadRequest, message)
    })?;
    let happenings = BroadcastStream::new(app.service().events()).map(|happening| match happening {
        Ok(happening) => happening,
        Err(Lagged(count)) => {
            let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Happening { at, event: Event::Missed { count } }
        }
    });
    let wanted = happenings
        .filter(move |happening| std::future::ready(name.as_ref().is_none_or(|name| happening.event.is_about(name))));
    let until_stopped = wanted.take_until(async move { app.closed().await });
    // A comment now and then shows that a reader is gone.
    Ok(Sse::new(until_stopped.map(|happening| Ok(encode(&happening)))).keep_alive(KeepAlive::default()))
}

fn encode(happening: &Happening) -> sse::Event {
    // Serializing fails only for maps whose keys are no strings, and there is none.
    let json = serde_json::to_string(happening).unwrap_or_default();
    sse::Event::default().event(happening.event.kind()).data(json)
}
