//! The event stream, with recent events.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use futures_util::{Stream, StreamExt, stream};
use peerlock_service::{Event, Happening};
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::watch;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::App;
use crate::input::About;

/// The number of events kept for slow and reconnecting readers.
const BUFFERED: usize = 4096;
/// A comment is sent after this long without an event, so that the reader detects a dead agent and the agent a closed
/// connection.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Returns the event stream's route.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(events))
}

/// The recent events of one process, numbered from 1.
#[derive(Debug)]
pub struct Log {
    /// Prefix of the event IDs. Differs between processes.
    process: u32,
    buffer: Mutex<Buffer>,
    last: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Buffer {
    events: VecDeque<(u64, Happening)>,
    /// The peer has stopped, so no events follow.
    over: bool,
}

impl Log {
    pub fn collect(mut events: Receiver<Happening>) -> Arc<Self> {
        let process = getrandom::u32().expect("the operating system has a random source");
        let log = Arc::new(Self { process, buffer: Mutex::default(), last: watch::Sender::new(0) });
        let buffer = Arc::clone(&log);
        tokio::spawn(async move {
            loop {
                match events.recv().await {
                    Ok(happening) => buffer.add(happening),
                    // Missed events have numbers, too, so that a reader receives how many it has missed.
                    Err(RecvError::Lagged(missed)) => buffer.last.send_modify(|last| *last += missed),
                    Err(RecvError::Closed) => break buffer.end(),
                }
            }
        });
        log
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, happening: Happening) {
        self.last.send_modify(|last| {
            *last += 1;
            let mut buffer = self.lock();
            buffer.events.push_back((*last, happening));
            if buffer.events.len() > BUFFERED {
                buffer.events.pop_front();
            }
        });
    }

    fn end(&self) {
        self.last.send_modify(|_| self.lock().over = true);
    }

    /// Returns the number after which a reader continues: that of its last event; the newest if it names none; the one
    /// before the oldest if it names an event of another process.
    fn after(&self, observed: Option<&str>) -> u64 {
        let newest = *self.last.borrow();
        let Some(observed) = observed else { return newest };
        let ours = observed.split_once('-').filter(|(process, _)| u32::from_str_radix(process, 16) == Ok(self.process));
        ours.and_then(|(_, number)| number.parse().ok()).map_or(0, |number: u64| number.min(newest))
    }

    /// Returns the first event after this one, if any; if older ones were dropped, an event `missed` with their number.
    fn next(&self, after: u64) -> Option<(u64, Happening)> {
        let buffer = self.lock();
        let at = buffer.events.partition_point(|(number, _)| *number <= after);
        let (number, happening) = buffer.events.get(at)?;
        match number - after - 1 {
            0 => Some((*number, happening.clone())),
            count => {
                let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                Some((number - 1, Happening { at, event: Event::Missed { count } }))
            }
        }
    }

    fn read(self: Arc<Self>, after: u64) -> impl Stream<Item = (u64, Happening)> {
        let update = self.last.subscribe();
        stream::unfold((self, update, after), async |(log, mut update, after)| {
            loop {
                update.borrow_and_update();
                if let Some((number, happening)) = log.next(after) {
                    return Some(((number, happening), (log, update, number)));
                }
                if log.lock().over {
                    return None;
                }
                _ = update.changed().await;
            }
        })
    }

