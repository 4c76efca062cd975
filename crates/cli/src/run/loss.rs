//! Why a slot is lost: told once, before what comes of it.

use std::cell::{Cell, RefCell};

use peerlock::{Client, Error};
use peerlock_supervise::{Moment, Notice};
use peerlock_types::roughly;

use super::show::Show;

/// What is known of a lease's end, while a command runs under it.
pub struct Loss<'a> {
    show: &'a Show,
    /// The agent that the slot is from; none if this process is the peer.
    endpoint: Option<String>,
    /// What the other side has said.
    why: RefCell<Option<Error>>,
    notified: Cell<bool>,
    /// When the last renewal was asked for that was answered.
    renewed: Cell<Moment>,
    /// Nobody answers where the agent was.
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

    /// The lease was renewed, as it was asked for at this moment.
    pub fn renewed(&self, asked: Moment) {
        self.renewed.set(asked);
        self.is_absent.set(false);
    }

    /// The agent has gone, and another is waited for.
    pub fn absent(&self) {
        self.is_absent.set(true);
    }

    /// It was lost, and the other side has said why. To be told when what has to be done for it is under way.
    pub fn received(&self, why: Error) {
        self.why.replace(Some(why));
    }

    /// Says why, unless it was said. If nobody has told us why the lease was not renewed, we say what we know.
    pub fn notify(&self) {
        if !self.notified.replace(true) {
            self.show.lost(&self.why.take().unwrap_or_else(|| self.unheard()));
        }
    }

    /// Something is done with the command.
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
                let why = format!("the one that the slot is from has gone, and no other has come for {since}");
                Error::NoAgent { endpoint, why }
            }
            false => {
                let why = format!("the lease of the slot was not renewed for {since}");
                Error::Broken { endpoint, why }
            }
        }
    }
}
