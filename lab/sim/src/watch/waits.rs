use std::mem::take;

use peerlock_types::{PeerId, Span, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Collects waiting times, in the whole run and in its steady state.
///
/// The steady state omits each peer's first entries, while the queue builds up, and everything after the first peer's
/// last entry, while it drains. Messages count from the time at which the peers have had their first entries on
/// average.
#[derive(Debug)]
pub struct Waits {
    warm_up: u32,
    entries: u32,
    been: Vec<u32>,
    warming_up: u64,
    over: bool,
    steady: Vec<Span>,
    unsteady: Vec<Span>,
    longest: Vec<Option<Span>>,
    flow: Flow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    pub entries: u64,
    /// Without maintenance of connections or the overlay.
    pub messages: u64,
}

impl Waits {
    /// The first `servers` peers never request.
    pub fn new(peers: usize, servers: usize, entries: u32, warm_up: u32) -> Self {
        Self {
            warm_up,
            entries,
            been: vec![0; peers],
            warming_up: (peers - servers) as u64 * u64::from(warm_up),
            over: false,
            steady: Vec::new(),
            unsteady: Vec::new(),
            longest: vec![None; peers],
            flow: Flow::default(),
        }
    }

    fn note(&mut self, peer: PeerId, wait: Span) {
        let been = &mut self.been[peer.index()];
        *been += 1;
        if *been <= self.warm_up || self.over {
            self.unsteady.push(wait);
        } else {
            self.steady.push(wait);
            let longest = &mut self.longest[peer.index()];
            *longest = (*longest).max(Some(wait));
        }
        self.flow.entries += u64::from(self.warming_up == 0 && !self.over);
        self.warming_up = self.warming_up.saturating_sub(1);
        self.over |= *been == self.entries;
    }

    fn note_message(&mut self) {
        self.flow.messages += u64::from(self.warming_up == 0 && !self.over);
    }
}

impl<A: Actor> Watch<A> for Waits {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, ..) => self.note(client.peer, now.since(client.asked)),
            Event::Send { message, .. } if A::kind(message).is_some() => self.note_message(),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.flow = self.flow;
        sheet.steady = take(&mut self.steady);
        sheet.unsteady = take(&mut self.unsteady);
        sheet.longest = self.longest.iter().copied().flatten().collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_state_omits_warm_up_and_drain() {
        let mut waits = Waits::new(3, 1, 3, 1);
        // Peer 0 never requests. Peer 1 ends its three entries first.
        for (peer, secs) in [(1, 1), (2, 2), (1, 3), (2, 4), (1, 5), (2, 6)] {
            waits.note(PeerId::new(peer), Span::from_secs(secs));
            waits.note_message();
        }
        // Messages after the second, third and fourth entry; the fifth is the last of the steady state.
        assert_eq!(waits.flow, Flow { entries: 3, messages: 3 });
        let secs = |spans: Vec<Span>| spans.into_iter().map(|span| span.as_secs_f64()).collect::<Vec<_>>();
        assert_eq!(secs(waits.steady), [3.0, 4.0, 5.0]);
        assert_eq!(secs(waits.unsteady), [1.0, 2.0, 6.0]);
        assert_eq!(secs(waits.longest.into_iter().flatten().collect()), [5.0, 4.0]);
    }
}
