//! `peerlock simulate`: one setting of one protocol, as a table or as JSON.

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use peerlock_base::Span;
use peerlock_figures::{Form, Protocol};
use peerlock_sim::latency::Model;
use peerlock_sim::{Closed, Experiment, Hold, Links, Report, WaitSummary};
use serde::Serialize;

use crate::{Error, Result};

/// Every peer thinks, asks, waits, stays inside, leaves, and thinks again
#[derive(Args)]
#[command(allow_negative_numbers = true)] // So that they reach the check that says what is wrong with them.
pub struct Options {
    /// Which protocol: fair-k, fair-k-late, bv95 or ideal
    #[arg(long, default_value = "fair-k")]
    protocol: Protocol,
    /// With fair-k: as its paper prints it, or with what we mended: printed, repaired [default: repaired]
    #[arg(long)]
    form: Option<Form>,
    /// How many peers
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    peers: u32,
    /// How many may be inside at a time
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    slots: u32,
    /// How long a client stays inside: 10s, exp:10s or two-point:1s/100s
    #[arg(long, default_value = "10s", allow_hyphen_values = true)]
    hold: Hold,
    /// With a two-point hold: the share of long stays, from 0 to 1 [default: the two mean their geometric mean]
    #[arg(long, value_name = "SHARE")]
    long_share: Option<f64>,
    /// How often a peer asks per second of thinking: λ
    #[arg(long, default_value_t = 0.5, value_name = "RATE")]
    think_rate: f64,
    /// One-way delay: constant:1s, uniform:0s..200ms (per pair), jitter:0s..200ms (per message), king or matrix:FILE
    #[arg(long, default_value = "constant:1s")]
    latency: Model,
    /// Whether messages on one link keep their order: ordered, unordered
    #[arg(long, default_value = "ordered")]
    links: Links,
    /// How often each peer goes inside
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..))]
    entries: u32,
    /// How many trials
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// What all chance is drawn from; the same seed gives the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many of each peer's first entries the steady state leaves out
    #[arg(long, default_value_t = 20, value_name = "ENTRIES")]
    warm_up: u32,
    /// How many threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// One JSON object on standard output, times in seconds
    #[arg(long)]
    json: bool,
}

impl Options {
    /// The form that is run, of a protocol that has more than one.
    fn form(&self) -> Option<Form> {
        self.protocol.has_forms().then_some(self.form.unwrap_or(Form::Repaired))
    }
}

/// Runs the command.
pub fn run(options: &Options) -> Result<()> {
    let experiment = experiment(options)?;
    let pool = crate::threads(options.threads)?;

    let bar = progress_bar(u64::from(options.trials));
    let start = Instant::now();
    let report = pool.install(|| {
        options.protocol.run(options.form.unwrap_or(Form::Repaired), &experiment, |trials| bar.inc(trials))
    });
    let took = start.elapsed();
    bar.finish_and_clear();

    let report =
        report.map_err(|failure| Error::Broken { failure, again: std::env::args().collect::<Vec<_>>().join(" ") })?;
    let mut out = stdout().lock();
    if options.json {
        serde_json::to_writer(&mut out, &Json::new(options, &report, took)).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        table(&mut out, options, &report, took)?;
    }
    Ok(out.flush()?)
}

fn experiment(options: &Options) -> Result<Experiment> {
    if !(options.think_rate > 0.0 && options.think_rate.is_finite()) {
        return Err(Error::Usage(format!("the think rate {} must be a number above 0", options.think_rate)));
    }
    if let Some(form) = options.form.filter(|_| !options.protocol.has_forms()) {
        return Err(Error::Usage(format!("{} has only one form: leave --form {form} out", options.protocol)));
    }
    let hold = match (options.hold, options.long_share) {
        (Hold::TwoPoint { short, long, .. }, Some(long_share)) if (0.0..=1.0).contains(&long_share) => {
            Hold::TwoPoint { short, long, long_share }
        }
        (Hold::TwoPoint { .. }, Some(share)) => {
            return Err(Error::Usage(format!("the share of long stays {share} must be from 0 to 1")));
        }
        (_, Some(_)) => {
            return Err(Error::Usage("--long-share needs a two-point hold, such as --hold two-point:1s/100s".into()));
        }
        (hold, None) => hold,
    };
    Ok(Experiment {
        peers: options.peers as usize,
        slots: options.slots,
        workload: Closed { think: Span::from_secs_f64(1.0 / options.think_rate), hold, entries: options.entries },
        network: options.latency.load(options.peers as usize)?,
        links: options.links,
        warm_up: options.warm_up,
        trials: options.trials,
        seed: options.seed,
    })
}

/// A bar on a terminal, nothing elsewhere.
fn progress_bar(trials: u64) -> ProgressBar {
    if !stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(trials);
    let style = ProgressStyle::with_template("{bar:40} {pos} of {len} trials, {eta} to go");
    bar.set_style(style.expect("the template is fixed, and tested by every run on a terminal"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// The object that `--json` prints. Its fields are a promise.
#[derive(Serialize)]
struct Json {
    protocol: String,
    form: Option<String>,
    peers: u32,
    slots: u32,
    trials: u32,
    seed: u64,
    entries: u64,
    wait: Option<JsonWait>,
    steady: Option<JsonWait>,
    per_peer_max: Option<JsonPerPeerMax>,
    messages_per_entry: f64,
    messages: serde_json::Map<String, serde_json::Value>,
    idle_while_waiting: f64,
    order_inversions: u64,
    violations: u64,
    events: u64,
    events_per_second: f64,
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
    fn new(options: &Options, report: &Report, took: Duration) -> Self {
        Self {
            protocol: options.protocol.to_string(),
            form: options.form().map(|form| form.to_string()),
            peers: options.peers,
            slots: options.slots,
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
            idle_while_waiting: report.idle_while_waiting,
            order_inversions: report.order_inversions,
            violations: 0, // With one there is no report.
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
        }
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

fn table(out: &mut impl Write, options: &Options, report: &Report, took: Duration) -> std::io::Result<()> {
    let Options { protocol, peers, slots, entries, trials, seed, .. } = options;
    let form = options.form().map(|form| format!(" ({form})")).unwrap_or_default();
    writeln!(
        out,
        "{protocol}{form}: {peers} peers, {slots} slots, {trials} trials of {entries} entries each, seed {seed}\n"
    )?;
    writeln!(out, "waiting time, s      mean       p50       p90       p99       max    spread  mean of max")?;
    for (name, wait) in [("whole run", report.wait), ("steady state", report.steady)] {
        match wait {
            Some(WaitSummary { all, mean_of_trial_max }) => writeln!(
                out,
                "{name:<14} {:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{mean_of_trial_max:>13.3}",
                all.mean, all.p50, all.p90, all.p99, all.max, all.spread
            )?,
            None => writeln!(out, "{name:<14} none: a peer needs more than {} entries", options.warm_up)?,
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
        .map(|&(kind, count)| format!("{kind} {:.3}", count as f64 / report.entries as f64))
        .collect();
    writeln!(out, "\nmessages per entry: {:.3} ({})", report.messages_per_entry(), by_type.join(", "))?;
    writeln!(out, "slot time lost while somebody waited: {:.3} %", 100.0 * report.idle_while_waiting)?;
    let inversions = 100.0 * report.order_inversions as f64 / report.entries as f64;
    writeln!(out, "entries past somebody who had asked earlier: {inversions:.3} %")?;
    writeln!(
        out,
        "violations: 0 in {} events ({:.1} million events per second)",
        report.events,
        report.events as f64 / took.as_secs_f64() / 1e6
    )
}
