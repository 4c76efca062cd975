//! Runs of every protocol, in every form and on every overlay.

use std::fmt;

use peerlock_catalogue::{Among, Flags, Form, Protocol, Setting, Workload};
use peerlock_sim::{Hold, OverlayKind};
use peerlock_types::Span;
use serde::Serialize;

use crate::compare::{Comparison, Costs, difference};
use crate::kill::{Kill, Target};
use crate::parent::{Options, run};
use crate::{Error, defaults};

const TRIALS: u32 = 10;

struct Plan {
    name: String,
    flags: Flags,
    kind: Kind,
}

#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    speed: u32,
}

const PEERS: Kind = Kind { name: "among peers", speed: 200 };
const REPLICAS: Kind = Kind { name: "with replicas", speed: 50 };
const OVERLAYS: Kind = Kind { name: "on overlays", speed: 20 };

/// Returns all protocols except the bound and custody.
fn plans() -> Vec<Plan> {
    let mut plans = Vec::new();
    for &(name, protocol) in Protocol::ALL {
        let flags = Flags { protocol: Some(protocol), count_violations: true, ..Flags::default() };
        for among in protocol.among() {
            match among {
                Among::Nodes => {}
                Among::Peers if protocol == Protocol::Ideal => {}
                Among::Peers => {
                    add(&mut plans, name, flags.clone(), PEERS);
                    if !name.starts_with("bv95-") {
                        let backed = Flags { backups: Some(2), ..flags.clone() };
                        add(&mut plans, &format!("{name}, 2 backups"), backed, PEERS);
                    }
                }
                Among::Replicas => {
                    let hold = Some(Hold::Constant(Span::from_secs(1)));
                    // Random retries cost thousands of messages per acquisition.
                    let entries = (protocol == Protocol::StrawmanRetry).then_some(2);
                    let loaded = Flags { peers: Some(24), replicas: Some(8), hold, entries, ..flags.clone() };
                    add(&mut plans, name, loaded, REPLICAS);
                }
                Among::Overlay => on_overlays(&mut plans, name, &flags),
            }
        }
    }
    plans
}

fn on_overlays(plans: &mut Vec<Plan>, name: &str, flags: &Flags) {
    for overlay in [OverlayKind::Chord, OverlayKind::Pastry] {
        add(plans, &format!("{name} on {overlay}"), Flags { overlay: Some(overlay), ..flags.clone() }, OVERLAYS);
    }
}

fn add(plans: &mut Vec<Plan>, name: &str, flags: Flags, kind: Kind) {
    let printed = Flags { form: Some(Form::Printed), ..flags.clone() };
    if defaults::setting(printed.clone()).is_ok() && printed.backups.is_none() {
        plans.push(Plan { name: format!("{name} as printed"), flags: printed, kind });
    }
    plans.push(Plan { name: name.into(), flags, kind });
}

#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub name: String,
    pub kind: &'static str,
    pub command: String,
    pub speed: u32,
    #[serde(flatten)]
    pub both: Comparison,
}

#[derive(Clone, Debug, Serialize)]
pub struct Protocols(pub Vec<Row>);

pub type Steps<'a> = &'a dyn Fn(&str, usize);

/// Runs every protocol and compares it with the simulator.
///
/// # Errors
///
/// Returns the first error. Violations are part of the table.
pub fn protocols(options: &Options, seed: u64, steps: Steps<'_>) -> Result<Protocols, Error> {
    let plans = plans();
    let mut rows = Vec::new();
    for Plan { name, flags, kind } in &plans {
        steps(name, plans.len());
        let setting = setting(Flags { seed: Some(seed), ..flags.clone() })?;
        let live = run(&setting, &Options { speed: kind.speed, ..options.clone() }, &|_| ())?;
        let both = Comparison { simulated: simulated(&setting)?, real: Costs::of(&setting, &live.report) };
        let command = setting.command();
        rows.push(Row { name: name.clone(), kind: kind.name, command, speed: kind.speed, both });
    }
    Ok(Protocols(rows))
}

fn setting(flags: Flags) -> Result<Setting, Error> {
    defaults::setting(flags).map_err(|refused| Error::Refused(refused.to_string()))
}

