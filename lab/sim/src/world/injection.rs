use peerlock_types::{PeerId, Span, Time};

use super::World;
use super::event::{Fault, Scheduled};
use crate::actor::Actor;
use crate::faults::FaultKind;
use crate::ledger::Client;
use crate::watch::{Broken, Event};
use crate::workload::{Over, Workload};

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    pub(super) fn inject(&mut self, fault: Fault) -> Result<(), Broken> {
        let (kind, last) = match fault {
            Fault::First => {
                if let Some((share, after)) = self.injector.faults.catastrophe {
                    self.fault(after, Fault::Catastrophe(share));
                }
                FaultKind::ALL.into_iter().for_each(|kind| self.next_fault(kind));
                return Ok(());
            }
            // It was queued before the faults ended.
            _ if self.injector.is_calm => return Ok(()),
            Fault::Catastrophe(share) => return self.crash_many(share),
            Fault::Random(kind, last) => (kind, last),
        };
        self.next_fault(kind);
        match kind {
            FaultKind::Crash => {
                if self.injector.takes_another() {
                    self.crash_any(last)?;
                }
                self.crash_any(last)?;
            }
            FaultKind::Death => {
                if let Some(peer) = self.lose_any() {
                    self.crash_by_chance(peer)?;
                }
            }
            FaultKind::DiskLoss => {
                if let Some(peer) = self.lose_any() {
                    self.tally.disks_lost += 1;
                    self.go_down(peer, last)?;
                    A::lose(&mut self.hosts.storage(peer).disk);
                }
            }
            FaultKind::Outage => {
                self.tally.outages += 1;
                let up: Vec<PeerId> = self.all_there().collect();
                for peer in up {
                    let down = self.injector.downtime(kind);
                    self.go_down(peer, down)?;
                }
            }
            FaultKind::Partition => {
                self.tally.parted += 1;
                let number = self.injector.part(self.now + last);
                self.detect(Scheduled::Parted { number, from: PeerId::new(0) });
            }
            FaultKind::Freeze | FaultKind::SlowDisk | FaultKind::FullDisk => {
                if let Some(peer) = self.hosts.any(self.injector.victims()) {
                    self.impair(peer, kind, last);
                }
            }
        }
        Ok(())
    }

    fn impair(&mut self, peer: PeerId, kind: FaultKind, last: Span) {
        match kind {
            FaultKind::Freeze => {
                self.tally.frozen += 1;
                self.injector.freeze(self.now, peer, last);
                self.detect(Scheduled::Gone(peer));
            }
            FaultKind::SlowDisk => {
                self.tally.disks_slow += 1;
                self.injector.condition_mut(peer).slow_until = self.now + last;
            }
            _ => self.injector.condition_mut(peer).is_full = true,
        }
    }

    fn crash_many(&mut self, share: f64) -> Result<(), Broken> {
        let mut all: Vec<PeerId> = self.all_there().collect();
        for _ in 0..(share * all.len() as f64).round() as usize {
            let peer = all.swap_remove(self.injector.victims().below(all.len() as u64) as usize);
            self.crash_by_chance(peer)?;
        }
        Ok(())
    }

    /// Returns `None` if the workload cannot spare the drawn peer.
    fn lose_any(&mut self) -> Option<PeerId> {
        let victim = self.hosts.any(self.injector.victims());
        let peer = victim.filter(|peer| L::may_lose(self, *peer))?;
        L::on_losing(self, peer);
        Some(peer)
    }

    fn detect(&mut self, event: Scheduled<A, L::Event>) {
        if let Some(after) = self.injector.faults.detection {
            self.queue.push(self.now + after, event);
        }
    }

    pub(super) fn all_there(&self) -> impl Iterator<Item = PeerId> + '_ {
        (0..self.hosts.residents() as u64).map(PeerId::new).filter(|&peer| self.is_there(peer))
    }

    /// One peer at a time, so that the queue holds only the notifications of one.
    pub(super) fn report_parted(&mut self, number: u64, from: PeerId) {
        let Some(peer) = self.all_there().find(|&peer| peer >= from) else { return };
        let others: Vec<PeerId> = self.all_there().filter(|&other| other != peer).collect();
        for gone in others {
            if self.injector.are_parted(self.now, number, peer, gone) {
                self.queue.push(self.now, Scheduled::Notified { peer, gone });
            }
        }
        self.queue.push(self.now, Scheduled::Parted { number, from: PeerId::new(peer.get() + 1) });
    }

    fn crash_any(&mut self, down: Span) -> Result<(), Broken> {
        match self.hosts.any(self.injector.victims()) {
            Some(peer) => self.go_down(peer, down),
            None => Ok(()),
        }
    }

    fn go_down(&mut self, peer: PeerId, down: Span) -> Result<(), Broken> {
        self.restart_at(self.now + down, peer);
        self.tally.crashed += 1;
        self.crash(peer)
    }

    pub(super) fn write_fails(&mut self, peer: PeerId) -> Result<(), Broken> {
        self.tally.disks_full += 1;
        let down = self.injector.downtime(FaultKind::FullDisk);
        self.go_down(peer, down)
    }

    pub(super) fn restart(&mut self, peer: PeerId) -> Result<(), Broken> {
        if self.hosts.get(peer).is_some() {
            return Ok(());
        }
        self.tally.restarted += 1;
        self.timers.forget(peer);
        let actor = (self.make)(peer, self.hosts.disk(peer));
        self.hosts.put_back(peer, actor);
        self.forget_all(peer)?;
        L::on_restarted(self, peer)
    }

    pub(super) fn crash_by_chance(&mut self, peer: PeerId) -> Result<(), Broken> {
        self.tally.crashed += 1;
        self.crash(peer)?;
        L::on_death(self, peer)
    }

    fn fault(&mut self, after: Span, fault: Fault) {
        self.faults_to_come += 1;
        self.queue.push(self.now + after, Scheduled::Fault(fault));
    }

    pub(super) fn first_fault(&mut self) -> Result<(), Broken> {
        match self.injector.faults.quiet {
            Span::ZERO => self.inject(Fault::First),
            quiet => {
                self.fault(quiet, Fault::First);
                Ok(())
            }
        }
    }

    fn next_fault(&mut self, kind: FaultKind) {
        if let Some((after, last)) = self.injector.next(kind) {
            self.fault(after, Fault::Random(kind, last));
        }
    }
}

