//! A slot that belongs to a connection.

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::{Stream, stream};
use peerlock_service::{self as service, Acquire, Grant, Moment, Progress};
use tokio::sync::watch;

use crate::App;
use crate::body::Line;
use crate::resources::granted;

/// What a connection waits for or has. The server drops it with the connection: then the place in line is given up, or
/// the slot is free.
pub struct Hold {
    app: App,
    stage: Stage,
}

enum Stage {
    Waiting {
        acquire: Acquire,
        progress: watch::Receiver<Progress>,
        asked: Moment,
    },
    Held(Grant),
    /// The client was told to stop, and has until the end of the lease to do so: the slot is kept for it.
    Lost(Grant),
    Over,
}

impl Hold {
    pub fn new(app: App, acquire: Acquire) -> Self {
        let (progress, asked) = (acquire.progress(), app.service().now());
        Self { app, stage: Stage::Waiting { acquire, progress, asked } }
    }

    /// What becomes of it, a line each.
    pub fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        stream::unfold(self, async |mut hold| {
            let line = hold.next().await?;
            let mut json = serde_json::to_vec(&line).expect("only maps with keys that are no strings fail");
            json.push(b'\n');
            Some((Ok(json.into()), hold))
        })
    }

    async fn next(&mut self) -> Option<Line> {
        match &mut self.stage {
            Stage::Waiting { acquire, progress, asked } => {
                let asked = *asked;
                let acquired = tokio::select! {
                    biased;
                    acquired = acquire => acquired,
                    Ok(()) = progress.changed() => {
                        let waiting = *progress.borrow_and_update();
                        return Some(Line::Waiting(waiting));
                    }
                    () = self.app.closed() => Err(service::Error::Stopped),
                };
                Some(self.on_acquired(acquired, asked))
            }
            Stage::Held(grant) => {
                tokio::select! {
                    () = grant.lost() => {}
                    () = self.app.closed() => {}
                }
                let why = grant.why_lost().unwrap_or(service::Error::Stopped);
                if let Stage::Held(grant) = std::mem::replace(&mut self.stage, Stage::Over) {
                    self.stage = Stage::Lost(grant);
                }
                Some(Line::Lost { why: Some(why.into()) })
            }
            Stage::Lost(grant) => {
                tokio::select! {
                    () = grant.ended() => {}
                    () = self.app.closed() => {
                        // The connection ends, but the client still has its time to stop.
                        if let Stage::Lost(grant) = std::mem::replace(&mut self.stage, Stage::Over) {
                            grant.detach();
                        }
                    }
                }
                None
            }
            Stage::Over => None,
        }
    }

    fn on_acquired(&mut self, acquired: Result<Grant, service::Error>, asked: Moment) -> Line {
        match acquired {
            Ok(grant) => {
                let granted = granted(&grant, asked);
                self.stage = Stage::Held(grant);
                Line::Granted(granted)
            }
            Err(error) => {
                self.stage = Stage::Over;
                Line::Failed(error.into())
            }
        }
    }
}
