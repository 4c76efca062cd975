//! Reports why a slot was lost, once.

use std::cell::{Cell, RefCell};

use peerlock::{Client, Error};
use peerlock_supervise::{Moment, Notice};
use peerlock_types::roughly;

use super::show::Show;

pub struct Loss<'a> {
    show: &'a Show,
    /// The agent that granted the slot; `None` if a peer in this process has.
    endpoint: Option<String>,
    why: RefCell<Option<Error>>,
    notified: Cell<bool>,
    renewed: Cell<Moment>,
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

    pub fn renewed(&self, asked: Moment) {
        self.renewed.set(asked);
        self.is_absent.set(false);
    }

    pub fn absent(&self) {
        self.is_absent.set(true);
    }

    /// Records the reason. [`Loss::notify`] reports it after the command was signalled.
    pub fn received(&self, why: Error) {
        self.why.replace(Some(why));
    }

    pub fn notify(&self) {
        if !self.notified.replace(true) {
            self.show.lost(&self.why.take().unwrap_or_else(|| self.missing_renewals()));
        }
    }

    pub fn notice(&self, notice: Notice) {
        if notice != Notice::LeftBehind {
            self.notify();
        }
        self.show.notice(notice);
    }

    fn missing_renewals(&self) -> Error {
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
