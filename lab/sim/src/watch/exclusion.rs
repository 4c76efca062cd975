use peerlock_types::{PeerId, Ticket, Time};

use super::{Broken, Event, Watch};
use crate::actor::Actor;
use crate::ledger::{Client, Ledger};
use crate::report::Sheet;

/// Checks that each resource has at most k holders, and that every request is served in the end.
#[derive(Debug)]
pub struct Exclusion {
    slots: usize,
    resources: Vec<Inside>,
    counts: bool,
    sees_instants: bool,
    /// The last client that released at the moment of its entry.
    leaver: Option<(PeerId, usize, Time)>,
}

#[derive(Clone, Debug, Default)]
struct Inside {
    inside: usize,
    entered: (Time, Vec<Ticket>),
    /// Clients that entered and released at one moment.
    passed: Vec<Passed>,
    grants: u64,
    violations: u64,
    stuck: u64,
}

#[derive(Clone, Copy, Debug)]
struct Passed {
    peer: PeerId,
    left: Time,
    /// When another peer can know; `None` if no message was sent, or all are lost.
    known: Option<Time>,
}

impl Passed {
    fn counts_as_inside(&self, now: Time) -> bool {
        self.known.map_or(self.left == now, |known| known > now)
    }
}

impl Exclusion {
    /// `counts` counts violations and lets the run continue.
    pub fn new(resources: usize, slots: u32, counts: bool) -> Self {
        Self {
            slots: slots as usize,
            resources: vec![Inside::default(); resources],
            counts,
            sees_instants: false,
            leaver: None,
        }
    }

    /// Counts a client that releases at the moment of its entry as a holder until another peer can know of the release,
    /// by the first message that its peer then sends. An earlier grant is a violation, since the same run would have
    /// two holders with a longer hold time. Not for clients that know the end of their grant: such an end needs no
    /// message.
    pub fn seeing_instants(mut self) -> Self {
        self.sees_instants = true;
        self
    }

    fn enter(&mut self, now: Time, client: &Client) -> Result<(), Broken> {
        let resource = &mut self.resources[client.resource];
        resource.grants += 1;
        resource.inside += 1;
        if resource.entered.0 != now {
            resource.entered.0 = now;
            resource.entered.1.clear();
        }
        resource.entered.1.push(client.ticket);
        resource.passed.retain(|passed| passed.counts_as_inside(now));
        // Within a peer a slot moves without a message.
        let passed = resource.passed.iter().filter(|passed| passed.peer != client.peer).count();
        if resource.inside + passed <= self.slots {
            return Ok(());
        }
        resource.violations += 1;
        if self.counts {
            return Ok(());
        }
        Err(format!("peer {} enters as holder {} of {}", client.peer, resource.inside + passed, self.slots).into())
    }

    fn leave(&mut self, now: Time, client: &Client) {
        let resource = &mut self.resources[client.resource];
        resource.inside -= 1;
        let (when, holder) = &resource.entered;
        if self.sees_instants && *when == now && holder.contains(&client.ticket) {
            resource.passed.push(Passed { peer: client.peer, left: now, known: None });
            self.leaver = Some((client.peer, client.resource, now));
        }
    }

    fn end(&mut self, ledger: &Ledger) -> Result<(), Broken> {
        for client in ledger.iter() {
            self.resources[client.resource].stuck += 1;
        }
        if self.counts { Ok(()) } else { all_served(ledger) }
    }
}

pub(super) fn all_served(ledger: &Ledger) -> Result<(), Broken> {
    let Some(Client { peer, asked, .. }) = ledger.oldest() else { return Ok(()) };
    let unserved = ledger.waiting();
    Err(format!("{unserved} requests were never served, the oldest by peer {peer} since {asked}").into())
}

impl<A: Actor> Watch<A> for Exclusion {
    #[inline(always)]
    fn on(&mut self, now: Time, event: Event<'_, A>) -> Result<(), Broken> {
        match event {
            Event::Grant(client, ..) => self.enter(now, client),
            Event::Leave(client) => {
                self.leave(now, client);
                Ok(())
            }
            Event::OnWay { from, arrives } => {
                if let Some((peer, resource, left)) = self.leaver
                    && (peer, left) == (from, now)
                    && let Some(passed) =
                        self.resources[resource].passed.last_mut().filter(|passed| passed.peer == from)
                {
                    passed.known = Some(passed.known.map_or(arrives, |known| known.min(arrives)));
                }
                Ok(())
            }
            Event::End(ledger) => self.end(ledger),
            _ => Ok(()),
        }
    }

