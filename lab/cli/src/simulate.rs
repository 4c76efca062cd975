//! `peerlock-lab simulate`.

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

/// Simulate a protocol in virtual time
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    flags: Flags,
    /// Number of threads [default: one per core]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print one JSON object, times in seconds; its `setting` has the value of every flag
    #[arg(long)]
    json: bool,
    /// Also write the results of each trial to this file
    #[arg(long, value_name = "FILE")]
    trials_csv: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let setting = Setting::try_from(options.flags.clone()).map_err(|refused| Error::Usage(refused.to_string()))?;
    let table = options.trials_csv.as_deref().map(Table::open).transpose()?;
    let (report, took) = timed(options, &setting)?;
    let shown = show(options, &setting, &report, took);
    // The file is written even if standard output was closed.
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

/// The file of `--trials-csv`. Opened before the run, so that an unwritable path fails at once; its old content stays
/// until the run has ended.
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
