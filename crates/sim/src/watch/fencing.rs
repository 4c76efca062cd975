use peerlock_base::Time;
use peerlock_mutex::Grant;

use super::{Broken, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Fencing numbers increase on every slot, and no two grants of a resource have the same.
#[derive(Debug)]
pub struct Fencing {
    resources: Vec<Given>,
    counts: bool,
}

#[derive(Clone, Debug)]
struct Given {
    last: Vec<u64>,
    /// All of them, for the check at the end: two slots may go up side by side and still meet.
    all: Vec<u64>,
    back: u64,
}

impl Fencing {
    /// For this many resources with `slots` slots each. Where it is known that the rule will be broken it `counts`:
    /// numbers that do not increase are counted, and the run goes on.
    pub fn new(resources: usize, slots: u32, counts: bool) -> Self {
        let given = Given { last: vec![0; slots as usize], all: Vec::new(), back: 0 };
        Self { resources: vec![given; resources], counts }
    }
}

impl<A: Actor> Watch<A> for Fencing {
    fn on_grant(&mut self, _now: Time, client: &Client, grant: Grant, _ledger: &Ledger) -> Result<(), Broken> {
        let given = &mut self.resources[client.resource];
        let Some(last) = given.last.get_mut(grant.slot as usize) else {
            return Err(format!("peer {} is let into slot {}, which does not exist", client.peer, grant.slot).into());
        };
        if grant.fencing > *last {
            *last = grant.fencing;
            given.all.push(grant.fencing);
            return Ok(());
        }
        given.back += 1;
        if self.counts {
            return Ok(());
        }
        let Grant { slot, fencing } = grant;
        Err(format!("slot {slot} gives fencing number {fencing} to peer {} after {last}", client.peer).into())
    }

    fn at_end(&mut self, _now: Time, _ledger: &Ledger) -> Result<(), Broken> {
        for Given { all, back, .. } in &mut self.resources {
            all.sort_unstable();
            for pair in all.windows(2).filter(|pair| pair[0] == pair[1]) {
                if !self.counts {
                    return Err(format!("fencing number {} was given twice", pair[0]).into());
                }
                *back += 1;
            }
        }
        Ok(())
    }

    fn tell(&mut self, sheet: &mut Sheet) {
        for (harm, given) in sheet.harm.iter_mut().zip(&self.resources) {
            harm.fencing_back += given.back;
        }
    }
}
