mod clock;

use std::collections::VecDeque;

use peerlock_types::{PeerId, Rng, Span, Time, mix};

pub(crate) use clock::Clock;

use crate::report::counts;

/// Five mean round trips of the Sigma paper's networks.
const CRASH_AFTER: Span = Span::from_secs(1);

const SLOWEST_WRITE: Span = Span::from_secs(3);

const MAX_CLOCKS: usize = 10_000;

/// The faults of a run and their rates; by default none. Durations are means of exponential distributions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// No fault before this time, except crashing or withdrawing clients, and clocks.
    pub quiet: Span,
    pub loss: f64,
    pub duplication: f64,
    /// The share of clients that crash for good with their peer: half of them some time after their request, half as
    /// soon as they hold.
    pub client_crash: f64,
    pub replica_life: Option<Span>,
    /// At most this many replicas reset within any such time.
    pub resets_at_most: Option<(usize, Span)>,
    /// Numbers the lives of replicas 1, 2, 3 … instead of by clock readings.
    pub counted_lives: bool,
    pub down_after_reset: Option<Span>,
    /// A share of the messages. On ordered links they also delay the messages behind them.
    pub delays: Option<(f64, Span)>,
    pub crashes: Option<Spells>,
    /// The share of crashes that hit a second peer at the same moment.
    pub both: f64,
    pub reboots: f64,
    /// Crashes for good.
    pub deaths: Option<Span>,
    pub disk_losses: Option<Spells>,
    /// All peers crash at once, and each restarts after its own time.
    pub outages: Option<Spells>,
    pub slow_disks: Option<Spells>,
    /// The next write fails, and its peer crashes and restarts with free space.
    pub full_disks: Option<Spells>,
    /// A frozen peer handles nothing, and then everything at once.
    pub freezes: Option<Spells>,
    pub partitions: Option<(Cut, Spells)>,
    /// The share of clients that are disconnected as soon as they hold, and for how long.
    pub cut_off: Option<(f64, Span)>,
    /// The share of clients that withdraw or release early.
    pub withdrawals: f64,
    /// The share of peers that crash for good at one moment, and when.
    pub catastrophe: Option<(f64, Span)>,
    /// After this delay, a peer that has crashed, or is still frozen or parted, is reported gone for good.
    pub detection: Option<Span>,
    /// The bounds of offset, and of rate in parts per million.
    pub clocks: Option<(Span, u64)>,
}

