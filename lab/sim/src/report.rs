//! What comes out of runs.

mod numbers;

use peerlock_types::Span;

pub use numbers::Numbers;

use crate::statistics::{self, Summary};
use crate::watch::{Cost, Flow, Received, Round};

/// What came out of all trials of one setting, whatever kind of run it was. Most numbers have a name only
/// ([`Report::numbers`]): those of watchers, and of the world, which counts `asked`, `lost`, `refused`, `withdrawn`,
/// `crashed`, `restarted`, `resets` and `unexpected`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// Trials that all of this was put together from.
    pub trials: u32,
    /// How often somebody went inside.
    pub entries: u64,
    /// Waits over the whole runs.
    pub wait: Option<WaitSummary>,
    /// Waits in steady state, or while an open workload was measured; `None` if the runs were too short to have one.
    pub steady: Option<WaitSummary>,
    /// The longest wait of each peer of each trial in steady state, in order.
    pub longest_of_peers: Vec<Span>,
    /// How `longest_of_peers` is spread.
    pub per_peer_max: Option<PerPeerMax>,
    /// Messages by type. In rounds: those of the rounds, one for every hop and every direct message.
    pub messages: Vec<(&'static str, u64)>,
    /// Messages and entries in steady state, while an open workload was measured, or during the rounds.
    pub steady_flow: Flow,
    /// All else that was counted, by name.
    pub numbers: Numbers,
    /// How resources fared of which fewer than 2m − n replicas lost their memory within any one lease time …
    pub within: Harm,
    /// … and the others, for which no quorum promises anything.
    pub beyond: Harm,
    /// The client of an open workload whose messages are most in relation to the bound of its place, and how many
    /// replicas that bound is for.
    pub worst: Option<(Cost, u32)>,
    /// Round by round, if there are rounds.
    pub rounds: Vec<Round>,
    /// Messages of the protocol that a peer got in a round, for all peers and rounds: Figures 4a–c of the E2E paper.
    pub received: Received,
    /// How many events were simulated, in all trials together.
    pub events: u64,
    /// Why the first trial was stopped that was, with its number and the time in it.
    pub stop: Option<String>,
    /// Each trial by itself, in order, as if there had been no other. Empty in those reports themselves.
    pub each: Vec<Report>,
}

impl Report {
    /// Messages of the protocol, of all types.
    pub fn sent(&self) -> u64 {
        self.messages.iter().map(|&(_, count)| count).sum()
    }

    /// How many entries there were while messages were counted: in rounds those of the rounds, without what follows
    /// them.
    pub fn entries_with_messages(&self) -> u64 {
        if self.rounds.is_empty() { self.entries } else { self.steady_flow.entries }
    }

    /// Messages sent for each of those entries; 0 if there were none.
    pub fn messages_per_entry(&self) -> f64 {
        match self.entries_with_messages() {
            0 => 0.0,
            entries => self.sent() as f64 / entries as f64,
        }
    }

    /// The same, both counted in steady state; `None` if nobody went inside then.
    pub fn steady_messages_per_entry(&self) -> Option<f64> {
        let Flow { entries, messages } = self.steady_flow;
        (entries > 0).then(|| messages as f64 / entries as f64)
    }

    /// Entries per second while an open workload was measured.
    pub fn throughput(&self) -> Option<f64> {
        let measured = Span::from_nanos(self.numbers.count("nanoseconds measured"));
        (measured > Span::ZERO).then(|| self.steady_flow.entries as f64 / measured.as_secs_f64())
    }

    /// Every trial by itself, a line for each: entries, waits in steady state and over the whole run in seconds,
    /// messages, and what went wrong.
    pub fn trials_csv(&self) -> String {
        let mut csv = String::from(
            "trial,entries,mean wait (s),longest wait (s),whole mean wait (s),whole longest wait (s),messages,\
             messages per entry,violations,fencing violations,stuck,stopped\n",
        );
        for (number, trial) in self.each.iter().enumerate() {
            let wait = |wait: Option<WaitSummary>| {
                wait.map_or(",".into(), |wait| format!("{},{}", wait.all.mean, wait.all.max))
            };
            let (steady, whole, harm) = (wait(trial.steady), wait(trial.wait), trial.harm());
            csv += &format!(
                "{number},{},{steady},{whole},{},{},{},{},{},{}\n",
                trial.entries,
                trial.sent(),
                trial.messages_per_entry(),
                harm.violations,
                harm.fencing_back,
                harm.stuck,
                harm.stopped
            );
        }
        csv
    }

    /// How all resources fared, whatever was forgotten.
    pub fn harm(&self) -> Harm {
        self.within.plus(self.beyond)
    }

    /// The messages of the worst client over the bound of its place, of an open workload.
    pub fn worst_of_bound(&self) -> Option<f64> {
        self.worst.map(|(cost, replicas)| cost.of_bound(replicas))
    }
}

/// How resources fared, to the very end. One resource of one trial counts as one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    /// Resources that this is about, over all trials.
    pub resources: u64,
    /// How many clients went inside.
    pub grants: u64,
    /// How many of them while there was no room.
    pub violations: u64,
    /// How many of them with a fencing number no larger than an earlier one.
    pub fencing_back: u64,
    /// Requests that were never served, though their peers lived and everybody else had left.
    pub stuck: u64,
    /// Trials that were stopped, since a peer had found its own state broken or messages bred. It counts at the first
    /// resource.
    pub stopped: u64,
    /// The most replicas of one resource that lost their memory within one lease time, in any trial.
    pub most_forgotten: u32,
}

