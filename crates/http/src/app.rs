//! What is served: the routes, and what they share.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use axum::Router;
use axum::http::{Method, Uri};
use peerlock_service::{GrantId, Name, Service};
use tokio::sync::watch;
use utoipa::openapi::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::{Failure, Kind, resources};

/// An agent's API. Copies are the same.
#[derive(Clone, Debug)]
pub struct App {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    service: Service,
    /// Keys for the names of grants.
    keys: RandomState,
    /// Whether the agent stops. Whoever has a receiver has something to end before.
    closing: watch::Sender<bool>,
}

impl App {
    /// The API of an agent's service.
    pub fn new(service: Service) -> Self {
        let closing = watch::Sender::new(false);
        Self { shared: Arc::new(Shared { service, keys: RandomState::new(), closing }) }
    }

    pub(crate) fn service(&self) -> &Service {
        &self.shared.service
    }

    pub(crate) fn closing(&self) -> &watch::Sender<bool> {
        &self.shared.closing
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

    /// All routes.
    pub(crate) fn router(&self) -> Router {
        let (router, _) = routes().split_for_parts();
        router.fallback(not_found).method_not_allowed_fallback(method_not_allowed).with_state(self.clone())
    }

    /// What a client knows a grant by. It is good only for this resource and this process: a client that has slept while
    /// the agent was started again must not renew what is another's by now.
    pub(crate) fn grant_name(&self, name: &Name, grant: GrantId) -> String {
        format!("{grant}-{:016x}", self.shared.keys.hash_one((name, grant)))
    }

    /// The grant of such a name.
    pub(crate) fn grant(&self, name: &Name, text: &str) -> Result<GrantId, Failure> {
        let number = text.split_once('-').and_then(|(number, _)| number.parse().ok());
        let grant = number.filter(|grant| self.grant_name(name, *grant) == text);
        grant.ok_or_else(|| Failure::from(peerlock_service::Error::Lost))
    }
}

/// All routes with their documentation.
fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(OpenApi::default()).merge(resources::routes())
}

async fn not_found(uri: Uri) -> Failure {
    let message = format!("there is nothing at {}: GET /openapi.json tells what there is", uri.path());
    Failure::new(Kind::NotFound, message)
}

async fn method_not_allowed(method: Method, uri: Uri) -> Failure {
    let message = format!("{} cannot be asked to {method}: GET /openapi.json tells what it can", uri.path());
    Failure::new(Kind::MethodNotAllowed, message)
}
