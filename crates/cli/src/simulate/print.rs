//! What came out, as a table or as JSON.

use std::io::Write;
use std::time::Duration;

use peerlock_catalogue::{self as catalogue, Load, Setting};
use peerlock_sim::{Report, RoundsReport, Tally, WaitSummary};
use serde::Serialize;

use super::rounds::JsonRounds;

/// The object that `--json` prints. Its fields are a promise.
#[derive(Serialize)]
pub struct Json<'a> {
    setting: &'a Setting,
    protocol: String,
    form: Option<String>,
    peers: Option<u32>,
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
    most_resets_in_a_lease: u32,
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

impl<'a> Json<'a> {
    pub fn new(setting: &'a Setting, report: &catalogue::Report, took: Duration) -> Self {
        match report {
            catalogue::Report::Waits(report) => Self::of_waits(setting, report, took),
            catalogue::Report::Rounds(report) => Self::of_rounds(setting, report, took),
        }
    }

    fn of_waits(setting: &'a Setting, report: &Report, took: Duration) -> Self {
        let (peers, slots) = match &setting.load {
            Load::Closed(closed) => (Some(closed.peers), closed.slots),
            Load::Open(_) | Load::Rounds(_) => (None, 1),
        };
        Self {
            setting,
            protocol: setting.protocol.to_string(),
            form: setting.form_if_any().map(|form| form.to_string()),
            peers,
            slots,
            trials: setting.trials,
            seed: setting.seed,
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
            idle_while_waiting: Some(report.idle_while_waiting),
            order_inversions: Some(report.order_inversions),
            violations: report.open.map_or(0, |open| open.violations), // Uncounted, there is no report with one.
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
            open: JsonOpen::new(setting, report),
            rounds: None,
        }
    }

    /// The same of rounds. What they do not measure is null.
    fn of_rounds(setting: &'a Setting, report: &RoundsReport, took: Duration) -> Self {
        let harm = report.harm();
        let rounds = JsonRounds::new(setting, report);
        Self {
            setting,
            protocol: setting.protocol.to_string(),
            form: setting.form_if_any().map(|form| form.to_string()),
            peers: rounds.as_ref().map(|rounds| rounds.peers),
            slots: 1,
            trials: setting.trials,
            seed: setting.seed,
            entries: harm.grants,
            wait: report.wait().map(JsonWait::from),
            steady: None,
            per_peer_max: None,
            messages_per_entry: report.messages_per_grant().unwrap_or(0.0),
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count.into())).collect(),
            idle_while_waiting: None,
            order_inversions: None,
            violations: harm.violations,
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
            open: None,
            rounds,
        }
    }
}

impl JsonOpen {
    fn new(setting: &Setting, report: &Report) -> Option<Self> {
        let Load::Open(open) = &setting.load else { return None };
        let tally = report.open?;
        let flow = report.steady_flow;
        Some(Self {
            replicas: open.quorum.replicas(),
            votes: open.quorum.votes(),
            arrival_rate: open.arrival_rate,
            throughput: tally.throughput(),
            steady_messages_per_entry: (flow.entries > 0).then(|| flow.messages as f64 / flow.entries as f64),
            clients: tally.came,
            refused: tally.refused,
            lost: tally.lost,
            crashed: tally.crashed,
            resets: tally.resets,
            most_resets_in_a_lease: tally.most_resets,
            fencing_violations: tally.fencing_back,
            worst_client: JsonCost {
                messages: tally.worst.messages,
                yields: tally.worst.yields,
                place: tally.worst.place,
                bound: tally.worst.bound(tally.replicas),
            },
            most_yields_of_a_client: tally.most_yields,
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
pub fn table(out: &mut impl Write, setting: &Setting, report: &Report, took: Duration) -> std::io::Result<()> {
    let Setting { protocol, trials, seed, .. } = setting;
    let form = setting.form_if_any().map(|form| format!(" ({form})")).unwrap_or_default();
    let too_short = match &setting.load {
        Load::Closed(closed) => {
            writeln!(
                out,
                "{protocol}{form}: {} peers, {} slots, {trials} trials of {} entries each, seed {seed}\n",
                closed.peers, closed.slots, closed.entries
            )?;
            format!("a peer needs more than {} entries", closed.warm_up)
        }
        Load::Open(open) => {
            let (votes, replicas) = (open.quorum.votes(), open.quorum.replicas());
            writeln!(
                out,
                "{protocol}{form}: {votes} of {replicas} votes, {} clients per second, {trials} trials of {:#}, seed \
                 {seed}\n",
                open.arrival_rate, open.measure
            )?;
            "nobody was let in while it was measured".into()
        }
        Load::Rounds(_) => String::new(), // Have a table of their own.
    };
    if let Some(tally) = report.open {
        open_lines(out, &tally)?;
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
    writeln!(out, "slot time lost while somebody waited: {:.3} %", 100.0 * report.idle_while_waiting)?;
    let inversions = 100.0 * report.order_inversions as f64 / report.entries.max(1) as f64;
    writeln!(out, "entries past somebody who had asked earlier: {inversions:.3} %")?;
    writeln!(
        out,
        "violations: {} in {} events ({:.1} million events per second)",
        report.open.map_or(0, |open| open.violations),
        report.events,
        report.events as f64 / took.as_secs_f64() / 1e6
    )
}

/// Throughput, and what became of those who did not just come, wait, and leave.
fn open_lines(out: &mut impl Write, tally: &Tally) -> std::io::Result<()> {
    writeln!(out, "throughput: {:.3} entries per second", tally.throughput())?;
    let Tally { came, refused, lost, crashed, resets, most_resets, fencing_back, worst, most_yields, .. } = tally;
    writeln!(out, "clients: {came} came, {refused} were sent away, {lost} lost their lease, {crashed} crashed")?;
    let (messages, place, share) = (worst.messages, worst.place, 100.0 * tally.worst_of_bound());
    writeln!(out, "worst client: {messages} messages from place {place}, {share:.0} % of 4n + 2n ⌈ln P⌉")?;
    if *most_yields > 0 {
        writeln!(out, "most YIELDs of a client: {most_yields}")?;
    }
    if *resets > 0 {
        writeln!(out, "resets of replicas: {resets}, at most {most_resets} of them within one lease")?;
    }
    if *fencing_back > 0 {
        writeln!(out, "fencing numbers that did not increase: {fencing_back}")?;
    }
    writeln!(out)
}
