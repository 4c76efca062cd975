//! A complete, checked description of a run.

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

/// A complete description of a run. Serialized as [`Flags`] with all values present.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(try_from = "Flags")]
pub struct Setting {
    pub protocol: Protocol,
    /// Its form; repaired if there is only one.
    pub form: Form,
    pub load: Load,
    pub latency: Model,
    pub links: Links,
    pub faults: Faults,
    /// Whether violations are counted instead of stopping the run.
    pub count_violations: bool,
    /// The number of trials, each with its own random numbers.
    pub trials: u32,
    pub seed: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    Closed(Closed),
    Open(Open),
    Rounds(Rounds),
}

impl Load {
    pub(crate) fn voters(&self) -> Option<Voters> {
        match self {
            Self::Closed(closed) => closed.voters,
            Self::Open(open) => Some(open.voters),
            Self::Rounds(rounds) => Some(rounds.voters),
        }
    }
}

/// A closed loop: every peer thinks, requests, waits, holds and releases (Fair-K paper, §4).
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    pub peers: u32,
    /// The capacity; 1 where replicas vote.
    pub slots: u32,
    /// The voters, in addition to the peers. For custody some of the peers vote, and the lease is the session length.
    pub voters: Option<Voters>,
    /// The copies of peers' states, if any.
    pub backups: Option<Backups>,
    pub hold: Hold,
    /// λ: requests of a peer per second of thinking.
    pub think_rate: f64,
    pub entries: u32,
    /// The first acquisitions of each peer, which the steady state omits.
    pub warm_up: u32,
}

/// Copies of each peer's state on the following peers (Fair-K paper, §5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backups {
    /// p: the number of copies, without the original.
    pub copies: u32,
    pub recovery: Recovery,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Voters {
    /// The number of replicas, and of votes that win.
    pub quorum: Quorum,
    pub lease: Span,
}

/// An open workload (Sigma paper, §5).
#[derive(Clone, Debug, PartialEq)]
pub struct Open {
    pub voters: Voters,
    /// The hold time; `None` if clients release at once.
    pub hold: Option<Hold>,
    /// λ: arrivals per second.
    pub arrival_rate: f64,
    pub settle: Span,
    pub measure: Span,
}

/// Rounds on an overlay (E2E paper, §VI).
#[derive(Clone, Debug, PartialEq)]
pub struct Rounds {
    pub overlay: OverlayKind,
    pub peers: u32,
    pub resources: u32,
    pub voters: Voters,
    /// The time before the first round, in which every resource is requested once; zero for none.
    pub settle: Span,
    pub rounds: u32,
    pub round: Span,
    pub requests: u32,
    pub load: sim::Load,
    /// The number of peers that fail or join in each round.
    pub churn: u32,
    /// The shortest time between retries of a client of Sigma; `None` for other protocols.
    pub retry: Option<Span>,
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
        if let Some(form) = flags.form.filter(|_| !protocol.has_forms(among)) {
            let there = if protocol.has_forms(Among::Replicas) { " on an overlay" } else { "" };
            return refuse(format!("{protocol} has only one form{there}: leave form {form} out"));
        }
        let load = match among {
            Among::Peers => Load::Closed(closed(&flags, None, backups(&flags, protocol)?)?),
            Among::Replicas if is_loop(&flags) => Load::Closed(closed(&flags, Some(voters(&flags, 32, 24)?), None)?),
            Among::Replicas => Load::Open(open(&flags, voters(&flags, 32, 24)?)?),
            // "Majority of replica votes" (E2E paper).
            Among::Overlay => Load::Rounds(rounds(&flags, protocol, voters(&flags, 10, 6)?)),
            Among::Nodes => Load::Closed(nodes(&flags)?),
        };
        let latency = flags.latency.clone().unwrap_or(match among {
            Among::Peers => Model::Constant(Span::from_secs(1)),
            Among::Replicas | Among::Nodes => Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) },
            Among::Overlay => Model::Uniform { low: Span::from_millis(20), high: Span::from_millis(100) },
        });
        let setting = Self {
            protocol,
            form: flags.form.unwrap_or(Form::Repaired),
            load,
            latency,
            links: flags.links.unwrap_or(Links::Ordered),
            faults: faults(&flags, protocol)?,
            count_violations: flags.count_violations,
            trials: flags.trials.unwrap_or(10),
            seed: flags.seed.unwrap_or(1),
        };
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

