//! Reports why a slot was lost: once, and before its consequences.

use std::cell::{Cell, RefCell};

use peerlock::{Client, Error};
use peerlock_supervise::{Moment, Notice};
use peerlock_types::roughly;

use super::show::Show;

/// The known reasons for the loss of a lease, collected while the command runs.
pub struct Loss<'a> {
    show: &'a Show,
    /// The agent that granted the slot; `None` if this process is the peer.
    endpoint: Option<String>,
    /// The reason that the agent or the peer gave.
    why: RefCell<Option<Error>>,
    notified: Cell<bool>,
    /// When the last confirmed renewal was sent.
    renewed: Cell<Moment>,
    /// The agent has disappeared.
    is_absent: Cell<bool>,
}

impl<'a> Loss<'a> {
    pub fn new(show: &'a Show, client: &Client) -> Self {
        let endpoint = match client {
            Client::Agent(agent) => Some(agent.endpoint().to_string()),
            _ => None,
        };
        let (notified, is_absent) = (Cell::new(false), Cell::new(false));
        Self { show, endpoint, why: RefCell::default(), notified, renewed: Cell::new(Moment::now()), is_absent }
    }

    /// Records a confirmed renewal that was sent at `asked`.
    pub fn renewed(&self, asked: Moment) {
        self.renewed.set(asked);
        self.is_absent.set(false);
    }

    /// Records that the agent has disappeared.
    pub fn absent(&self) {
        self.is_absent.set(true);
    }

    /// Records the reason for the loss. [`Loss::notify`] reports it, after the command has been told to stop.
    pub fn received(&self, why: Error) {
        self.why.replace(Some(why));
    }

    /// Reports the reason once; without a known one, describes the missing renewals.
    pub fn notify(&self) {
        if !self.notified.replace(true) {
            self.show.lost(&self.why.take().unwrap_or_else(|| self.unheard()));
        }
    }

    /// Reports an action on the command.
    pub fn notice(&self, notice: Notice) {
        if notice != Notice::LeftBehind {
            self.notify();
        }
        self.show.notice(notice);
    }

    fn unheard(&self) -> Error {
        let Some(endpoint) = self.endpoint.clone() else { return Error::Lost };
        let since = roughly(Moment::now().since(self.renewed.get()));
        match self.is_absent.get() {
            true => {
                let why = format!("the agent that granted the slot has been gone for {since}, without a successor");
                Error::NoAgent { endpoint, why }
            }
            false => {
                let why = format!("no renewal of the lease was confirmed for {since}");
                Error::Broken { endpoint, why }
            }
        }
    }
}