impl Harm {
    /// Nothing happened that may not happen.
    pub fn is_none(&self) -> bool {
        self.violations + self.fencing_back + self.stuck + self.stopped == 0
    }

    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            resources: self.resources + other.resources,
            grants: self.grants + other.grants,
            violations: self.violations + other.violations,
            fencing_back: self.fencing_back + other.fencing_back,
            stuck: self.stuck + other.stuck,
            stopped: self.stopped + other.stopped,
            most_forgotten: self.most_forgotten.max(other.most_forgotten),
        }
    }
}

/// Waiting times, with the mean of each trial's longest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitSummary {
    /// Over the entries of all trials.
    pub all: Summary,
    /// The mean over the trials of the longest wait in each.
    pub mean_of_trial_max: f64,
}

impl WaitSummary {
    /// Of all waits, which are brought into another order, and the longest of each trial; `None` if nobody waited.
    fn of(waits: &mut [Span], trial_longest: &[Span]) -> Option<Self> {
        Some(Self { all: Summary::of(waits)?, mean_of_trial_max: statistics::mean(trial_longest)? })
    }
}

/// How the longest waits of single peers are spread, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPeerMax {
    /// The luckiest peer.
    pub min: f64,
    /// One peer in ten has at most this.
    pub p10: f64,
    /// The 50th percentile.
    pub p50: f64,
    /// Nine peers in ten have at most this.
    pub p90: f64,
    /// The unluckiest peer.
    pub max: f64,
}

/// What one trial leaves behind. Every watcher writes down its part, and nobody else's.
#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub(crate) steady: Vec<Span>,
    pub(crate) unsteady: Vec<Span>,
    pub(crate) longest: Vec<Span>,
    pub(crate) messages: Vec<(&'static str, u64)>,
    pub(crate) flow: Flow,
    /// Numbers that need nothing but a name.
    pub numbers: Numbers,
    /// For each resource.
    pub(crate) harm: Vec<Harm>,
    pub(crate) worst: Option<(Cost, u32)>,
    pub(crate) rounds: Vec<Round>,
    pub(crate) received: Received,
    pub(crate) events: u64,
    pub(crate) stop: Option<String>,
}

impl Sheet {
    /// For this many resources.
    pub(crate) fn new(resources: usize) -> Self {
        Self { harm: vec![Harm { resources: 1, ..Harm::default() }; resources], ..Self::default() }
    }
}

/// Puts what trials leave behind together, in their order. A quorum promises something as long as fewer replicas of a
/// resource than `bound` forget within a lease time.
pub(crate) fn put_together(trials: Vec<Sheet>, bound: u32) -> Report {
    if trials.len() == 1 {
        let only = sum_up(trials, bound);
        return Report { each: vec![only.clone()], ..only };
    }
    let each = trials.iter().map(|trial| sum_up(vec![trial.clone()], bound)).collect();
    Report { each, ..sum_up(trials, bound) }
}

fn sum_up(trials: Vec<Sheet>, bound: u32) -> Report {
    let longest = |spans: &[Span]| spans.iter().copied().max();
    let steady_longest: Vec<Span> = trials.iter().filter_map(|trial| longest(&trial.steady)).collect();
    let all_longest: Vec<Span> =
        trials.iter().filter_map(|trial| longest(&trial.steady).max(longest(&trial.unsteady))).collect();

    let mut report = Report { trials: trials.len() as u32, ..Report::default() };
    let (mut steady, mut unsteady) = (Vec::new(), Vec::new());
    for mut trial in trials {
        steady.append(&mut trial.steady);
        unsteady.append(&mut trial.unsteady);
        report.longest_of_peers.append(&mut trial.longest);
        report.add(trial, bound);
    }
    report.numbers.end(report.trials);
    report.steady = WaitSummary::of(&mut steady, &steady_longest);
    steady.append(&mut unsteady);
    report.wait = WaitSummary::of(&mut steady, &all_longest);
    report.longest_of_peers.sort_unstable();
    report.per_peer_max = per_peer_max(&report.longest_of_peers);
    report.entries = report.harm().grants;
    report
}

impl Report {
    /// Adds one trial, but for its waits.
    fn add(&mut self, trial: Sheet, bound: u32) {
        self.events += trial.events;
        self.steady_flow.entries += trial.flow.entries;
        self.steady_flow.messages += trial.flow.messages;
        self.numbers.add(trial.numbers);
        for harm in trial.harm {
            let sum = if harm.most_forgotten < bound { &mut self.within } else { &mut self.beyond };
            *sum = sum.plus(harm);
        }
        if self.messages.is_empty() {
            self.messages = trial.messages;
        } else {
            self.messages.iter_mut().zip(trial.messages).for_each(|(mine, more)| mine.1 += more.1);
        }
        let share = |worst: &Option<(Cost, u32)>| worst.map_or(0.0, |(cost, replicas)| cost.of_bound(replicas));
        if self.worst.is_none() || share(&self.worst) < share(&trial.worst) {
            self.worst = trial.worst;
        }
        self.rounds.resize(self.rounds.len().max(trial.rounds.len()), Round::default());
        self.rounds.iter_mut().zip(trial.rounds).for_each(|(mine, more)| mine.add(more));
        self.received.add_all(trial.received);
        self.stop = self.stop.take().or(trial.stop);
    }
}

fn per_peer_max(sorted: &[Span]) -> Option<PerPeerMax> {
    let mut spans = sorted.to_vec();
    let min = sorted.first()?.as_secs_f64();
    let [p10, p50, p90, max] = statistics::quantiles(&mut spans, [10, 50, 90, 100]);
    Some(PerPeerMax { min, p10, p50, p90, max })
}