fn backups(flags: &Flags, protocol: Protocol) -> Result<Option<Backups>, Refused> {
    if flags.recovery.is_some() && flags.backups.is_none() {
        return refuse("recovery needs backups: set backups as well".into());
    }
    if let Some(copies) = flags.backups.filter(|copies| *copies > 64) {
        return refuse(format!("backups {copies} must be from 0 to 64"));
    }
    if protocol == Protocol::Ideal && flags.backups.is_some() {
        return refuse("ideal has no state to copy: leave backups out".into());
    }
    let recovery = flags.recovery.unwrap_or(Recovery::Broadcast);
    Ok(flags.backups.map(|copies| Backups { copies, recovery }))
}

fn closed(flags: &Flags, voters: Option<Voters>, backups: Option<Backups>) -> Result<Closed, Refused> {
    Ok(Closed {
        peers: flags.peers.unwrap_or(100),
        slots: if voters.is_some() { 1 } else { flags.slots.unwrap_or(3) },
        voters,
        backups,
        hold: hold(flags)?.unwrap_or(Hold::Constant(Span::from_secs(10))),
        think_rate: flags.think_rate.unwrap_or(0.5),
        entries: flags.entries.unwrap_or(2000),
        warm_up: flags.warm_up.unwrap_or(20),
    })
}

/// Whole peers in a closed loop, some of which vote.
fn nodes(flags: &Flags) -> Result<Closed, Refused> {
    let quorum = match flags.replicas.unwrap_or(3) {
        voters @ (1 | 3 | 5) => Quorum::new(voters, voters / 2 + 1),
        voters => return refuse(format!("replicas {voters}: custody has 1, 3 or 5 voters")),
    };
    let peers = flags.peers.unwrap_or(20);
    let least = sim::Custody::keepers(quorum.replicas());
    if (peers as usize) < least {
        return refuse(format!("peers {peers} are too few: {} voters need at least {least} peers", quorum.replicas()));
    }
    let lease = flags.lease.unwrap_or(SESSION);
    session(lease).map_err(|why| Refused(format!("lease {lease:#} is not a valid session length: {why}")))?;
    if flags.links == Some(Links::Unordered) {
        return refuse("custody runs on ordered connections: leave links unordered out".into());
    }
    if flags.detection.is_some() {
        return refuse("custody detects failures itself: leave detection out".into());
    }
    let closed = closed(flags, Some(Voters { quorum, lease }), None)?;
    let (slots, entries) = (flags.slots.unwrap_or(3), flags.entries.unwrap_or(30));
    Ok(Closed { peers, slots, entries, warm_up: flags.warm_up.unwrap_or(5), ..closed })
}

pub(crate) fn session(lease: Span) -> Result<Ttl, &'static str> {
    Ttl::from_millis(lease.as_nanos() / 1_000_000)
}

fn open(flags: &Flags, voters: Voters) -> Result<Open, Refused> {
    Ok(Open {
        voters,
        hold: hold(flags)?,
        arrival_rate: flags.arrival_rate.unwrap_or(3.0),
        // "After 5 minutes warm-up period, we test 10 minutes" (§5).
        settle: flags.settle.unwrap_or(Span::from_secs(300)),
        measure: flags.measure.unwrap_or(Span::from_secs(600)),
    })
}

/// The defaults are those of the E2E paper, Table 1.
fn rounds(flags: &Flags, protocol: Protocol, voters: Voters) -> Rounds {
    // Our choice: half of it is about ten overlay round trips.
    let round = flags.round.unwrap_or(Span::from_secs(10));
    Rounds {
        overlay: flags.overlay.unwrap_or(OverlayKind::Pastry),
        peers: flags.peers.unwrap_or(6500),
        resources: flags.resources.unwrap_or(65),
        voters,
        settle: flags.settle.unwrap_or(Span::ZERO),
        rounds: flags.rounds.unwrap_or(20),
        round,
        requests: flags.requests.unwrap_or(20),
        load: flags.load.unwrap_or(sim::Load::Whole),
        churn: flags.churn.unwrap_or(0),
        // Holds last a round or two: retries every half second would be most of the counted messages.
        retry: (protocol == Protocol::Sigma).then(|| flags.retry.unwrap_or((round / 2).max(Span::from_nanos(1)))),
    }
}

