//! Progress of `peerlock run`: one updated line on a terminal, JSON lines with `--json`, otherwise only errors and
//! warnings, and with `--quiet` only errors.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal as _, stderr};

use peerlock::{Client, Granted, PeriodView, Progress};
use peerlock_supervise::Notice;
use serde_json::json;

use crate::Error;
use crate::local_peer::{LocalPeer, on_this_machine};
use crate::say::{notify, say};

use super::once::describe;
use super::waiting::WaitingLine;

pub enum Show {
    Machine,
    Terminal(WaitingLine),
    Log,
    Quiet,
}

impl Show {
    pub fn new(json: bool, quiet: bool) -> Self {
        match (json, quiet) {
            (true, _) => Self::Machine,
            (_, true) => Self::Quiet,
            _ if stderr().is_terminal() => Self::Terminal(WaitingLine::new()),
            _ => Self::Log,
        }
    }

    pub fn listening(&self, here: &LocalPeer, name: &str) {
        match self {
            Self::Machine => notify(&json!({ "listening": here.peer.address().to_string() })),
            Self::Terminal(_) if here.is_first => say(invitation(here, name)),
            Self::Terminal(_) | Self::Log | Self::Quiet => {}
        }
    }

    pub fn waiting(&self, name: &str, waiting: Progress) {
        match self {
            Self::Machine => notify(&json!({ "waiting": waiting })),
            Self::Terminal(line) => line.moved(name, waiting),
            Self::Log | Self::Quiet => {}
        }
    }

    /// Warns that the agent does not answer. The command continues to wait for it.
    pub fn unanswered(&self, text: &str) {
        match self {
            Self::Machine => notify(&json!({ "notice": text })),
            Self::Terminal(line) => line.above(|| say(text)),
            Self::Log => say(text),
            Self::Quiet => {}
        }
    }

    /// Returns whether to ask for the holder, for the message of a failure with this code.
    pub fn names_holder(&self, code: u8) -> bool {
        matches!(self, Self::Terminal(_)) || matches!(self, Self::Log if code != 0)
    }

    pub async fn live(&self, client: &Client, name: &str) -> Infallible {
        match self {
            Self::Terminal(line) => line.live(client, name).await,
            Self::Machine | Self::Log | Self::Quiet => pending().await,
        }
    }

    pub fn clear(&self) {
        if let Self::Terminal(line) = self {
            line.clear();
        }
    }

    pub fn granted(&self, granted: &Granted) {
        if let Self::Machine = self {
            notify(&json!({ "granted": granted }));
        }
    }

    pub fn skipped(&self, name: &str, period: &PeriodView, code: u8) {
        match self {
            Self::Machine => notify(&json!({ "skipped": period })),
            Self::Log | Self::Quiet if code == 0 => {}
            Self::Terminal(_) | Self::Log | Self::Quiet => say(describe(name, period)),
        }
    }

    pub fn unrecorded(&self, name: &str, why: &peerlock::Error) {
        let text = format!("the end of this run of {name} was not recorded, so another host may run it again: {why}");
        match self {
            Self::Machine => notify(&json!({ "notice": text })),
            Self::Terminal(_) | Self::Log | Self::Quiet => say(text),
        }
    }

    pub fn notice(&self, notice: Notice) {
        match self {
            Self::Machine => notify(&json!({ "notice": notice.to_string() })),
            Self::Quiet if notice == Notice::LeftBehind => {}
            Self::Terminal(_) | Self::Log | Self::Quiet => say(notice),
        }
    }

    pub fn lost(&self, why: &peerlock::Error) {
        match self {
            Self::Machine => notify(&json!({ "lost": why.to_string(), "why": json!(why)["error"] })),
            Self::Terminal(_) | Self::Log | Self::Quiet => say(why),
        }
    }

    pub fn ended(&self, code: u8) {
        if let Self::Machine = self {
            notify(&json!({ "ended": code }));
        }
    }

    /// Reports an error. With code 0 (`-E 0`) it is an expected result, of which a log has nothing.
    pub fn failed(&self, error: &Error, code: u8) {
        match self {
            Self::Machine => notify(&json!({ "failed": { "code": code, "message": error.to_string() } })),
            Self::Log | Self::Quiet if code == 0 => {}
            Self::Terminal(_) | Self::Log | Self::Quiet => say(error),
        }
    }
}

fn invitation(here: &LocalPeer, name: &str) -> String {
    let (local, address) = (on_this_machine(here.peer.address()), here.address());
    let local = format!("listening at {address}. From another terminal: peerlock run --join {local} {name} -- COMMAND");
    if address.ip().is_loopback() {
        return local;
    }
    format!(
        "{local}\n          from another machine with a copy of {}: peerlock run --join {address} {name} -- COMMAND",
        here.secret.display()
    )
}
