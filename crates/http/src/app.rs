//! What is served: the routes, and what they share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, Uri};
use axum::{Json, Router};
use peerlock_service::{Class, GrantId, Moment, Name, Service, slept};
use tokio::sync::watch;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::events::Log;
use crate::metrics::{Labelled, Times};
use crate::view::Watch;
use crate::{Failure, Program, by_hand, events, health, metrics, page, resources, view};

/// An agent's API. Copies are the same.
#[derive(Clone, Debug)]
pub struct App {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    service: Service,
    watch: Arc<Watch>,
    times: Times,
    /// Which resources have metrics of their own.
    labelled: Labelled,
    /// What has happened of late.
    log: Arc<Log>,
    program: Program,
    /// When it began, and how long the machine had slept then.
    began: (Moment, Duration),
    /// Whether the agent stops. A task that has a receiver ends its work before the agent does.
    closing: watch::Sender<bool>,
    /// Whether somebody wants the agent to end when those who hold slots have finished.
    draining: watch::Sender<bool>,
    /// How many connections there have been.
    accepted: AtomicU64,
}

impl App {
    /// The API of an agent's service.
    ///
    /// # Panics
    /// Outside of a tokio runtime: waits are added up in the background from now on.
    pub fn new(service: Service) -> Self {
        Self::of(service, Vec::new(), Program::default())
    }

    /// The API of the agent that this program is.
    ///
    /// # Panics
    /// As [`App::new`].
    pub fn agent(service: Service, program: Program) -> Self {
        Self::of(service, Vec::new(), program)
    }

    /// The same where all peers of a cluster are in this process: the live page shows all of them, and clients come in
    /// at the first.
    ///
    /// # Panics
    /// As [`App::new`].
    pub fn demo(first: Service, others: Vec<Service>) -> Self {
        Self::of(first, others, Program::default())
    }

    fn of(first: Service, others: Vec<Service>, program: Program) -> Self {
        let (times, log) = (Times::collect(first.events()), Log::collect(first.events()));
        let watch = Arc::new(Watch::new([first.clone()].into_iter().chain(others).collect()));
        let (closing, draining, accepted) = (watch::Sender::new(false), watch::Sender::new(false), AtomicU64::new(0));
        let (labelled, began) = (Labelled::default(), (Moment::now(), slept()));
        let shared =
            Shared { service: first, watch, times, labelled, log, program, began, closing, draining, accepted };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.shared.service
    }

    pub(crate) fn times(&self) -> &Times {
        &self.shared.times
    }

    pub(crate) fn labelled(&self) -> &Labelled {
        &self.shared.labelled
    }

    pub(crate) fn log(&self) -> &Arc<Log> {
        &self.shared.log
    }

    pub(crate) fn program(&self) -> &Program {
        &self.shared.program
    }

    /// For how long it has run, and the machine slept meanwhile.
    pub(crate) fn runs(&self) -> (Duration, Duration) {
        let (began, slept_before) = self.shared.began;
        (Moment::now().since(began), slept().saturating_sub(slept_before))
    }

    /// How many connections are open, and how many there have been.
    pub fn connections(&self) -> (usize, u64) {
        (self.shared.closing.receiver_count(), self.shared.accepted.load(Ordering::Relaxed))
    }

    /// A connection begins: it hears here when the agent stops, which waits for it.
    pub(crate) fn connected(&self) -> watch::Receiver<bool> {
        self.shared.accepted.fetch_add(1, Ordering::Relaxed);
        self.shared.closing.subscribe()
    }

    /// A client wants the agent to end, once those who hold slots have finished.
    pub(crate) fn drain(&self) {
        self.shared.draining.send_replace(true);
    }

    /// Resolves when a client wants that.
    pub async fn drained(&self) {
        // The sender is ours.
        _ = self.shared.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Resolves when the agent stops.
    pub(crate) async fn closed(&self) {
        // We have the sender, so that there is no error.
        _ = self.shared.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Ends everything, and waits until it has.
    pub(crate) async fn close(&self) {
        self.shared.closing.send_replace(true);
        self.shared.closing.closed().await;
    }

    /// All routes: those of the API and those of the page.
    pub(crate) fn router(&self) -> Router {
        let (router, _) = self.routes().split_for_parts();
        router.merge(page::routes()).fallback(not_found).method_not_allowed_fallback(method_not_allowed)
    }

    /// All routes with their documentation.
    fn routes(&self) -> OpenApiRouter {
        let routes = resources::routes()
            .merge(by_hand::routes())
            .merge(events::routes())
            .merge(health::routes())
            .merge(metrics::routes())
            .routes(routes!(openapi));
        let routes = routes.with_state(self.clone()).merge(view::routes(self.shared.watch.clone()));
        OpenApiRouter::with_openapi(Document::openapi()).merge(routes)
    }

    /// The grant of such a name, which is good only for this resource, and which nobody else has: a client that has slept
    /// while the agent restarted must not renew what is another's by now.
    pub(crate) fn grant(name: &Name, text: &str) -> Result<GrantId, Failure> {
        let is_ours = |grant: &GrantId| matches!(grant, GrantId::Named(_)) && grant.fits(name);
        let grant = text.parse().ok().filter(is_ours);
        grant.ok_or_else(|| Failure::from(peerlock_service::Error::Lost))
    }
}

/// What the document says besides the routes.
#[derive(OpenApi)]
#[openapi(
    info(title = "peerlock agent", description = "At most `slots` at a time, in fair order, across machines."),
    security((), ("token" = [])),
    modifiers(&Bearer)
)]
struct Document;

/// Where the agent was given a bearer token, clients must send it.
struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// The description of this API, in OpenAPI's format.
#[utoipa::path(get, path = "/openapi.json", responses((status = 200, body = Object)))]
async fn openapi(State(app): State<App>) -> Json<utoipa::openapi::OpenApi> {
    Json(app.routes().into_openapi())
}

async fn not_found(uri: Uri) -> Failure {
    let message = format!("there is nothing at {}: GET /openapi.json tells what there is", uri.path());
    Failure::new(Class::NotFound, message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let message = format!("{} cannot be asked to {method}: GET /openapi.json tells what it can", uri.path());
    Failure::new(Class::MethodNotAllowed, message)
}
