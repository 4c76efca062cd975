//! `peerlock-lab simulate`: one setting of one protocol, as a table or as JSON.

pub mod print;

use std::fs::{self, File, OpenOptions};
use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use peerlock_catalogue::{self as catalogue, Flags, Setting};
use peerlock_sim::Report;

use crate::{Error, Result};
use peerlock_console::progress_bar;
use print::Json;

/// Peers or clients ask, wait, stay inside and leave
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    flags: Flags,
    /// How many threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// One JSON object on standard output, times in seconds; `setting` is all that the run depends on, by the names of
    /// the flags
    #[arg(long)]
    json: bool,
    /// Each trial's numbers, one line for each, into this file as well
    #[arg(long, value_name = "FILE")]
    trials_csv: Option<PathBuf>,
}

/// Runs the command.
pub fn run(options: &Options) -> Result<()> {
    let setting = Setting::try_from(options.flags.clone()).map_err(|refused| Error::Usage(refused.to_string()))?;
    let table = options.trials_csv.as_deref().map(Table::open).transpose()?;
    let (report, took) = timed(options, &setting)?;
    let shown = show(options, &setting, &report, took);
    // Also if whoever reads the table has seen enough of it.
    table.map_or(Ok(()), |table| table.write(&report.trials_csv())).and(shown)
}

fn show(options: &Options, setting: &Setting, report: &Report, took: Duration) -> Result<()> {
    let mut out = stdout().lock();
    if options.json {
        serde_json::to_writer(&mut out, &Json::new(setting, report, took)).map_err(std::io::Error::from)?;
        writeln!(out)?;
    } else {
        print::table(&mut out, setting, report, took)?;
    }
    Ok(out.flush()?)
}

/// A file for each trial's numbers. It is there before the run: who has waited for an hour shall not hear then that it
/// cannot be written. What it had in it stays until there is something else.
struct Table<'a> {
    path: &'a Path,
    _open: File,
}

impl<'a> Table<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let open = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        Ok(Self { path, _open: open.map_err(|source| Error::File { path: path.into(), source })? })
    }

    fn write(self, text: &str) -> Result<()> {
        fs::write(self.path, text).map_err(|source| Error::File { path: self.path.into(), source })
    }
}

/// Runs all trials on as many threads as wanted, with a bar; and how long that took.
fn timed(options: &Options, setting: &Setting) -> Result<(Report, Duration)> {
    let bar = progress_bar();
    bar.set_length(setting.cost());
    bar.set_message(setting.name());
    let start = Instant::now();
    let report = crate::on_threads(options.threads, || setting.run(&|cost| bar.inc(cost)));
    let took = start.elapsed();
    bar.finish_and_clear();
    match report? {
        Ok(report) => Ok((report, took)),
        Err(catalogue::Error::Matrix(error)) => Err(error.into()),
        Err(catalogue::Error::Broken(failure)) => Err(Error::Broken { failure, again: setting.command() }),
    }
}
