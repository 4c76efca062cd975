//! A report as a table or as JSON.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use peerlock_catalogue::{Setting, Workload};
use peerlock_sim::{Load, Numbers, Received, Report, WaitSummary};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// The object of `--json`. Its fields are stable; a value that a run does not measure is null or missing. `numbers` has
/// all counts by their watchers' names.
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
    wait: Option<Value>,
    steady: Option<Value>,
    per_peer_max: Option<Value>,
    messages_per_entry: f64,
    messages: Map<String, Value>,
    idle_while_waiting: Option<f64>,
    order_inversions: Option<u64>,
    violations: u64,
    fencing_violations: u64,
    stuck: u64,
    stopped: u64,
    numbers: &'a Numbers,
    events: u64,
    events_per_second: f64,
    #[serde(flatten)]
    more: Map<String, Value>,
}

impl<'a> Json<'a> {
    pub fn new(setting: &'a Setting, report: &'a Report, took: Duration) -> Self {
        let (harm, numbers) = (report.harm(), &report.numbers);
        let mut more = counts(setting, report);
        if let (Workload::Open, Some((worst, replicas))) = (setting.workload(), report.worst) {
            let (messages, yields, place) = (worst.messages, worst.yields, worst.place);
            let worst = json!({
                "messages": messages, "yields": yields, "place": place, "bound": worst.bound(replicas),
            });
            more.insert("worst_client".into(), worst);
            more.insert("throughput".into(), report.throughput().into());
            more.insert("steady_messages_per_entry".into(), report.steady_messages_per_entry().into());
        }
        if setting.workload() == Workload::Rounds {
            more.insert("grants".into(), report.steady_flow.entries.into());
            more.insert("messages_sent".into(), report.sent().into());
            more.insert("received".into(), received(&report.received).into());
        }
        Self {
            setting,
            protocol: setting.protocol().to_string(),
            form: setting.form.map(|form| form.to_string()),
            peers: setting.peers,
            slots: setting.slots.unwrap_or(1),
            trials: setting.trials(),
            seed: setting.seed(),
            entries: report.entries,
            wait: report.wait.map(wait),
            steady: report.steady.map(wait),
            per_peer_max: report.per_peer_max.map(|peers| {
                let (min, p10, p50, p90, max) = (peers.min, peers.p10, peers.p50, peers.p90, peers.max);
                json!({ "min": min, "p10": p10, "p50": p50, "p90": p90, "max": max })
            }),
            messages_per_entry: report.messages_per_entry(),
            messages: report.messages.iter().map(|&(kind, count)| (kind.into(), count.into())).collect(),
            idle_while_waiting: numbers.get("idle while waiting"),
            order_inversions: numbers.get("order inversions").map(|inversions| inversions as u64),
            violations: harm.violations,
            fencing_violations: harm.fencing_back,
            stuck: harm.stuck,
            stopped: harm.stopped,
            numbers,
            events: report.events,
            events_per_second: report.events as f64 / took.as_secs_f64(),
            more,
        }
    }
}

/// Returns counts over all trials by name, and some settings that remain for compatibility.
fn counts(setting: &Setting, report: &Report) -> Map<String, Value> {
    let (settings, counted): (&[&str], &[(&str, &str)]) = match setting.workload() {
        Workload::Closed => (&[], &[]),
        Workload::Open => (
            &["replicas", "votes", "arrival-rate"],
            &[
                ("clients", "asked"),
                ("most_resets_in_a_lease", "resets within a lease"),
                ("most_yields_of_a_client", "yields of a client"),
            ],
        ),
        Workload::Rounds => (
            &["overlay", "resources", "replicas", "votes", "rounds", "requests", "load", "churn"],
            &[
                ("asked", "asked in rounds"),
                ("skipped", "skipped"),
                ("waiting", "waiting after the rounds"),
                ("hops", "hops"),
                ("upkeep", "upkeep"),
                ("undelivered", "undelivered"),
            ],
        ),
    };
    let always = ["refused", "lost", "withdrawn", "crashed", "restarted", "resets", "unexpected"];
    let counted = always.into_iter().map(|name| (name, name)).chain(counted.iter().copied());
    let mut counts: Map<String, Value> =
        counted.map(|(name, count)| (name.into(), report.numbers.count(count).into())).collect();
    let whole = serde_json::to_value(setting).expect("a setting is strings, numbers and booleans");
    counts.extend(settings.iter().map(|name| (name.replace('-', "_"), whole[name].clone())));
    counts
}

