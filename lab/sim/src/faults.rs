//! What goes wrong in a world, whoever lives in it and whatever they do.

mod clock;

use std::collections::VecDeque;

use peerlock_types::{PeerId, Rng, Span, Time, mix};

pub(crate) use clock::Clock;

/// How long after asking a client crashes or withdraws that is to do so while it waits: exponential, with this mean.
/// Five mean round trips of the Sigma paper's networks.
const CRASH_AFTER: Span = Span::from_secs(1);

/// How long a write to a slow disk may take.
const SLOWEST_WRITE: Span = Span::from_secs(3);

/// The clocks of so many peers are kept. Those who come and go have higher numbers, and are too many for that.
const MAX_CLOCKS: usize = 10_000;

/// What goes wrong, and how often. By default nothing does. Each kind of fault has a stream of random numbers of its
/// own, but for the first four, which share one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// Nothing goes wrong before this time has passed, but for clients that crash or withdraw, and clocks.
    pub quiet: Span,
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice, each copy after a time of its own.
    pub duplication: f64,
    /// The share of clients that crash with their peer, never to be seen again: half of them some time after they
    /// asked, half as soon as they are inside.
    pub client_crash: f64,
    /// How long a replica remembers, on average; exponential. `None`: for ever.
    pub replica_life: Option<Span>,
    /// At most this many replicas forget within any such time: resets beyond that do not happen.
    pub resets_at_most: Option<(usize, Span)>,
    /// The lives of replicas are counted 1, 2, 3 … instead of read from a clock.
    pub counted_lives: bool,
    /// How long a peer that has just forgotten is cut off from everybody, on average.
    pub down_after_reset: Option<Span>,
    /// The share of messages that are held up on their way, and for how long on average; exponential. On ordered links
    /// they hold up those behind them.
    pub delays: Option<(f64, Span)>,
    /// Now and then a peer crashes with all its clients. It restarts after this long on average, with what its disk has
    /// kept.
    pub crashes: Option<Spells>,
    /// The share of crashes in which another peer crashes at the same moment.
    pub both: f64,
    /// The share of crashes with which the peer's machine is started anew. Its clients may be elsewhere, and stay.
    pub reboots: f64,
    /// As `crashes`, but for good: the mean time between two.
    pub deaths: Option<Span>,
    /// Now and then a peer crashes and its disk is lost; it restarts after this long on average.
    pub disk_losses: Option<Spells>,
    /// Now and then everybody crashes at once. Each restarts after this long on average.
    pub outages: Option<Spells>,
    /// Now and then a disk is slow: a write takes up to three seconds.
    pub slow_disks: Option<Spells>,
    /// Now and then a disk is full: the next write fails, and its peer crashes. It restarts after this long on average,
    /// and there is room again.
    pub full_disks: Option<Spells>,
    /// Now and then a peer is frozen: nothing is handled there, and then everything at once.
    pub freezes: Option<Spells>,
    /// Now and then some peers and others do not hear of each other.
    pub partitions: Option<(Cut, Spells)>,
    /// The share of clients that are cut off from everybody as soon as they are inside, and for how long on average.
    pub cut_off: Option<(f64, Span)>,
    /// The share of clients that withdraw, or leave early, some time after they asked.
    pub withdrawals: f64,
    /// At one moment this share of the peers crashes for good: the share, and how long after the beginning.
    pub catastrophe: Option<(f64, Span)>,
    /// Peers are told after this long that another seems to be gone: one that has crashed, one that is frozen for
    /// longer, and one from which they are parted for longer. Nobody is told that it was wrong. `None`: nobody is told
    /// anything.
    pub detection: Option<Span>,
    /// Peers' clocks are ahead by up to this much, and fast or slow by up to this many parts per million.
    pub clocks: Option<(Span, u64)>,
}

impl Faults {
    /// The longest mean time for which a peer or a message is out of reach, of those who will be back.
    pub(crate) fn longest_spell(&self) -> Span {
        let spells = [self.crashes, self.freezes, self.partitions.map(|(_, spells)| spells)].into_iter().flatten();
        let shares = [self.delays, self.cut_off].into_iter().flatten();
        let all = spells.map(|spells| spells.last).chain(shares.map(|(_, mean)| mean));
        all.chain(self.down_after_reset).chain(self.detection).max().unwrap_or(Span::ZERO)
    }
}

