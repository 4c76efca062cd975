//! What an operator looks at and decides: the cluster, who votes, how many slots, which names go, and what is taken
//! away.

use axum::Json;
use axum::extract::State;
use peerlock_service::{Class, ClusterView, PeerId};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::body::{Done, Slots, Voters, Wanted, Whom};
use crate::input::{Input, Named};
use crate::{App, Failure, SecretView};

/// The routes of the cluster, and of what is done by hand.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(cluster))
        .routes(routes!(voters))
        .routes(routes!(drain))
        .routes(routes!(reload))
        .routes(routes!(resize))
        .routes(routes!(remove))
        .routes(routes!(revoke))
        .routes(routes!(expel))
}

/// The cluster as a voter knows it: its members, who votes and who has a session; as the agent does if none answers.
#[utoipa::path(
    get,
    path = "/v1/cluster",
    tag = "looking",
    responses(
        (status = 200, description = "The cluster as a voter knows it", body = ClusterView),
        (status = "default", body = Failure)
    )
)]
async fn cluster(State(app): State<App>) -> Result<Json<ClusterView>, Failure> {
    Ok(Json(app.service().cluster().await?))
}

/// Says which hosts vote, or leaves it to the cluster again. The change itself takes a moment.
#[utoipa::path(
    post,
    path = "/v1/voters",
    tag = "by hand",
    request_body(content = Voters),
    responses((status = 200, description = "It is decided", body = Done), (status = "default", body = Failure))
)]
async fn voters(State(app): State<App>, Input(voters): Input<Voters>) -> Result<Json<Done>, Failure> {
    let hosts = voters.hosts.map(|hosts| hosts.iter().map(|host| peer(host)).collect()).transpose()?;
    app.service().seats(hosts).await?;
    Ok(Json(Done {}))
}

/// Lets nobody in at this agent any more; it leaves when those who hold slots have given them back.
#[utoipa::path(
    post,
    path = "/v1/drain",
    tag = "by hand",
    responses((status = 200, description = "It has begun", body = Done), (status = "default", body = Failure))
)]
async fn drain(State(app): State<App>) -> Result<Json<Done>, Failure> {
    app.drain();
    Ok(Json(Done {}))
}

/// Has the agent read its files again, as SIGHUP does: the cluster secret and the bearer token. If one cannot be used
/// everything is as before, and the answer says why.
#[utoipa::path(
    post,
    path = "/v1/reload",
    tag = "by hand",
    responses(
        (status = 200, description = "It goes by what they say now", body = SecretView),
        (status = "default", body = Failure)
    )
)]
async fn reload(State(app): State<App>) -> Result<Json<SecretView>, Failure> {
    let refused = |why| Failure::new(Class::Unavailable, why);
    let files = app.files().ok_or_else(|| refused("this agent has read nothing from files".to_owned()))?;
    files.reload().map_err(refused)?;
    Ok(Json(files.secret()))
}

/// Gives a resource another number of slots. Those that are too many go when they are left.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/resize",
    tag = "by hand",
    params(Named),
    request_body(content = Slots),
    responses((status = 200, description = "It is decided", body = Done), (status = "default", body = Failure))
)]
async fn resize(
    State(app): State<App>,
    Named(name): Named,
    Input(Slots { slots }): Input<Slots>,
) -> Result<Json<Done>, Failure> {
    app.service().resize(name.as_str(), slots).await?;
    Ok(Json(Done {}))
}

/// Removes a name that nobody uses: the cluster forgets it and its number of slots. Who asks for it later founds it
/// again, with higher fencing numbers. While somebody holds a slot of it or waits it is refused, and nothing changes.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/remove",
    tag = "by hand",
    params(Named),
    responses(
        (status = 200, description = "There is no such name any more", body = Done),
        (status = "default", body = Failure)
    )
)]
async fn remove(State(app): State<App>, Named(name): Named) -> Result<Json<Done>, Failure> {
    app.service().remove(name.as_str()).await?;
    Ok(Json(Done {}))
}

/// Asks a holder to stop, wherever in the cluster it is. The answer comes when it has, or when its lease has ended. A
/// detached grant, whose holder nobody can ask, ends at once.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/revoke",
    tag = "by hand",
    params(Named),
    request_body(content = Wanted),
    responses(
        (status = 200, description = "Its holder has stopped, or its lease has ended", body = Done),
        (status = "default", body = Failure)
    )
)]
async fn revoke(
    State(app): State<App>,
    Named(name): Named,
    Input(Wanted { fencing }): Input<Wanted>,
) -> Result<Json<Done>, Failure> {
    app.service().revoke(name.as_str(), fencing).await?;
    Ok(Json(Done {}))
}

/// Takes away by force all that a host has of a resource: others get its slots at once, though its clients may still be
/// inside.
#[utoipa::path(
    post,
    path = "/v1/resources/{name}/expel",
    tag = "by hand",
    params(Named),
    request_body(content = Whom),
    responses((status = 200, description = "It is decided", body = Done), (status = "default", body = Failure))
)]
async fn expel(State(app): State<App>, Named(name): Named, Input(whom): Input<Whom>) -> Result<Json<Done>, Failure> {
    app.service().expel(name.as_str(), peer(&whom.peer)?).await?;
    Ok(Json(Done {}))
}

/// The number of a host, as the API shows it.
fn peer(text: &str) -> Result<PeerId, Failure> {
    let bad =
        || Failure::new(Class::BadRequest, format!("{text:?} is not the number of a host: GET /v1/peers has them"));
    text.parse().map(PeerId::new).map_err(|_| bad())
}