fn wait(WaitSummary { all, mean_of_trial_max }: WaitSummary) -> Value {
    json!({
        "mean": all.mean, "p50": all.p50, "p90": all.p90, "p99": all.p99, "max": all.max, "spread": all.spread,
        "mean_of_trial_max": mean_of_trial_max,
    })
}

fn received(received: &Received) -> Option<Value> {
    let at = |percent| received.quantile(percent);
    let (mean, p50, p90, p99, max) = (received.mean()?, at(50)?, at(90)?, at(99)?, at(100)?);
    Some(json!({ "mean": mean, "p50": p50, "p90": p90, "p99": p99, "max": max }))
}

const WIDTH: usize = 120;

/// Numbers, with a record of those that the table prints with its own text.
struct Printed<'a> {
    numbers: &'a Numbers,
    used: RefCell<BTreeSet<&'static str>>,
}

impl Printed<'_> {
    fn get(&self, name: &'static str) -> Option<f64> {
        self.used.borrow_mut().insert(name);
        self.numbers.get(name)
    }

    fn count(&self, name: &'static str) -> u64 {
        self.get(name).map_or(0, |_| self.numbers.count(name))
    }

    fn others(&self) -> Vec<String> {
        let others = self.numbers.names().filter(|name| !self.used.borrow().contains(name));
        let number = |name| (name, self.numbers.get(name).unwrap_or(0.0));
        let nonzero = others.map(number).filter(|(_, number)| *number != 0.0);
        nonzero
            .map(|(name, number)| match number.fract() == 0.0 {
                true => format!("{name}: {number}"),
                false => format!("{name}: {number:.3}"),
            })
            .collect()
    }
}

/// Prints the table, without events that did not happen.
pub fn table(out: &mut impl Write, setting: &Setting, report: &Report, took: Duration) -> std::io::Result<()> {
    let numbers = &Printed { numbers: &report.numbers, used: RefCell::default() };
    heading(out, setting)?;
    if let Some(throughput) = report.throughput().filter(|_| numbers.count("nanoseconds measured") > 0) {
        writeln!(out, "throughput: {throughput:.3} entries per second")?;
    }
    if setting.workload() == Workload::Rounds {
        rounds(out, report, numbers)?;
    }
    clients(out, setting, report, numbers)?;
    waits(out, setting, report)?;
    let (per_entry, entries) = (report.messages_per_entry(), report.entries_with_messages());
    let kind = |&(kind, count): &(&str, u64)| format!("{kind} {:.3}", count as f64 / entries.max(1) as f64);
    let by_type: Vec<String> = report.messages.iter().map(kind).collect();
    writeln!(out, "\nmessages per entry: {per_entry:.3} ({})", by_type.join(", "))?;
    if let Some(idle) = numbers.get("idle while waiting") {
        writeln!(out, "slot time lost while a client waited: {:.3} %", 100.0 * idle)?;
    }
    if let Some(inversions) = numbers.get("order inversions") {
        let share = 100.0 * inversions / report.entries.max(1) as f64;
        writeln!(out, "entries that overtook an earlier request: {share:.3} %")?;
    }
    faulty(out, report, numbers)?;
    others(out, numbers)?;
    let (harm, events) = (report.harm(), report.events);
    let stuck = if harm.stuck > 0 { format!(", never served: {}", harm.stuck) } else { String::new() };
    let speed = events as f64 / took.as_secs_f64() / 1e6;
    writeln!(out, "violations: {}{stuck} in {events} events ({speed:.1} million events per second)", harm.violations)
}

