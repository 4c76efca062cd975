//! A demo's server: the live page with controls, without an agent's API.
//!
//! The page sends commands, which the demo carries out. An agent has neither these routes nor the page's control
//! script.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use axum::extract::State;
use axum::routing::get;
use axum::{Json, Router};
use peerlock_service::{Error, Service};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use utoipa::ToSchema;

use crate::app::{method_not_allowed, not_found};
use crate::connections::{Connections, Site};
use crate::input::Input;
use crate::watch::Watch;
use crate::{Failure, page, view};

/// The peers of a demo, as the page shows them. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Demo {
    watch: Arc<Watch>,
    connections: Arc<Connections>,
    commands: mpsc::UnboundedSender<DemoCommand>,
    clients: Arc<AtomicU16>,
}

/// The state of a peer of a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DemoState {
    /// It runs.
    Runs,
    /// It was killed, as by `kill -9`; its directory still exists.
    Killed,
    /// It is suspended, as by `kill -STOP`.
    Frozen,
    /// It runs, but is cut off from the network.
    CutOff,
}

/// A change that the page can request.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Kills a peer.
    Kill {
        /// The peer, counted from 1.
        peer: usize,
    },
    /// Suspends a peer.
    Freeze {
        /// The peer, counted from 1.
        peer: usize,
    },
    /// Cuts a peer off from the network.
    CutOff {
        /// The peer, counted from 1.
        peer: usize,
    },
    /// Restarts, continues or reconnects a peer.
    BringBack {
        /// The peer, counted from 1.
        peer: usize,
    },
    /// Changes the number of clients per peer.
    Clients {
        /// The number of clients of each peer.
        clients: u16,
    },
    /// Changes the capacity of a resource.
    Slots {
        /// The resource.
        name: String,
        /// The number of slots.
        slots: u32,
    },
}

/// A change, and where to send its result.
#[derive(Debug)]
pub struct DemoCommand {
    /// The change.
    pub act: Act,
    /// Receives the result.
    pub done: oneshot::Sender<Result<(), Error>>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Settings {
    clients: u16,
}

impl Demo {
    /// Creates a demo without peers, and the receiver of its commands.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<DemoCommand>) {
        let (commands, received) = mpsc::unbounded_channel();
        let (watch, connections, clients) = (Arc::new(Watch::of_demo()), Arc::default(), Arc::default());
        (Self { watch, connections, commands, clients }, received)
    }

    /// Adds a peer, or replaces one that was restarted.
    ///
    /// # Panics
    /// Outside of a tokio runtime: a background task collects statistics.
    pub fn enter(&self, number: usize, service: Service) {
        self.watch.enter(number, service);
    }

    /// Records the state of a peer.
    pub fn set_state(&self, number: usize, state: DemoState) {
        self.watch.set_state(number, state);
    }

    /// Records the number of clients per peer.
    pub fn clients(&self, clients: u16) {
        self.clients.store(clients, Ordering::Relaxed);
    }

    fn settings(&self) -> Json<Settings> {
        Json(Settings { clients: self.clients.load(Ordering::Relaxed) })
    }
}

impl From<Demo> for Site {
    fn from(demo: Demo) -> Self {
        let connections = Arc::clone(&demo.connections);
        let (view, _) = view::routes(Arc::clone(&demo.watch)).split_for_parts();
        let controls = Router::new().route("/demo", get(settings).post(act)).with_state(demo);
        let router = view.merge(page::routes()).merge(page::controls()).merge(controls);
        Self { router: router.fallback(not_found).method_not_allowed_fallback(method_not_allowed), connections }
    }
}

async fn settings(State(demo): State<Demo>) -> Json<Settings> {
    demo.settings()
}

/// Answers when the change is done, or with the reason for its failure.
async fn act(State(demo): State<Demo>, Input(act): Input<Act>) -> Result<Json<Settings>, Failure> {
    let (done, is_done) = oneshot::channel();
    _ = demo.commands.send(DemoCommand { act, done });
    is_done.await.unwrap_or(Err(Error::Stopped))?;
    Ok(demo.settings())
}
