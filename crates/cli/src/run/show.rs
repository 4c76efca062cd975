//! What is said while a command waits and runs: on a terminal one line that is written over, for a machine JSON lines,
//! and otherwise only what is wrong.

use std::convert::Infallible;
use std::future::pending;
use std::io::{IsTerminal as _, stderr};

use peerlock::{Client, Granted, Progress};
use peerlock_supervise::Notice;
use serde_json::json;

use crate::Error;
use crate::here::{LocalPeer, on_this_machine};
use crate::say::{notify, say};

use super::waiting::WaitingLine;

/// Who is shown how far the wait has come.
pub enum Show {
    Machine,
    Terminal(WaitingLine),
    Silent,
}

impl Show {
    pub fn new(json: bool) -> Self {
        if json {
            return Self::Machine;
        }
        if !stderr().is_terminal() {
            return Self::Silent;
        }
        Self::Terminal(WaitingLine::new())
    }

    /// We are a peer ourselves.
    pub fn listening(&self, here: &LocalPeer, name: &str) {
        match self {
            Self::Machine => notify(&json!({ "listening": here.peer.address().to_string() })),
            Self::Terminal(_) if here.is_first => say(invitation(here, name)),
            Self::Terminal(_) | Self::Silent => {}
        }
    }

    pub fn waiting(&self, name: &str, waiting: Progress) {
        match self {
            Self::Machine => notify(&json!({ "waiting": waiting })),
            Self::Terminal(line) => line.moved(name, waiting),
            Self::Silent => {}
        }
    }

    /// Keeps a person informed who waits, until this is dropped.
    pub async fn live(&self, client: &Client, name: &str) -> Infallible {
        match self {
            Self::Terminal(line) => line.live(client, name).await,
            Self::Machine | Self::Silent => pending().await,
        }
    }

    /// Nothing more is waited for: the screen belongs to others.
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

    pub fn notice(&self, notice: Notice) {
        match self {
            Self::Machine => notify(&json!({ "notice": notice.to_string() })),
            Self::Terminal(_) | Self::Silent => say(notice),
        }
    }

    /// The slot is lost, and what comes of that is told next.
    pub fn lost(&self, why: &peerlock::Error) {
        match self {
            Self::Machine => notify(&json!({ "lost": why.to_string(), "why": json!(why)["error"] })),
            Self::Terminal(_) | Self::Silent => say(why),
        }
    }

    /// The command has ended, with this code of ours.
    pub fn ended(&self, code: u8) {
        if let Self::Machine = self {
            notify(&json!({ "ended": code }));
        }
    }

    /// No command was started, and we end with this code.
    pub fn failed(&self, error: &Error, code: u8) {
        match self {
            Self::Machine => notify(&json!({ "failed": { "code": code, "message": error.to_string() } })),
            Self::Terminal(_) | Self::Silent => say(error),
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
