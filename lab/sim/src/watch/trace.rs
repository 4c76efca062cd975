use std::collections::VecDeque;
use std::fmt::Display;

use peerlock_protocols::Grant;
use peerlock_types::{PeerId, Time};

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};

/// Keeps the last events, one line each. Only failed runs are traced: they are repeated with the same seed.
#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    most: usize,
}

impl Trace {
    pub fn of_last(most: usize) -> Self {
        Self { lines: VecDeque::with_capacity(most), most }
    }

    pub fn lines(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().map(String::as_str)
    }

    fn note(&mut self, now: Time, what: impl Display) -> Result<(), Broken> {
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>14.6}s  {what}", now.as_secs_f64()));
        Ok(())
    }
}

impl<A: Actor> Watch<A> for Trace {
    fn on_request(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.note(now, format_args!("{:>6}           requests ({:?})", client.peer, client.ticket))
    }

    fn on_grant(&mut self, now: Time, client: &Client, grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let (Client { peer, ticket, .. }, Grant { slot, fencing }) = (client, grant);
        self.note(now, format_args!("{peer:>6}           enters slot {slot}, fencing {fencing} ({ticket:?})"))
    }

    fn on_leave(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.note(now, format_args!("{:>6}           leaves ({:?})", client.peer, client.ticket))
    }

    fn on_give_up(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        self.note(now, format_args!("{:>6}           stops waiting ({:?})", client.peer, client.ticket))
    }

    fn on_reset(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           is reset"))
    }

    fn on_crash(&mut self, now: Time, peer: PeerId) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           crashes"))
    }

    fn on_note(&mut self, now: Time, peer: PeerId, note: &A::Note) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           notes {note:?}"))
    }

    fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
        match A::kind(message) {
            Some(_) => self.note(now, format_args!("{from:>6} → {to:<6}  sends {message:?}")),
            None => Ok(()),
        }
    }

    fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &A::Message) -> Result<(), Broken> {
        match A::kind(message) {
            Some(_) => self.note(now, format_args!("{from:>6} → {to:<6}  delivers {message:?}")),
            None => Ok(()),
        }
    }
}
