//! The metrics of a run.

use std::collections::BTreeMap;

use peerlock_sim::{Harm, Report, WaitSummary, statistics};
use serde::{Deserialize, Serialize};

/// The prefix of the message types of backups.
const BACKUP: &str = "backup ";

/// The results of a run that figures can use. Times are in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Measured {
    pub entries: u64,
    /// The share of slot time in which a slot was free while a client waited; not of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_while_waiting: Option<f64>,
    /// Grants that overtook an earlier request; not of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_inversions: Option<u64>,
    /// Percentiles from 0 to 100 of each peer's longest wait in steady state, over all trials.
    pub longest_of_peers: Vec<f64>,
    /// Their mean.
    pub longest_of_peers_mean: Option<f64>,
    pub steady_entries: u64,
    pub steady_messages: u64,
    pub messages: BTreeMap<String, u64>,
    pub whole: Option<Wait>,
    pub steady: Option<Wait>,
    /// The spread of waits by theory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// Entries per second, of an open run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<f64>,
    /// Violating grants per entry, of an open run or of rounds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violations: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_client: Option<f64>,
    /// The share of trials without violations, starvation or repeated fencing numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub survived: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub violated: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starved: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped: Option<f64>,
    /// The time from a catastrophe until all slots are in use again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<f64>,
    /// The longest time without a grant while a client waited and a slot was free: the mean over trials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub standstill: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fencing: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup_messages: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rounds: Option<OfRounds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<String>,
    #[serde(default)]
    pub scatter: BTreeMap<String, Scatter>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Scatter {
    pub trials: u32,
    pub deviation: f64,
}