/// Simulates the setting.
///
/// # Errors
///
/// Returns a violation if violations are not counted.
pub fn simulated(setting: &Setting) -> Result<Costs, Error> {
    // Only closed loops draw other requests than the real run.
    let is_closed = setting.workload() == Workload::Closed;
    let trials = if is_closed { setting.trials().max(TRIALS) } else { setting.trials() };
    let setting = setting.clone().with_trials(trials);
    Ok(Costs::of(&setting, &setting.run(&|_| ())?))
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<38} {:>7} {:>10} {:>6} | {:^32} | {:^24}",
            "", "", "", "never", "messages per entry", "mean wait, s"
        )?;
        writeln!(
            f,
            "{:<38} {:>7} {:>10} {:>6} | {:>10} {:>10} {:>10} | {:>7} {:>7} {:>8}",
            "protocol", "entries", "violations", "served", "simulated", "real", "", "sim.", "real", ""
        )?;
        for Row { name, both: Comparison { simulated, real }, .. } in &self.0 {
            let wait = |wait: Option<f64>| wait.map_or("-".into(), |wait| format!("{wait:.2}"));
            let waits = simulated.mean_wait.zip(real.mean_wait);
            writeln!(
                f,
                "{name:<38} {:>7} {:>10} {:>6} | {:>10.2} {:>10.2} {:>10} | {:>7} {:>7} {:>8}",
                real.entries,
                real.violations,
                real.stuck,
                simulated.messages_per_entry,
                real.messages_per_entry,
                difference(simulated.messages_per_entry, real.messages_per_entry),
                wait(simulated.mean_wait),
                wait(real.mean_wait),
                waits.map_or("-".into(), |(simulated, real)| difference(simulated, real)),
            )?;
        }
        Ok(())
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct KillRow {
    pub name: String,
    pub target: String,
    pub killed: bool,
    pub before: u64,
    pub after: u64,
    pub violations: u64,
    pub stuck: u64,
    pub goes_on: Option<f64>,
}

impl KillRow {
    pub fn goes_on(&self) -> String {
        match self.goes_on {
            Some(seconds) => format!("{seconds:.2} s"),
            None if self.killed => "never".into(),
            None => "no victim".into(),
        }
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Kills(pub Vec<KillRow>);

const KILLED: Span = Span::from_secs(60);

const DOWN: Span = Span::from_secs(20);

/// Kills a holder, a waiter and the busiest peer of each protocol, the latter also with a restart.
///
/// # Errors
///
/// Returns the first error.
pub fn kills(options: &Options, seed: u64, steps: Steps<'_>) -> Result<Kills, Error> {
    let is_repaired = |plan: &Plan| plan.flags.form != Some(Form::Printed) && !plan.name.contains("bv95-");
    let plans: Vec<Plan> = plans().into_iter().filter(is_repaired).collect();
    let cases =
        [(Target::Holder, None), (Target::Waiter, None), (Target::Busiest, None), (Target::Busiest, Some(DOWN))];
    let mut rows = Vec::new();
    for Plan { name, flags, kind } in &plans {
        for (target, down) in cases {
            let victim =
                if down.is_some() { format!("{target}, restarted after {DOWN:#}") } else { target.to_string() };
            steps(&format!("{name}: {victim}"), plans.len() * cases.len());
            let setting = setting(few(Flags { seed: Some(seed), ..flags.clone() }))?;
            let kills = vec![Kill { target, after: KILLED, down }];
            let live =
                run(&setting, &Options { speed: kind.speed / 2, kills, processes: 1, ..options.clone() }, &|_| ())?;
            let (harm, death) = (live.report.harm(), live.deaths.first());
            rows.push(KillRow {
                name: name.clone(),
                target: victim,
                killed: death.is_some(),
                before: death.map_or(live.report.entries, |death| death.before),
                after: death.map_or(0, |death| death.after),
                violations: harm.violations,
                stuck: harm.stuck,
                goes_on: death.and_then(|death| death.goes_on).map(|span| span.as_secs_f64()),
            });
        }
    }
    Ok(Kills(rows))
}

fn few(flags: Flags) -> Flags {
    if flags.overlay.is_some() {
        return Flags { peers: Some(12), resources: Some(4), replicas: Some(5), ..flags };
    }
    match flags.replicas {
        Some(_) => Flags { peers: Some(7), replicas: Some(5), entries: flags.entries.or(Some(20)), ..flags },
        None => Flags { peers: Some(12), ..flags },
    }
}

impl fmt::Display for Kills {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<26} {:<28} {:>14} {:>10} {:>12} {:>12}",
            "protocol", "killed", "entries", "violations", "never served", "next after"
        )?;
        for row in &self.0 {
            let goes_on = row.goes_on();
            let entries = format!("{} + {}", row.before, row.after);
            writeln!(
                f,
                "{:<26} {:<28} {entries:>14} {:>10} {:>12} {goes_on:>12}",
                row.name, row.target, row.violations, row.stuck
            )?;
        }
        Ok(())
    }
}