fn faults(flags: &Flags, protocol: Protocol) -> Result<Faults, Refused> {
    if flags.replica_life.is_some() && [Among::Peers, Among::Nodes].contains(&protocol.among()[0]) {
        return refuse(format!("{protocol} has no replicas to reset: leave replica-life out, or use crash"));
    }
    let needing_resets =
        [("resets-at-most", flags.resets_at_most.is_some()), ("down-after-reset", flags.down_after_reset.is_some())];
    if let Some((name, _)) = needing_resets.iter().find(|(_, is_given)| *is_given && flags.replica_life.is_none()) {
        return refuse(format!("{name} needs replica-life: set it as well"));
    }
    let faults = Faults {
        loss: flags.loss.unwrap_or(0.0),
        duplication: flags.duplication.unwrap_or(0.0),
        client_crash: flags.client_crash.unwrap_or(0.0),
        replica_life: flags.replica_life,
        resets_at_most: flags.resets_at_most.map(|Pair(most, within)| (most as usize, within)),
        down_after_reset: flags.down_after_reset,
        delays: flags.delay.map(|Pair(share, mean)| (share, mean)),
        crashes: flags.crash.map(Spells::from),
        deaths: flags.death,
        freezes: flags.freeze.map(Spells::from),
        partitions: flags.partition.map(|Partition(cut, spells)| (cut, spells.into())),
        cut_off: flags.cut_off.map(|Pair(share, mean)| (share, mean)),
        withdrawals: flags.withdrawal.unwrap_or(0.0),
        catastrophe: flags.catastrophe.map(|Pair(share, after)| (share, after)),
        detection: flags.detection,
        clocks: flags.clocks.map(|Pair(ahead, ppm)| (ahead, ppm)),
        ..Faults::default() // The other faults are used only by tests and whole nodes.
    };
    if protocol == Protocol::Ideal && faults != Faults::default() {
        return refuse("ideal is a bound without faults: leave faults out, or use another protocol".into());
    }
    let is_notified = flags.backups.is_some() && faults != Faults::default();
    Ok(Faults { detection: faults.detection.or(is_notified.then_some(DETECTION)), ..faults })
}

/// Returns the voters, given the default numbers of replicas and votes. With another number of replicas, the default is
/// the same share of votes, or the smallest majority.
fn voters(flags: &Flags, replicas: u32, votes: u32) -> Result<Voters, Refused> {
    let n = flags.replicas.unwrap_or(replicas);
    if !(1..=64).contains(&n) {
        return refuse(format!("replicas {n} must be from 1 to 64"));
    }
    let least = n / 2 + 1;
    let m = flags.votes.unwrap_or(if votes > replicas / 2 + 1 { (n * votes).div_ceil(replicas) } else { least });
    if !(least..=n).contains(&m) {
        return refuse(format!("{m} votes of {n} replicas are not a quorum: use {least} to {n}"));
    }
    Ok(Voters { quorum: Quorum::new(n, m), lease: flags.lease.unwrap_or(LEASE) })
}

fn hold(flags: &Flags) -> Result<Option<Hold>, Refused> {
    match (flags.hold, flags.long_share) {
        (Some(Hold::TwoPoint { short, long, .. }), Some(long_share)) => {
            Ok(Some(Hold::TwoPoint { short, long, long_share }))
        }
        (_, Some(_)) => refuse("long-share needs a two-point hold, such as hold two-point:1s/100s".into()),
        (hold, None) => Ok(hold),
    }
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
                refuse(format!("{name} has no effect on {}{}: leave it out", self.protocol, self.environment()))
            }
        }
    }

    /// Rejects rounds that exceed the clock, churn that removes all peers, and additional hosts where the latencies are
    /// those of a fixed number.
    fn check_hosts(&self) -> Result<(), Refused> {
        let newcomers = match &self.load {
            Load::Closed(_) => false,
            Load::Open(_) => true,
            Load::Rounds(Rounds { peers, churn, .. }) if churn / 2 >= *peers => {
                return refuse(format!("churn {churn} removes all {peers} peers"));
            }
            Load::Rounds(Rounds { rounds, round, .. }) if round.as_nanos().checked_mul((*rounds).into()).is_none() => {
                return refuse(format!("{rounds} rounds of {round:#} exceed the clock's range of 584 years"));
            }
            Load::Rounds(rounds) => rounds.churn > 0 || self.faults != Faults::default(),
        };
        if newcomers && !self.latency.is_boundless() {
            return refuse(format!(
                "latency {} has a fixed number of hosts, and this workload adds hosts: use constant, uniform or jitter",
                self.latency
            ));
        }
        Ok(())
    }

    /// Returns every value as text, by name, in the order of the help; `true` for a switch.
    pub fn pairs(&self) -> Vec<(String, String)> {
        Flags::from(self).pairs()
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
        let form = self.form_if_any().map(|form| format!(" ({form})")).unwrap_or_default();
        format!("{}{form}{}", self.protocol, self.environment())
    }

    /// Returns the form, if the protocol has several in this environment.
    pub fn form_if_any(&self) -> Option<Form> {
        let among = match self.load {
            _ if self.protocol == Protocol::Custody => Among::Nodes,
            Load::Closed(Closed { voters: None, .. }) => Among::Peers,
            Load::Closed(_) | Load::Open(_) => Among::Replicas,
            Load::Rounds(_) => Among::Overlay,
        };
        self.protocol.has_forms(among).then_some(self.form)
    }

    fn environment(&self) -> String {
        match &self.load {
            Load::Closed(Closed { peers, voters: Some(voters), .. }) if self.protocol == Protocol::Custody => {
                format!(" among {peers} peers with {} voters", voters.quorum.replicas())
            }
            Load::Closed(Closed { peers, voters: None, backups: Some(backups), .. }) => {
                format!(" among {peers} peers with {} backups", backups.copies)
            }
            Load::Closed(Closed { peers, voters: None, .. }) => format!(" among {peers} peers"),
            Load::Closed(Closed { peers, voters: Some(voters), .. }) => {
                format!(" among {peers} peers with {} replicas", voters.quorum.replicas())
            }
            Load::Open(open) => format!(" with {} replicas", open.voters.quorum.replicas()),
            Load::Rounds(rounds) => format!(" on {}, {} peers", rounds.overlay, rounds.peers),
        }
    }
}

