use peerlock_protocols::Grant;
use peerlock_types::{Span, Time};

use super::{Broken, Mark, Watch};
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
}

impl<A: Actor> Watch<A> for Queued {
    fn on_mark(&mut self, now: Time, mark: Mark<'_>, _ledger: &Ledger) -> Result<(), Broken> {
        if matches!(mark, Mark::Quiet) {
            self.from = now;
        }
        Ok(())
    }

    fn on_grant(&mut self, _now: Time, client: &Client, _grant: Grant, ledger: &Ledger) -> Result<(), Broken> {
        if client.asked < self.from {
            return Ok(());
        }
        let since = if self.slots > 1 { self.from } else { Time::ZERO };
        let is_earlier = |other: &&Client| {
            other.resource == client.resource && other.asked >= since && other.asked + self.clearly <= client.asked
        };
        match ledger.iter().find(is_earlier) {
            None => Ok(()),
            Some(earlier) => Err(format!(
                "peer {} enters, which requested at {}, before peer {}, waiting since {}",
                client.peer, client.asked, earlier.peer, earlier.asked
            )
            .into()),
        }
    }
}
