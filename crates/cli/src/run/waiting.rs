//! The line that a person sees who waits: the place, how long it will take and has taken, and who is inside.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::stderr;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use nix::unistd::{getpgrp, tcgetpgrp};
use peerlock::{Client, Progress, ResourceDetails, SlotView};
use peerlock_types::{roughly, visible};
use tokio::time::{sleep, timeout};

/// How often the line is written anew, and after how many of these it is asked who is inside.
const TICK: Duration = Duration::from_secs(1);
const ASKED: u32 = 5;
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// One line that is written over.
pub struct WaitingLine {
    bar: ProgressBar,
    since: Instant,
    progress: Cell<Option<Progress>>,
    inside: RefCell<Option<String>>,
}

impl WaitingLine {
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.expect("the template is fixed, and tested by every run on a terminal"));
        Self { bar, since: Instant::now(), progress: Cell::default(), inside: RefCell::default() }
    }

    /// The place has changed.
    pub fn moved(&self, name: &str, progress: Progress) {
        self.progress.set(Some(progress));
        self.draw(name);
    }

    /// Keeps the line alive for as long as it is waited.
    pub async fn live(&self, client: &Client, name: &str) -> Infallible {
        let mut tick = 0u32;
        loop {
            // Nothing is shown before there is a place: whoever comes in at once sees no line.
            if self.progress.get().is_some() {
                if tick % ASKED == 1 {
                    // Not at every moment is there an answer, and then what was true lately is good enough.
                    if let Ok(Ok(details)) = timeout(PATIENCE, client.show(name)).await {
                        self.inside.replace(inside(&details));
                    }
                }
                self.draw(name);
            }
            tick = tick.wrapping_add(1);
            sleep(TICK).await;
        }
    }

    /// Draws the line, unless the job is in the background: there the shell has the screen, and a prompt on it.
    fn draw(&self, name: &str) {
        if is_in_background() {
            return;
        }
        let Some(progress) = self.progress.get() else { return };
        self.bar.set_message(line(name, progress, self.since.elapsed(), self.inside.borrow().as_deref()));
    }

    /// The screen belongs to others.
    pub fn clear(&self) {
        if !self.bar.is_finished() {
            if is_in_background() {
                self.bar.set_draw_target(ProgressDrawTarget::hidden());
            }
            self.bar.finish_and_clear();
        }
    }
}

/// Whether standard error is our terminal, and another process group has it.
fn is_in_background() -> bool {
    tcgetpgrp(stderr()).is_ok_and(|foreground| foreground != getpgrp())
}

fn line(name: &str, progress: Progress, waited: Duration, inside: Option<&str>) -> String {
    let ahead = match progress.ahead {
        None => "asking for a place in line".to_owned(),
        Some(0) => "next in line".to_owned(),
        Some(1) => "1 is ahead".to_owned(),
        Some(ahead) => format!("{ahead} are ahead"),
    };
    let expected = progress.expected.map(|expected| format!(", about {}", roughly(expected))).unwrap_or_default();
    let waited = if waited >= TICK { format!("; {} so far", roughly(waited)) } else { String::new() };
    let inside = inside.map(|inside| format!("; inside: {inside}")).unwrap_or_default();
    format!("peerlock: waiting for {name}: {ahead}{expected}{waited}{inside}")
}

/// Who has been inside for longest, since when, and how many others are.
fn inside(details: &ResourceDetails) -> Option<String> {
    let held = || details.holders.iter().filter(|slot| !slot.free);
    let age = |slot: &&SlotView| slot.client.as_ref().map(|client| client.age);
    let slot = held().max_by_key(age)?;
    let others = match held().count() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    let Some(client) = &slot.client else { return Some(format!("somebody on {}{others}", visible(&slot.host))) };
    // What says nothing else has the host in it.
    let is_notified = slot.host.is_empty() || client.label.contains(&slot.host);
    let on = if is_notified { String::new() } else { format!(" on {}", slot.host) };
    Some(format!("{}{} for {}{others}", visible(&client.label), visible(&on), roughly(client.age)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_place_in_line_in_words() {
        for (ahead, expected_ms, waited, words) in [
            (None, None, 0, "peerlock: waiting for r: asking for a place in line"),
            (Some(0), None, 0, "peerlock: waiting for r: next in line"),
            (Some(1), Some(900), 0, "peerlock: waiting for r: 1 is ahead, about 900 ms"),
            (Some(2), Some(90_000), 12, "peerlock: waiting for r: 2 are ahead, about 90 s; 12 s so far"),
            (Some(9), Some(600_000), 0, "peerlock: waiting for r: 9 are ahead, about 10 min"),
            (Some(9), Some(9_000_000), 0, "peerlock: waiting for r: 9 are ahead, about 2 h 30 min"),
        ] {
            let mut progress = Progress::default();
            (progress.ahead, progress.expected) = (ahead, expected_ms.map(Duration::from_millis));
            assert_eq!(line("r", progress, Duration::from_secs(waited), None), words);
        }
        let said = line("r", Progress::default(), Duration::from_secs(5), Some("ada"));
        assert!(said.ends_with("line; 5 s so far; inside: ada"), "{said}");
    }

    #[test]
    fn who_is_inside_in_words() {
        let client = |label: &str, age| json!({ "label": label, "age_ms": age });
        let slot = |number, free, client: Option<serde_json::Value>| {
            let mut slot = json!({ "slot": number, "peer": "1", "host": "db1", "free": free, "detached": false });
            client.into_iter().for_each(|client| slot["client"] = client);
            slot
        };
        let (long, short) = (client("ada@db1: rsync", 180_000), client("nightly\u{1b}[2J", 2_000));
        for (slots, words) in [
            (vec![slot(0, true, None)], None),
            (vec![slot(0, false, None)], Some("somebody on db1")),
            (vec![slot(0, false, Some(long.clone()))], Some("ada@db1: rsync for 3 min")),
            (vec![slot(0, false, Some(short.clone()))], Some(r"nightly\u{1b}[2J on db1 for 2 s")),
            (
                vec![slot(0, false, Some(short)), slot(1, false, Some(long)), slot(2, true, None)],
                Some("ada@db1: rsync for 3 min and 1 more"),
            ),
        ] {
            let details = json!({ "name": "r", "slots": 3, "holders": slots, "queue": [], "generation": 1 });
            let details: ResourceDetails = serde_json::from_value(details).expect("a resource");
            assert_eq!(inside(&details).as_deref(), words);
        }
    }
}
