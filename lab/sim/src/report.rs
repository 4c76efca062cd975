mod numbers;

use peerlock_types::Span;

pub use numbers::Numbers;
pub(crate) use numbers::counts;

use crate::statistics::{self, Summary};
use crate::watch::{Cost, Flow, Received, Round};

/// The merged results of all trials of a setting. Most counts are in [`Report::numbers`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    pub trials: u32,
    pub entries: u64,
    pub wait: Option<WaitSummary>,
    /// In steady state, or in the measured window of an open workload; `None` if the runs were too short.
    pub steady: Option<WaitSummary>,
    /// In steady state, for each peer of each trial, sorted.
    pub longest_of_peers: Vec<Span>,
    pub per_peer_max: Option<PerPeerMax>,
    /// Messages by type. In rounds: each hop and each direct message during the rounds.
    pub messages: Vec<(&'static str, u64)>,
    /// In steady state, in the measured window, or during the rounds.
    pub steady_flow: Flow,
    pub numbers: Numbers,
    /// At resources of which fewer than 2m − n replicas were reset within any one lease.
    pub within: Harm,
    /// At the others, for which a quorum guarantees nothing.
    pub beyond: Harm,
    /// The client with the highest message count relative to its bound, and the number of replicas.
    pub worst: Option<(Cost, u32)>,
    pub rounds: Vec<Round>,
    /// Figures 4a–c of the E2E paper.
    pub received: Received,
    pub events: u64,
    /// Why the first stopped trial was stopped.
    pub stop: Option<String>,
    /// Empty in the reports of single trials.
    pub each: Vec<Report>,
}

impl Report {
    pub fn sent(&self) -> u64 {
        self.messages.iter().map(|&(_, count)| count).sum()
    }

    /// Returns the number of entries while messages were counted.
    pub fn entries_with_messages(&self) -> u64 {
        if self.rounds.is_empty() { self.entries } else { self.steady_flow.entries }
    }

    pub fn messages_per_entry(&self) -> f64 {
        match self.entries_with_messages() {
            0 => 0.0,
            entries => self.sent() as f64 / entries as f64,
        }
    }

    pub fn steady_messages_per_entry(&self) -> Option<f64> {
        let Flow { entries, messages } = self.steady_flow;
        (entries > 0).then(|| messages as f64 / entries as f64)
    }

    pub fn throughput(&self) -> Option<f64> {
        let measured = Span::from_nanos(self.numbers.count("nanoseconds measured"));
        (measured > Span::ZERO).then(|| self.steady_flow.entries as f64 / measured.as_secs_f64())
    }

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

    pub fn harm(&self) -> Harm {
        self.within.plus(self.beyond)
    }

    pub fn worst_of_bound(&self) -> Option<f64> {
        self.worst.map(|(cost, replicas)| cost.of_bound(replicas))
    }
}

/// Violations until the end of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harm {
    pub resources: u64,
    pub grants: u64,
    pub violations: u64,
    /// Grants with a fencing number no larger than an earlier one.
    pub fencing_back: u64,
    /// Requests that were never served, though their peers were up and all holders had left.
    pub stuck: u64,
    /// Trials stopped by a broken rule, counted at the first resource.
    pub stopped: u64,
    /// The most replicas of one resource that were reset within one lease, in any trial.
    pub most_forgotten: u32,
}

impl Harm {
    pub fn is_none(&self) -> bool {
        self.violations + self.fencing_back + self.stuck + self.stopped == 0
    }

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

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitSummary {
    pub all: Summary,
    pub mean_of_trial_max: f64,
}

impl WaitSummary {
    fn of(waits: &mut [Span], trial_longest: &[Span]) -> Option<Self> {
        Some(Self { all: Summary::of(waits)?, mean_of_trial_max: statistics::mean(trial_longest)? })
    }
}

/// In seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPeerMax {
    pub min: f64,
    pub p10: f64,
    pub p50: f64,
    pub p90: f64,
    pub max: f64,
}

#[derive(Clone, Debug, Default)]
pub struct Sheet {
    pub(crate) steady: Vec<Span>,
    pub(crate) unsteady: Vec<Span>,
    pub(crate) longest: Vec<Span>,
    pub(crate) messages: Vec<(&'static str, u64)>,
    pub(crate) flow: Flow,
    pub numbers: Numbers,
    pub(crate) harm: Vec<Harm>,
    pub(crate) worst: Option<(Cost, u32)>,
    pub(crate) rounds: Vec<Round>,
    pub(crate) received: Received,
    pub(crate) events: u64,
    pub(crate) stop: Option<String>,
}

impl Sheet {
    pub(crate) fn new(resources: usize) -> Self {
        Self { harm: vec![Harm { resources: 1, ..Harm::default() }; resources], ..Self::default() }
    }
}

/// Merges the results of trials. A quorum gives its guarantee to a resource while fewer than `bound` of its replicas
/// are reset within a lease.
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
