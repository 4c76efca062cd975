//! What came out of rounds on an overlay.

use std::io::Write;
use std::time::Duration;

use peerlock_sim::{Load, OverlayKind, Received, Report, Rounds};
use serde::Serialize;

use super::Options;

/// What only rounds have in the object that `--json` prints. Sums over all trials.
#[derive(Serialize)]
pub struct JsonRounds {
    overlay: &'static str,
    resources: usize,
    replicas: u32,
    votes: u32,
    rounds: usize,
    requests: usize,
    load: &'static str,
    churn: usize,
    asked: u64,
    skipped: u64,
    grants: u64,
    waiting: u64,
    stuck: u64,
    fencing_violations: u64,
    messages_sent: u64,
    hops: u64,
    upkeep: u64,
    undelivered: u64,
    /// Messages that a peer got in a round.
    received: Option<JsonLoad>,
}

#[derive(Serialize)]
struct JsonLoad {
    mean: f64,
    p50: u32,
    p90: u32,
    p99: u32,
    max: u32,
}

impl JsonLoad {
    fn of(received: &Received) -> Option<Self> {
        let at = |percent| received.quantile(percent);
        Some(Self { mean: received.mean()?, p50: at(50)?, p90: at(90)?, p99: at(99)?, max: at(100)? })
    }
}

impl JsonRounds {
    pub fn new(setting: &Rounds, report: &Report) -> Self {
        let harm = report.harm();
        let count = |name| report.numbers.count(name);
        Self {
            overlay: overlay(setting),
            resources: setting.resources,
            replicas: setting.quorum.replicas(),
            votes: setting.quorum.votes(),
            rounds: setting.rounds,
            requests: setting.requests,
            load: match setting.load {
                Load::Whole => "whole",
                Load::PerPeer => "per-peer",
            },
            churn: setting.churn,
            asked: count("asked in rounds"),
            skipped: count("skipped"),
            grants: report.steady_flow.entries,
            waiting: count("waiting after the rounds"),
            stuck: harm.stuck,
            fencing_violations: harm.fencing_back,
            messages_sent: report.sent(),
            hops: count("hops"),
            upkeep: count("upkeep"),
            undelivered: count("undelivered"),
            received: JsonLoad::of(&report.received),
        }
    }
}

fn overlay(setting: &Rounds) -> &'static str {
    match setting.overlay {
        OverlayKind::Chord => "chord",
        OverlayKind::Pastry => "pastry",
    }
}

/// The table for people.
pub fn table(
    out: &mut impl Write,
    options: &Options,
    setting: &Rounds,
    report: &Report,
    took: Duration,
) -> std::io::Result<()> {
    let Rounds { peers, resources, quorum, rounds, round, requests, .. } = setting;
    let form = options.form().map(|form| format!(" ({form})")).unwrap_or_default();
    let (replicas, votes) = (quorum.replicas(), quorum.votes());
    let whose = match setting.load {
        Load::Whole => "",
        Load::PerPeer => " at each peer",
    };
    writeln!(out, "{}{form} on {}: {peers} peers", options.protocol, overlay(setting))?;
    writeln!(
        out,
        "{resources} resources with {replicas} replicas, {votes} votes win; {rounds} rounds of {round}, {requests} \
         requests in each{whose}, {} trials, seed {}\n",
        options.trials, options.seed
    )?;
    let per_trial = |count: u64| count as f64 / f64::from(report.trials.max(1));
    let (harm, count) = (report.harm(), |name| report.numbers.count(name));
    writeln!(
        out,
        "per trial: {:.1} asked, {:.1} did not since their peer waited already, {:.1} entered, {:.1} waited at the end",
        per_trial(count("asked in rounds")),
        per_trial(count("skipped")),
        per_trial(report.steady_flow.entries),
        per_trial(count("waiting after the rounds"))
    )?;
    let direct = report.sent() - count("hops");
    writeln!(
        out,
        "messages per trial: {:.1}, of which {:.1} hops and {:.1} direct",
        per_trial(report.sent()),
        per_trial(count("hops")),
        per_trial(direct)
    )?;
    let per_entry = |count: u64| count as f64 / report.steady_flow.entries.max(1) as f64;
    let by_type: Vec<String> =
        report.messages.iter().map(|&(kind, count)| format!("{kind} {:.3}", per_entry(count))).collect();
    writeln!(out, "messages per entry: {:.3} ({})", per_entry(report.sent()), by_type.join(", "))?;
    if let Some(JsonLoad { mean, p50, p90, p99, max }) = JsonLoad::of(&report.received) {
        writeln!(
            out,
            "messages that a peer gets in a round: mean {mean:.3}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}"
        )?;
    }
    if count("upkeep") > 0 {
        writeln!(out, "upkeep of the overlay: {:.1} messages per trial", per_trial(count("upkeep")))?;
    }
    if let Some(wait) = report.wait {
        let all = wait.all;
        writeln!(
            out,
            "waiting time, s: mean {:.3}, p50 {:.3}, p90 {:.3}, p99 {:.3}, max {:.3}",
            all.mean, all.p50, all.p90, all.p99, all.max
        )?;
    }
    trouble(out, report)?;
    if harm.fencing_back > 0 {
        writeln!(out, "fencing numbers that did not increase: {}", harm.fencing_back)?;
    }
    writeln!(
        out,
        "violations: {}, never served: {}, in {} events ({:.1} million events per second)",
        harm.violations,
        harm.stuck,
        report.events,
        report.events as f64 / took.as_secs_f64() / 1e6
    )
}

/// What went wrong on the way, if anything did.
fn trouble(out: &mut impl Write, report: &Report) -> std::io::Result<()> {
    let [failed, crashed, joined, resets, forgotten, lost, refused, undelivered, strange] =
        ["failed", "crashed", "came", "resets", "forgotten", "lost", "refused", "undelivered", "strange"]
            .map(|name| report.numbers.count(name));
    let most_forgotten = report.harm().most_forgotten;
    if failed + crashed + joined + resets > 0 {
        writeln!(
            out,
            "peers: {failed} failed, {crashed} crashed with a client, {joined} came, {resets} lost their memory; \
             replicas forgot {forgotten} times, at most {most_forgotten} of one resource within one lease"
        )?;
    }
    if lost + refused > 0 {
        writeln!(out, "clients: {lost} lost their lease, {refused} were sent away")?;
    }
    if undelivered + strange > 0 {
        writeln!(out, "messages: {undelivered} found no owner, {strange} made no sense where they came")?;
    }
    Ok(())
}
