use std::collections::VecDeque;

use peerlock_types::{Span, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Counts the most replicas reset within any one lease, which decides whether a quorum can break.
#[derive(Debug)]
pub struct Resets {
    lease: Span,
    recent: VecDeque<(Time, u64)>,
    most: u32,
}

impl Resets {
    pub fn within(lease: Span) -> Self {
        Self { lease, recent: VecDeque::new(), most: 0 }
    }

    pub(crate) fn note(&mut self, now: Time, replica: u64) {
        self.recent.retain(|&(at, other)| now.since(at) <= self.lease && other != replica);
        self.recent.push_back((now, replica));
        self.most = self.most.max(u32::try_from(self.recent.len()).unwrap_or(u32::MAX));
    }

    pub fn most(&self) -> u32 {
        self.most
    }
}

impl<A: Actor> Watch<A> for Resets {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if let Event::Reset(peer) = event {
            self.note(now, peer.get());
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.numbers.most("resets within a lease", self.most.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A replica that is reset twice has only one vote to lose.
    #[test]
    fn resets_are_counted_by_replica_and_within_a_lease() {
        let mut resets = Resets::within(Span::from_secs(10));
        for (at, replica, most) in [(0, 1, 1), (5, 2, 2), (6, 2, 2), (10, 3, 3), (17, 4, 3), (27, 1, 3)] {
            resets.note(Time::ZERO + Span::from_secs(at), replica);
            assert_eq!(resets.most(), most, "at {at}");
        }
    }
}
