use peerlock_types::{Span, Time};

use super::{Broken, Event, Mark, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};

/// Checks the order of requests after [`Mark::Quiet`]: a client enters after all that requested the resource clearly
/// earlier. With several slots, it enters only after those that also requested after the mark: earlier ones may be
/// passed, up to the bound of [`Passing`](super::Passing).
#[derive(Debug)]
pub struct Queued {
    from: Time,
    clearly: Span,
    slots: u32,
}

impl Queued {
    /// A request reaches the coordinator in less than `clearly`.
    pub fn new(clearly: Span, slots: u32) -> Self {
        Self { from: Time::END, clearly, slots }
    }

    fn check(&self, client: &Client, ledger: &Ledger) -> Result<(), Broken> {
        let since = if self.slots > 1 { self.from } else { Time::ZERO };
        let is_earlier = |other: &&Client| {
            other.resource == client.resource && other.asked >= since && other.asked + self.clearly <= client.asked
        };
        let Some(earlier) = ledger.iter().find(is_earlier) else { return Ok(()) };
        let (late, early) = (client, earlier);
        Err(format!(
            "peer {} enters, which requested at {}, before peer {}, waiting since {}",
            late.peer, late.asked, early.peer, early.asked
        )
        .into())
    }
}

impl<A: Actor> Watch<A> for Queued {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Mark(Mark::Quiet, _) => {
                self.from = now;
                Ok(())
            }
            Event::Grant(client, _, ledger) if client.asked >= self.from => self.check(client, ledger),
            _ => Ok(()),
        }
    }
}