    fn fill(&mut self, sheet: &mut Sheet) {
        for (harm, found) in sheet.harm.iter_mut().zip(&self.resources) {
            harm.grants += found.grants;
            harm.violations += found.violations;
            harm.stuck += found.stuck;
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_protocols::Grant;

    use super::*;
    use crate::actor::Bare;
    use crate::ideal::Ideal;

    /// The release is known after `known`, if at all; a client of peer `other` enters `later`.
    fn meet(known: Option<u64>, other: u64, later: u64) -> Result<(), Broken> {
        let watcher: &mut dyn Watch<Bare<Ideal>> = &mut Exclusion::new(1, 1, false).seeing_instants();
        let mut ledger = Ledger::default();
        let (then, grant) = (Time::from_nanos(5), Grant { slot: 0, fencing: 1 });
        let one = ledger.ask(PeerId::new(1), 0, Time::ZERO, false);
        let other = ledger.ask(PeerId::new(other), 0, Time::ZERO, false);
        watcher.on(then, Event::Grant(&one, grant, &ledger))?;
        watcher.on(then, Event::OnWay { from: one.peer, arrives: Time::from_nanos(6) })?;
        watcher.on(then, Event::Leave(&one))?;
        for known in known.into_iter().flat_map(|known| [known + 4, known]) {
            watcher.on(then, Event::OnWay { from: one.peer, arrives: Time::from_nanos(5 + known) })?;
        }
        watcher.on(then, Event::OnWay { from: PeerId::new(9), arrives: Time::from_nanos(6) })?;
        watcher.on(Time::from_nanos(6), Event::OnWay { from: one.peer, arrives: Time::from_nanos(6) })?;
        watcher.on(Time::from_nanos(5 + later), Event::Grant(&other, grant, &ledger))
    }

    #[test]
    fn instant_release_counts_until_it_can_be_known() {
        let is_refused = |met: Result<(), Broken>| met.is_err_and(|what| *what == *"peer 2 enters as holder 2 of 1");
        assert!(is_refused(meet(Some(10), 2, 0)), "at the same moment");
        assert!(is_refused(meet(Some(10), 2, 9)), "before the release can be known");
        assert_eq!(meet(Some(10), 2, 10), Ok(()), "at the first message");
        assert_eq!(meet(Some(10), 1, 0), Ok(()), "handed over within a peer, without a message");
        assert_eq!(meet(Some(0), 2, 0), Ok(()), "messages without delay");
        assert!(is_refused(meet(None, 2, 0)), "no message, at the same moment");
        assert_eq!(meet(None, 2, 1), Ok(()), "no message arrives: the lease may have expired");
    }
    /// Another client may enter at the moment in which an earlier holder releases.
    #[test]
    fn release_at_anothers_entry_is_not_instant() {
        let watcher: &mut dyn Watch<Bare<Ideal>> = &mut Exclusion::new(1, 2, false).seeing_instants();
        let mut ledger = Ledger::default();
        let mut come = |watcher: &mut dyn Watch<Bare<Ideal>>, peer, slot, now| {
            let client = ledger.ask(PeerId::new(peer), 0, Time::ZERO, false);
            let grant = Grant { slot, fencing: 1 };
            watcher.on(Time::from_nanos(now), Event::Grant(&client, grant, &ledger)).map(|()| client)
        };
        let one = come(watcher, 1, 0, 1).expect("the first");
        come(watcher, 2, 1, 5).expect("the second");
        assert_eq!(watcher.on(Time::from_nanos(5), Event::Leave(&one)), Ok(()));
        watcher
            .on(Time::from_nanos(5), Event::OnWay { from: one.peer, arrives: Time::from_nanos(9) })
            .expect("it only watches");
        assert!(come(watcher, 3, 0, 6).is_ok(), "by a message that was sent before");
    }
}
