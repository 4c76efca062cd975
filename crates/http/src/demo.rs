//! What a demo serves: the live page with controls, and nothing of an agent's API.
//!
//! Whoever looks at the page wants something to happen to a peer; the demo, which has the peers, does it. An agent has
//! neither these routes nor the page's file for them.

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

/// The peers of a demo as its page shows them. Copies are the same.
#[derive(Clone, Debug)]
pub struct Demo {
    watch: Arc<Watch>,
    connections: Arc<Connections>,
    wishes: mpsc::UnboundedSender<Wish>,
    clients: Arc<AtomicU16>,
}

/// What has become of a peer of a demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fate {
    /// It answers, and takes part.
    Runs,
    /// It ended without a word, as by `kill -9`; its folder is still there.
    Killed,
    /// It stands still, as by `kill -STOP`.
    Frozen,
    /// It runs, and no message comes in or gets out.
    CutOff,
}

/// What whoever watches can do.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Act {
    /// Ends a peer without a word.
    Kill {
        /// Which one, counted from 1.
        peer: usize,
    },
    /// Lets a peer stand still.
    Freeze {
        /// Which one, counted from 1.
        peer: usize,
    },
    /// Lets no message of a peer through.
    CutOff {
        /// Which one, counted from 1.
        peer: usize,
    },
    /// Undoes what was done to a peer: starts it again, lets it go on, connects it.
    BringBack {
        /// Which one, counted from 1.
        peer: usize,
    },
    /// Gives each peer another number of clients.
    Clients {
        /// How many each of them has from now on.
        clients: u16,
    },
    /// Gives a resource another number of slots.
    Slots {
        /// Which resource.
        name: String,
        /// How many may be inside from now on.
        slots: u32,
    },
}

/// An act that is waited for.
#[derive(Debug)]
pub struct Wish {
    /// What is to be done.
    pub act: Act,
    /// Who asked for it hears here that it is done, or why not.
    pub done: oneshot::Sender<Result<(), Error>>,
}

/// What can be set, as it is.
#[derive(Clone, Copy, Debug, Serialize)]
struct Settings {
    clients: u16,
}

impl Demo {
    /// Without peers yet, and where wishes come in.
    pub fn new() -> (Self, mpsc::UnboundedReceiver<Wish>) {
        let (wishes, wished) = mpsc::unbounded_channel();
        let (watch, connections, clients) = (Arc::new(Watch::of_demo()), Arc::default(), Arc::default());
        (Self { watch, connections, wishes, clients }, wished)
    }

    /// A peer runs: the next one, or this one again.
    ///
    /// # Panics
    /// Outside of a tokio runtime: waits are added up in the background from now on.
    pub fn enter(&self, number: usize, service: Service) {
        self.watch.enter(number, service);
    }

    /// Something has become of a peer.
    pub fn fate(&self, number: usize, fate: Fate) {
        self.watch.fate(number, fate);
    }

    /// Each peer has so many clients.
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

/// Answers when it is done, or why it cannot be.
async fn act(State(demo): State<Demo>, Input(act): Input<Act>) -> Result<Json<Settings>, Failure> {
    let (done, is_done) = oneshot::channel();
    _ = demo.wishes.send(Wish { act, done });
    is_done.await.unwrap_or(Err(Error::Stopped))?;
    Ok(demo.settings())
}