fn heading(out: &mut impl Write, setting: &Setting) -> std::io::Result<()> {
    let pairs: BTreeMap<String, String> = setting.pairs().into_iter().collect();
    let of = |name: &str| pairs.get(name).map_or("", String::as_str);
    let (protocol, form) = (setting.protocol(), setting.form.map(|form| format!(" ({form})")).unwrap_or_default());
    let (peers, replicas, votes, trials, seed) = (of("peers"), of("replicas"), of("votes"), of("trials"), of("seed"));
    let what = match setting.workload() {
        Workload::Closed => {
            let target = match (replicas, votes, of("slots")) {
                ("", _, slots) => format!("{slots} slots"),
                (voters, "", slots) => format!("{slots} slots, {voters} voters"),
                _ => format!("{votes} of {replicas} votes"),
            };
            format!("{peers} peers, {target}, {trials} trials of {} entries each, seed {seed}", of("entries"))
        }
        Workload::Open => format!(
            "{votes} of {replicas} votes, {} clients per second, {trials} trials of {}, seed {seed}",
            of("arrival-rate"),
            of("measure")
        ),
        Workload::Rounds => {
            let whose = if setting.load == Some(Load::PerPeer) { " at each peer" } else { "" };
            format!(
                "{peers} peers on {}\n{} resources with {replicas} replicas, {votes} votes win; {} rounds of {}, {} \
                 requests in each{whose}, {trials} trials, seed {seed}",
                of("overlay"),
                of("resources"),
                of("rounds"),
                of("round"),
                of("requests")
            )
        }
    };
    writeln!(out, "{protocol}{form}: {what}\n")
}

fn rounds(out: &mut impl Write, report: &Report, numbers: &Printed<'_>) -> std::io::Result<()> {
    let per_trial = |count: u64| count as f64 / f64::from(report.trials.max(1));
    let count = |name| per_trial(numbers.count(name));
    writeln!(
        out,
        "per trial: {:.1} requests, {:.1} skipped (their peer waited already), {:.1} grants, {:.1} waiting at the end",
        count("asked in rounds"),
        count("skipped"),
        per_trial(report.steady_flow.entries),
        count("waiting after the rounds")
    )?;
    let (sent, hops) = (per_trial(report.sent()), count("hops"));
    writeln!(out, "messages per trial: {sent:.1}, of which {hops:.1} hops and {:.1} direct", sent - hops)?;
    if let Some(Value::Object(load)) = received(&report.received) {
        let of = |name: &str| load[name].as_f64().unwrap_or(0.0);
        writeln!(
            out,
            "messages that a peer receives in a round: mean {:.3}, p50 {}, p90 {}, p99 {}, max {}",
            of("mean"),
            of("p50"),
            of("p90"),
            of("p99"),
            of("max")
        )?;
    }
    if count("upkeep") > 0.0 {
        writeln!(out, "upkeep of the overlay: {:.1} messages per trial", count("upkeep"))?;
    }
    Ok(())
}

fn clients(out: &mut impl Write, setting: &Setting, report: &Report, numbers: &Printed<'_>) -> std::io::Result<()> {
    let [asked, refused, lost, withdrawn, yields] =
        ["asked", "refused", "lost", "withdrawn", "yields of a client"].map(|name| numbers.count(name));
    let is_open = setting.workload() == Workload::Open;
    if is_open || refused + lost + withdrawn > 0 {
        writeln!(
            out,
            "clients: {asked} requested, {refused} were refused, {lost} lost their lease, {withdrawn} withdrew"
        )?;
    }
    if let (Some((worst, _)), Some(share)) = (report.worst, report.worst_of_bound()) {
        let (messages, place, share) = (worst.messages, worst.place, 100.0 * share);
        writeln!(out, "worst client: {messages} messages from place {place}, {share:.0} % of 4n + 2n ⌈ln P⌉")?;
    }
    if yields > 0 {
        writeln!(out, "most YIELDs of a client: {yields}")?;
    }
    if is_open || report.rounds.is_empty() { Ok(()) } else { writeln!(out) }
}