impl Scatter {
    /// Returns the scatter of one value per trial; `None` for fewer than two.
    fn of(values: &[f64]) -> Option<Self> {
        let trials = values.len() as f64;
        let mean = values.iter().sum::<f64>() / trials;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (squares / (trials - 1.0)).sqrt();
        (values.len() > 1).then_some(Self { trials: values.len() as u32, deviation })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct OfRounds {
    /// Messages of the protocol, counted per hop.
    sent: f64,
    grants: f64,
    /// Messages of the overlay, and acknowledgements of hops.
    upkeep: f64,
    stuck: f64,
    /// Percentiles from 0 to 100 of the messages that a peer received in a round.
    load: Vec<f64>,
    /// Their mean.
    load_mean: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Theory {
    pub throughput: Option<f64>,
    /// The probability of a violation during a hold.
    pub violations: Option<f64>,
    pub spread: Option<f64>,
}

impl From<Theory> for Measured {
    fn from(Theory { throughput, violations, spread }: Theory) -> Self {
        Self { throughput, violations, spread, ..Self::default() }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Wait {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    mean_of_trial_max: f64,
}

impl From<WaitSummary> for Wait {
    fn from(WaitSummary { all, mean_of_trial_max }: WaitSummary) -> Self {
        Self { mean: all.mean, p50: all.p50, p90: all.p90, p99: all.p99, max: all.max, mean_of_trial_max }
    }
}

impl From<Report> for Measured {
    fn from(report: Report) -> Self {
        let trials: Vec<Self> = report.each.iter().map(Self::of).collect();
        let mut measured = Self::of(&report);
        for metric in Metric::ALL.iter().filter(|metric| metric.has_interval) {
            let values: Vec<f64> = trials.iter().filter_map(|trial| metric.of(trial)).collect();
            if let Some(scatter) = Scatter::of(&values) {
                measured.scatter.insert(metric.name.into(), scatter);
            }
        }
        measured
    }
}

impl Measured {
    fn of(report: &Report) -> Self {
        if !report.rounds.is_empty() {
            return Self::of_rounds(report);
        }
        let sorted = &report.longest_of_peers;
        let percentile = |percent: usize| {
            // Nearest rank.
            let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
            sorted.get(rank).map(|span| span.as_secs_f64())
        };
        Self {
            entries: report.entries,
            idle_while_waiting: report.numbers.get("idle while waiting"),
            order_inversions: report.numbers.get("order inversions").map(|inversions| inversions as u64),
            longest_of_peers: (0..=100).filter_map(percentile).collect(),
            longest_of_peers_mean: statistics::mean(sorted),
            steady_entries: report.steady_flow.entries,
            steady_messages: report.steady_flow.messages,
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count)).collect(),
            whole: report.wait.map(Wait::from),
            steady: report.steady.map(Wait::from),
            throughput: report.throughput(),
            violations: report.worst.and_then(|_| per_entry(report.harm().violations, report.entries)),
            worst_client: report.worst_of_bound(),
            ..Self::of_harm(report)
        }
    }

    /// Converts the results that every kind of run has.
    fn of_harm(report: &Report) -> Self {
        let trials = if report.each.is_empty() { std::slice::from_ref(report) } else { &report.each };
        let share = |is_so: fn(Harm) -> bool| {
            let count = trials.iter().filter(|trial| is_so(trial.harm())).count();
            Some(count as f64 / trials.len() as f64)
        };
        let (recovered, took) = (report.numbers.count("recovered"), report.numbers.count("nanoseconds to recover"));
        let standstills: Option<Vec<f64>> =
            trials.iter().map(|trial| trial.numbers.get("longest standstill, ms")).collect();
        let of_backups = |(kind, count): &(&str, u64)| kind.starts_with(BACKUP).then_some(*count);
        let of_backups: Vec<u64> = report.messages.iter().filter_map(of_backups).collect();
        let backup_messages = (!of_backups.is_empty()).then(|| per_entry(of_backups.iter().sum(), report.entries));
        Self {
            survived: share(|harm| harm.is_none()),
            violated: share(|harm| harm.violations > 0),
            starved: share(|harm| harm.stuck > 0),
            stopped: share(|harm| harm.stopped > 0),
            stop: report.stop.clone(),
            recovery: (recovered > 0).then(|| took as f64 / recovered as f64 / 1e9),
            standstill: standstills.map(|all| all.iter().sum::<f64>() / all.len() as f64 / 1e3),
            fencing: per_entry(report.harm().fencing_back, report.entries),
            backup_messages: backup_messages.flatten(),
            ..Self::default()
        }
    }

    fn of_rounds(report: &Report) -> Self {
        let (harm, flow, received) = (report.harm(), report.steady_flow, &report.received);
        let per_trial = |count: u64| count as f64 / f64::from(report.trials.max(1));
        Self {
            entries: harm.grants,
            steady_entries: flow.entries,
            steady_messages: flow.messages,
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count)).collect(),
            violations: per_entry(harm.violations, harm.grants),
            rounds: Some(OfRounds {
                sent: per_trial(flow.messages),
                grants: per_trial(flow.entries),
                upkeep: per_trial(report.numbers.count("upkeep")),
                stuck: per_trial(harm.stuck),
                load: (0..=100).filter_map(|percent| received.quantile(percent)).map(f64::from).collect(),
                load_mean: received.mean(),
            }),
            ..Self::of_harm(report)
        }
    }
}

/// A metric of a run.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name in experiment files and tables.
    pub name: &'static str,
    pub unit: &'static str,
    pub reading: &'static str,
    /// Extremes over all trials have no confidence interval.
    pub has_interval: bool,
    pub is_share: bool,
    of: fn(&Measured) -> Option<f64>,
}