impl Faults {
    pub(crate) fn longest_spell(&self) -> Span {
        let spells = [self.crashes, self.freezes, self.partitions.map(|(_, spells)| spells)].into_iter().flatten();
        let shares = [self.delays, self.cut_off].into_iter().flatten();
        let all = spells.map(|spells| spells.last).chain(shares.map(|(_, mean)| mean));
        all.chain(self.down_after_reset).chain(self.detection).max().unwrap_or(Span::ZERO)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spells {
    /// In the whole world.
    pub every: Span,
    pub last: Span,
}

/// The pairs that a partition separates, drawn again for each partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    Whole,
    /// The first of two sides receives nothing from the second.
    OneWay,
    /// Two sides are disconnected; a third of the peers is connected to both.
    Partial,
    /// One pair of peers in four is disconnected.
    Pairs,
}

impl Cut {
    fn parts(self, number: u64, from: PeerId, to: PeerId) -> bool {
        let side = |peer: PeerId, sides| mix(number ^ mix(peer.get())) % sides;
        match self {
            Self::Whole => side(from, 2) != side(to, 2),
            Self::OneWay => side(from, 2) > side(to, 2),
            Self::Partial => side(from, 3) + side(to, 3) == 1,
            Self::Pairs => {
                let (one, other) = (from.get().min(to.get()), from.get().max(to.get()));
                mix(number ^ mix(one) ^ !mix(other)).is_multiple_of(4)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultKind {
    Crash,
    Death,
    Freeze,
    Partition,
    DiskLoss,
    Outage,
    SlowDisk,
    FullDisk,
}

impl FaultKind {
    /// In the order in which the first ones are drawn.
    pub const ALL: [Self; 8] = {
        use FaultKind::*;
        [Crash, Death, Freeze, Partition, DiskLoss, Outage, SlowDisk, FullDisk]
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    Never,
    After(Span),
    Inside,
}

/// Draws faults, each kind from its own stream, so that they change neither the workload nor the network.
#[derive(Debug)]
pub(crate) struct Injector {
    pub faults: Faults,
    is_lossy: bool,
    /// Of loss, duplication, client crashes and resets.
    rng: Rng,
    delays: Rng,
    crashes: Rng,
    freezes: Rng,
    partitions: Rng,
    cut_offs: Rng,
    withdrawals: Rng,
    outages: Rng,
    disks: Rng,
    reboots: Rng,
    clocks: u64,
    drawn_clocks: Vec<Clock>,
    /// No partition, freeze, crash or reset begins.
    pub is_calm: bool,
    /// Its number and end.
    partition: (u64, Time),
    /// Disconnected for good.
    rift: Option<(PeerId, PeerId)>,
    conditions: Vec<Condition>,
    resets: VecDeque<Time>,
    pub mishaps: Mishaps,
}

counts!(pub(crate) struct Mishaps {
    lost: "messages lost",
    twice: "messages twice",
    cut_off: "messages cut off",
    held_up: "messages held up",
});

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Condition {
    pub frozen_until: Time,
    pub cut_off_until: Time,
    pub life: u32,
    pub writes_until: Time,
    pub slow_until: Time,
    pub is_full: bool,
}

impl Injector {
    pub fn new(faults: Faults, seed: u64) -> Self {
        let cuts = faults.partitions.is_some() || faults.cut_off.is_some() || faults.down_after_reset.is_some();
        Self {
            faults,
            is_lossy: faults.loss > 0.0 || faults.duplication > 0.0 || cuts,
            rng: Rng::stream(seed, 3),
            delays: Rng::stream(seed, 6),
            crashes: Rng::stream(seed, 7),
            freezes: Rng::stream(seed, 8),
            partitions: Rng::stream(seed, 9),
            cut_offs: Rng::stream(seed, 10),
            withdrawals: Rng::stream(seed, 11),
            outages: Rng::stream(seed, 14),
            disks: Rng::stream(seed, 15),
            reboots: Rng::stream(seed, 16),
            clocks: Rng::stream(seed, 12).bits(),
            drawn_clocks: Vec::new(),
            is_calm: false,
            partition: (0, Time::ZERO),
            rift: None,
            conditions: Vec::new(),
            resets: VecDeque::new(),
            mishaps: Mishaps::default(),
        }
    }

    /// No further fault of a peer begins. Messages are still lost and duplicated.
    pub fn calm_down(&mut self) {
        self.is_calm = true;
        self.partition.1 = Time::ZERO;
        for condition in &mut self.conditions {
            (condition.slow_until, condition.is_full) = (Time::ZERO, false);
        }
    }

    pub fn rift(&mut self, one: PeerId, other: PeerId) {
        (self.rift, self.is_lossy) = (Some((one, other)), true);
    }

    pub fn deliver_all(&mut self) {
        (self.faults.loss, self.faults.duplication, self.faults.delays) = (0.0, 0.0, None);
    }

    #[inline]
    pub fn copies(&mut self, now: Time, from: PeerId, to: PeerId) -> usize {
        if self.is_lossy { self.copies_under_faults(now, from, to) } else { 1 }
    }

    // Out of line, so that a run without losses pays only for the check.
    #[inline(never)]
    fn copies_under_faults(&mut self, now: Time, from: PeerId, to: PeerId) -> usize {
        if now.since(Time::ZERO) < self.faults.quiet {
            return 1;
        }
        let copies = usize::from(!happens(self.faults.loss, &mut self.rng))
            + usize::from(happens(self.faults.duplication, &mut self.rng));
        let is_cut = self.is_cut(now, from, to);
        self.mishaps.cut_off += u64::from(is_cut);
        self.mishaps.lost += u64::from(!is_cut && copies == 0);
        self.mishaps.twice += u64::from(!is_cut && copies == 2);
        if is_cut { 0 } else { copies }
    }

    fn is_cut(&self, now: Time, from: PeerId, to: PeerId) -> bool {
        let is_parted = self.faults.partitions.is_some_and(|(cut, _)| cut.parts(self.partition.0, from, to));
        let is_cut_off = |peer| now < self.condition(peer).cut_off_until;
        let is_rift = self.rift.is_some_and(|pair| pair == (from, to) || pair == (to, from));
        (is_parted && now < self.partition.1) || is_rift || is_cut_off(from) || is_cut_off(to)
    }

    #[inline]
    pub fn delay(&mut self, now: Time) -> Span {
        if now.since(Time::ZERO) < self.faults.quiet {
            return Span::ZERO;
        }
        match self.faults.delays {
            Some((share, mean)) if self.delays.chance(share) => {
                self.mishaps.held_up += 1;
                self.delays.exponential(mean)
            }
            _ => Span::ZERO,
        }
    }

    #[inline]
    pub fn crash(&mut self) -> Crash {
        if !happens(self.faults.client_crash, &mut self.rng) {
            Crash::Never
        } else if self.rng.chance(0.5) {
            Crash::After(self.rng.exponential(CRASH_AFTER))
        } else {
            Crash::Inside
        }
    }

    #[inline]
    pub fn withdrawal(&mut self) -> Option<Span> {
        let withdraws = happens(self.faults.withdrawals, &mut self.withdrawals);
        withdraws.then(|| self.withdrawals.exponential(CRASH_AFTER))
    }

    #[inline]
    pub fn entered(&mut self, now: Time, peer: PeerId) {
        if let Some((share, mean)) = self.faults.cut_off
            && self.cut_offs.chance(share)
            && !self.is_calm
        {
            self.condition_mut(peer).cut_off_until = now + self.cut_offs.exponential(mean);
        }
    }

    pub fn life(&mut self) -> Option<Span> {
        self.faults.replica_life.map(|mean| self.rng.exponential(mean))
    }

    pub fn resets(&mut self, now: Time, peer: PeerId) -> bool {
        if let Some((most, within)) = self.faults.resets_at_most {
            self.resets.retain(|&at| now.since(at) <= within);
            if self.resets.len() >= most {
                return false;
            }
            self.resets.push_back(now);
        }
        if let Some(down) = self.faults.down_after_reset {
            self.condition_mut(peer).cut_off_until = now + self.cut_offs.exponential(down);
        }
        true
    }

    pub fn incarnation(&mut self, now: Time, peer: PeerId, lives: u64) -> u64 {
        if self.faults.counted_lives {
            return lives;
        }
        self.clock(peer).map_or(now, |clock| clock.read(now)).as_nanos()
    }

    /// The duration is zero if it is drawn later.
    pub fn next(&mut self, kind: FaultKind) -> Option<(Span, Span)> {
        if self.is_calm {
            return None;
        }
        let (spells, rng) = match kind {
            FaultKind::Crash => (self.faults.crashes, &mut self.crashes),
            FaultKind::Death => {
                return self.faults.deaths.map(|every| (self.crashes.exponential(every), Span::ZERO));
            }
            FaultKind::Freeze => (self.faults.freezes, &mut self.freezes),
            FaultKind::Partition => (self.faults.partitions.map(|(_, spells)| spells), &mut self.partitions),
            FaultKind::DiskLoss => (self.faults.disk_losses, &mut self.disks),
            FaultKind::Outage => (self.faults.outages, &mut self.outages),
            FaultKind::SlowDisk => (self.faults.slow_disks, &mut self.disks),
            FaultKind::FullDisk => (self.faults.full_disks, &mut self.disks),
        };
        let Spells { every, last } = spells?;
        let after = rng.exponential(every);
        let is_drawn_later = matches!(kind, FaultKind::Outage | FaultKind::FullDisk);
        Some((after, if is_drawn_later { Span::ZERO } else { rng.exponential(last) }))
    }

    pub fn downtime(&mut self, kind: FaultKind) -> Span {
        match (kind, self.faults.outages, self.faults.full_disks) {
            (FaultKind::Outage, Some(outages), _) => self.outages.exponential(outages.last),
            (FaultKind::FullDisk, _, Some(full_disks)) => self.disks.exponential(full_disks.last),
            _ => Span::ZERO,
        }
    }

    pub fn takes_another(&mut self) -> bool {
        happens(self.faults.both, &mut self.crashes)
    }

    pub fn reboots(&mut self) -> bool {
        happens(self.faults.reboots, &mut self.reboots)
    }

    pub fn victims(&mut self) -> &mut Rng {
        &mut self.crashes
    }

    /// Pending events belong to the previous life. Temporary peers never restart.
    pub fn crashed(&mut self, peer: PeerId, is_resident: bool) {
        if is_resident {
            let condition = self.condition_mut(peer);
            *condition =
                Condition { life: condition.life + 1, cut_off_until: condition.cut_off_until, ..Condition::default() };
        }
    }

    /// Returns when the write ends, the peer's life, and whether it fails.
    pub fn write(&mut self, now: Time, peer: PeerId, takes: Span) -> (Time, u32, bool) {
        let is_slow = now < self.condition(peer).slow_until;
        let takes = if is_slow { self.disks.between(takes, SLOWEST_WRITE) } else { takes };
        let condition = self.condition_mut(peer);
        condition.writes_until = condition.writes_until.max(now) + takes;
        (condition.writes_until, condition.life, condition.is_full)
    }

    pub fn part(&mut self, until: Time) -> u64 {
        self.partition = (self.partitions.bits(), until);
        self.partition.0
    }

    pub fn are_parted(&self, now: Time, number: u64, one: PeerId, from: PeerId) -> bool {
        let cuts = self.faults.partitions.is_some_and(|(cut, _)| cut.parts(number, from, one));
        cuts && self.partition.0 == number && now < self.partition.1
    }

    /// A frozen peer stays as it is, since its deferred events must keep their order.
    pub fn freeze(&mut self, now: Time, peer: PeerId, last: Span) {
        let frozen_until = &mut self.condition_mut(peer).frozen_until;
        if *frozen_until <= now {
            *frozen_until = now + last;
        }
    }

    #[inline]
    pub fn thaws(&self, now: Time, peer: PeerId) -> Option<Time> {
        Some(self.condition(peer).frozen_until).filter(|&until| now < until)
    }

    #[inline]
    pub fn clock(&mut self, peer: PeerId) -> Option<Clock> {
        let known = self.faults.clocks.map(|_| self.drawn_clocks.get(peer.index()).copied())?;
        known.or_else(|| self.draw_clock(peer))
    }

    /// A peer's clock depends only on its number.
    #[cold]
    fn draw_clock(&mut self, peer: PeerId) -> Option<Clock> {
        let (offset, ppm) = self.faults.clocks?;
        let seed = self.clocks;
        let clock = |peer| Clock::drawn(&mut Rng::stream(seed, peer), offset, ppm);
        if peer.index() < MAX_CLOCKS {
            self.drawn_clocks.extend((self.drawn_clocks.len() as u64..=peer.get()).map(clock));
        }
        Some(clock(peer.get()))
    }

    pub fn condition(&self, peer: PeerId) -> Condition {
        self.conditions.get(peer.index()).copied().unwrap_or_default()
    }

    pub fn condition_mut(&mut self, peer: PeerId) -> &mut Condition {
        if self.conditions.len() <= peer.index() {
            self.conditions.resize(peer.index() + 1, Condition::default());
        }
        &mut self.conditions[peer.index()]
    }
}

/// A share of zero draws no random number.
#[inline]
fn happens(share: f64, rng: &mut Rng) -> bool {
    share > 0.0 && rng.chance(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNPRIVILEGED: (PeerId, PeerId) = (PeerId::new(0), PeerId::new(1));

    #[test]
    fn injector_keeps_fault_shares() {
        let replica_life = Some(Span::from_secs(30));
        let faults = Faults { loss: 0.1, duplication: 0.2, client_crash: 0.3, replica_life, ..Faults::default() };
        let mut injector = Injector::new(faults, 1);
        let copies: usize = (0..100_000).map(|_| injector.copies(Time::ZERO, UNPRIVILEGED.0, UNPRIVILEGED.1)).sum();
        assert!((109_000..111_000).contains(&copies), "{copies}");
        let crashes: Vec<Crash> =
            (0..100_000).map(|_| injector.crash()).filter(|crash| *crash != Crash::Never).collect();
        let inside = crashes.iter().filter(|crash| **crash == Crash::Inside).count();
        assert!((29_500..30_500).contains(&crashes.len()) && (14_500..15_500).contains(&inside), "{inside}");
        let lives: Span = (0..10_000).filter_map(|_| injector.life()).sum();
        assert!((290_000.0..310_000.0).contains(&lives.as_secs_f64()), "{lives}");
    }

    #[test]
    fn injector_without_faults_draws_nothing() {
        let mut injector = Injector::new(Faults::default(), 1);
        let before = format!("{injector:?}");
        let (one, other) = UNPRIVILEGED;
        assert_eq!((injector.copies(Time::ZERO, one, other), injector.delay(Time::ZERO)), (1, Span::ZERO));
        assert_eq!((injector.crash(), injector.life(), injector.withdrawal()), (Crash::Never, None, None));
        assert!(FaultKind::ALL.iter().all(|kind| injector.next(*kind).is_none()) && !injector.takes_another());
        injector.entered(Time::ZERO, one);
        assert!(injector.thaws(Time::ZERO, one).is_none() && injector.clock(one).is_none());
        assert_eq!(format!("{injector:?}"), before);
    }

    /// Pairs that are cut not at all, one way, both ways.
    #[test]
    fn cuts_separate_expected_pairs() {
        let pairs = |cut: Cut| {
            let peers = || (0..30).map(PeerId::new);
            let cut = |from, to| cut.parts(5, from, to);
            let all = peers().flat_map(|one| peers().map(move |other| (cut(one, other), cut(other, one))));
            all.fold([0; 3], |[none, one, both], pair| match pair {
                (false, false) => [none + 1, one, both],
                (true, true) => [none, one, both + 1],
                _ => [none, one + 1, both],
            })
        };
        let [none, one, both] = pairs(Cut::Whole);
        assert!(none > 300 && one == 0 && both > 300);
        let [none, one, both] = pairs(Cut::OneWay);
        assert!(none > 300 && one > 300 && both == 0);
        let [none, one, both] = pairs(Cut::Partial);
        assert!(none > 500 && one == 0 && both > 100, "{none} {both}");
        let [none, one, both] = pairs(Cut::Pairs);
        assert!(none > 550 && one == 0 && both > 150, "{none} {both}");
    }
}
