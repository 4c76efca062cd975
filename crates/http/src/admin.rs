//! Administration: the cluster, voters, capacities, deletion and revocation.

use axum::Json;
use axum::extract::State;
use peerlock_service::verb::{Cluster, Done, Evict, Forget, Remove, Resize, Revoke, SetVoters};
use peerlock_service::{Class, ClusterView};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::input::{Called, Named};
use crate::{App, Failure, SecretView};

/// Returns the administrative routes.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cluster))
        .routes(routes!(voters))
        .routes(routes!(forget))
        .routes(routes!(drain))
        .routes(routes!(reload))
        .routes(routes!(resize))
        .routes(routes!(remove))
        .routes(routes!(revoke))
        .routes(routes!(evict))
}

/// The cluster: members, voters and sessions.
/// As a voter knows it; as the agent knows it if no voter answers.
#[utoipa::path(
    get,
    path = "/v1/cluster",
    tag = "looking",
    responses((status = 200, description = "The cluster as a voter knows it", body = ClusterView))
)]
async fn cluster(State(app): State<App>) -> Result<Json<ClusterView>, Failure> {
    app.call(Cluster {}).await
}

/// Selects the voters, or lets the cluster choose again. The change itself takes a moment.
#[utoipa::path(
    post,
    path = "/v1/voters",
    tag = "administration",
    request_body(content = SetVoters),
    responses((status = 200, description = "Committed", body = Done))
)]
async fn voters(State(app): State<App>, Called(voters): Called<SetVoters>) -> Result<Json<Done>, Failure> {
    app.call(voters).await
}

/// Removes a member that will not return. If it does, it joins like a new one.
/// Refused while the host has a session, votes or is chosen to, or has given a detached grant that is valid.
#[utoipa::path(
    post,
    path = "/v1/forget",
    tag = "administration",
    request_body(content = Forget),
    responses((status = 200, description = "It is no member", body = Done))
)]
async fn forget(State(app): State<App>, Called(forget): Called<Forget>) -> Result<Json<Done>, Failure> {
    app.call(forget).await
}

/// Drains the agent: it grants no more slots, and stops once its grants have ended.
#[utoipa::path(
    post,
    path = "/v1/drain",
    tag = "administration",
    responses((status = 200, description = "The agent drains", body = Done))
)]
async fn drain(State(app): State<App>) -> Result<Json<Done>, Failure> {
    app.drain();
    Ok(Json(Done {}))
}

/// Reloads the cluster secret and the bearer token from their files, like SIGHUP.
/// If one of them cannot be used, nothing changes and the answer contains the reason.
#[utoipa::path(
    post,
    path = "/v1/reload",
    tag = "administration",
    responses((status = 200, description = "The files have been reloaded", body = SecretView))
)]
async fn reload(State(app): State<App>) -> Result<Json<SecretView>, Failure> {
    let refused = |why| Failure::new(Class::Unavailable, why);
    let files = app.files().ok_or_else(|| refused("this agent uses no files that can be reloaded".to_owned()))?;
    files.reload().map_err(refused)?;
    Ok(Json(files.secret()))
}

/// Changes the capacity of a resource. Excess slots disappear when they are released.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/resize",
    tag = "administration",
    params(Named),
    request_body(content = Resize),
    responses((status = 200, description = "Committed", body = Done))
)]
async fn resize(State(app): State<App>, Called(resize): Called<Resize>) -> Result<Json<Done>, Failure> {
    app.call(resize).await
}

/// Deletes a resource that is not in use, with its capacity.
/// A later request creates it again, with higher fencing numbers. While a slot is held or a request waits, the deletion
/// is refused.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/remove",
    tag = "administration",
    params(Named),
    responses((status = 200, description = "The resource is deleted", body = Done))
)]
async fn remove(State(app): State<App>, Named(name): Named) -> Result<Json<Done>, Failure> {
    app.call(Remove { name }).await
}

/// Revokes a grant anywhere in the cluster.
/// Answers when the holder has stopped, or its lease has expired. A detached grant, whose holder cannot be notified,
/// ends at once.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/revoke",
    tag = "administration",
    params(Named),
    request_body(content = Revoke),
    responses((status = 200, description = "Its holder has stopped, or its lease has expired", body = Done))
)]
async fn revoke(State(app): State<App>, Called(revoke): Called<Revoke>) -> Result<Json<Done>, Failure> {
    app.call(revoke).await
}

/// Evicts a host from a resource without asking it.
/// Its slots are granted to others at once, even if its clients still work.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/evict",
    tag = "administration",
    params(Named),
    request_body(content = Evict),
    responses((status = 200, description = "Committed", body = Done))
)]
async fn evict(State(app): State<App>, Called(evict): Called<Evict>) -> Result<Json<Done>, Failure> {
    app.call(evict).await
}
