//! Who is connected, and that it is time to go.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use tokio::sync::watch;

/// What is served: its routes, and who is connected.
#[derive(Debug)]
pub struct Site {
    pub(crate) router: Router,
    pub(crate) connections: std::sync::Arc<Connections>,
}

/// The connections of one process.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Whether it stops. A task that has a receiver ends its work before the process does.
    closing: watch::Sender<bool>,
    /// How many there have been.
    accepted: AtomicU64,
}

impl Connections {
    /// How many are open, and how many there have been.
    pub fn count(&self) -> (usize, u64) {
        (self.closing.receiver_count(), self.accepted.load(Ordering::Relaxed))
    }

    /// A connection begins: it hears here when the process stops, which waits for it.
    pub fn begin(&self) -> watch::Receiver<bool> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.closing.subscribe()
    }

    /// Resolves when the process stops.
    pub async fn closed(&self) {
        // We have the sender, so that there is no error.
        _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Ends everything, and waits until it has.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}
