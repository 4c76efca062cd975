use std::mem::take;

use peerlock_types::{PeerId, Span, Time};

use super::{Broken, Event, Flow, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Counts the sent messages of each type.
#[derive(Debug)]
pub struct Messages(Vec<(&'static str, u64)>);

impl Messages {
    pub fn of(kinds: &[&'static str]) -> Self {
        Self(kinds.iter().map(|kind| (*kind, 0)).collect())
    }
}

impl<A: Actor> Watch<A> for Messages {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        if let Event::Send { message, .. } = event
            && let Some(kind) = A::kind(message)
        {
            self.0[kind].1 += 1;
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.messages = take(&mut self.0);
    }
}

/// Counts the messages that the busiest peer receives, and records the time of the last grant.
#[derive(Debug, Default)]
pub struct Burden {
    got: Vec<u64>,
    last_entry: Time,
}

impl<A: Actor> Watch<A> for Burden {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(..) => self.last_entry = now,
            Event::Deliver { to, message, .. } if A::kind(message).is_some() => *count_of(&mut self.got, to) += 1,
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        let most = self.got.iter().copied().max().unwrap_or(0);
        sheet.numbers.mean("messages to the busiest", most as f64);
        sheet.numbers.mean("seconds to the last entry", self.last_entry.since(Time::ZERO).as_secs_f64());
    }
}

#[inline]
pub(super) fn count_of<N: Clone + Default>(counts: &mut Vec<N>, peer: PeerId) -> &mut N {
    if counts.len() <= peer.index() {
        counts.resize(peer.index() + 1, N::default());
    }
    &mut counts[peer.index()]
}

/// Measures an open run: waits, entries and messages from a moment to the end of the run.
#[derive(Debug)]
pub struct Window {
    from: Time,
    inside: Vec<Span>,
    before: Vec<Span>,
    flow: Flow,
}

impl Window {
    pub fn from(from: Time) -> Self {
        Self { from, inside: Vec::new(), before: Vec::new(), flow: Flow::default() }
    }
}

impl<A: Actor> Watch<A> for Window {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, ..) if now < self.from => self.before.push(now.since(client.asked)),
            Event::Grant(client, ..) => {
                self.inside.push(now.since(client.asked));
                self.flow.entries += 1;
            }
            Event::Send { .. } => self.flow.messages += u64::from(now >= self.from),
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        sheet.flow = self.flow;
        sheet.steady = take(&mut self.inside);
        sheet.unsteady = take(&mut self.before);
    }
}

#[cfg(test)]
mod tests {
    use peerlock_protocols::Grant;
    use peerlock_protocols::bv95::{Bv95, Message};
    use peerlock_protocols::token::Claim;
    use peerlock_types::{Span, Ticket};

    use super::*;
    use crate::actor::Bare;
    use crate::ledger::Ledger;

    #[test]
    fn burden_reports_busiest_peer_and_last_entry() {
        let mut burden = Burden::default();
        let watch: &mut dyn Watch<Bare<Bv95>> = &mut burden;
        let mut ledger = Ledger::default();
        let (one, other) = (PeerId::new(1), PeerId::new(4));
        let client = ledger.ask(one, 0, Time::ZERO, false);
        let message = Message::Request { slot: 0, claim: Claim { peer: one, ticket: Ticket::new(1) } };
        for (second, to) in [(3, one), (5, other), (8, one)] {
            let now = Time::ZERO + Span::from_secs(second);
            let grant = Grant { slot: 0, fencing: second };
            watch.on(now, Event::Deliver { from: other, to, message: &message }).expect("it only watches");
            watch.on(now, Event::Grant(&client, grant, &ledger)).expect("it only watches");
        }
        let mut sheet = Sheet::new(1);
        watch.fill(&mut sheet);
        assert_eq!(sheet.numbers.get("messages to the busiest"), Some(2.0));
        assert_eq!(sheet.numbers.get("seconds to the last entry"), Some(8.0));
    }
}
