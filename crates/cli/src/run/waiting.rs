//! The line of a waiting `run` on a terminal: position, times and the longest holder.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::stderr;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::unistd::{getpgrp, tcgetpgrp};
use peerlock::{Client, Progress, ResourceDetails, SlotView};
use peerlock_types::{roughly, visible};
use tokio::time::{sleep, timeout};

use crate::Error;

/// The interval of redraws, and the number of redraws between queries for the holder.
const TICK: Duration = Duration::from_secs(1);
const ASKED: u32 = 5;
const PATIENCE: Duration = Duration::from_secs(3);
/// How long an error message may wait for the holder.
const SOON: Duration = Duration::from_millis(500);

pub struct WaitingLine {
    bar: ProgressBar,
    since: Instant,
    progress: Cell<Option<Progress>>,
    holder: RefCell<Option<String>>,
}

impl WaitingLine {
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.expect("the template is fixed, and tested by every run on a terminal"));
        Self { bar, since: Instant::now(), progress: Cell::default(), holder: RefCell::default() }
    }

    pub fn moved(&self, name: &str, progress: Progress) {
        self.progress.set(Some(progress));
        self.draw(name);
    }

    pub async fn live(&self, client: &Client, name: &str) -> Infallible {
        let mut tick = 0u32;
        loop {
            // Most requests are granted at once: nothing is drawn before there is a position.
            if self.progress.get().is_some() {
                if tick % ASKED == 1
                    && let Ok(Ok(details)) = timeout(PATIENCE, client.show(name)).await
                {
                    self.holder.replace(longest_holder(&details));
                }
                self.draw(name);
            }
            tick = tick.wrapping_add(1);
            sleep(TICK).await;
        }
    }

    /// Prints something above the line.
    pub fn above(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    fn draw(&self, name: &str) {
        if is_in_background() {
            return;
        }
        let Some(progress) = self.progress.get() else { return };
        self.bar.set_message(line(name, progress, self.since.elapsed(), self.holder.borrow().as_deref()));
    }

    pub fn clear(&self) {
        if !self.bar.is_finished() {
            if is_in_background() {
                self.bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            self.bar.finish_and_clear();
        }
    }
}

/// Returns whether another process group, such as the shell, is in the foreground of the terminal.
fn is_in_background() -> bool {
    tcgetpgrp(stderr()).is_ok_and(|foreground| foreground != getpgrp())
}

fn line(name: &str, progress: Progress, waited: Duration, holder: Option<&str>) -> String {
    let ahead = match progress.ahead {
        None => "requesting a position".to_owned(),
        Some(0) => "next in the queue".to_owned(),
        Some(1) => "1 ahead".to_owned(),
        Some(ahead) => format!("{ahead} ahead"),
    };
    let expected = progress.expected.map(|expected| format!(", about {}", roughly(expected))).unwrap_or_default();
    let waited = if waited >= TICK { format!("; waited {}", roughly(waited)) } else { String::new() };
    // The holder first: a narrow terminal cuts the end off.
    match holder {
        Some(holder) => format!("peerlock: {name} is held by {holder}; {ahead}{expected}{waited}"),
        None => format!("peerlock: waiting for {name}: {ahead}{expected}{waited}"),
    }
}

/// Adds the holder to the message of a request that was not granted, if the answer comes soon.
pub async fn with_holder(error: peerlock::Error, client: &Client, name: &str) -> Error {
    let asked = async { longest_holder(&client.show(name).await.ok()?) };
    match timeout(SOON, asked).await.ok().flatten() {
        Some(holder) => Error::Held { error, holder },
        None => error.into(),
    }
}

/// Describes the longest holder, for how long it has held, and the number of other holders.
fn longest_holder(details: &ResourceDetails) -> Option<String> {
    let held = || details.holders.iter().filter(|slot| !slot.free);
    let age = |slot: &&SlotView| slot.client.as_ref().map(|client| client.age);
    let slot = held().max_by_key(age)?;
    let others = match held().count() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let Some(client) = &slot.client else { return Some(format!("a client on {}{others}", visible(&slot.host))) };
    // A default label names the host.
    let names_host = slot.host.is_empty() || client.label.contains(&slot.host);
    let on = if names_host { String::new() } else { format!(" on {}", slot.host) };
    Some(format!("{}{} for {}{others}", visible(&client.label), visible(&on), roughly(client.age)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn position_is_described() {
        for (ahead, expected_ms, waited, words) in [
            (None, None, 0, "peerlock: waiting for r: requesting a position"),
            (Some(0), None, 0, "peerlock: waiting for r: next in the queue"),
            (Some(1), Some(900), 0, "peerlock: waiting for r: 1 ahead, about 900 ms"),
            (Some(2), Some(90_000), 12, "peerlock: waiting for r: 2 ahead, about 90 s; waited 12 s"),
            (Some(9), Some(600_000), 0, "peerlock: waiting for r: 9 ahead, about 10 min"),
            (Some(9), Some(9_000_000), 0, "peerlock: waiting for r: 9 ahead, about 2 h 30 min"),
        ] {
            let mut progress = Progress::default();
            (progress.ahead, progress.expected) = (ahead, expected_ms.map(Duration::from_millis));
            assert_eq!(line("r", progress, Duration::from_secs(waited), None), words);
        }
        let text = line("r", Progress::default(), Duration::from_secs(5), Some("ada for 2 s"));
        assert_eq!(text, "peerlock: r is held by ada for 2 s; requesting a position; waited 5 s");
    }

    #[test]
    fn longest_holder_is_described() {
        let client = |label: &str, age| json!({ "label": label, "age_ms": age });
        let slot = |number, free, client: Option<serde_json::Value>| {
            let mut slot = json!({ "slot": number, "peer": "1", "host": "db1", "free": free, "detached": false });
            client.into_iter().for_each(|client| slot["client"] = client);
            slot
        };
        let (long, short) = (client("ada@db1: rsync", 180_000), client("nightly\u{1b}[2J", 2_000));
        for (slots, words) in [
            (vec![slot(0, true, None)], None),
            (vec![slot(0, false, None)], Some("a client on db1")),
            (vec![slot(0, false, Some(long.clone()))], Some("ada@db1: rsync for 3 min")),
            (vec![slot(0, false, Some(short.clone()))], Some(r"nightly\u{1b}[2J on db1 for 2 s")),
            (
                vec![slot(0, false, Some(short)), slot(1, false, Some(long)), slot(2, true, None)],
                Some("ada@db1: rsync for 3 min and 1 more"),
            ),
        ] {
            let details = json!({ "name": "r", "slots": 3, "holders": slots, "queue": [], "generation": 1 });
            let details: ResourceDetails = serde_json::from_value(details).expect("a resource");
            assert_eq!(longest_holder(&details).as_deref(), words);
        }
    }
}
