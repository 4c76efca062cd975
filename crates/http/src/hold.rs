//! A slot bound to a connection.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use peerlock_service::{self as service, Acquire, Grant, Moment, Progress};
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::App;
use crate::body::Line;

/// The interval of keep-alive lines over TCP. A client considers the agent dead after three, which is within the
/// default session length.
const KEEP_ALIVE: Duration = Duration::from_secs(4);

/// A connection's request or grant. The server drops it when the connection ends, which withdraws the request. Over a
/// Unix socket that also frees a held slot. Over TCP the slot is held until its lease expires, because the agent's end
/// of the connection may close while the client still works.
pub struct Hold {
    app: App,
    stage: Stage,
    link: Link,
}

/// The type of a client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// Both ends are in one kernel, so the end of the connection is the end of the client.
    Unix,
    /// The two ends may disagree about whether the connection is open.
    Tcp,
}

enum Stage {
    Waiting {
        acquire: Acquire,
        progress: watch::Receiver<Progress>,
        asked: Moment,
    },
    Held(Grant),
    /// The client was notified that it must stop. The slot stays held until the end of the lease, so that it can.
    Lost(Grant),
    Over,
}

impl Hold {
    pub fn new(app: App, acquire: Acquire, link: Link) -> Self {
        let (progress, asked) = (acquire.progress(), app.service().now());
        Self { app, stage: Stage::Waiting { acquire, progress, asked }, link }
    }

    /// Streams the changes, one line each.
    pub fn lines(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        let alive = (self.link == Link::Tcp).then(|| {
            let mut alive = interval(KEEP_ALIVE);
            alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
            alive
        });
        stream::unfold((self, alive), async |(mut hold, mut alive)| {
            let line = tokio::select! {
                biased;
                line = hold.next() => line?,
                () = tick(&mut alive) => Line::Alive { every: KEEP_ALIVE },
            };
            let mut json = serde_json::to_vec(&line).expect("only maps with keys that are no strings fail");
            json.push(b'\n');
            Some((Ok(json.into()), (hold, alive)))
        })
    }

    /// Cancel-safe.
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
                        // The connection ends, but the client has until the end of its lease to stop.
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
                let granted = grant.granted(asked);
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

impl Drop for Hold {
    fn drop(&mut self) {
        if self.link == Link::Tcp
            && let Stage::Held(grant) | Stage::Lost(grant) = std::mem::replace(&mut self.stage, Stage::Over)
        {
            grant.detach();
        }
    }
}

/// Resolves when the next keep-alive line is due; never over a Unix socket.
async fn tick(alive: &mut Option<Interval>) {
    match alive {
        Some(alive) => _ = alive.tick().await,
        None => pending().await,
    }
}
