//! Acquiring, and looking at what was acquired.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use peerlock_service::{self as service, Grant, Name};
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::{Details, Granted, Line, Peer, Released, Renewed, Resource, Want, Which, ms};
use crate::hold::Hold;
use crate::input::{Input, Named};
use crate::{App, Failure, Kind};

/// The longest label and request id: others get to see the first.
const MOST_TEXT: usize = 1024;

/// These routes.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(acquire))
        .routes(routes!(hold))
        .routes(routes!(renew))
        .routes(routes!(release))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(peers))
}

/// Acquires a slot. It stands until its lease ends, unless it is renewed or released; closing the connection while
/// waiting withdraws.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/acquire",
    params(("name" = String, Path, description = "The resource, percent-encoded")),
    request_body(content = Option<Want>),
    responses((status = 200, body = Granted), (status = "default", body = Failure))
)]
async fn acquire(
    State(app): State<App>,
    Named(name): Named,
    Input(want): Input<Want>,
) -> Result<Json<Granted>, Failure> {
    let asked = Instant::now();
    let grant = tokio::select! {
        biased;
        grant = wanted(&app, &name, want, "acquire")?.acquire() => grant?,
        () = app.closed() => return Err(service::Error::Stopped.into()),
    };
    let granted = granted(&app, &grant, asked);
    grant.detach();
    Ok(Json(granted))
}

/// Acquires a slot for as long as the connection stands. The answer is a line of JSON for whatever becomes of it. The
/// lease must be renewed nevertheless.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/hold",
    params(("name" = String, Path, description = "The resource, percent-encoded")),
    request_body(content = Option<Want>),
    responses(
        (status = 200, body = Line, content_type = "application/x-ndjson"),
        (status = "default", body = Failure)
    )
)]
async fn hold(State(app): State<App>, Named(name): Named, Input(want): Input<Want>) -> Result<Response, Failure> {
    let acquire = wanted(&app, &name, want, "hold")?.renewed_by_client().acquire();
    let lines = Hold::new(app, acquire).lines();
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Renews a lease.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/renew",
    params(("name" = String, Path, description = "The resource, percent-encoded")),
    request_body(content = Which),
    responses((status = 200, body = Renewed), (status = "default", body = Failure))
)]
async fn renew(
    State(app): State<App>,
    Named(name): Named,
    Input(which): Input<Which>,
) -> Result<Json<Renewed>, Failure> {
    let got = Instant::now();
    let deadline = app.service().renew(app.grant(&name, &which.grant)?).await?;
    Ok(Json(Renewed { ttl_ms: ms(deadline.duration_since(got)) }))
}

/// Gives a slot back.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/release",
    params(("name" = String, Path, description = "The resource, percent-encoded")),
    request_body(content = Which),
    responses((status = 200, body = Released), (status = "default", body = Failure))
)]
async fn release(
    State(app): State<App>,
    Named(name): Named,
    Input(which): Input<Which>,
) -> Result<Json<Released>, Failure> {
    app.service().release(app.grant(&name, &which.grant)?).await?;
    Ok(Json(Released {}))
}

/// All resources that the agent knows of, by name.
#[utoipa::path(get, path = "/v1/resources", responses((status = 200, body = Vec<Resource>), (status = "default", body = Failure)))]
async fn list(State(app): State<App>) -> Result<Json<Vec<Resource>>, Failure> {
    Ok(Json(app.service().resources().await?.into_iter().map(Resource::from).collect()))
}

/// Who is inside, and who waits in which order, in the whole cluster.
#[utoipa::path(
    get,
    path = "/v1/resources/{name}",
    params(("name" = String, Path, description = "The resource, percent-encoded")),
    responses((status = 200, body = Details), (status = "default", body = Failure))
)]
async fn show(State(app): State<App>, Named(name): Named) -> Result<Json<Details>, Failure> {
    Ok(Json(app.service().show(name.as_str()).await?.into()))
}

/// Everybody whom the agent knows, itself first.
#[utoipa::path(get, path = "/v1/peers", responses((status = 200, body = Vec<Peer>), (status = "default", body = Failure)))]
async fn peers(State(app): State<App>) -> Result<Json<Vec<Peer>>, Failure> {
    Ok(Json(app.service().peers().await?.into_iter().map(Peer::from).collect()))
}

/// The service's request for what a client wants. Its request id is one among those that ask in the same way: an `acquire`
/// must not keep what a `hold` has for its connection.
fn wanted(app: &App, name: &Name, want: Want, how: &str) -> Result<service::Resource, Failure> {
    let bad = |why: &str| Err(Failure::new(Kind::BadRequest, why));
    let Want { slots, wait_ms, try_only, ttl_ms, grace_ms, label, request_id } = want;
    if try_only && wait_ms.is_some() {
        return bad("`try` does not wait, and `wait_ms` does: send one of them");
    }
    if [&label, &request_id].into_iter().flatten().any(|text| text.len() > MOST_TEXT) {
        return bad("`label` and `request_id` have at most 1024 bytes: shorten them");
    }
    let mut resource = app.service().resource(name.as_str()).label(label.unwrap_or_default());
    if let Some(slots) = slots {
        resource = resource.slots(slots);
    }
    if let Some(wait) = wait_ms {
        resource = resource.wait(Duration::from_millis(wait));
    }
    if try_only {
        resource = resource.try_only();
    }
    if let Some(ttl) = ttl_ms {
        resource = resource.ttl(Duration::from_millis(ttl));
    }
    if let Some(grace) = grace_ms {
        resource = resource.grace(Duration::from_millis(grace));
    }
    Ok(match request_id {
        Some(id) => resource.request_id(format!("{how}\n{id}")),
        None => resource,
    })
}

/// What a client is told of its grant.
pub fn granted(app: &App, grant: &Grant, asked: Instant) -> Granted {
    let now = Instant::now();
    Granted {
        grant: app.grant_name(grant.name(), grant.id()),
        name: grant.name().to_string(),
        slot: grant.slot(),
        fencing: grant.fencing(),
        ttl_ms: ms(grant.deadline().saturating_duration_since(now)),
        waited_ms: ms(now.duration_since(asked)),
    }
}