impl Metric {
    pub const ALL: &[Self] = &[
        Self::new("mean", "s", "mean wait of all entries in steady state", |run| Some(run.steady?.mean)),
        Self::new("p50", "s", "median wait in steady state", |run| Some(run.steady?.p50)),
        Self::new("p90", "s", "90th percentile of waits in steady state", |run| Some(run.steady?.p90)),
        Self::new("p99", "s", "99th percentile of waits in steady state", |run| Some(run.steady?.p99)),
        Self::new("max", "s", "longest wait of all trials in steady state", |run| Some(run.steady?.max))
            .without_interval(),
        Self::new("trial-max", "s", "longest wait of each trial in steady state, mean over the trials", |run| {
            Some(run.steady?.mean_of_trial_max)
        }),
        Self::new("spread", "s", "longest wait of all trials less the mean, steady state", |run| {
            Some(run.steady?.max - run.steady?.mean)
        })
        .without_interval(),
        Self::new(
            "trial-spread",
            "s",
            "longest wait of each trial, mean over the trials, less the mean wait; steady state",
            |run| run.spread.or_else(|| Some(run.steady?.mean_of_trial_max - run.steady?.mean)),
        ),
        Self::new(
            "trial-ratio",
            "×",
            "longest wait of each trial, mean over the trials, divided by the mean wait; steady state",
            |run| Some(run.steady?.mean_of_trial_max / run.steady?.mean),
        )
        .without_interval(),
        Self::new("whole-mean", "s", "mean wait of all entries of the whole runs", |run| Some(run.whole?.mean)),
        Self::new("whole-max", "s", "longest wait of all trials, whole runs", |run| Some(run.whole?.max))
            .without_interval(),
        Self::new("whole-trial-max", "s", "longest wait of each trial, mean over the trials; whole runs", |run| {
            Some(run.whole?.mean_of_trial_max)
        }),
        Self::new("peer-max-min", "s", "each peer's longest wait in steady state: minimum", |run| run.longest(0))
            .without_interval(),
        Self::new("peer-max-p10", "s", "each peer's longest wait in steady state: 10th percentile", |run| {
            run.longest(10)
        }),
        Self::new("peer-max-p50", "s", "each peer's longest wait in steady state: median", |run| run.longest(50)),
        Self::new(
            "peer-max-mean",
            "s",
            "each peer's longest wait in steady state: mean over peers and trials",
            |run| run.longest_of_peers_mean,
        ),
        Self::new("peer-max-p90", "s", "each peer's longest wait in steady state: 90th percentile", |run| {
            run.longest(90)
        }),
        Self::new(
            "peer-max-p90-spread",
            "s",
            "each peer's longest wait in steady state: 90th percentile, less the mean wait",
            |run| Some(run.longest(90)? - run.steady?.mean),
        ),
        Self::new("messages", "per entry", "messages of all types per entry, in steady state", |run| {
            per_entry(run.steady_messages, run.steady_entries)
        }),
        // The same as `messages` for rounds, which count messages until their end.
        Self::new("whole-messages", "per entry", "messages of all types per entry, whole runs", |run| {
            let entries = if run.rounds.is_some() { run.steady_entries } else { run.entries };
            per_entry(run.messages.values().sum(), entries)
        }),
        Self::new("idle", "%", "share of slot time in which a slot was free and a client waited; whole runs", |run| {
            Some(100.0 * run.idle_while_waiting?)
        }),
        Self::new("overtaking", "%", "share of entries that overtook an earlier request; whole runs", |run| {
            Some(100.0 * per_entry(run.order_inversions?, run.entries)?)
        }),
        Self::new("throughput", "per second", "entries per second of measured time; open runs", |run| run.throughput),
        Self::new("violations", "per entry", "share of entries without a free slot; whole runs", |run| run.violations),
        Self::new(
            "worst-client",
            "%",
            "most messages from and to one client, in relation to 4n + 2n ⌈ln P⌉ from place P; open runs, whole",
            |run| Some(100.0 * run.worst_client?),
        )
        .without_interval(),
        Self::new(
            "sent",
            "messages",
            "messages of the protocol in a trial, one per hop and per direct message",
            |run| Some(run.rounds.as_ref()?.sent),
        ),
        Self::new("grants", "entries", "entries of a trial, during the rounds", |run| {
            Some(run.rounds.as_ref()?.grants)
        }),
        Self::new("stuck", "requests", "requests of a trial that were never served", |run| {
            Some(run.rounds.as_ref()?.stuck)
        }),
        Self::new("upkeep", "messages", "messages of the overlay, and confirmations of hops, in a trial", |run| {
            Some(run.rounds.as_ref()?.upkeep)
        }),
        Self::new(
            "survived",
            "of the trials",
            "share of trials in which every client was served, safety held, and all fencing numbers were new",
            |run| run.survived,
        )
        .share(),
        Self::new("violated", "of the trials", "share of trials with more holders than slots", |run| run.violated)
            .share(),
        Self::new("starved", "of the trials", "share of trials in which a live client was never served", |run| {
            run.starved
        })
        .share(),
        Self::new(
            "stopped",
            "of the trials",
            "share of trials that were stopped by an inconsistent peer or endless messages",
            |run| run.stopped,
        )
        .share(),
        Self::new(
            "recovery",
            "s",
            "time from the catastrophe until all slots are in use again, mean over the trials in which they were",
            |run| run.recovery,
        ),
        Self::new(
            "standstill",
            "s",
            "longest time of a trial without an entry while a client waited and a slot was free, mean over the trials; \
             without those that never end",
            |run| run.standstill,
        ),
        Self::new("fencing", "per entry", "share of entries with a fencing number that is not new", |run| run.fencing),
        Self::new(
            "backup-messages",
            "per entry",
            "messages of the backups (states, confirmations, recovery) per entry; whole runs",
            |run| run.backup_messages,
        ),
        Self::new("load-mean", "messages", "messages that a peer receives in a round: mean", |run| {
            run.rounds.as_ref()?.load_mean
        }),
        Self::new("load-p50", "messages", "messages that a peer receives in a round: median", |run| run.load(50)),
        Self::new("load-p90", "messages", "messages that a peer receives in a round: 90th percentile", |run| {
            run.load(90)
        }),
        Self::new("load-p99", "messages", "messages that a peer receives in a round: 99th percentile", |run| {
            run.load(99)
        }),
        Self::new("load-max", "messages", "messages that a peer receives in a round: maximum", |run| run.load(100))
            .without_interval(),
    ];

