//! Health checks for monitoring.

use axum::Json;
use axum::extract::State;
use peerlock_service::Class;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::{AgentView, App, Failure, Files, Healthy};

/// Returns the routes of the agent's own state.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(healthz)).routes(routes!(agent))
}

/// 200 while the agent's session is valid, otherwise 503 with an error message.
/// Also 503 as long as a configured join address belongs to another cluster, and if the registry of this host has
/// halted or lost confirmed data. Answers at once, without asking other peers.
#[utoipa::path(
    get,
    path = "/healthz",
    tag = "agent",
    responses(
        (status = 200, description = "The session is valid, so slots can be granted", body = Healthy),
        (
            status = 503,
            description = "No session, stopping, a join address of another cluster, or a faulty registry",
            body = Failure
        )
    )
)]
async fn healthz(State(app): State<App>) -> Result<Json<Healthy>, Failure> {
    let health = app.service().health().await?;
    if let Some(other) = health.others.iter().find(|other| other.is_joined) {
        let message = format!("the join address {} belongs to another cluster ({})", other.address, other.cluster);
        return Err(Failure::new(Class::Unavailable, message));
    }
    if let Some(fault) = health.registry_fault {
        return Err(Failure::new(Class::Unavailable, fault));
    }
    match (health.session, health.ends, health.problem) {
        (Some(session), Some(ends), None) => Ok(Json(Healthy { session, ends })),
        (_, _, problem) => Err(Failure::new(Class::Unavailable, problem.unwrap_or_default())),
    }
}

/// The agent itself.
/// Version, process, data directory, addresses, uptime, sleep, session and stalled resources. Does not ask other peers.
#[utoipa::path(
    get,
    path = "/v1/agent",
    tag = "agent",
    responses((status = 200, description = "The agent", body = AgentView))
)]
async fn agent(State(app): State<App>) -> Result<Json<AgentView>, Failure> {
    let mut health = app.service().health().await?;
    health.resources.retain(|resource| resource.stall.is_some());
    let (runs, slept) = app.runs();
    let secret = app.files().map(Files::secret);
    Ok(Json(AgentView { program: app.program().clone(), pid: std::process::id(), runs, slept, health, secret }))
}
