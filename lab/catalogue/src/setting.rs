//! A complete, checked description of a run.

use std::ops::Deref;

use peerlock_protocols::Quorum;
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Faults, Hold, Links, OverlayKind, Spells, Ttl};
use peerlock_types::Span;
use serde::{Deserialize, Serialize, Serializer};
use thiserror::Error;

use crate::{Among, Flags, Form, Pair, Partition, Protocol, Recovery};

/// The detection time with backups: two round trips in the Fair-K paper's LAN.
const DETECTION: Span = Span::from_secs(5);

/// The session length of custody: the product's default.
const SESSION: Span = Span::from_secs(15);

/// The lease of votes: the Sigma paper's upper bound of a hold.
const LEASE: Span = Span::from_secs(10);

/// The limit of peers, slots or resources, so that a typing error does not use all memory.
const MOST: u32 = 10_000_000;

/// The highest rate: one per nanosecond.
const FASTEST: f64 = 1e9;

/// A complete, checked description of a run: the [`Flags`] in which every value that has an effect is present, and no
/// other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Flags")]
pub struct Setting(Flags);

impl Deref for Setting {
    type Target = Flags;

    fn deref(&self) -> &Flags {
        &self.0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A closed loop: every peer thinks, requests, waits, holds and releases (Fair-K paper, §4).
    Closed,
    /// An open workload (Sigma paper, §5).
    Open,
    /// Rounds on an overlay (E2E paper, §VI).
    Rounds,
}

/// Why flags are not a valid setting, and what to change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Refused(String);

impl TryFrom<Flags> for Setting {
    type Error = Refused;

    fn try_from(flags: Flags) -> Result<Self, Refused> {
        check_values(&flags)?;
        let protocol = flags.protocol.unwrap_or_default();
        let among = among(&flags, protocol)?;
        let has_forms = protocol.has_forms(among);
        if let Some(form) = flags.form.filter(|_| !has_forms) {
            let there = if protocol.has_forms(Among::Replicas) { " on an overlay" } else { "" };
            return refuse(format!("{protocol} has only one form{there}: leave form {form} out"));
        }
        let load = match among {
            Among::Peers => with_backups(&flags, protocol, closed(&flags)?)?,
            Among::Replicas if is_loop(&flags) => voters(&flags, 32, 24, Flags { slots: None, ..closed(&flags)? })?,
            Among::Replicas => voters(&flags, 32, 24, open(&flags)?)?,
            // "Majority of replica votes" (E2E paper).
            Among::Overlay => voters(&flags, 10, 6, rounds(&flags, protocol))?,
            Among::Nodes => nodes(&flags)?,
        };
        let latency = flags.latency.clone().unwrap_or(match among {
            Among::Peers => Model::Constant(Span::from_secs(1)),
            Among::Replicas | Among::Nodes => Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) },
            Among::Overlay => Model::Uniform { low: Span::from_millis(20), high: Span::from_millis(100) },
        });
        let complete = Flags {
            protocol: Some(protocol),
            form: has_forms.then(|| flags.form.unwrap_or(Form::Repaired)),
            latency: Some(latency),
            links: flags.links.or(Some(Links::Ordered)),
            count_violations: flags.count_violations,
            trials: flags.trials.or(Some(10)),
            seed: flags.seed.or(Some(1)),
            ..load
        };
        let setting = Self(with_faults(&flags, complete)?);
        setting.check_use(&flags)?;
        setting.check_hosts()?;
        Ok(setting)
    }
}

fn among(flags: &Flags, protocol: Protocol) -> Result<Among, Refused> {
    let possible = protocol.among();
    match flags.overlay {
        None => Ok(possible[0]),
        Some(_) if possible.contains(&Among::Overlay) => Ok(Among::Overlay),
        Some(overlay) => {
            let routed = Protocol::ALL.iter().filter(|(_, protocol)| protocol.among().contains(&Among::Overlay));
            let routed: Vec<&str> = routed.map(|(name, _)| *name).collect();
            refuse(format!(
                "{protocol} does not run on an overlay: leave overlay {overlay} out, or use {}",
                routed.join(", ")
            ))
        }
    }
}