    const fn new(
        name: &'static str,
        unit: &'static str,
        reading: &'static str,
        of: fn(&Measured) -> Option<f64>,
    ) -> Self {
        Self { name, unit, reading, has_interval: true, is_share: false, of }
    }

    /// Marks a share of the trials.
    const fn share(self) -> Self {
        Self { is_share: true, ..self }
    }

    /// Marks an extreme over all trials.
    const fn without_interval(self) -> Self {
        Self { has_interval: false, ..self }
    }

    pub fn named(name: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|metric| metric.name == name).copied().ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|metric| metric.name).collect();
            format!("unknown metric {name:?}: use {}", known.join(", "))
        })
    }

    /// Returns its value; `None` if the run has none.
    pub fn of(&self, run: &Measured) -> Option<f64> {
        (self.of)(run)
    }
}

impl Measured {
    fn longest(&self, percent: usize) -> Option<f64> {
        self.longest_of_peers.get(percent).copied()
    }

    fn load(&self, percent: usize) -> Option<f64> {
        self.rounds.as_ref()?.load.get(percent).copied()
    }

    /// Returns the distribution of a figure without a metric: its description, and percentiles from 0 to 100.
    pub fn distribution(&self) -> (&'static str, &[f64]) {
        match &self.rounds {
            Some(rounds) => ("messages in a round at most", &rounds.load),
            None => ("longest wait at most (s)", &self.longest_of_peers),
        }
    }
}

