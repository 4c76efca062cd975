//! What happens, as it happens.

use std::convert::Infallible;
use std::time::SystemTime;

use axum::extract::State;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::{Stream, StreamExt};
use peerlock_service::{Event, Happening};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::wrappers::errors::BroadcastStreamRecvError::Lagged;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::input::About;
use crate::{App, Failure};

/// The route that streams events.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events))
}

/// What happens at this agent from now on, as server-sent events. A reader that is too slow misses the oldest, and is
/// told how many by an event `missed`.
#[utoipa::path(
    get,
    path = "/v1/events",
    params(About),
    responses(
        (status = 200, body = Happening, content_type = "text/event-stream"),
        (status = "default", body = Failure)
    )
)]
async fn events(
    State(app): State<App>,
    About { name }: About,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
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
    Sse::new(until_stopped.map(|happening| Ok(encode(&happening)))).keep_alive(KeepAlive::default())
}

fn encode(happening: &Happening) -> sse::Event {
    // Serializing fails only for maps whose keys are no strings, and there is none.
    let json = serde_json::to_string(happening).unwrap_or_default();
    sse::Event::default().event(happening.event.kind()).data(json)
}
