//! What came out, as a table or as JSON.

use std::io::Write;
use std::time::Duration;

use peerlock_sim::{Experiment, Report, Rounds, WaitSummary};
use serde::Serialize;

use super::Options;
use super::rounds::JsonRounds;
use super::setting::Setting;

/// The object that `--json` prints. Its fields are a promise.
#[derive(Serialize)]
pub struct Json {
    protocol: String,
    form: Option<String>,
    peers: Option<usize>,
    slots: u32,
    trials: u32,
    seed: u64,
    entries: u64,
    wait: Option<JsonWait>,
    steady: Option<JsonWait>,
    per_peer_max: Option<JsonPerPeerMax>,
    messages_per_entry: f64,
    messages: serde_json::Map<String, serde_json::Value>,
    idle_while_waiting: Option<f64>,
    order_inversions: Option<u64>,
    violations: u64,
    events: u64,
    events_per_second: f64,
    #[serde(flatten)]
    open: Option<JsonOpen>,
    #[serde(flatten)]
    rounds: Option<JsonRounds>,
}

/// What only clients without number have.
#[derive(Serialize)]
struct JsonOpen {
    replicas: u32,
    votes: u32,
    arrival_rate: f64,
    throughput: f64,
    steady_messages_per_entry: Option<f64>,
    clients: u64,
    refused: u64,
    lost: u64,
    crashed: u64,
    resets: u64,
    most_resets_in_a_lease: u64,
    fencing_violations: u64,
    worst_client: JsonCost,
    most_yields_of_a_client: u64,
}

/// The client whose messages are most in relation to 4n + 2n ⌈ln P⌉ from place P.
#[derive(Serialize)]
struct JsonCost {
    messages: u64,
    yields: u64,
    place: u64,
    bound: f64,
}

#[derive(Serialize)]
struct JsonWait {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    max: f64,
    spread: f64,
    mean_of_trial_max: f64,
}

#[derive(Serialize)]
struct JsonPerPeerMax {
    min: f64,
    p10: f64,
    p50: f64,
    p90: f64,
    max: f64,
}

impl Json {
    pub fn new(options: &Options, setting: &Setting, report: &Report, took: Duration) -> Self {
        let (peers, slots) = match setting {
            Setting::Closed(_, Experiment { peers, slots, .. }) => (Some(*peers), *slots),
            Setting::Open { .. } | Setting::Rounds(..) => (None, 1),
        };
        Self {
            protocol: options.protocol.to_string(),
            form: options.form().map(|form| form.to_string()),
            peers,
            slots,
            trials: options.trials,
            seed: options.seed,
            entries: report.entries,
            wait: report.wait.map(JsonWait::from),
            steady: report.steady.map(JsonWait::from),
            per_peer_max: report.per_peer_max.map(|peers| JsonPerPeerMax {
                min: peers.min,
                p10: peers.p10,
                p50: peers.p50,
                p90: peers.p90,
                max: peers.max,
            }),
            messages_per_entry: report.messages_per_entry(),
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count.into())).collect(),
            idle_while_waiting: report.numbers.get("idle while waiting"),
            order_inversions: Some(report.numbers.count("order inversions")),
            violations: report.harm().violations,
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
            open: JsonOpen::new(setting, report),
            rounds: None,
        }
    }

    /// The same of rounds. What they do not measure is null.
    pub fn of_rounds(options: &Options, setting: &Rounds, report: &Report, took: Duration) -> Self {
        let harm = report.harm();
        Self {
            protocol: options.protocol.to_string(),
            form: options.form().map(|form| form.to_string()),
            peers: Some(setting.peers),
            slots: 1,
            trials: options.trials,
            seed: options.seed,
            entries: harm.grants,
            wait: report.wait.map(JsonWait::from),
            steady: None,
            per_peer_max: None,
            messages_per_entry: report.steady_messages_per_entry().unwrap_or(0.0),
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count.into())).collect(),
            idle_while_waiting: None,
            order_inversions: None,
            violations: harm.violations,
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
            open: None,
            rounds: Some(JsonRounds::new(setting, report)),
        }
    }
}

impl JsonOpen {
    fn new(setting: &Setting, report: &Report) -> Option<Self> {
        let Setting::Open { votes, open, arrival_rate, .. } = setting else { return None };
        let (worst, bound_for) = report.worst?;
        let count = |name| report.numbers.count(name);
        Some(Self {
            replicas: open.replicas,
            votes: *votes,
            arrival_rate: *arrival_rate,
            throughput: report.throughput()?,
            steady_messages_per_entry: report.steady_messages_per_entry(),
            clients: count("asked"),
            refused: count("refused"),
            lost: count("lost"),
            crashed: count("crashed"),
            resets: count("resets"),
            most_resets_in_a_lease: count("resets within a lease"),
            fencing_violations: report.harm().fencing_back,
            worst_client: JsonCost {
                messages: worst.messages,
                yields: worst.yields,
                place: worst.place,
                bound: worst.bound(bound_for),
            },
            most_yields_of_a_client: count("yields of a client"),
        })
    }
}

