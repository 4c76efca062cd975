//! The open connections, and how they end at shutdown.

use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use tokio::sync::watch;

/// The routes and the connections.
#[derive(Debug)]
pub struct Site {
    pub(crate) router: Router,
    pub(crate) connections: std::sync::Arc<Connections>,
}

#[derive(Debug, Default)]
pub(crate) struct Connections {
    /// Set at shutdown. The process waits for each task that has a receiver.
    closing: watch::Sender<bool>,
    accepted: AtomicU64,
}

impl Connections {
    pub fn count(&self) -> (usize, u64) {
        (self.closing.receiver_count(), self.accepted.load(Ordering::Relaxed))
    }

    /// Registers a connection. Its receiver is notified of the shutdown, which waits until the receiver is dropped.
    pub fn begin(&self) -> watch::Receiver<bool> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        self.closing.subscribe()
    }

    pub async fn closed(&self) {
        _ = self.closing.subscribe().wait_for(|closing| *closing).await;
    }

    /// Starts the shutdown, and waits until all connections have ended.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        self.closing.closed().await;
    }
}