/// Something that begins at random moments and passes; both times are exponential.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spells {
    /// The mean time between two beginnings, in the whole world.
    pub every: Span,
    /// How long it lasts on average.
    pub last: Span,
}

/// Who does not hear of whom in a partition. Everybody's side is drawn anew for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Two sides of about the same size hear nothing of each other.
    Whole,
    /// The first side does not hear the second; the second hears the first.
    OneWay,
    /// Two sides hear nothing of each other, and a third of the peers hears and is heard by both.
    Partial,
    /// One pair of peers in four does not hear of each other, in neither direction.
    Pairs,
}

impl Cut {
    /// Whether nothing gets through from one to the other, in the partition with this number.
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

/// When a client crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Crash {
    /// It does not.
    Never,
    /// This long after asking, wherever it is by then.
    After(Span),
    /// When it has just come inside.
    Inside,
}

/// Draws faults, each kind from a stream of its own, so that they change neither the workload nor the network.
#[derive(Debug)]
pub(crate) struct Injector {
    faults: Faults,
    is_rough: bool,
    /// Messages can get lost, come twice or be cut off.
    is_lossy: bool,
    /// Loss, duplication, crashes of clients, resets.
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
    /// No partition, freeze, crash or reset begins any more.
    is_calm: bool,
    /// The number of the last partition, and when it ends.
    partition: (u64, Time),
    /// Two who do not hear of each other for good.
    rift: Option<(PeerId, PeerId)>,
    conditions: Vec<Condition>,
    /// When the last resets were.
    resets: VecDeque<Time>,
    mishaps: Mishaps,
}

/// What has befallen messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mishaps {
    pub lost: u64,
    pub twice: u64,
    pub cut_off: u64,
    pub held_up: u64,
}

/// How a peer fares.
#[derive(Clone, Copy, Debug, Default)]
struct Condition {
    frozen_until: Time,
    cut_off_until: Time,
    /// How often it has crashed.
    life: u32,
    /// When its last write is done.
    writes_until: Time,
    slow_until: Time,
    /// The next write fails.
    is_full: bool,
}

