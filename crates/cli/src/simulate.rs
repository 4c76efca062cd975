//! `peerlock simulate`: one setting of one protocol, as a table or as JSON.

mod print;
mod rounds;
mod setting;

use std::io::{IsTerminal, Write, stderr, stdout};
use std::time::{Duration, Instant};

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use peerlock_base::Span;
use peerlock_figures::{AnyProtocol, Form};
use peerlock_sim::latency::Model;
use peerlock_sim::{Failure, Hold, Links, Load, OverlayKind, Report, text};

use crate::{Error, Result};
use print::{Json, table};
use setting::Setting;

/// Peers or clients ask, wait, stay inside and leave
#[derive(Args)]
#[command(allow_negative_numbers = true)] // So that they reach the check that says what is wrong with them.
pub struct Options {
    /// Which protocol: fair-k, fair-k-late, bv95 (or bv95-plain; either with -last-held or -round-robin) or ideal among
    /// peers that ask again and again; sigma, sigma-once, strawman, strawman-retry or coordinator for clients without
    /// number, who ask replicas; e2e, non-e2e, and with --overlay also sigma and coordinator for peers on an overlay
    #[arg(long, default_value = "fair-k")]
    protocol: AnyProtocol,
    /// Of protocols that have both: as the paper prints it, or with what we mended: printed, repaired [default:
    /// repaired]
    #[arg(long)]
    form: Option<Form>,
    /// How long a client stays inside: 10s, exp:10s or two-point:1s/100s [default: 10s; clients without number leave at
    /// once]
    #[arg(long, allow_hyphen_values = true)]
    hold: Option<Hold>,
    /// With a two-point hold: the share of long stays, from 0 to 1 [default: the two mean their geometric mean]
    #[arg(long, value_name = "SHARE")]
    long_share: Option<f64>,
    /// One-way delay: constant:1s, uniform:0s..200ms (per pair), jitter:0s..200ms (per message), king or matrix:FILE
    /// [default: constant:1s; for clients without number uniform:0s..200ms; on an overlay uniform:20ms..100ms]
    #[arg(long)]
    latency: Option<Model>,
    /// Whether messages on one link keep their order: ordered, unordered
    #[arg(long, default_value = "ordered")]
    links: Links,
    /// How many trials
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    trials: u32,
    /// What all chance is drawn from; the same seed gives the same result
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// One JSON object on standard output, times in seconds
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    closed: Closed,
    #[command(flatten)]
    open: Open,
    #[command(flatten)]
    rounds: Rounds,
}

/// What only peers that ask again and again have.
#[derive(Args)]
#[command(next_help_heading = "Peers that think, ask, wait, stay inside, leave, and think again")]
pub struct Closed {
    /// How many peers [default: 100; on an overlay 6500]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    peers: Option<u32>,
    /// How many may be inside at a time [default: 3]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    slots: Option<u32>,
    /// How often a peer asks per second of thinking: λ [default: 0.5]
    #[arg(long, value_name = "RATE")]
    think_rate: Option<f64>,
    /// How often each peer goes inside [default: 2000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    entries: Option<u32>,
    /// How many of each peer's first entries the steady state leaves out [default: 20]
    #[arg(long, value_name = "ENTRIES")]
    warm_up: Option<u32>,
}

