//! What is served: the routes, and what they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, Uri};
use axum::{Json, Router};
use peerlock_service::{Class, GrantId, Moment, Name, Service, slept};
use tokio::sync::watch;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::connections::{Connections, Site};
use crate::document::{Document, finish};
use crate::events::Log;
use crate::metrics::{Labelled, Times};
use crate::watch::Watch;
use crate::{Failure, Program, SecretView, by_hand, events, health, metrics, page, resources, view};

/// The longest lease that an agent gives unless its operator says otherwise. Our choice: somebody looks once a day.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

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
    files: Option<Arc<dyn Files>>,
    longest_lease: Duration,
    /// When it began, and how long the machine had slept then.
    began: (Moment, Duration),
    /// Whether somebody wants the agent to end when those who hold slots have finished.
    draining: watch::Sender<bool>,
    connections: Arc<Connections>,
}

/// What an agent has read from files, and can read again while it runs.
pub trait Files: fmt::Debug + Send + Sync {
    /// Reads them again, and goes by what they say from then on.
    ///
    /// # Errors
    /// Why one of them cannot be used, in a sentence. Nothing has changed then.
    fn reload(&self) -> Result<(), String>;

    /// The cluster secret.
    fn secret(&self) -> SecretView;
}

impl App {
    /// The API of an agent's service.
    ///
    /// # Panics
    /// Outside of a tokio runtime: waits are added up in the background from now on.
    pub fn new(service: Service) -> Self {
        Self::agent(service, Program::default(), LONGEST_LEASE, None)
    }

    /// The API of the agent that this program is, which gives no longer leases than this, and has read these files.
    ///
    /// # Panics
    /// As [`App::new`].
    pub fn agent(service: Service, program: Program, longest_lease: Duration, files: Option<Arc<dyn Files>>) -> Self {
        let (times, log) = (Times::collect(service.events()), Log::collect(service.events()));
        let watch = Arc::new(Watch::of_agent(service.clone()));
        let (draining, connections) = (watch::Sender::new(false), Arc::default());
        let (labelled, began) = (Labelled::default(), (Moment::now(), slept()));
        let shared = Shared {
            service,
            watch,
            times,
            labelled,
            log,
            program,
            files,
            longest_lease,
            began,
            draining,
            connections,
        };
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

    /// What it has read from files, if from any.
    pub(crate) fn files(&self) -> Option<&dyn Files> {
        self.shared.files.as_deref()
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        self.shared.longest_lease
    }

    /// For how long it has run, and the machine slept meanwhile.
    pub(crate) fn runs(&self) -> (Duration, Duration) {
        let (began, slept_before) = self.shared.began;
        (Moment::now().since(began), slept().saturating_sub(slept_before))
    }

    /// How many connections are open, and how many there have been.
    pub fn connections(&self) -> (usize, u64) {
        self.shared.connections.count()
    }

    /// Drains the agent: it ends once the clients that hold slots have finished. A client calls this, or the program.
    pub fn drain(&self) {
        self.shared.draining.send_replace(true);
    }

    /// Resolves when a client wants that.
    pub async fn drained(&self) {
        // The sender is ours.
        _ = self.shared.draining.subscribe().wait_for(|draining| *draining).await;
    }

    /// Resolves when the agent stops.
    pub(crate) async fn closed(&self) {
        self.shared.connections.closed().await;
    }

    /// All routes: those of the API and those of the page.
    fn router(&self) -> Router {
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

    /// The grant of such a name, which is good only for this resource, and which nobody else has: a client that has
    /// slept while the agent restarted must not renew what is another's by now.
    pub(crate) fn grant(name: &Name, text: &str) -> Result<GrantId, Failure> {
        let is_ours = |grant: &GrantId| matches!(grant, GrantId::Named(_)) && grant.fits(name);
        let grant = text.parse().ok().filter(is_ours);
        grant.ok_or_else(|| Failure::from(peerlock_service::Error::Lost))
    }
}

impl From<App> for Site {
    fn from(app: App) -> Self {
        Self { router: app.router(), connections: Arc::clone(&app.shared.connections) }
    }
}

/// The description of this API, in OpenAPI's format.
#[utoipa::path(
    get,
    path = "/openapi.json",
    tag = "agent",
    responses((status = 200, description = "This document", body = Object))
)]
async fn openapi(State(app): State<App>) -> Json<utoipa::openapi::OpenApi> {
    let mut document = app.routes().into_openapi();
    finish(&mut document);
    Json(document)
}

pub(crate) async fn not_found(uri: Uri) -> Failure {
    let message = format!("there is nothing at {}: GET /openapi.json tells what there is", uri.path());
    Failure::new(Class::NotFound, message)
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let message = format!("{} cannot be asked to {method}: GET /openapi.json tells what it can", uri.path());
    Failure::new(Class::MethodNotAllowed, message)
}
