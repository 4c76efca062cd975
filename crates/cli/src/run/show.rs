//! What is said while a command waits and runs: on a terminal one line that is written over, for a machine JSON lines,
//! and otherwise only what is wrong.

use std::io::{IsTerminal as _, stderr};

use indicatif::{ProgressBar, ProgressStyle};
use peerlock::{Granted, Progress};
use peerlock_base::roughly;
use peerlock_supervise::Notice;
use serde_json::json;

use crate::Error;
use crate::here::{LocalPeer, on_this_machine};
use crate::say::{say, tell};

/// Who is shown how far the wait has come.
pub enum Show {
    Machine,
    Terminal(ProgressBar),
    Nobody,
}

impl Show {
    pub fn new(json: bool) -> Self {
        if json {
            return Self::Machine;
        }
        if !stderr().is_terminal() {
            return Self::Nobody;
        }
        let bar = ProgressBar::new_spinner();
        let style = ProgressStyle::with_template("{wide_msg}");
        bar.set_style(style.expect("the template is fixed, and tested by every run on a terminal"));
        Self::Terminal(bar)
    }

    /// We are a peer ourselves.
    pub fn listening(&self, here: &LocalPeer, name: &str) {
        match self {
            Self::Machine => tell(&json!({ "listening": here.peer.address().to_string() })),
            Self::Terminal(_) if here.is_first => say(invitation(here, name)),
            Self::Terminal(_) | Self::Nobody => {}
        }
    }

    pub fn waiting(&self, name: &str, waiting: Progress) {
        match self {
            Self::Machine => tell(&json!({ "waiting": waiting })),
            Self::Terminal(bar) => bar.set_message(place(name, waiting)),
            Self::Nobody => {}
        }
    }

    /// Nothing more is waited for: the screen belongs to others.
    pub fn clear(&self) {
        if let Self::Terminal(bar) = self
            && !bar.is_finished()
        {
            bar.finish_and_clear();
        }
    }

    pub fn granted(&self, granted: &Granted) {
        if let Self::Machine = self {
            tell(&json!({ "granted": granted }));
        }
    }

    pub fn notice(&self, notice: Notice) {
        match self {
            Self::Machine if notice == Notice::LeftBehind => tell(&json!({ "notice": notice.to_string() })),
            Self::Machine => tell(&json!({ "lost": notice.to_string() })),
            Self::Terminal(_) | Self::Nobody => say(notice),
        }
    }

    /// The slot was taken away, and what comes of that is told next.
    pub fn lost(&self, why: &peerlock::Error) {
        match self {
            Self::Machine => tell(&json!({ "lost": why.to_string() })),
            Self::Terminal(_) | Self::Nobody => say(why),
        }
    }

    /// The command has ended, with this code of ours.
    pub fn ended(&self, code: u8) {
        if let Self::Machine = self {
            tell(&json!({ "ended": code }));
        }
    }

    /// No command was started, and we end with this code.
    pub fn failed(&self, error: &Error, code: u8) {
        match self {
            Self::Machine => tell(&json!({ "failed": { "code": code, "message": error.to_string() } })),
            Self::Terminal(_) | Self::Nobody => say(error),
        }
    }
}

/// How others come to a cluster of one.
fn invitation(here: &LocalPeer, name: &str) -> String {
    let (local, address) = (on_this_machine(here.peer.address()), here.address());
    let local =
        format!("alone so far, at {address}. From another terminal: peerlock run --join {local} {name} -- COMMAND");
    if address.ip().is_loopback() {
        return local;
    }
    format!(
        "{local}\n          from another machine with a copy of {}: peerlock run --join {address} {name} -- COMMAND",
        here.secret.display()
    )
}

fn place(name: &str, waiting: Progress) -> String {
    let ahead = match waiting.ahead {
        None => "asking for a place in line".to_owned(),
        Some(0) => "next in line".to_owned(),
        Some(1) => "1 is ahead".to_owned(),
        Some(ahead) => format!("{ahead} are ahead"),
    };
    let expected = waiting.expected.map(|expected| format!(", about {}", roughly(expected)));
    format!("peerlock: waiting for {name}: {ahead}{}", expected.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_place_in_line_in_words() {
        for (ahead, expected_ms, words) in [
            (None, None, "peerlock: waiting for r: asking for a place in line"),
            (Some(0), None, "peerlock: waiting for r: next in line"),
            (Some(1), Some(900), "peerlock: waiting for r: 1 is ahead, about 900 ms"),
            (Some(2), Some(90_000), "peerlock: waiting for r: 2 are ahead, about 90 s"),
            (Some(9), Some(600_000), "peerlock: waiting for r: 9 are ahead, about 10 min"),
            (Some(9), Some(9_000_000), "peerlock: waiting for r: 9 are ahead, about 2 h 30 min"),
        ] {
            let mut progress = Progress::default();
            (progress.ahead, progress.expected) = (ahead, expected_ms.map(Duration::from_millis));
            assert_eq!(place("r", progress), words);
        }
    }
}
