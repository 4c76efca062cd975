//! Comparison of real and simulated runs.

use std::fmt;

use peerlock_catalogue::{Setting, Workload};
use peerlock_sim::Report;
use serde::Serialize;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Costs {
    pub entries: u64,
    pub violations: u64,
    pub stuck: u64,
    pub messages_per_entry: f64,
    pub by_type: Vec<(String, f64)>,
    pub mean_wait: Option<f64>,
    pub p99_wait: Option<f64>,
    pub throughput: Option<f64>,
    pub busiest: Option<f64>,
    pub received: Option<(f64, u32)>,
}

impl Costs {
    pub fn of(setting: &Setting, report: &Report) -> Self {
        let entries = match setting.workload() {
            Workload::Rounds => report.steady_flow.entries,
            Workload::Closed | Workload::Open => report.entries,
        };
        let per_entry = |count: u64| count as f64 / entries.max(1) as f64;
        let harm = report.harm();
        let number = |name: &str| report.numbers.get(name).filter(|_| report.entries > 0);
        let per_trial = report.entries as f64 / f64::from(report.trials.max(1));
        let until_the_last = number("seconds to the last entry").map(|seconds| per_trial / seconds);
        Self {
            entries: report.entries,
            violations: harm.violations,
            stuck: harm.stuck,
            messages_per_entry: per_entry(report.sent()),
            by_type: report.messages.iter().map(|&(kind, count)| (kind.into(), per_entry(count))).collect(),
            mean_wait: report.wait.map(|wait| wait.all.mean),
            p99_wait: report.wait.map(|wait| wait.all.p99),
            throughput: report.throughput().or(until_the_last),
            busiest: number("messages to the busiest").map(|most| most / per_trial),
            received: report.received.mean().zip(report.received.quantile(100)),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    pub simulated: Costs,
    pub real: Costs,
}

type Number = fn(&Costs) -> Option<f64>;

impl Comparison {
    /// Returns every number by name, simulated and real. An indented name is a part of the one above it.
    pub fn lines(&self) -> Vec<(String, f64, f64)> {
        let both = |of: Number| of(&self.simulated).zip(of(&self.real));
        let mut lines =
            vec![("messages per entry".to_string(), self.simulated.messages_per_entry, self.real.messages_per_entry)];
        let by_type = self.simulated.by_type.iter().zip(&self.real.by_type);
        let is_sent = |line: &(String, f64, f64)| line.1 > 0.0 || line.2 > 0.0;
        let by_type = by_type.map(|((kind, simulated), (_, real))| (format!("  {kind}"), *simulated, *real));
        lines.extend(by_type.filter(is_sent));
        let others: [(&str, Number); 6] = [
            ("mean wait, s", |costs| costs.mean_wait),
            ("p99 wait, s", |costs| costs.p99_wait),
            ("entries per second", |costs| costs.throughput),
            ("busiest peer receives, per entry", |costs| costs.busiest),
            ("peer receives per round, mean", |costs| costs.received.map(|(mean, _)| mean)),
            ("peer receives per round, max", |costs| costs.received.map(|(_, most)| most.into())),
        ];
        for (name, of) in others {
            lines.extend(both(of).map(|(simulated, real)| (name.to_string(), simulated, real)));
        }
        lines
    }
}

pub fn difference(simulated: f64, real: f64) -> String {
    if simulated == 0.0 { "-".into() } else { format!("{:+.1} %", 100.0 * (real / simulated - 1.0)) }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<32} {:>12} {:>12} {:>10}", "", "simulated", "real", "difference")?;
        for (name, simulated, real) in self.lines() {
            writeln!(f, "{name:<32} {simulated:>12.3} {real:>12.3} {:>10}", difference(simulated, real))?;
        }
        Ok(())
    }
}
