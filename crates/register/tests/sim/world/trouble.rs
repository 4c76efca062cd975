//! What goes wrong.

use peerlock_base::{Span, Time};
use peerlock_register::Register;

use super::{Event, Host, QUIET, World};
use crate::disk::Crash;

/// A trouble that a host or the network can be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    Crash(usize),
    Freeze(usize),
    SlowDisk(usize),
    FullDisk(usize),
    /// Everybody on one side.
    Split(u64),
    /// Nobody hears this host, or it hears nobody.
    OneWay(usize, bool),
    /// These two do not hear each other.
    Pair(usize, usize),
    /// The leader keeps these peers and loses the other voters, who will elect another one.
    Usurp(u64),
    Heal,
}

impl World {
    /// Whether another voter may lose its file: a majority has to be left, so one at a time, and not while the voters
    /// change.
    fn may_wound(&self) -> bool {
        let newest =
            self.hosts.iter().filter_map(|host| host.member.as_ref()?.register()).max_by_key(|it| it.applied());
        newest.is_some_and(|register| {
            let conf = register.state().conf();
            conf.voters.len() >= 3 && conf.outgoing.is_empty() && conf.voters.is_disjoint(&self.wounded)
        })
    }

    pub(super) fn begin_trouble(&mut self) {
        if self.quiet {
            return;
        }
        let pause = self.trouble.exponential(self.setting.trouble_every);
        self.schedule(self.now + pause + Span::from_millis(10), Event::Trouble);
        let hosts = self.hosts.len() as u64;
        let a = self.trouble.below(hosts) as usize;
        let b = self.trouble.below(hosts) as usize;
        let draw = if self.setting.is_cut { 5 + self.trouble.below(9) } else { self.trouble.below(13) };
        let trouble = match draw {
            0..=2 => Trouble::Crash(a),
            3 | 4 => Trouble::Freeze(a),
            5 if self.trouble.chance(0.3) => Trouble::FullDisk(a),
            5 => Trouble::SlowDisk(a),
            6 => Trouble::Split(self.trouble.bits()),
            7 | 8 => Trouble::OneWay(a, self.trouble.chance(0.5)),
            9 => Trouble::Pair(a, b),
            12.. => Trouble::Usurp(self.trouble.bits()),
            _ => Trouble::Heal,
        };
        self.note(|| format!("{trouble:?}"));
        self.make_trouble(trouble);
    }

    fn make_trouble(&mut self, trouble: Trouble) {
        let count = self.hosts.len();
        match trouble {
            Trouble::Crash(host) => self.crash(host),
            Trouble::Freeze(host) => {
                let long = self.trouble.chance(0.5);
                let most = if long { Span::from_secs(8) } else { Span::from_millis(1500) };
                let thaw = self.now + self.trouble.between(Span::ZERO, most);
                if !self.hosts[host].frozen {
                    self.watch.counts.freezes += 1;
                    self.hosts[host].frozen = true;
                    self.schedule(thaw.min(Time::ZERO + QUIET), Event::Thaw(host));
                }
            }
            Trouble::SlowDisk(host) => self.hosts[host].slow_until = self.now + Span::from_secs(3),
            Trouble::FullDisk(host) => self.hosts[host].is_full = true,
            Trouble::Split(sides) => {
                self.watch.counts.partitions += 1;
                self.part(|host| (sides >> host) & 1 == 1);
            }
            Trouble::OneWay(host, hears) => {
                self.watch.counts.partitions += 1;
                for other in (0..count).filter(|other| *other != host) {
                    self.cut.insert(if hears { (host, other) } else { (other, host) });
                }
            }
            Trouble::Usurp(kept) => {
                self.watch.counts.partitions += 1;
                let leads = |host: &Host| host.member.as_ref()?.register().map(Register::is_leader);
                let Some(leader) = self.hosts.iter().position(|host| leads(host) == Some(true)) else { return };
                let votes = |host: &Host| host.member.as_ref().is_some_and(|member| member.register().is_some());
                let with_it: Vec<bool> = (0..count)
                    .map(|host| host == leader || !votes(&self.hosts[host]) && (kept >> host) & 1 == 1)
                    .collect();
                // What the others say to it is late from now on, and is nothing at all from a moment later on.
                let moment = self.now + Span::from_millis(300);
                let late_by = self.trouble.between(Span::from_millis(500), Span::from_millis(2500));
                self.held = (leader, moment, late_by);
                self.cut.clear();
                self.schedule(moment, Event::Part(with_it));
            }
            Trouble::Pair(a, b) => self.cut.extend([(a, b), (b, a)]),
            Trouble::Heal => self.cut.clear(),
        }
    }

    /// The process is gone, and what it was about to write is not written.
    pub(super) fn stop(&mut self, host: usize) {
        let it = &mut self.hosts[host];
        (it.member, it.frozen, it.disk_busy, it.stopping) = (None, false, Time::ZERO, None);
        it.process += 1;
        it.missed.clear();
        it.disk.crash(Crash::Lost, &mut self.trouble);
    }

    /// Two sides that do not hear each other.
    pub(super) fn part(&mut self, side: impl Fn(usize) -> bool) {
        let count = self.hosts.len();
        let pairs = (0..count).flat_map(|a| (0..count).map(move |b| (a, b)));
        self.cut.extend(pairs.filter(|(a, b)| side(*a) != side(*b)));
    }

    pub(super) fn crash(&mut self, host: usize) {
        let Some(member) = self.hosts[host].member.take() else { return };
        self.note(|| format!("{host} crashes"));
        self.watch.counts.crashes += 1;
        let crash = [Crash::Lost, Crash::Done, Crash::Torn, Crash::Holes][self.trouble.below(4) as usize];
        self.watch.counts.torn += u64::from(matches!(crash, Crash::Torn | Crash::Holes));
        let it = &mut self.hosts[host];
        it.process += 1;
        (it.frozen, it.stopping) = (false, None);
        it.missed.clear();
        it.disk_busy = Time::ZERO;
        it.disk.crash(crash, &mut self.trouble);
        let what = self.trouble.below(10);
        let has_file = self.hosts[host].disk.has_file();
        let may_wound = !self.setting.chooses && !self.setting.recovers;
        if what < 3 && may_wound && (!has_file || self.may_wound()) {
            self.wounded.extend(member.register().map(Register::voter));
            match what {
                0 if has_file => {
                    self.watch.counts.flips += 1;
                    self.hosts[host].disk.flip(&mut self.trouble);
                    self.hosts[host].is_flipped = true;
                }
                1 => self.hosts[host].disk.lose(),
                _ => self.hosts[host].gone = true,
            }
        }
        let back = self.now + self.trouble.between(Span::from_millis(10), Span::from_secs(6));
        self.schedule(back.min(Time::ZERO + QUIET), Event::Start(host));
    }
}
