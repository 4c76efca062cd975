use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::report::Sheet;

/// Counts the messages of each client of an open run. Peers from 0 on are the replicas, all others are clients.
#[derive(Debug)]
pub struct Costs {
    replicas: usize,
    yields: Option<usize>,
    waiting: u64,
    clients: Vec<Cost>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    pub messages: u64,
    pub yields: u64,
    /// The number of waiting clients at its arrival.
    pub place: u64,
}

impl Cost {
    /// Returns the bound 4n + 2n ⌈ln P⌉: four messages with each of n replicas, and a retry with its answer for each
    /// e-fold of the place P, rounded up.
    pub fn bound(&self, replicas: u32) -> f64 {
        f64::from(replicas) * (4.0 + 2.0 * (self.place.max(1) as f64).ln().ceil())
    }

    pub fn of_bound(&self, replicas: u32) -> f64 {
        self.messages as f64 / self.bound(replicas)
    }
}

impl Costs {
    pub fn of(kinds: &[&str], replicas: u32) -> Self {
        let yields = kinds.iter().position(|kind| *kind == "yield");
        Self { replicas: replicas as usize, yields, waiting: 0, clients: Vec::new() }
    }
}

impl<A: Actor> Watch<A> for Costs {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Request(_) => {
                self.waiting += 1;
                self.clients.push(Cost { place: self.waiting, ..Cost::default() });
            }
            Event::Grant(..) | Event::GiveUp(_) => self.waiting -= 1,
            Event::Send { from, to, message } => {
                let client = from.index().max(to.index()).checked_sub(self.replicas);
                if let Some(cost) = client.and_then(|client| self.clients.get_mut(client)) {
                    cost.messages += 1;
                    cost.yields += u64::from(self.yields.is_some() && self.yields == A::kind(message));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        let replicas = self.replicas as u32;
        let share = |cost: &Cost| cost.of_bound(replicas);
        let worst = self.clients.iter().max_by(|one, other| share(one).total_cmp(&share(other)));
        sheet.worst = Some((worst.copied().unwrap_or_default(), replicas));
        sheet.numbers.most("yields of a client", self.clients.iter().map(|cost| cost.yields).max().unwrap_or(0));
    }
}
