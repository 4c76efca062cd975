use peerlock_registry::Registry;
use peerlock_types::{Span, Time};

use super::{Event, Host, QUIET, World};
use crate::disk::Crash;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Crash(usize),
    Freeze(usize),
    SlowDisk(usize),
    FullDisk(usize),
    Split(u64),
    /// This host receives nothing, or its messages are lost.
    OneWay(usize, bool),
    Pair(usize, usize),
    /// The other voters elect another leader.
    Usurp(u64),
    Heal,
}

impl World {
    /// One voter at a time is lost, and none during a change of voters, so that a majority remains.
    fn may_wound(&self) -> bool {
        let newest =
            self.hosts.iter().filter_map(|host| host.member.as_ref()?.registry()).max_by_key(|it| it.applied());
        newest.is_some_and(|registry| {
            let conf = registry.state().conf();
            conf.voters.len() >= 3 && conf.outgoing.is_empty() && conf.voters.is_disjoint(&self.wounded)
        })
    }

    pub(super) fn begin_fault(&mut self) {
        if self.quiet {
            return;
        }
        let pause = self.faults.exponential(self.setting.fault_every);
        self.schedule(self.now + pause + Span::from_millis(10), Event::Fault);
        let hosts = self.hosts.len() as u64;
        let a = self.faults.below(hosts) as usize;
        let b = self.faults.below(hosts) as usize;
        let draw = if self.setting.is_cut { 5 + self.faults.below(9) } else { self.faults.below(13) };
        let faults = match draw {
            0..=2 => Fault::Crash(a),
            3 | 4 => Fault::Freeze(a),
            5 if self.faults.chance(0.3) => Fault::FullDisk(a),
            5 => Fault::SlowDisk(a),
            6 => Fault::Split(self.faults.bits()),
            7 | 8 => Fault::OneWay(a, self.faults.chance(0.5)),
            9 => Fault::Pair(a, b),
            12.. => Fault::Usurp(self.faults.bits()),
            _ => Fault::Heal,
        };
        self.note(|| format!("{faults:?}"));
        self.inject_fault(faults);
    }

    fn inject_fault(&mut self, faults: Fault) {
        let count = self.hosts.len();
        match faults {
            Fault::Crash(host) => self.crash(host),
            Fault::Freeze(host) => {
                let long = self.faults.chance(0.5);
                let most = if long { Span::from_secs(8) } else { Span::from_millis(1500) };
                let thaw = self.now + self.faults.between(Span::ZERO, most);
                if !self.hosts[host].frozen {
                    self.watch.counts.freezes += 1;
                    self.hosts[host].frozen = true;
                    self.schedule(thaw.min(Time::ZERO + QUIET), Event::Thaw(host));
                }
            }
            Fault::SlowDisk(host) => self.hosts[host].slow_until = self.now + Span::from_secs(3),
            Fault::FullDisk(host) => self.hosts[host].is_full = true,
            Fault::Split(sides) => {
                self.watch.counts.partitions += 1;
                self.part(|host| (sides >> host) & 1 == 1);
            }
            Fault::OneWay(host, receives) => {
                self.watch.counts.partitions += 1;
                for other in (0..count).filter(|other| *other != host) {
                    self.cut.insert(if receives { (host, other) } else { (other, host) });
                }
            }
            Fault::Usurp(retained) => {
                self.watch.counts.partitions += 1;
                let leads = |host: &Host| host.member.as_ref()?.registry().map(Registry::is_leader);
                let Some(leader) = self.hosts.iter().position(|host| leads(host) == Some(true)) else { return };
                let votes = |host: &Host| host.member.as_ref().is_some_and(|member| member.registry().is_some());
                let with_it: Vec<bool> = (0..count)
                    .map(|host| host == leader || !votes(&self.hosts[host]) && (retained >> host) & 1 == 1)
                    .collect();
                let moment = self.now + Span::from_millis(300);
                let late_by = self.faults.between(Span::from_millis(500), Span::from_millis(2500));
                self.held = (leader, moment, late_by);
                self.cut.clear();
                self.schedule(moment, Event::Part(with_it));
            }
            Fault::Pair(a, b) => self.cut.extend([(a, b), (b, a)]),
            Fault::Heal => self.cut.clear(),
        }
    }

    pub(super) fn stop(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        (it.member, it.frozen, it.disk_busy, it.stopping) = (None, false, Time::ZERO, None);
        it.process += 1;
        it.missed.clear();
        it.disk.crash(Crash::Lost, &mut self.faults);
    }

    pub(super) fn part(&mut self, side: impl Fn(usize) -> bool) {
        let count = self.hosts.len();
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        self.cut.extend(pairs.filter(|(a, b)| side(*a) != side(*b)));
    }

    pub(super) fn crash(&mut self, host: usize) {
        let Some(member) = self.hosts[host].member.take() else { return };
        self.note(|| format!("{host} crashes"));
        self.watch.counts.crashes += 1;
        let crash = [Crash::Lost, Crash::Done, Crash::Torn, Crash::Holes][self.faults.below(4) as usize];
        self.watch.counts.torn += u64::from(matches!(crash, Crash::Torn | Crash::Holes));
        let it = &mut self.hosts[host];
        it.process += 1;
        (it.frozen, it.stopping) = (false, None);
        it.missed.clear();
        it.disk_busy = Time::ZERO;
        it.disk.crash(crash, &mut self.faults);
        let what = self.faults.below(10);
        let has_file = self.hosts[host].disk.has_file();
        let may_wound = !self.setting.chooses && !self.setting.recovers;
        if what < 3 && may_wound && (!has_file || self.may_wound()) {
            self.wounded.extend(member.registry().map(Registry::voter));
            match what {
                0 if has_file => {
                    self.watch.counts.flips += 1;
                    self.hosts[host].disk.flip(&mut self.faults);
                    self.hosts[host].is_flipped = true;
                }
                1 => self.hosts[host].disk.lose(),
                _ => self.hosts[host].gone = true,
            }
        }
        let back = self.now + self.faults.between(Span::from_millis(10), Span::from_secs(6));
        self.schedule(back.min(Time::ZERO + QUIET), Event::Start(host));
    }
}