impl<A: Actor, L: Workload<A>> World<'_, A, L> {
    /// Holders with a known end stay until then.
    pub fn crash(&mut self, peer: PeerId) -> Result<(), Broken> {
        if self.hosts.remove(peer).is_none() {
            return Ok(());
        }
        self.injector.crashed(peer, peer.index() < self.hosts.residents());
        self.detect(Scheduled::Gone(peer));
        self.tally.torn += u64::from(self.hosts.tear(peer, &mut self.disk_rng));
        if peer.index() < self.hosts.residents() && self.injector.reboots() {
            self.tally.reboots += 1;
            A::reboot(&mut self.hosts.storage(peer).disk);
        }
        L::on_down(self, peer);
        let is_here = |client: &&Client| client.peer == peer;
        let waiting: Vec<Client> = self.ledger.iter().filter(is_here).copied().collect();
        for client in waiting {
            self.ledger.take(client.ticket);
            self.watch.on(self.now, Event::GiveUp(&client))?;
            L::on_over(self, &client, Over::Crashed)?;
        }
        let inside: Vec<Client> = self.inside.iter().filter(is_here).copied().collect();
        for client in inside {
            if let Some(end) = self.ends.get_mut(&client.ticket) {
                self.tally.orphans += u64::from(!end.is_orphan);
                end.is_orphan = true;
                continue;
            }
            self.take_inside(client.ticket);
            self.watch.on(self.now, Event::Leave(&client))?;
            L::on_over(self, &client, Over::Crashed)?;
        }
        self.watch.on(self.now, Event::Crash(peer))
    }

    pub fn restart_at(&mut self, at: Time, peer: PeerId) {
        self.queue.push(at, Scheduled::Restart(peer));
    }
}
