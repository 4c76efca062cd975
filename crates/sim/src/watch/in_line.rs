use peerlock_base::{Span, Time};
use peerlock_mutex::Grant;

use super::{Broken, Mark, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};

/// Everybody who asks after [`Mark::Quiet`] is let in after all who had asked for the resource clearly earlier.
#[derive(Debug)]
pub struct InLine {
    from: Time,
    clearly: Span,
}

impl InLine {
    /// Asking takes less than `clearly`, whoever asks.
    pub fn new(clearly: Span) -> Self {
        Self { from: Time::END, clearly }
    }
}

impl<A: Actor> Watch<A> for InLine {
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
        let is_earlier =
            |other: &&Client| other.resource == client.resource && other.asked + self.clearly <= client.asked;
        match ledger.iter().find(is_earlier) {
            None => Ok(()),
            Some(earlier) => Err(format!(
                "peer {} is let in, who asked at {}, before peer {}, who has waited since {}",
                client.peer, client.asked, earlier.peer, earlier.asked
            )),
        }
    }
}