/// What only clients without number have.
#[derive(Args)]
#[command(next_help_heading = "Clients without number, each of which asks the replicas once")]
pub struct Open {
    /// How many replicas, up to 64 [default: 32; on an overlay 10 for each resource]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    replicas: Option<u32>,
    /// How many votes win: more than half of the replicas [default: three quarters; on an overlay just more than half]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    votes: Option<u32>,
    /// How many clients come per second [default: 3]
    #[arg(long, value_name = "RATE")]
    arrival_rate: Option<f64>,
    /// How long it runs before anything is measured [default: 300s; on an overlay 0s. There every resource is asked for
    /// once at its beginning, so that whoever has to be elected is]
    #[arg(long, value_name = "TIME", value_parser = text::span, allow_hyphen_values = true)]
    settle: Option<Span>,
    /// How long it is measured after that [default: 600s]
    #[arg(long, value_name = "TIME", value_parser = text::span, allow_hyphen_values = true)]
    measure: Option<Span>,
    /// How long a vote is good for without renewal [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = text::span, allow_hyphen_values = true)]
    lease: Option<Span>,
    /// How long a replica lives on average before it forgets everything [default: for ever]
    #[arg(long, value_name = "TIME", value_parser = text::span, allow_hyphen_values = true)]
    replica_life: Option<Span>,
    /// The share of messages that are lost [default: 0]
    #[arg(long, value_name = "SHARE")]
    loss: Option<f64>,
    /// The share of messages that arrive twice [default: 0]
    #[arg(long, value_name = "SHARE")]
    duplication: Option<f64>,
    /// The share of clients that crash, half of them while they wait and half inside [default: 0]
    #[arg(long, value_name = "SHARE")]
    client_crash: Option<f64>,
    /// Count broken rules instead of stopping at the first
    #[arg(long)]
    count_violations: bool,
}

/// What only peers on an overlay have.
#[derive(Args)]
#[command(next_help_heading = "Peers on an overlay that ask for many resources, round after round")]
pub struct Rounds {
    /// What messages to replicas are routed by: chord, pastry
    #[arg(long)]
    overlay: Option<OverlayKind>,
    /// How many resources [default: 65]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    resources: Option<u32>,
    /// How many rounds [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How long a round is [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = text::span, allow_hyphen_values = true)]
    round: Option<Span>,
    /// How many requests there are in a round; each resource that is held is released with probability ½ [default: 20]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    requests: Option<u32>,
    /// Whether so many requests are made in all or at each peer: whole, per-peer [default: whole]
    #[arg(long)]
    load: Option<Load>,
    /// How many peers come or fail in each round, half of them each [default: 0]
    #[arg(long, value_name = "PEERS")]
    churn: Option<u32>,
}

impl Options {
    /// The form that is run, of a protocol that has more than one.
    fn form(&self) -> Option<Form> {
        self.protocol.has_forms().then_some(self.form.unwrap_or(Form::Repaired))
    }
}

/// Runs the command.
pub fn run(options: &Options) -> Result<()> {
    let setting = Setting::of(options)?;
    let form = options.form.unwrap_or(Form::Repaired);
    let mut out = stdout().lock();
    let mut show = |(report, took): (Report, Duration)| match options.json {
        true => json(&mut out, &Json::new(options, &setting, &report, took)),
        false => table(&mut out, options, &setting, &report, took),
    };
    match &setting {
        Setting::Closed(protocol, experiment) => {
            show(timed(options, |progress| protocol.run(form, experiment, progress))?)?;
        }
        Setting::Open { protocol, votes, open, .. } => {
            show(timed(options, |progress| protocol.run(form, *votes, open, progress))?)?;
        }
        Setting::Rounds(protocol, setting) => {
            let (report, took) = timed(options, |progress| protocol.run(form, setting, progress))?;
            match options.json {
                true => json(&mut out, &Json::of_rounds(options, setting, &report, took))?,
                false => rounds::table(&mut out, options, setting, &report, took)?,
            }
        }
    }
    Ok(out.flush()?)
}

/// Runs all trials on as many threads as wanted, with a bar; and how long that took.
fn timed<R: Send>(
    options: &Options,
    run: impl FnOnce(&(dyn Fn(u64) + Sync)) -> std::result::Result<R, Box<Failure>> + Send,
) -> Result<(R, Duration)> {
    let pool = crate::threads(options.threads)?;
    let bar = progress_bar(u64::from(options.trials));
    let start = Instant::now();
    let report = pool.install(|| run(&|trials| bar.inc(trials)));
    let took = start.elapsed();
    bar.finish_and_clear();
    let broken = |failure| Error::Broken { failure, again: std::env::args().collect::<Vec<_>>().join(" ") };
    Ok((report.map_err(broken)?, took))
}

fn json(out: &mut impl Write, object: &Json) -> std::io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
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
