//! The routes of resources and grants.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use peerlock_service::verb::Show;
use peerlock_service::{
    Class, Conclusion, Error, Granted, Listing, Name, PeerView, Request, ResourceDetails, ResourceView,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::{Conclude, Concluded, Line, Released, Renewed, Which};
use crate::hold::Hold;
use crate::input::{Caller, Input, Named, Names};
use crate::presence::Client;
use crate::{App, Failure};

/// The shortest request ID, in bytes: a shorter one can be guessed.
const SHORTEST_ID: usize = 16;

/// Returns the routes of resources, slots and peers.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(acquire))
        .routes(routes!(hold))
        .routes(routes!(resume))
        .routes(routes!(renew))
        .routes(routes!(conclude))
        .routes(routes!(release))
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(peers))
}

/// Acquires a slot.
/// It stays held until its lease expires, unless it is renewed or released. Closing the connection while waiting
/// withdraws the request.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/acquire",
    tag = "slots",
    params(Named),
    request_body(content = Request),
    responses((status = 200, description = "The slot is held until its lease expires", body = Granted))
)]
async fn acquire(
    State(app): State<App>,
    caller: Caller,
    Named(name): Named,
    Input(request): Input<Request>,
) -> Result<Json<Granted>, Failure> {
    let request = named(&app, name, caller, request)?;
    if request.request_id.as_ref().is_some_and(|id| id.len() < SHORTEST_ID) {
        return Err(Failure::new(
            Class::BadRequest,
            "a request_id gives access to its grant: use an unguessable one of 16 bytes or more, such as a \
             UUID",
        ));
    }
    let asked = app.service().now();
    let grant = tokio::select! {
        biased;
        grant = app.service().acquire_detached(request) => grant?,
        () = app.closed() => return Err(Error::Stopped.into()),
    };
    let granted = grant.granted(asked);
    grant.detach();
    Ok(Json(granted))
}

/// Acquires a slot for as long as the connection is open.
/// The answer has one line of JSON per change. The lease must be renewed nevertheless. Over TCP the end of the
/// connection does not free the slot: release it.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/hold",
    tag = "slots",
    params(Named),
    request_body(content = Request),
    responses(
        (
            status = 200,
            description = "One line of JSON per change, until the connection ends",
            body = Line,
            content_type = "application/x-ndjson"
        )
    )
)]
async fn hold(
    State(app): State<App>,
    caller: Caller,
    Extension(client): Extension<Arc<Client>>,
    Named(name): Named,
    Input(request): Input<Request>,
) -> Result<Response, Failure> {
    if request.request_id.is_some() {
        return Err(Failure::new(
            Class::BadRequest,
            "a slot bound to a connection cannot be requested again on another: omit request_id",
        ));
    }
    let acquire = app.service().hold(named(&app, name, caller, request)?);
    let lines = Hold::new(app, acquire, client.link()).lines();
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Resumes a grant of `hold`.
/// Use it at the next agent after one that has stopped, or over TCP at the same agent after the connection broke. The
/// slot belongs to this connection from then on, and its lease is renewed. The answer is as for `hold`. It may take
/// until the agent has rejoined its cluster, and is an error if the lease has expired.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/resume",
    tag = "slots",
    params(Named),
    request_body(content = Which),
    responses(
        (
            status = 200,
            description = "One line of JSON per change, until the connection ends",
            body = Line,
            content_type = "application/x-ndjson"
        )
    )
)]
async fn resume(
    State(app): State<App>,
    Extension(client): Extension<Arc<Client>>,
    Named(name): Named,
    Input(which): Input<Which>,
) -> Result<Response, Failure> {
    let grant = App::grant(&name, &which.grant)?;
    let acquire = app.service().resume(name, grant);
    let lines = Hold::new(app, acquire, client.link()).lines();
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

/// Renews a lease.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/renew",
    tag = "slots",
    params(Named),
    request_body(content = Which),
    responses((status = 200, description = "The lease is renewed for this long", body = Renewed))
)]
async fn renew(
    State(app): State<App>,
    Named(name): Named,
    Input(which): Input<Which>,
) -> Result<Json<Renewed>, Failure> {
    let got = app.service().now();
    let deadline = app.service().renew(&App::grant(&name, &which.grant)?).await?;
    Ok(Json(Renewed { ttl: deadline.since(got) }))
}

