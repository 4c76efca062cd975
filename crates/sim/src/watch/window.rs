use peerlock_base::{PeerId, Span, Time};
use peerlock_mutex::Observe;

use super::{Broken, Entry, Flow, Watch};
use crate::ledger::Ledger;

/// What an open run is measured by: waits, entries and messages within a window of time.
#[derive(Debug)]
pub struct Window {
    from: Time,
    inside: Vec<Span>,
    before: Vec<Span>,
    flow: Flow,
}

impl Window {
    /// From this moment to the end of the run.
    pub fn from(from: Time) -> Self {
        Self { from, inside: Vec::new(), before: Vec::new(), flow: Flow::default() }
    }

    /// Messages and entries within the window.
    pub fn flow(&self) -> Flow {
        self.flow
    }

    /// Waits of those who went inside within the window, and of those who did before.
    pub fn into_parts(self) -> (Vec<Span>, Vec<Span>) {
        (self.inside, self.before)
    }
}

impl<P: Observe> Watch<P> for Window {
    fn on_grant(&mut self, now: Time, entry: &Entry, _ledger: &Ledger) -> Result<(), Broken> {
        let wait = now.since(entry.request.at);
        if now < self.from {
            self.before.push(wait);
        } else {
            self.inside.push(wait);
            self.flow.entries += 1;
        }
        Ok(())
    }

    fn on_send(&mut self, now: Time, _from: PeerId, _to: PeerId, _message: &P::Message) -> Result<(), Broken> {
        self.flow.messages += u64::from(now >= self.from);
        Ok(())
    }
}