fn is_loop(flags: &Flags) -> bool {
    [flags.peers, flags.entries, flags.warm_up].iter().any(Option::is_some) || flags.think_rate.is_some()
}

fn with_backups(flags: &Flags, protocol: Protocol, closed: Flags) -> Result<Flags, Refused> {
    if flags.recovery.is_some() && flags.backups.is_none() {
        return refuse("recovery needs backups: set backups as well".into());
    }
    if let Some(copies) = flags.backups.filter(|copies| *copies > 64) {
        return refuse(format!("backups {copies} must be from 0 to 64"));
    }
    if protocol == Protocol::Ideal && flags.backups.is_some() {
        return refuse("ideal has no state to copy: leave backups out".into());
    }
    let recovery = flags.backups.map(|_| flags.recovery.unwrap_or(Recovery::Broadcast));
    Ok(Flags { backups: flags.backups, recovery, ..closed })
}

fn closed(flags: &Flags) -> Result<Flags, Refused> {
    let held = hold(flags)?;
    let closed = Flags {
        peers: flags.peers.or(Some(100)),
        slots: flags.slots.or(Some(3)),
        think_rate: flags.think_rate.or(Some(0.5)),
        entries: flags.entries.or(Some(2000)),
        warm_up: flags.warm_up.or(Some(20)),
        ..held
    };
    Ok(Flags { hold: closed.hold.or(Some(Hold::Constant(Span::from_secs(10)))), ..closed })
}

/// Whole peers in a closed loop, some of which vote.
fn nodes(flags: &Flags) -> Result<Flags, Refused> {
    let voters = match flags.replicas.unwrap_or(3) {
        voters @ (1 | 3 | 5) => voters,
        voters => return refuse(format!("replicas {voters}: custody has 1, 3 or 5 voters")),
    };
    let peers = flags.peers.unwrap_or(20);
    let least = sim::Custody::keepers(voters);
    if (peers as usize) < least {
        return refuse(format!("peers {peers} are too few: {voters} voters need at least {least} peers"));
    }
    let lease = flags.lease.unwrap_or(SESSION);
    session(lease).map_err(|why| Refused(format!("lease {lease:#} is not a valid session length: {why}")))?;
    if flags.links == Some(Links::Unordered) {
        return refuse("custody runs on ordered connections: leave links unordered out".into());
    }
    if flags.detection.is_some() {
        return refuse("custody detects failures itself: leave detection out".into());
    }
    Ok(Flags {
        peers: Some(peers),
        replicas: Some(voters),
        lease: Some(lease),
        entries: flags.entries.or(Some(30)),
        warm_up: flags.warm_up.or(Some(5)),
        ..closed(flags)?
    })
}

pub(crate) fn session(lease: Span) -> Result<Ttl, &'static str> {
    Ttl::from_millis(lease.as_nanos() / 1_000_000)
}

fn open(flags: &Flags) -> Result<Flags, Refused> {
    Ok(Flags {
        arrival_rate: flags.arrival_rate.or(Some(3.0)),
        // "After 5 minutes warm-up period, we test 10 minutes" (§5).
        settle: flags.settle.or(Some(Span::from_secs(300))),
        measure: flags.measure.or(Some(Span::from_secs(600))),
        ..hold(flags)?
    })
}

/// The defaults are those of the E2E paper, Table 1.
fn rounds(flags: &Flags, protocol: Protocol) -> Flags {
    // Our choice: half of it is about ten overlay round trips.
    let round = flags.round.unwrap_or(Span::from_secs(10));
    Flags {
        overlay: flags.overlay.or(Some(OverlayKind::Pastry)),
        peers: flags.peers.or(Some(6500)),
        resources: flags.resources.or(Some(65)),
        settle: flags.settle.or(Some(Span::ZERO)),
        rounds: flags.rounds.or(Some(20)),
        round: Some(round),
        requests: flags.requests.or(Some(20)),
        load: flags.load.or(Some(sim::Load::Whole)),
        churn: flags.churn.or(Some(0)),
        // Holds last a round or two: retries every half second would be most of the counted messages.
        retry: (protocol == Protocol::Sigma).then(|| flags.retry.unwrap_or((round / 2).max(Span::from_nanos(1)))),
        ..Flags::default()
    }
}

