use std::collections::VecDeque;
use std::fmt::Display;

use peerlock_protocols::Grant;
use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::ledger::Client;

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

    pub fn into_lines(self) -> Vec<String> {
        self.lines.into()
    }

    fn note(&mut self, now: Time, what: impl Display) {
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:>14.6}s  {what}", now.as_secs_f64()));
    }
}

impl<A: Actor> Watch<A> for Trace {
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Request(Client { peer, ticket, .. }) => {
                self.note(now, format_args!("{peer:>6}           requests ({ticket:?})"))
            }
            Event::Grant(Client { peer, ticket, .. }, Grant { slot, fencing }, _) => {
                self.note(now, format_args!("{peer:>6}           enters slot {slot}, fencing {fencing} ({ticket:?})"))
            }
            Event::Leave(Client { peer, ticket, .. }) => {
                self.note(now, format_args!("{peer:>6}           leaves ({ticket:?})"))
            }
            Event::GiveUp(Client { peer, ticket, .. }) => {
                self.note(now, format_args!("{peer:>6}           stops waiting ({ticket:?})"))
            }
            Event::Reset(peer) => self.note(now, format_args!("{peer:>6}           is reset")),
            Event::Crash(peer) => self.note(now, format_args!("{peer:>6}           crashes")),
            Event::Note(peer, note) => self.note(now, format_args!("{peer:>6}           notes {note:?}")),
            Event::Send { from, to, message } if A::kind(message).is_some() => {
                self.note(now, format_args!("{from:>6} → {to:<6}  sends {message:?}"))
            }
            Event::Deliver { from, to, message } if A::kind(message).is_some() => {
                self.note(now, format_args!("{from:>6} → {to:<6}  delivers {message:?}"))
            }
            _ => {}
        }
        Ok(())
    }
}