/// Reports the end of a run that takes place once per period.
/// The registry counts the failed runs of the period. If the run has succeeded or was the last attempt, the slot is
/// held until the period ends, also without the client and its connection. The call can be repeated.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/conclude",
    tag = "slots",
    params(Named),
    request_body(content = Conclude),
    responses(
        (status = 200, description = "The end of the run is recorded", body = Concluded),
        (status = "default", body = Failure)
    )
)]
async fn conclude(
    State(app): State<App>,
    Named(name): Named,
    Input(Conclude { grant, succeeded, attempts, hold }): Input<Conclude>,
) -> Result<Json<Concluded>, Failure> {
    let conclusion = Conclusion { succeeded, attempts, hold };
    let holds = app.service().conclude(&App::grant(&name, &grant)?, conclusion).await?;
    Ok(Json(Concluded { holds }))
}

/// Releases a slot.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/release",
    tag = "slots",
    params(Named),
    request_body(content = Which),
    responses((status = 200, description = "The slot was released before its lease expired", body = Released))
)]
async fn release(
    State(app): State<App>,
    Named(name): Named,
    Input(which): Input<Which>,
) -> Result<Json<Released>, Failure> {
    let (service, grant) = (app.service().clone(), App::grant(&name, &which.grant)?);
    // The release must complete even if the client does not wait for the answer.
    let released = tokio::spawn(async move { service.release(&grant).await });
    released.await.unwrap_or(Err(Error::Stopped))?;
    Ok(Json(Released {}))
}

/// The resources of the cluster, by name: all, those with a prefix, or one page.
#[utoipa::path(
    get,
    path = "/v1/resources",
    tag = "looking",
    params(Listing),
    responses((status = 200, description = "The selected resources, by name", body = Vec<ResourceView>))
)]
async fn list(State(app): State<App>, Names(listing): Names) -> Result<Json<Vec<ResourceView>>, Failure> {
    Ok(Json(app.service().list(listing).await?))
}

/// The holders and the queue of a resource, in the whole cluster.
#[utoipa::path(
    get,
    path = "/v1/resources/{name}",
    tag = "looking",
    params(Named),
    responses((status = 200, description = "Each slot, and the queue in order", body = ResourceDetails))
)]
async fn show(State(app): State<App>, Named(name): Named) -> Result<Json<ResourceDetails>, Failure> {
    app.call(Show { name }).await
}

/// All known peers, the agent itself first.
#[utoipa::path(
    get,
    path = "/v1/peers",
    tag = "looking",
    responses((status = 200, description = "All known peers, this agent first", body = Vec<PeerView>))
)]
async fn peers(State(app): State<App>) -> Result<Json<Vec<PeerView>>, Failure> {
    Ok(Json(app.service().cluster().await?.peers))
}

/// Completes a client's request with the resource and the caller, and checks the lease against the operator's limit.
fn named(app: &App, name: Name, Caller(pid): Caller, mut request: Request) -> Result<Request, Failure> {
    let longest = app.longest_lease();
    if let Some(ttl) = request.ttl.filter(|ttl| *ttl > longest) {
        return Err(Failure::new(
            Class::BadRequest,
            format!(
                "a lease of {} s exceeds this agent's limit of {} s: request less and renew it, or start \
                 the agent with a higher --longest-lease",
                ttl.as_secs(),
                longest.as_secs_f64(),
            ),
        ));
    }
    (request.name, request.pid) = (name.into(), pid);
    Ok(request)
}