fn with_faults(flags: &Flags, setting: Flags) -> Result<Flags, Refused> {
    let protocol = setting.protocol.unwrap_or_default();
    if flags.replica_life.is_some() && [Among::Peers, Among::Nodes].contains(&protocol.among()[0]) {
        return refuse(format!("{protocol} has no replicas to reset: leave replica-life out, or use crash"));
    }
    let needing_resets =
        [("resets-at-most", flags.resets_at_most.is_some()), ("down-after-reset", flags.down_after_reset.is_some())];
    if let Some((name, _)) = needing_resets.iter().find(|(_, is_given)| *is_given && flags.replica_life.is_none()) {
        return refuse(format!("{name} needs replica-life: set it as well"));
    }
    let share = |share: Option<f64>| share.filter(|share| *share > 0.0);
    let setting = Flags {
        loss: share(flags.loss),
        duplication: share(flags.duplication),
        client_crash: share(flags.client_crash),
        replica_life: flags.replica_life,
        resets_at_most: flags.resets_at_most,
        down_after_reset: flags.down_after_reset,
        delay: flags.delay,
        crash: flags.crash,
        death: flags.death,
        freeze: flags.freeze,
        partition: flags.partition,
        cut_off: flags.cut_off,
        withdrawal: share(flags.withdrawal),
        catastrophe: flags.catastrophe,
        detection: flags.detection,
        clocks: flags.clocks,
        ..setting
    };
    let has_faults = setting.faults() != Faults::default();
    if protocol == Protocol::Ideal && has_faults {
        return refuse("ideal is a bound without faults: leave faults out, or use another protocol".into());
    }
    let is_notified = flags.backups.is_some() && has_faults;
    Ok(Flags { detection: setting.detection.or(is_notified.then_some(DETECTION)), ..setting })
}

/// Adds the voters, given the default numbers of replicas and votes. With another number of replicas, the default is
/// the same share of votes, or the smallest majority.
fn voters(flags: &Flags, replicas: u32, votes: u32, load: Flags) -> Result<Flags, Refused> {
    let n = flags.replicas.unwrap_or(replicas);
    if !(1..=64).contains(&n) {
        return refuse(format!("replicas {n} must be from 1 to 64"));
    }
    let least = n / 2 + 1;
    let m = flags.votes.unwrap_or(if votes > replicas / 2 + 1 { (n * votes).div_ceil(replicas) } else { least });
    if !(least..=n).contains(&m) {
        return refuse(format!("{m} votes of {n} replicas are not a quorum: use {least} to {n}"));
    }
    Ok(Flags { replicas: Some(n), votes: Some(m), lease: flags.lease.or(Some(LEASE)), ..load })
}

fn hold(flags: &Flags) -> Result<Flags, Refused> {
    let hold = match (flags.hold, flags.long_share) {
        (Some(Hold::TwoPoint { short, long, .. }), Some(long_share)) => {
            Some(Hold::TwoPoint { short, long, long_share })
        }
        (_, Some(_)) => return refuse("long-share needs a two-point hold, such as hold two-point:1s/100s".into()),
        (hold, None) => hold,
    };
    let long_share = match hold {
        Some(Hold::TwoPoint { long_share, .. }) => Some(long_share),
        _ => None,
    };
    Ok(Flags { hold, long_share, ..Flags::default() })
}

impl Flags {
    /// Returns the faults for the simulator.
    pub fn faults(&self) -> Faults {
        let pair = |Pair(share, time)| (share, time);
        Faults {
            loss: self.loss.unwrap_or(0.0),
            duplication: self.duplication.unwrap_or(0.0),
            client_crash: self.client_crash.unwrap_or(0.0),
            replica_life: self.replica_life,
            resets_at_most: self.resets_at_most.map(|Pair(most, within)| (most as usize, within)),
            down_after_reset: self.down_after_reset,
            delays: self.delay.map(pair),
            crashes: self.crash.map(Spells::from),
            deaths: self.death,
            freezes: self.freeze.map(Spells::from),
            partitions: self.partition.map(|Partition(cut, spells)| (cut, spells.into())),
            cut_off: self.cut_off.map(pair),
            withdrawals: self.withdrawal.unwrap_or(0.0),
            catastrophe: self.catastrophe.map(pair),
            detection: self.detection,
            clocks: self.clocks.map(|Pair(ahead, ppm)| (ahead, ppm)),
            ..Faults::default() // The other faults are used only by tests and whole nodes.
        }
    }
}

