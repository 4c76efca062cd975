//! The routes, and the state they share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{Method, Uri};
use axum::{Json, Router};
use peerlock_service::verb::Verb;
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
use crate::{Failure, Program, SecretView, admin, events, health, metrics, page, resources, view};

/// The longest lease by default. Leases this long are for slots that a person checks daily.
pub const LONGEST_LEASE: Duration = Duration::from_secs(24 * 60 * 60);

/// An agent's API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct App {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    service: Service,
    watch: Arc<Watch>,
    times: Times,
    labelled: Labelled,
    log: Arc<Log>,
    program: Program,
    files: Option<Arc<dyn Files>>,
    longest_lease: Duration,
    /// When the agent started, and how long the machine had slept by then.
    started: (Moment, Duration),
    /// Set when the agent is to stop once its grants have ended.
    draining: watch::Sender<bool>,
    connections: Arc<Connections>,
}

/// Configuration files that can be reloaded.
pub trait Files: fmt::Debug + Send + Sync {
    /// Reloads the files and applies their content.
    ///
    /// # Errors
    /// An error message if one of them cannot be used. In this case no file is applied.
    fn reload(&self) -> Result<(), String>;

    /// Returns which cluster secret is used.
    fn secret(&self) -> SecretView;
}

impl App {
    /// Returns the API of a service, with default settings.
    ///
    /// # Panics
    /// Outside of a tokio runtime: a background task collects statistics.
    pub fn new(service: Service) -> Self {
        Self::agent(service, Program::default(), LONGEST_LEASE, None)
    }

    /// Returns the API of an agent with this program, lease limit and configuration files.
    ///
    /// # Panics
    /// Like [`App::new`].
    pub fn agent(service: Service, program: Program, longest_lease: Duration, files: Option<Arc<dyn Files>>) -> Self {
        let (times, log) = (Times::collect(service.events()), Log::collect(service.events()));
        let watch = Arc::new(Watch::of_agent(service.clone()));
        let (draining, connections) = (watch::Sender::new(false), Arc::default());
        let (labelled, started) = (Labelled::default(), (Moment::now(), slept()));
        let shared = Shared {
            service,
            watch,
            times,
            labelled,
            log,
            program,
            files,
            longest_lease,
            started,
            draining,
            connections,
        };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.shared.service
    }

    pub(crate) async fn call<V: Verb>(&self, verb: V) -> Result<Json<V::Reply>, Failure> {
        Ok(Json(self.service().call(verb).await?))
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

    pub(crate) fn files(&self) -> Option<&dyn Files> {
        self.shared.files.as_deref()
    }

    pub(crate) fn longest_lease(&self) -> Duration {
        self.shared.longest_lease
    }

    pub(crate) fn runs(&self) -> (Duration, Duration) {
        let (started, slept_before) = self.shared.started;
        (Moment::now().since(started), slept().saturating_sub(slept_before))
    }

    /// Returns how many connections are open, and how many there have been.
    pub fn connections(&self) -> (usize, u64) {
        self.shared.connections.count()
    }

    /// Drains the agent: it stops once its grants have ended.
    pub fn drain(&self) {
        self.shared.draining.send_replace(true);
    }

    /// Resolves when the agent is drained.
    pub async fn drained(&self) {
        _ = self.shared.draining.subscribe().wait_for(|draining| *draining).await;
    }

    pub(crate) async fn closed(&self) {
        self.shared.connections.closed().await;
    }

    fn router(&self) -> Router {
        let (router, _) = self.routes().split_for_parts();
        router.merge(page::routes()).fallback(not_found).method_not_allowed_fallback(method_not_allowed)
    }

    fn routes(&self) -> OpenApiRouter {
        let routes = resources::routes()
            .merge(admin::routes())
            .merge(events::routes())
            .merge(health::routes())
            .merge(metrics::routes())
            .routes(routes!(openapi));
        let routes = routes.with_state(self.clone()).merge(view::routes(self.shared.watch.clone()));
        OpenApiRouter::with_openapi(Document::openapi()).merge(routes)
    }

    /// Parses the ID of a grant of this resource. IDs are unique: a client that slept while the agent restarted must
    /// not renew another client's grant.
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

/// Returns the OpenAPI description of this API.
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
    let message = format!("there is no route {}: see GET /openapi.json", uri.path());
    Failure::new(Class::NotFound, message)
}

pub(crate) async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let message = format!("{} does not support {method}: see GET /openapi.json", uri.path());
    Failure::new(Class::MethodNotAllowed, message)
}