fn per_entry(count: u64, entries: u64) -> Option<f64> {
    (entries > 0).then(|| count as f64 / entries as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    pub fn run() -> Measured {
        let wait = |base: f64| Wait {
            mean: base,
            p50: base + 1.0,
            p90: base + 2.0,
            p99: base + 3.0,
            max: base + 20.0,
            mean_of_trial_max: base + 10.0,
        };
        Measured {
            entries: 200,
            idle_while_waiting: Some(0.25),
            order_inversions: Some(10),
            longest_of_peers: (0..=100).map(|percent| 400.0 + f64::from(percent)).collect(),
            longest_of_peers_mean: Some(444.0),
            steady_entries: 100,
            steady_messages: 250,
            messages: [("request".into(), 400), ("token".into(), 200)].into(),
            whole: Some(wait(100.0)),
            steady: Some(wait(300.0)),
            spread: None,
            throughput: Some(2.5),
            violations: Some(0.125),
            worst_client: Some(0.75),
            rounds: Some(OfRounds {
                sent: 5000.0,
                grants: 70.0,
                upkeep: 900.0,
                stuck: 6.0,
                load: (0..=100).map(|percent| 700.0 + f64::from(percent)).collect(),
                load_mean: Some(777.0),
            }),
            survived: Some(0.5),
            violated: Some(0.375),
            starved: Some(0.25),
            stopped: Some(0.125),
            recovery: Some(12.5),
            standstill: Some(3.25),
            fencing: Some(0.0625),
            backup_messages: Some(40.0),
            stop: None,
            scatter: [("mean".into(), Scatter { trials: 4, deviation: 2.0 })].into(),
        }
    }

    #[test]
    fn documentation_names_every_metric() {
        let page = include_str!("../../docs/reproduce.md");
        for metric in Metric::ALL {
            assert!(page.contains(&format!("`{}`", metric.name)), "{}", metric.name);
        }
    }

    #[test]
    fn each_metric_has_its_own_value() {
        for (name, value) in [
            ("mean", 300.0),
            ("p50", 301.0),
            ("p90", 302.0),
            ("p99", 303.0),
            ("max", 320.0),
            ("trial-max", 310.0),
            ("spread", 20.0),
            ("trial-spread", 10.0),
            ("trial-ratio", 310.0 / 300.0),
            ("whole-mean", 100.0),
            ("whole-max", 120.0),
            ("whole-trial-max", 110.0),
            ("peer-max-min", 400.0),
            ("peer-max-p10", 410.0),
            ("peer-max-p50", 450.0),
            ("peer-max-p90", 490.0),
            ("peer-max-p90-spread", 190.0),
            ("peer-max-mean", 444.0),
            ("messages", 2.5),
            ("whole-messages", 6.0),
            ("idle", 25.0),
            ("overtaking", 5.0),
            ("throughput", 2.5),
            ("violations", 0.125),
            ("worst-client", 75.0),
            ("sent", 5000.0),
            ("grants", 70.0),
            ("stuck", 6.0),
            ("upkeep", 900.0),
            ("survived", 0.5),
            ("violated", 0.375),
            ("starved", 0.25),
            ("stopped", 0.125),
            ("recovery", 12.5),
            ("standstill", 3.25),
            ("fencing", 0.0625),
            ("backup-messages", 40.0),
            ("load-mean", 777.0),
            ("load-p50", 750.0),
            ("load-p90", 790.0),
            ("load-p99", 799.0),
            ("load-max", 800.0),
        ] {
            assert_eq!(Metric::named(name).unwrap().of(&run()), Some(value), "{name}");
        }
        assert_eq!(Metric::ALL.len(), 42);
        assert!(Metric::named("wait").unwrap_err().starts_with("unknown metric \"wait\": use mean, p50"));
    }

    #[test]
    fn run_without_steady_state_has_no_steady_number() {
        let short = Measured { steady: None, longest_of_peers: Vec::new(), ..run() };
        assert_eq!(Metric::named("mean").unwrap().of(&short), None);
        assert_eq!(Metric::named("peer-max-p90").unwrap().of(&short), None);
        assert_eq!(Metric::named("whole-mean").unwrap().of(&short), Some(100.0));
        let closed = Measured { rounds: None, ..run() };
        assert_eq!(Metric::named("whole-messages").unwrap().of(&closed), Some(3.0), "per entry of the whole run");
        let theory = Measured::from(Theory::default());
        assert_eq!(Metric::named("idle").unwrap().of(&theory), None, "computed");
    }

    #[test]
    fn measured_survives_a_round_trip() {
        let text = toml::to_string(&run()).unwrap();
        assert_eq!(toml::from_str::<Measured>(&text).unwrap(), run());
    }
}