impl From<WaitSummary> for JsonWait {
    fn from(WaitSummary { all, mean_of_trial_max }: WaitSummary) -> Self {
        Self {
            mean: all.mean,
            p50: all.p50,
            p90: all.p90,
            p99: all.p99,
            max: all.max,
            spread: all.spread,
            mean_of_trial_max,
        }
    }
}

/// The table for people.
pub fn table(
    out: &mut impl Write,
    options: &Options,
    setting: &Setting,
    report: &Report,
    took: Duration,
) -> std::io::Result<()> {
    let Options { protocol, trials, seed, .. } = options;
    let form = options.form().map(|form| format!(" ({form})")).unwrap_or_default();
    let too_short = match setting {
        Setting::Closed(_, Experiment { peers, slots, workload, warm_up, .. }) => {
            let entries = workload.entries;
            writeln!(
                out,
                "{protocol}{form}: {peers} peers, {slots} slots, {trials} trials of {entries} entries each, seed {seed}\n"
            )?;
            format!("a peer needs more than {warm_up} entries")
        }
        Setting::Open { votes, open, arrival_rate, .. } => {
            let (replicas, measure) = (open.replicas, open.workload.measure);
            writeln!(
                out,
                "{protocol}{form}: {votes} of {replicas} votes, {arrival_rate} clients per second, {trials} trials of \
                 {measure}, seed {seed}\n"
            )?;
            "nobody was let in while it was measured".into()
        }
        Setting::Rounds(..) => String::new(), // Have a table of their own.
    };
    if let Some(throughput) = report.throughput() {
        open_lines(out, report, throughput)?;
    }
    writeln!(out, "waiting time, s      mean       p50       p90       p99       max    spread  mean of max")?;
    for (name, wait) in [("whole run", report.wait), ("steady state", report.steady)] {
        match wait {
            Some(WaitSummary { all, mean_of_trial_max }) => writeln!(
                out,
                "{name:<14} {:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{mean_of_trial_max:>13.3}",
                all.mean, all.p50, all.p90, all.p99, all.max, all.spread
            )?,
            None => writeln!(out, "{name:<14} none: {too_short}")?,
        }
    }
    if let Some(longest) = report.per_peer_max {
        writeln!(
            out,
            "\nlongest wait of each peer, s: min {:.3}, p10 {:.3}, p50 {:.3}, p90 {:.3}, max {:.3}",
            longest.min, longest.p10, longest.p50, longest.p90, longest.max
        )?;
    }
    let by_type: Vec<String> = report
        .messages
        .iter()
        .map(|&(kind, count)| format!("{kind} {:.3}", count as f64 / report.entries.max(1) as f64))
        .collect();
    writeln!(out, "\nmessages per entry: {:.3} ({})", report.messages_per_entry(), by_type.join(", "))?;
    writeln!(
        out,
        "slot time lost while somebody waited: {:.3} %",
        100.0 * report.numbers.get("idle while waiting").unwrap_or(0.0)
    )?;
    let inversions = 100.0 * report.numbers.count("order inversions") as f64 / report.entries.max(1) as f64;
    writeln!(out, "entries past somebody who had asked earlier: {inversions:.3} %")?;
    writeln!(
        out,
        "violations: {} in {} events ({:.1} million events per second)",
        report.harm().violations,
        report.events,
        report.events as f64 / took.as_secs_f64() / 1e6
    )
}

/// Throughput, and what became of those who did not just come, wait, and leave.
fn open_lines(out: &mut impl Write, report: &Report, throughput: f64) -> std::io::Result<()> {
    writeln!(out, "throughput: {throughput:.3} entries per second")?;
    let [came, refused, lost, crashed, resets, most_resets, most_yields] =
        ["asked", "refused", "lost", "crashed", "resets", "resets within a lease", "yields of a client"]
            .map(|name| report.numbers.count(name));
    writeln!(out, "clients: {came} came, {refused} were sent away, {lost} lost their lease, {crashed} crashed")?;
    if let (Some((worst, _)), Some(share)) = (report.worst, report.worst_of_bound()) {
        let (messages, place) = (worst.messages, worst.place);
        writeln!(
            out,
            "worst client: {messages} messages from place {place}, {:.0} % of 4n + 2n ⌈ln P⌉",
            100.0 * share
        )?;
    }
    if most_yields > 0 {
        writeln!(out, "most YIELDs of a client: {most_yields}")?;
    }
    if resets > 0 {
        writeln!(out, "resets of replicas: {resets}, at most {most_resets} of them within one lease")?;
    }
    if report.harm().fencing_back > 0 {
        writeln!(out, "fencing numbers that did not increase: {}", report.harm().fencing_back)?;
    }
    writeln!(out)
}