impl Serialize for Setting {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(Flags::from(self).present())
    }
}

impl From<&Setting> for Flags {
    fn from(setting: &Setting) -> Self {
        let common = Self {
            protocol: Some(setting.protocol),
            form: setting.form_if_any(),
            latency: Some(setting.latency.clone()),
            links: Some(setting.links),
            count_violations: setting.count_violations,
            trials: Some(setting.trials),
            seed: Some(setting.seed),
            ..fault_flags(&setting.faults)
        };
        let long_share = |hold: &Hold| match *hold {
            Hold::TwoPoint { long_share, .. } => Some(long_share),
            Hold::Constant(_) | Hold::Exponential(_) => None,
        };
        let voters = setting.load.voters();
        // Custody needs a majority in any case.
        let is_whole = setting.protocol == Protocol::Custody;
        let common = Self {
            replicas: voters.map(|voters| voters.quorum.replicas()),
            votes: voters.filter(|_| !is_whole).map(|voters| voters.quorum.votes()),
            lease: voters.map(|voters| voters.lease),
            ..common
        };
        match &setting.load {
            Load::Closed(closed) => Self {
                peers: Some(closed.peers),
                slots: Some(closed.slots).filter(|_| closed.voters.is_none() || is_whole),
                backups: closed.backups.map(|backups| backups.copies),
                recovery: closed.backups.map(|backups| backups.recovery),
                hold: Some(closed.hold),
                long_share: long_share(&closed.hold),
                think_rate: Some(closed.think_rate),
                entries: Some(closed.entries),
                warm_up: Some(closed.warm_up),
                ..common
            },
            Load::Open(open) => Self {
                hold: open.hold,
                long_share: open.hold.as_ref().and_then(long_share),
                arrival_rate: Some(open.arrival_rate),
                settle: Some(open.settle),
                measure: Some(open.measure),
                ..common
            },
            Load::Rounds(rounds) => Self {
                overlay: Some(rounds.overlay),
                peers: Some(rounds.peers),
                resources: Some(rounds.resources),
                settle: Some(rounds.settle),
                rounds: Some(rounds.rounds),
                round: Some(rounds.round),
                requests: Some(rounds.requests),
                load: Some(rounds.load),
                churn: Some(rounds.churn),
                retry: rounds.retry,
                ..common
            },
        }
    }
}

fn fault_flags(faults: &Faults) -> Flags {
    let share = |share: f64| (share > 0.0).then_some(share);
    Flags {
        replica_life: faults.replica_life,
        loss: share(faults.loss),
        duplication: share(faults.duplication),
        client_crash: share(faults.client_crash),
        delay: faults.delays.map(|(share, mean)| Pair(share, mean)),
        crash: faults.crashes.map(Pair::from),
        death: faults.deaths,
        freeze: faults.freezes.map(Pair::from),
        partition: faults.partitions.map(|(cut, spells)| Partition(cut, spells.into())),
        cut_off: faults.cut_off.map(|(share, mean)| Pair(share, mean)),
        withdrawal: share(faults.withdrawals),
        catastrophe: faults.catastrophe.map(|(share, after)| Pair(share, after)),
        detection: faults.detection,
        clocks: faults.clocks.map(|(ahead, ppm)| Pair(ahead, ppm)),
        resets_at_most: faults.resets_at_most.map(|(most, within)| Pair(most as u32, within)),
        down_after_reset: faults.down_after_reset,
        ..Flags::default()
    }
}
