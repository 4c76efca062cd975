use std::collections::VecDeque;
use std::fmt::Display;

use peerlock_base::{PeerId, Ticket, Time};
use peerlock_mutex::Observe;

use super::{Broken, Entry, Watch};
use crate::ledger::Ledger;

/// The last events, one line each. Only a run that is known to fail is traced: it is run again with the same seed.
#[derive(Debug)]
pub struct Trace {
    lines: VecDeque<String>,
    most: usize,
}

impl Trace {
    /// Keeps the last `most` events.
    pub fn of_last(most: usize) -> Self {
        Self { lines: VecDeque::with_capacity(most), most }
    }

    /// The events, oldest first.
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

impl<P: Observe> Watch<P> for Trace {
    fn on_request(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           asks ({ticket:?})"))
    }

    fn on_grant(&mut self, now: Time, entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        let Entry { peer, ticket, grant, .. } = entry;
        self.note(
            now,
            format_args!("{peer:>6}           enters slot {}, fencing {} ({ticket:?})", grant.slot, grant.fencing),
        )
    }

    fn on_leave(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           leaves ({ticket:?})"))
    }

    fn on_give_up(&mut self, now: Time, peer: PeerId, ticket: Ticket) -> Result<(), Broken> {
        self.note(now, format_args!("{peer:>6}           waits no longer ({ticket:?})"))
    }

    fn on_reset(&mut self, now: Time, replica: PeerId) -> Result<(), Broken> {
        self.note(now, format_args!("{replica:>6}           forgets everything"))
    }

    fn on_send(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.note(now, format_args!("{from:>6} → {to:<6}  sends {message:?}"))
    }

    fn on_deliver(&mut self, now: Time, from: PeerId, to: PeerId, message: &P::Message) -> Result<(), Broken> {
        self.note(now, format_args!("{from:>6} → {to:<6}  brings {message:?}"))
    }
}