fn waits(out: &mut impl Write, setting: &Setting, report: &Report) -> std::io::Result<()> {
    let too_short = match (setting.workload(), setting.warm_up) {
        (Workload::Rounds, _) => None, // Rounds have no steady state.
        (_, Some(warm_up)) => Some(format!("a peer needs more than {warm_up} entries")),
        _ => Some("there was no grant in the measured time".into()),
    };
    writeln!(out, "waiting time, s      mean       p50       p90       p99       max    spread  mean of max")?;
    for (name, wait) in [("whole run", report.wait), ("steady state", report.steady)] {
        match (wait, &too_short) {
            (Some(WaitSummary { all, mean_of_trial_max }), _) => writeln!(
                out,
                "{name:<14} {:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{:>10.3}{mean_of_trial_max:>13.3}",
                all.mean, all.p50, all.p90, all.p99, all.max, all.spread
            )?,
            (None, Some(too_short)) => writeln!(out, "{name:<14} none: {too_short}")?,
            (None, None) => (),
        }
    }
    if let Some(longest) = report.per_peer_max {
        writeln!(
            out,
            "\nlongest wait of each peer, s: min {:.3}, p10 {:.3}, p50 {:.3}, p90 {:.3}, max {:.3}",
            longest.min, longest.p10, longest.p50, longest.p90, longest.max
        )?;
    }
    Ok(())
}

fn faulty(out: &mut impl Write, report: &Report, numbers: &Printed<'_>) -> std::io::Result<()> {
    let harm = report.harm();
    let peers = [
        ("failed", "failed"),
        ("crashed", "crashed"),
        ("restarted", "restarted"),
        ("came", "joined"),
        ("resets", "lost their memory"),
    ];
    let happened = |&(name, _): &(&'static str, &str)| numbers.count(name) > 0;
    let peers: Vec<String> = peers
        .iter()
        .filter(|peer| happened(peer))
        .map(|(name, did)| format!("{} {did}", numbers.count(name)))
        .collect();
    if !peers.is_empty() {
        writeln!(out, "peers: {}", peers.join(", "))?;
    }
    let most = numbers.count("resets within a lease").max(harm.most_forgotten.into());
    if most > 0 {
        writeln!(out, "at most {most} replicas of a resource lost their memory within a lease")?;
    }
    let [undelivered, unexpected] = ["undelivered", "unexpected"].map(|name| numbers.count(name));
    if undelivered + unexpected > 0 {
        writeln!(out, "messages: {undelivered} found no owner, {unexpected} were unexpected")?;
    }
    let (recovered, took) = (numbers.count("recovered"), numbers.count("nanoseconds to recover"));
    if recovered > 0 {
        let mean = took as f64 / 1e9 / recovered as f64;
        writeln!(out, "trials that recovered all slots after the first crash: {recovered}, in {mean:.3} s on average")?;
    }
    if harm.fencing_back > 0 {
        writeln!(out, "fencing numbers that did not increase: {}", harm.fencing_back)?;
    }
    if let Some(stop) = &report.stop {
        writeln!(out, "stopped trials: {}; {stop}", harm.stopped)?;
    }
    Ok(())
}

fn others(out: &mut impl Write, numbers: &Printed<'_>) -> std::io::Result<()> {
    let mut line = String::new();
    for number in numbers.others() {
        if !line.is_empty() && line.len() + number.len() + 2 > WIDTH {
            writeln!(out, "{line}")?;
            line.clear();
        }
        line += if line.is_empty() { "" } else { "; " };
        line += &number;
    }
    if line.is_empty() { Ok(()) } else { writeln!(out, "{line}") }
}
