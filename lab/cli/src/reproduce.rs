//! `peerlock-lab reproduce`.

use std::io::{Write, stdout};
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use peerlock_figures::report::{self, Outcome, Provenance};
use peerlock_figures::{Plan, Progress, Store, select};

use crate::{Error, Result};
use peerlock_console::progress_bar;

/// Run the experiments of the papers' figures and of our own, and write a report
#[derive(Args)]
pub struct Options {
    /// Figures by ID (fair-k/fig3), group (fair-k) or experiment file (./mine.toml) [default: all built-in figures]
    #[arg(value_name = "FIGURE")]
    figures: Vec<String>,
    /// List the figures
    #[arg(long)]
    list: bool,
    /// Fewer and shorter trials
    #[arg(long)]
    quick: bool,
    /// Output directory; finished points in it are reused
    #[arg(long, default_value = "out", value_name = "DIR")]
    out: PathBuf,
    /// Seed of all random numbers; the same seed gives the same report
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
}

pub fn run(options: &Options) -> Result<()> {
    let figures = select(&options.figures)?;
    if options.list {
        let mut out = stdout().lock();
        let wide = figures.iter().map(|figure| figure.id.len()).max().unwrap_or(0);
        for figure in &figures {
            writeln!(out, "{:<wide$}  {} ({})", figure.id, figure.file.title, figure.file.origin)?;
        }
        return Ok(out.flush()?);
    }
    let plan = Plan::new(figures, options.quick, options.seed)?;
    let store = Store::open(&options.out)?;

    let bar = progress_bar();
    let start = Instant::now();
    let results = crate::on_threads(options.threads, || {
        plan.run(&store, &|progress| match progress {
            Progress::ToDo(entries) => bar.set_length(entries),
            Progress::Point(name) => bar.set_message(name.to_string()),
            Progress::Done(entries) => bar.inc(entries),
        })
    });
    bar.finish_and_clear();
    let results = results??;

    let provenance = Provenance {
        version: env!("CARGO_PKG_VERSION").into(),
        commit: env!("PEERLOCK_COMMIT").into(),
        command: crate::html::command(),
        seed: options.seed.to_string(),
        duration: format!("{:.1} s", start.elapsed().as_secs_f64()),
    };
    let outcome = report::write(&options.out, &plan, &results, &provenance)?;
    let mut out = stdout().lock();
    if results.resumed > 0 {
        writeln!(out, "resumed: {} of {} points were already there", results.resumed, plan.points())?;
    }
    let Outcome { page, claimed, moved } = outcome;
    match claimed {
        0 => writeln!(out, "{}: nothing to compare with", page.display())?,
        _ => {
            let kept = claimed - moved.len();
            writeln!(out, "{}: {kept} of {claimed} published numbers and promises are as claimed", page.display())?;
        }
    }
    out.flush()?;
    if moved.is_empty() { Ok(()) } else { Err(Error::Moved(moved)) }
}
