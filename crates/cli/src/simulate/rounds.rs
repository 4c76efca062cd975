//! What came out of rounds on an overlay.

use std::io::Write;
use std::time::Duration;

use peerlock_catalogue::{Load, Setting};
use peerlock_sim::{self as sim, Received, RoundsReport, Trouble};
use serde::Serialize;

/// What only rounds have in the object that `--json` prints. Sums over all trials.
#[derive(Serialize)]
pub struct JsonRounds {
    #[serde(skip)]
    pub peers: u32,
    overlay: String,
    resources: u32,
    replicas: u32,
    votes: u32,
    rounds: u32,
    requests: u32,
    load: String,
    churn: u32,
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
    pub fn new(setting: &Setting, report: &RoundsReport) -> Option<Self> {
        let Load::Rounds(setting) = &setting.load else { return None };
        let harm = report.harm();
        Some(Self {
            peers: setting.peers,
            overlay: setting.overlay.to_string(),
            resources: setting.resources,
            replicas: setting.quorum.replicas(),
            votes: setting.quorum.votes(),
            rounds: setting.rounds,
            requests: setting.requests,
            load: setting.load.to_string(),
            churn: setting.churn,
            asked: report.asked(),
            skipped: report.skipped(),
            grants: report.grants(),
            waiting: report.waiting,
            stuck: harm.stuck,
            fencing_violations: harm.fencing_back,
            messages_sent: report.sent(),
            hops: report.hops,
            upkeep: report.upkeep,
            undelivered: report.trouble.undelivered,
            received: JsonLoad::of(&report.received),
        })
    }
}

/// The table for people.
pub fn table(out: &mut impl Write, setting: &Setting, report: &RoundsReport, took: Duration) -> std::io::Result<()> {
    let Load::Rounds(rounds) = &setting.load else { return Ok(()) };
    let form = setting.form_if_any().map(|form| format!(" ({form})")).unwrap_or_default();
    let whose = match rounds.load {
        sim::Load::Whole => "",
        sim::Load::PerPeer => " at each peer",
    };
    writeln!(out, "{}{form} on {}: {} peers", setting.protocol, rounds.overlay, rounds.peers)?;
    writeln!(
        out,
        "{} resources with {} replicas, {} votes win; {} rounds of {:#}, {} requests in each{whose}, {} trials, seed {}\n",
        rounds.resources,
        rounds.quorum.replicas(),
        rounds.quorum.votes(),
        rounds.rounds,
        rounds.round,
        rounds.requests,
        setting.trials,
        setting.seed
    )?;
    let per_trial = |count: u64| count as f64 / f64::from(report.trials.max(1));
    let harm = report.harm();
    writeln!(
        out,
        "per trial: {:.1} asked, {:.1} did not since their peer waited already, {:.1} entered, {:.1} waited at the end",
        per_trial(report.asked()),
        per_trial(report.skipped()),
        per_trial(report.grants()),
        per_trial(report.waiting)
    )?;
    let direct = report.sent() - report.hops;
    writeln!(
        out,
        "messages per trial: {:.1}, of which {:.1} hops and {:.1} direct",
        per_trial(report.sent()),
        per_trial(report.hops),
        per_trial(direct)
    )?;
    let per_entry = |count: u64| count as f64 / report.grants().max(1) as f64;
    let by_type: Vec<String> =
        report.messages.iter().map(|&(kind, count)| format!("{kind} {:.3}", per_entry(count))).collect();
    writeln!(out, "messages per entry: {:.3} ({})", per_entry(report.sent()), by_type.join(", "))?;
    if let Some(JsonLoad { mean, p50, p90, p99, max }) = JsonLoad::of(&report.received) {
        writeln!(
            out,
            "messages that a peer gets in a round: mean {mean:.3}, p50 {p50}, p90 {p90}, p99 {p99}, max {max}"
        )?;
    }
    if report.upkeep > 0 {
        writeln!(out, "upkeep of the overlay: {:.1} messages per trial", per_trial(report.upkeep))?;
    }
    if let Some(wait) = report.wait() {
        let all = wait.all;
        writeln!(
            out,
            "waiting time, s: mean {:.3}, p50 {:.3}, p90 {:.3}, p99 {:.3}, max {:.3}",
            all.mean, all.p50, all.p90, all.p99, all.max
        )?;
    }
    trouble(out, &report.trouble)?;
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
fn trouble(out: &mut impl Write, trouble: &Trouble) -> std::io::Result<()> {
    let Trouble { failed, crashed, joined, resets, forgotten, most_forgotten, lost, refused, undelivered, strange } =
        *trouble;
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