impl Injector {
    pub fn new(faults: Faults, seed: u64) -> Self {
        let cuts = faults.partitions.is_some() || faults.cut_off.is_some() || faults.down_after_reset.is_some();
        Self {
            faults,
            is_rough: faults != Faults::default(),
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

    /// What has befallen messages so far.
    pub fn mishaps(&self) -> Mishaps {
        self.mishaps
    }

    /// Whether anything can go wrong at all.
    pub fn is_rough(&self) -> bool {
        self.is_rough
    }

    /// No partition, freeze, crash of a peer or reset begins any more, the partition is over, and disks work. Messages
    /// go on getting lost and coming twice.
    pub fn calm_down(&mut self) {
        self.is_calm = true;
        self.partition.1 = Time::ZERO;
        for condition in &mut self.conditions {
            (condition.slow_until, condition.is_full) = (Time::ZERO, false);
        }
    }

    /// From now on these two do not hear of each other.
    pub fn rift(&mut self, one: PeerId, other: PeerId) {
        (self.rift, self.is_lossy) = (Some((one, other)), true);
    }

    /// From now on messages arrive once, and take as long as their links do.
    pub fn deliver_all(&mut self) {
        (self.faults.loss, self.faults.duplication, self.faults.delays) = (0.0, 0.0, None);
    }

    /// How many copies of a message arrive: none, one or two.
    #[inline]
    pub fn copies(&mut self, now: Time, from: PeerId, to: PeerId) -> usize {
        if self.is_lossy { self.copies_under_faults(now, from, to) } else { 1 }
    }

    // Apart, so that a run without losses asks no more than that.
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

    /// How much longer than by its link a message takes.
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

    /// When a client that has just asked withdraws, if it does.
    #[inline]
    pub fn withdrawal(&mut self) -> Option<Span> {
        let withdraws = happens(self.faults.withdrawals, &mut self.withdrawals);
        withdraws.then(|| self.withdrawals.exponential(CRASH_AFTER))
    }

    /// A client has just come inside at this peer.
    #[inline]
    pub fn entered(&mut self, now: Time, peer: PeerId) {
        if let Some((share, mean)) = self.faults.cut_off
            && self.cut_offs.chance(share)
            && !self.is_calm
        {
            self.condition_mut(peer).cut_off_until = now + self.cut_offs.exponential(mean);
        }
    }

    /// How long a replica remembers from now on.
    pub fn life(&mut self) -> Option<Span> {
        self.faults.replica_life.map(|mean| self.rng.exponential(mean))
    }

    /// Whether a replica may forget now; then it does.
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

    /// The number of a replica's next life, after this many lives in the whole world.
    pub fn incarnation(&mut self, now: Time, peer: PeerId, lives: u64) -> u64 {
        if self.faults.counted_lives {
            return lives;
        }
        self.clock(peer).map_or(now, |clock| clock.read(now)).as_nanos()
    }

    /// How long until a peer crashes that will restart, and how long it will be down.
    pub fn next_crash(&mut self) -> Option<(Span, Span)> {
        spell(self.faults.crashes.filter(|_| !self.is_calm)?, &mut self.crashes)
    }

    /// Whether another one crashes at the same moment.
    pub fn takes_another(&mut self) -> bool {
        happens(self.faults.both, &mut self.crashes)
    }

    /// Whether the machine of a peer that has crashed is started anew.
    pub fn reboots(&mut self) -> bool {
        happens(self.faults.reboots, &mut self.reboots)
    }

    /// How long until a peer crashes and its disk is lost, and how long it will be down.
    pub fn next_disk_loss(&mut self) -> Option<(Span, Span)> {
        spell(self.faults.disk_losses.filter(|_| !self.is_calm)?, &mut self.disks)
    }

    /// How long until everybody crashes.
    pub fn next_outage(&mut self) -> Option<Span> {
        Some(self.outages.exponential(self.faults.outages.filter(|_| !self.is_calm)?.every))
    }

    /// How long one of those that everybody crashed with will be down.
    pub fn outage_lasts(&mut self) -> Span {
        self.faults.outages.map_or(Span::ZERO, |spells| self.outages.exponential(spells.last))
    }

    /// How long until a disk is slow, and for how long it will be.
    pub fn next_slow_disk(&mut self) -> Option<(Span, Span)> {
        spell(self.faults.slow_disks.filter(|_| !self.is_calm)?, &mut self.disks)
    }

    /// How long until a disk is full.
    pub fn next_full_disk(&mut self) -> Option<Span> {
        Some(self.disks.exponential(self.faults.full_disks.filter(|_| !self.is_calm)?.every))
    }

    /// How long a peer whose disk was full will be down.
    pub fn full_disk_lasts(&mut self) -> Span {
        self.faults.full_disks.map_or(Span::ZERO, |spells| self.disks.exponential(spells.last))
    }

    /// How long until a peer crashes for good.
    pub fn next_death(&mut self) -> Option<Span> {
        Some(self.crashes.exponential(self.faults.deaths.filter(|_| !self.is_calm)?))
    }

    /// How long until a peer is frozen, and for how long it will be.
    pub fn next_freeze(&mut self) -> Option<(Span, Span)> {
        spell(self.faults.freezes.filter(|_| !self.is_calm)?, &mut self.freezes)
    }

    /// How long until the next partition, and how long it will last.
    pub fn next_partition(&mut self) -> Option<(Span, Span)> {
        spell(self.faults.partitions.filter(|_| !self.is_calm)?.1, &mut self.partitions)
    }

    /// Who is struck is drawn from here.
    pub fn victims(&mut self) -> &mut Rng {
        &mut self.crashes
    }

    /// How long nothing goes wrong at first.
    pub fn quiet(&self) -> Span {
        self.faults.quiet
    }

    pub fn is_calm(&self) -> bool {
        self.is_calm
    }

    /// A peer has crashed: what comes for it was for another life. Visitors, who never restart, leave no trace.
    pub fn crashed(&mut self, peer: PeerId, is_resident: bool) {
        if is_resident {
            let condition = self.condition_mut(peer);
            *condition =
                Condition { life: condition.life + 1, cut_off_until: condition.cut_off_until, ..Condition::default() };
        }
    }

    /// In which of its lives a peer is.
    pub fn life_of(&self, peer: PeerId) -> u32 {
        self.condition(peer).life
    }

    /// A peer writes something that takes this long on a disk that is as it should be; when it is done, in which life,
    /// and whether it fails then.
    pub fn write(&mut self, now: Time, peer: PeerId, takes: Span) -> (Time, u32, bool) {
        let is_slow = now < self.condition(peer).slow_until;
        let takes = if is_slow { self.disks.between(takes, SLOWEST_WRITE) } else { takes };
        let condition = self.condition_mut(peer);
        condition.writes_until = condition.writes_until.max(now) + takes;
        (condition.writes_until, condition.life, condition.is_full)
    }

    /// The disk of a peer is slow until then.
    pub fn slow_down(&mut self, peer: PeerId, until: Time) {
        self.condition_mut(peer).slow_until = until;
    }

    /// The disk of a peer is full.
    pub fn fill_up(&mut self, peer: PeerId) {
        self.condition_mut(peer).is_full = true;
    }

    /// A partition begins; its number.
    pub fn part(&mut self, until: Time) -> u64 {
        self.partition = (self.partitions.bits(), until);
        self.partition.0
    }

    /// Whether one hears nothing of the other in the partition with this number, which is not over.
    pub fn are_parted(&self, now: Time, number: u64, one: PeerId, from: PeerId) -> bool {
        let cuts = self.faults.partitions.is_some_and(|(cut, _)| cut.parts(number, from, one));
        cuts && self.partition.0 == number && now < self.partition.1
    }

    /// The share of peers that crash at one moment, and when.
    pub fn catastrophe(&self) -> Option<(f64, Span)> {
        self.faults.catastrophe
    }

    /// How long it takes until peers take one for gone.
    pub fn detection(&self) -> Option<Span> {
        self.faults.detection
    }

    /// A peer is frozen. One that is frozen already is left alone: what waits for it to thaw must keep its order.
    pub fn freeze(&mut self, now: Time, peer: PeerId, last: Span) {
        let frozen_until = &mut self.condition_mut(peer).frozen_until;
        if *frozen_until <= now {
            *frozen_until = now + last;
        }
    }

    /// Whether peers are frozen now and then.
    #[inline]
    pub fn can_freeze(&self) -> bool {
        self.faults.freezes.is_some()
    }

    /// Until when a peer is frozen, if it is.
    #[inline]
    pub fn thaws(&self, now: Time, peer: PeerId) -> Option<Time> {
        Some(self.condition(peer).frozen_until).filter(|&until| now < until)
    }

    #[inline]
    pub fn clock(&mut self, peer: PeerId) -> Option<Clock> {
        let known = self.faults.clocks.map(|_| self.drawn_clocks.get(peer.index()).copied())?;
        known.or_else(|| self.draw_clock(peer))
    }

    /// A peer's clock depends on nothing but its number. The first are drawn and kept, since every step reads one.
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

    fn condition(&self, peer: PeerId) -> Condition {
        self.conditions.get(peer.index()).copied().unwrap_or_default()
    }

    fn condition_mut(&mut self, peer: PeerId) -> &mut Condition {
        if self.conditions.len() <= peer.index() {
            self.conditions.resize(peer.index() + 1, Condition::default());
        }
        &mut self.conditions[peer.index()]
    }
}

/// What cannot happen costs no random number.
#[inline]
fn happens(share: f64, rng: &mut Rng) -> bool {
    share > 0.0 && rng.chance(share)
}

fn spell(spells: Spells, rng: &mut Rng) -> Option<(Span, Span)> {
    Some((rng.exponential(spells.every), rng.exponential(spells.last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNPRIVILEGED: (PeerId, PeerId) = (PeerId::new(0), PeerId::new(1));

    #[test]
    fn shares_are_kept() {
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
    fn without_faults_nothing_is_drawn() {
        let mut injector = Injector::new(Faults::default(), 1);
        let before = format!("{injector:?}");
        let (one, other) = UNPRIVILEGED;
        assert_eq!((injector.copies(Time::ZERO, one, other), injector.delay(Time::ZERO)), (1, Span::ZERO));
        assert_eq!((injector.crash(), injector.life(), injector.withdrawal()), (Crash::Never, None, None));
        assert_eq!(
            (injector.next_crash(), injector.next_death(), injector.next_freeze(), injector.next_partition()),
            Default::default()
        );
        assert_eq!((injector.next_disk_loss(), injector.next_outage(), injector.takes_another()), Default::default());
        assert_eq!((injector.next_slow_disk(), injector.next_full_disk()), Default::default());
        injector.entered(Time::ZERO, one);
        assert!(injector.thaws(Time::ZERO, one).is_none() && injector.clock(one).is_none() && !injector.is_rough());
        assert_eq!(format!("{injector:?}"), before);
    }

    /// Of each partition: whether anybody hears nobody of the other side, one way or both.
    #[test]
    fn partitions_cut_what_they_say() {
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
