//! `peerlock-lab live`.

mod page;

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use peerlock_catalogue::{Flags, Setting};
use peerlock_live::{Comparison, Costs, Death, Kill, Live, Machine, Row};
use peerlock_types::Span;
use serde_json::json;

use crate::html;
use crate::simulate::print::{self, Json};
use crate::{Error, Result};
use peerlock_console::progress_bar;

/// Run a protocol in separate processes, over TCP, in real time
///
/// Takes the flags of simulate and prints the same report. By default 32 peers acquire 10 times each, in one trial.
#[derive(Args)]
#[command(group = clap::ArgGroup::new("page").args(["compare", "table"]).multiple(true))]
pub struct Options {
    #[command(flatten)]
    flags: Flags,
    /// Number of processes that share the peers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    processes: u16,
    /// Run processes on this machine, in turn with others given; messages are not encrypted; repeatable
    ///
    /// ADDRESS is the address at which the machine is reachable, COMMAND runs peerlock-lab there:
    /// 10.0.0.7='ssh 10.0.0.7 peerlock-lab'.
    #[arg(long, value_name = "ADDRESS=COMMAND")]
    on: Vec<Machine>,
    /// Time scale: at 100 a second of the setting takes 10 ms, and the overhead of a message counts 100 times as much
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    speed: u32,
    /// Kill a peer's process at this time, and restart it empty after DOWN; repeatable
    ///
    /// TARGET is a peer's number, holder, waiter or busiest: 3@100s, holder@100s+20s. Every potential victim has its
    /// own process.
    #[arg(long, value_name = "TARGET@TIME[+DOWN]")]
    kill: Vec<Kill>,
    /// Partition the processes into two halves from one time to another: 100s/130s
    #[arg(long, value_name = "FROM/TO", value_parser = cut)]
    cut: Option<(Span, Span)>,
    /// Abort the run after this time of the setting without an acquisition
    #[arg(long, value_name = "TIME", default_value = "600s")]
    patience: Span,
    /// Also simulate the setting, and print both results
    #[arg(long)]
    compare: bool,
    /// Run every protocol instead, compared with the simulator, or with kills
    #[arg(long, conflicts_with_all = ["kill", "cut", "compare", "speed"])]
    table: Option<Table>,
    /// With --compare or --table: write live.html (plots and tables) and live.json (data) to this directory
    #[arg(long, value_name = "DIR", requires = "page")]
    out: Option<PathBuf>,
    /// Print the JSON object of simulate, with further results in `live`
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Table {
    /// Simulated and real results of each
    Protocols,
    /// The effect of killing a holder, a waiter or the busiest peer
    Kills,
}

fn cut(text: &str) -> std::result::Result<(Span, Span), String> {
    let moments = text.split_once('/').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    moments.filter(|(from, to)| from < to).ok_or_else(|| "use two times, the earlier first: 100s/130s".into())
}

pub fn run(options: &Options) -> Result<()> {
    let wanted = peerlock_live::Options {
        // The path of the command may be another program by now.
        program: "/proc/self/exe".into(),
        machines: options.on.clone(),
        processes: options.processes.into(),
        speed: options.speed,
        kills: options.kill.clone(),
        cut: options.cut,
        patience: options.patience,
    };
    options.out.as_deref().map(html::prepare).transpose()?;
    if let Some(table) = options.table {
        return all(options, &wanted, table);
    }
    let refused = |refused: peerlock_catalogue::Refused| Error::Usage(refused.to_string());
    let setting = peerlock_live::setting(options.flags.clone()).map_err(refused)?;
    let bar = progress_bar();
    bar.set_length(setting.cost());
    bar.set_message(setting.name());
    let start = Instant::now();
    let live = peerlock_live::run(&setting, &wanted, &|entries| bar.inc(entries));
    let took = start.elapsed();
    bar.finish_and_clear();
    let live = live.map_err(|error| explained(error, &setting))?;
    let compared = options.compare.then(|| {
        let simulated = peerlock_live::simulated(&setting).map_err(|error| explained(error, &setting))?;
        Ok::<_, Error>(Comparison { simulated, real: Costs::of(&setting, &live.report) })
    });
    let compared = compared.transpose()?;
    // Printed before the page, which perhaps cannot be written.
    let shown = show(options, &setting, &live, compared.as_ref(), took);
    let page = match (&options.out, &compared) {
        (Some(dir), Some(both)) => {
            let row = Row {
                name: setting.name(),
                kind: "this setting",
                command: setting.command(),
                speed: options.speed,
                both: both.clone(),
            };
            let rows = [row];
            let html = page::comparison(&rows, live.processes, &html::command());
            Some(html::write(dir, "live", &html, &rows)?)
        }
        _ => None,
    };
    shown.and_then(|()| print_path(options, page))
}

/// Converts an error: violations as in `simulate`, settings that cannot run on sockets to usage errors.
fn explained(error: peerlock_live::Error, setting: &Setting) -> Error {
    match error {
        peerlock_live::Error::Setting(peerlock_catalogue::Error::Matrix(error)) => error.into(),
        peerlock_live::Error::Setting(peerlock_catalogue::Error::Broken(failure)) => {
            let again = setting.command().replacen("simulate", "live", 1);
            Error::Broken { failure, again: format!("{again} (real runs differ)") }
        }
        peerlock_live::Error::Refused(why) => Error::Usage(why),
        error => error.into(),
    }
}

fn show(options: &Options, setting: &Setting, live: &Live, both: Option<&Comparison>, took: Duration) -> Result<()> {
    let (mut out, report) = (stdout().lock(), &live.report);
    let seconds = took.as_secs_f64();
    if options.json {
        let whole = serde_json::to_value(Json::new(setting, report, took));
        let mut whole = whole.map_err(std::io::Error::from)?;
        let deaths: Vec<_> = live.deaths.iter().map(as_json).collect();
        let spared: Vec<String> = live.spared.iter().map(ToString::to_string).collect();
        whole["live"] = json!({
            "processes": live.processes, "speed": options.speed, "seconds": seconds, "deaths": deaths,
            "spared": spared, "clocks_apart": live.clocks_apart.as_secs_f64(), "comparison": both,
        });
        serde_json::to_writer(&mut out, &whole).map_err(std::io::Error::from)?;
        writeln!(out)?;
        return Ok(out.flush()?);
    }
    print::table(&mut out, setting, report, took)?;
    let (processes, speed) = (live.processes, options.speed);
    writeln!(
        out,
        "real peers in {processes} processes over TCP, {speed} times as fast as the setting: {seconds:.1} s"
    )?;
    if !options.on.is_empty() {
        let apart = 1e3 * live.clocks_apart.as_secs_f64();
        let machines = options.on.len().min(processes);
        writeln!(
            out,
            "on {machines} machines, whose clocks are known to within {apart:.3} ms: {:.1} ms of the setting; the \
             order of closer events is uncertain",
            apart * f64::from(speed)
        )?;
    }
    for Death { peers, at, before, after, goes_on, .. } in &live.deaths {
        let target: Vec<String> = peers.iter().map(ToString::to_string).collect();
        let goes_on = goes_on.map_or("never".into(), |span| format!("{:.3} s", span.as_secs_f64()));
        let target = target.join(", ");
        writeln!(
            out,
            "killed at {at}: peer {target}; {before} entries before, {after} after, the next after {goes_on}"
        )?;
    }
    for kill in &live.spared {
        writeln!(out, "no effect of {kill}: there was no such peer, or it was dead already")?;
    }
    if let Some(both) = both {
        write!(out, "\n{both}")?;
    }
    Ok(out.flush()?)
}

fn as_json(death: &Death) -> serde_json::Value {
    let peers: Vec<u64> = death.peers.iter().map(|peer| peer.get()).collect();
    json!({
        "trial": death.trial, "peers": peers, "at": death.at.since(peerlock_types::Time::ZERO).as_secs_f64(),
        "before": death.before, "after": death.after, "goes_on": death.goes_on.map(Span::as_secs_f64),
    })
}

fn print_path(options: &Options, page: Option<PathBuf>) -> Result<()> {
    match page {
        Some(page) if !options.json => Ok(writeln!(stdout(), "\n{}", page.display())?),
        _ => Ok(()),
    }
}

fn all(options: &Options, wanted: &peerlock_live::Options, table: Table) -> Result<()> {
    let seed = options.flags.seed.unwrap_or(1);
    if options.flags != (Flags { seed: options.flags.seed, ..Flags::default() }) {
        return Err(Error::Usage(
            "a table has its own settings: leave out all flags but --seed and --processes".into(),
        ));
    }
    let bar = progress_bar();
    let steps = |name: &str, of: usize| {
        bar.set_length(of as u64);
        bar.set_message(name.to_string());
        bar.inc(1);
    };
    let start = Instant::now();
    let command = html::command();
    let results = match table {
        Table::Protocols => peerlock_live::protocols(wanted, seed, &steps).map(|table| {
            let html = page::comparison(&table.0, options.processes.into(), &command);
            (serde_json::to_value(&table), table.to_string(), html)
        }),
        Table::Kills => peerlock_live::kills(wanted, seed, &steps)
            .map(|table| (serde_json::to_value(&table), table.to_string(), page::kills(&table.0, &command))),
    };
    bar.finish_and_clear();
    let (json, text, html) = results?;
    let json = json.map_err(std::io::Error::from)?;
    let text = if options.json { json.to_string() } else { format!("{text}\n{:.0} s", start.elapsed().as_secs_f64()) };
    let shown = writeln!(stdout(), "{text}");
    let page = options.out.as_deref().map(|dir| html::write(dir, "live", &html, &json)).transpose()?;
    shown?;
    print_path(options, page)
}

pub fn child() -> Result<()> {
    peerlock_live::child().map_err(|error| Error::Usage(error.to_string()))
}
