use peerlock_protocols::Grant;
use peerlock_types::Time;

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;

/// Checks that fencing numbers increase on every slot and are unique within a resource.
#[derive(Debug)]
pub struct Fencing {
    resources: Vec<Given>,
    counts: bool,
}

#[derive(Clone, Debug)]
struct Given {
    /// By slot, for the check at the end: those of two slots may increase and still meet.
    all: Vec<Vec<u64>>,
    back: u64,
}

impl Fencing {
    pub fn new(resources: usize, slots: u32, counts: bool) -> Self {
        let given = Given { all: vec![Vec::new(); slots as usize], back: 0 };
        Self { resources: vec![given; resources], counts }
    }

    fn grant(&mut self, client: &Client, Grant { slot, fencing }: Grant) -> Result<(), Broken> {
        let given = &mut self.resources[client.resource];
        let Some(all) = given.all.get_mut(slot as usize) else {
            return Err(format!("peer {} enters slot {slot}, which does not exist", client.peer).into());
        };
        let last = all.last().copied().unwrap_or(0);
        if fencing > last {
            all.push(fencing);
            return Ok(());
        }
        given.back += 1;
        if self.counts {
            return Ok(());
        }
        Err(format!("slot {slot} gives fencing number {fencing} to peer {} after {last}", client.peer).into())
    }

    fn end(&mut self) -> Result<(), Broken> {
        for Given { all, back, .. } in &mut self.resources {
            let twice = given_twice(all);
            if let (Some(number), false) = (twice.first(), self.counts) {
                return Err(format!("fencing number {number} was given twice").into());
            }
            *back += twice.len() as u64;
        }
        Ok(())
    }
}

/// Once for each repetition.
fn given_twice(all: &[Vec<u64>]) -> Vec<u64> {
    let (lowest, highest) =
        (all.iter().filter_map(|slot| slot.first()).min(), all.iter().filter_map(|slot| slot.last()).max());
    let (Some(lowest), Some(highest)) = (lowest, highest) else { return Vec::new() };
    let given: usize = all.iter().map(Vec::len).sum();
    // Usually nearly all numbers of the range occur: marking them is much cheaper than sorting.
    if let Ok(range) = usize::try_from(highest - lowest)
        && range / 8 <= given
    {
        let mut is_given = vec![false; range + 1];
        let was_given = |number: &&u64| std::mem::replace(&mut is_given[(**number - lowest) as usize], true);
        return all.iter().flatten().filter(was_given).copied().collect();
    }
    let mut sorted = all.concat();
    sorted.sort_unstable();
    sorted.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect()
}

impl<A: Actor> Watch<A> for Fencing {
    #[inline(always)]
    fn on(&mut self, _now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, grant, _) => self.grant(client, grant),
            Event::End(_) => self.end(),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        for (harm, given) in sheet.harm.iter_mut().zip(&self.resources) {
            harm.fencing_back += given.back;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fencing_duplicates_between_slots_are_found() {
        assert_eq!(given_twice(&[vec![], vec![]]), [0; 0]);
        for above in [0, 7 << 32] {
            let slots = |slots: [&[u64]; 3]| slots.map(|slot| slot.iter().map(|number| number + above).collect());
            assert_eq!(given_twice(&slots([&[1, 4, 7], &[2, 5], &[3, 9]])), [0; 0]);
            assert_eq!(given_twice(&slots([&[1, 4, 7], &[2, 4, 1000], &[3, 4]])), [4 + above; 2]);
            assert_eq!(given_twice(&slots([&[1, 1 << 40], &[2, 1 << 40], &[3]])), [(1 << 40) + above]);
        }
    }
}