/// Returns a value that a complete setting of this load has.
pub(crate) fn set<T>(value: Option<T>) -> T {
    value.expect("a complete setting has a value for everything that has an effect")
}

fn refuse<T>(why: String) -> Result<T, Refused> {
    Err(Refused(why))
}

/// Rejects values that are invalid in any setting.
fn check_values(flags: &Flags) -> Result<(), Refused> {
    let counts = [
        ("peers", flags.peers),
        ("slots", flags.slots),
        ("entries", flags.entries),
        ("resources", flags.resources),
        ("rounds", flags.rounds),
        ("requests", flags.requests),
        ("trials", flags.trials),
    ];
    if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
        return refuse(format!("{name} must be at least 1"));
    }
    let limited = [("peers", flags.peers), ("slots", flags.slots), ("resources", flags.resources)];
    for (name, count) in limited {
        if let Some(count) = count.filter(|count| *count > MOST) {
            return refuse(format!("{name} {count} exceeds the limit of {MOST}"));
        }
    }
    let times = [
        ("lease", flags.lease),
        ("measure", flags.measure),
        ("round", flags.round),
        ("retry", flags.retry),
        ("replica-life", flags.replica_life),
        ("death", flags.death),
        ("the interval of crash", flags.crash.map(|Pair(every, _)| every)),
        ("the interval of freeze", flags.freeze.map(|Pair(every, _)| every)),
        ("the interval of partition", flags.partition.map(|Partition(_, Pair(every, _))| every)),
    ];
    if let Some((name, _)) = times.iter().find(|(_, time)| *time == Some(Span::ZERO)) {
        return refuse(format!("{name} must be more than 0s"));
    }
    for (name, rate) in [("think-rate", flags.think_rate), ("arrival-rate", flags.arrival_rate)] {
        if let Some(rate) = rate.filter(|rate| !(*rate > 0.0 && rate.is_finite())) {
            return refuse(format!("{name} {rate} must be a number above 0"));
        }
        if let Some(rate) = rate.filter(|rate| *rate > FASTEST) {
            return refuse(format!("{name} {rate} exceeds one per nanosecond, the resolution of time"));
        }
    }
    let shares = [
        ("long-share", flags.long_share),
        ("loss", flags.loss),
        ("duplication", flags.duplication),
        ("client-crash", flags.client_crash),
        ("withdrawal", flags.withdrawal),
        ("delay", flags.delay.map(|Pair(share, _)| share)),
        ("cut-off", flags.cut_off.map(|Pair(share, _)| share)),
        ("catastrophe", flags.catastrophe.map(|Pair(share, _)| share)),
    ];
    for (name, share) in shares {
        if let Some(share) = share.filter(|share| !(0.0..=1.0).contains(share)) {
            return refuse(format!("{name} {share} must be a share from 0 to 1"));
        }
    }
    if let Some(Pair(_, ppm)) = flags.clocks.filter(|Pair(_, ppm)| *ppm >= 1_000_000) {
        return refuse(format!("clocks: a drift of {ppm} ppm would stop or reverse a clock; use less than 1000000"));
    }
    Ok(())
}

impl Setting {
    /// Rejects flags without effect, unless their value turns something off.
    fn check_use(&self, given: &Flags) -> Result<(), Refused> {
        let used = self.pairs();
        // A peer with 0 backups runs other code than one without backups.
        let is_off = |name: &str, value: &str| value == "0" && name != "backups";
        let has_effect = |name: &str, value: &str| is_off(name, value) || used.iter().any(|(known, _)| known == name);
        match given.pairs().iter().find(|(name, value)| !has_effect(name, value)) {
            None => Ok(()),
            Some((name, _)) => {
                refuse(format!("{name} has no effect on {}{}: leave it out", self.protocol(), self.environment()))
            }
        }
    }