    fn encode(&self, number: u64, happening: &Happening) -> sse::Event {
        let json = serde_json::to_string(happening).expect("only maps with keys that are no strings fail");
        let id = format!("{:08x}-{number}", self.process);
        sse::Event::default().id(id).event(happening.event.kind()).data(json)
    }
}

/// Streams the agent's events from now on, as server-sent events.
/// With the header `Last-Event-ID` the stream continues after that event. The last 4096 are kept for this; a reader
/// that is too late or too slow receives an event `missed` with the number of skipped events. A comment is sent after
/// 15 s without an event.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "looking",
    params(About, ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event received")),
    responses(
        (status = 200, description = "Events, as they happen", body = Happening, content_type = "text/event-stream")
    )
)]
async fn events(
    State(app): State<App>,
    About { name }: About,
    headers: HeaderMap,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    let log = Arc::clone(app.log());
    let observed = headers.get("last-event-id").map(|id| id.to_str().unwrap_or_default());
    let happenings = Arc::clone(&log).read(log.after(observed));
    let wanted = happenings.filter(move |(_, happening)| {
        std::future::ready(name.as_ref().is_none_or(|name| happening.event.is_about(name)))
    });
    let until_stopped = wanted.take_until(async move { app.closed().await });
    streamed(until_stopped.map(move |(number, happening)| log.encode(number, &happening)))
}

fn streamed(
    events: impl Stream<Item = sse::Event> + Send + 'static,
) -> Sse<impl Stream<Item = Result<sse::Event, Infallible>>> {
    Sse::new(events.map(Ok)).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;
    use tokio::sync::broadcast;

    use super::*;

    fn unreached(number: usize) -> Happening {
        let event = Event::Unreached { address: number.to_string(), why: String::new() };
        Happening { at: Duration::ZERO, event }
    }

    async fn filled(count: usize) -> (Arc<Log>, broadcast::Sender<Happening>) {
        let events = broadcast::Sender::new(16);
        let log = Log::collect(events.subscribe());
        for number in 1..=count {
            _ = events.send(unreached(number));
            let _ = log.last.subscribe().wait_for(|last| *last == number as u64).await;
        }
        (log, events)
    }

    #[tokio::test]
    async fn reader_resumes_with_count_of_missed_events() {
        let (log, events) = filled(BUFFERED + 3).await;
        let newest = (BUFFERED + 3) as u64;
        let id = |number: u64| format!("{:08x}-{number}", log.process);
        for (observed, after) in [
            (None, newest),
            (Some(id(newest - 1)), newest - 1),
            (Some(id(u64::MAX)), newest),
            (Some("00000000-7".to_owned()), 0),
            (Some("nonsense".to_owned()), 0),
        ] {
            assert_eq!(log.after(observed.as_deref()), after, "{observed:?}");
        }
        let first: Vec<_> = Arc::clone(&log).read(1).take(2).collect().await;
        let missed = |count| Event::Missed { count };
        assert_eq!((first[0].0, &first[0].1.event), (3, &missed(2)), "2 and 3 are not kept any more");
        assert_eq!((first[1].0, &first[1].1), (4, &unreached(4)));
        // Events that the log itself has missed have numbers, too.
        for number in 0..20 {
            _ = events.send(unreached(number));
        }
        let next: Vec<_> = Arc::clone(&log).read(newest).take(2).collect().await;
        assert_eq!((next[0].0, &next[0].1.event), (newest + 4, &missed(4)));
        drop(events);
        assert_eq!(Arc::clone(&log).read(newest + 4).count().await, 16, "and it ends with the peer");
    }

    #[tokio::test(start_paused = true)]
    async fn comment_is_sent_when_idle() {
        let mut body = streamed(stream::pending()).into_response().into_body();
        let started = tokio::time::Instant::now();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(&frame[..], b":\n\n");
        assert_eq!(started.elapsed(), KEEP_ALIVE, "exact, with a paused clock");
    }

    #[tokio::test]
    async fn event_has_id_kind_and_data() {
        let (log, _events) = filled(1).await;
        let (number, happening) = log.next(0).unwrap();
        let mut body = streamed(stream::iter([log.encode(number, &happening)])).into_response().into_body();
        let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
        let text = String::from_utf8(frame.to_vec()).unwrap();
        let expected = r#"data: {"at_ms":0,"event":"unreached","address":"1","why":""}"#;
        assert_eq!(text, format!("id: {:08x}-1\nevent: unreached\n{expected}\n\n", log.process));
    }
}