    /// Rejects rounds that exceed the clock, churn that removes all peers, and additional hosts where the latencies are
    /// those of a fixed number.
    fn check_hosts(&self) -> Result<(), Refused> {
        let newcomers = match (self.workload(), self.peers, self.churn, self.rounds, self.round) {
            (Workload::Closed, ..) => false,
            (Workload::Open, ..) => true,
            (_, Some(peers), Some(churn), ..) if churn / 2 >= peers => {
                return refuse(format!("churn {churn} removes all {peers} peers"));
            }
            (.., Some(rounds), Some(round)) if round.as_nanos().checked_mul(rounds.into()).is_none() => {
                return refuse(format!("{rounds} rounds of {round:#} exceed the clock's range of 584 years"));
            }
            (_, _, churn, ..) => churn > Some(0) || self.faults() != Faults::default(),
        };
        match &self.latency {
            Some(latency) if newcomers && !latency.is_boundless() => refuse(format!(
                "latency {latency} has a fixed number of hosts, and this workload adds hosts: use constant, uniform or \
                 jitter"
            )),
            _ => Ok(()),
        }
    }

    pub fn protocol(&self) -> Protocol {
        set(self.protocol)
    }

    pub fn trials(&self) -> u32 {
        set(self.trials)
    }

    pub fn seed(&self) -> u64 {
        set(self.seed)
    }

    pub fn with_trials(self, trials: u32) -> Self {
        Self(Flags { trials: Some(trials), ..self.0 })
    }

    pub fn with_seed(self, seed: u64) -> Self {
        Self(Flags { seed: Some(seed), ..self.0 })
    }

    /// Has unreachable peers reported after this time, if they are not.
    pub fn with_detection(self, after: Span) -> Self {
        Self(Flags { detection: self.detection.or(Some(after)), ..self.0 })
    }

    pub fn workload(&self) -> Workload {
        match self.among() {
            Among::Overlay => Workload::Rounds,
            Among::Replicas if self.peers.is_none() => Workload::Open,
            _ => Workload::Closed,
        }
    }

    pub(crate) fn among(&self) -> Among {
        if self.overlay.is_some() { Among::Overlay } else { self.protocol().among()[0] }
    }

    /// Returns the numbers of replicas and of votes that win, if there are voters. Custody needs a majority.
    pub fn quorum(&self) -> Option<Quorum> {
        let replicas = self.replicas?;
        Some(Quorum::new(replicas, self.votes.unwrap_or(replicas / 2 + 1)))
    }

    pub fn arguments(&self) -> Vec<String> {
        let words = |(name, value): (String, String)| match value.as_str() {
            "true" => vec![format!("--{name}")],
            _ => vec![format!("--{name}"), value],
        };
        self.pairs().into_iter().flat_map(words).collect()
    }

    pub fn command(&self) -> String {
        let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
        let quoted = |word: String| match word.chars().all(is_plain) {
            true => word,
            false => format!("'{}'", word.replace('\'', r"'\''")),
        };
        let words: Vec<String> = self.arguments().into_iter().map(quoted).collect();
        format!("peerlock-lab simulate {}", words.join(" "))
    }

    pub fn name(&self) -> String {
        let form = self.form.map(|form| format!(" ({form})")).unwrap_or_default();
        format!("{}{form}{}", self.protocol(), self.environment())
    }

    fn environment(&self) -> String {
        let peers = self.peers.unwrap_or_default();
        match (self.overlay, self.replicas, self.backups) {
            (Some(overlay), ..) => format!(" on {overlay}, {peers} peers"),
            (_, Some(voters), _) if self.among() == Among::Nodes => {
                format!(" among {peers} peers with {voters} voters")
            }
            (_, Some(replicas), _) if self.workload() == Workload::Open => format!(" with {replicas} replicas"),
            (_, Some(replicas), _) => format!(" among {peers} peers with {replicas} replicas"),
            (.., Some(backups)) => format!(" among {peers} peers with {backups} backups"),
            _ => format!(" among {peers} peers"),
        }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.present())
    }
}
