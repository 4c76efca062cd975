//! Runs a command under a lease, for the tests: `under-lease ON-LOST GRACE-MS LEASE CMD ARGS…`.
//!
//! LEASE is the end of the lease in milliseconds from now, or a named pipe. With a pipe the lease ends in ten hours,
//! and each line is a new end, which may be negative, or `drop` to drop the supervision. Notices are written to stderr.

use std::io::{BufRead, BufReader};
use std::process::ExitCode;
use std::time::Duration;

use peerlock_supervise::{Job, Moment, OnLost, errand, supervise};
use tokio::sync::{oneshot, watch};

const TEN_HOURS: i64 = 36_000_000;

fn main() -> ExitCode {
    if let Some(code) = errand() {
        return code;
    }
    let mut args = std::env::args_os().skip(1);
    let on_lost = match args.next().expect("ON-LOST").to_str() {
        Some("term") => OnLost::Term,
        Some("kill") => OnLost::Kill,
        Some("none") => OnLost::Leave,
        other => panic!("ON-LOST is {other:?}"),
    };
    let grace = args.next().and_then(|ms| ms.to_str()?.parse().ok()).expect("GRACE-MS");
    let ends = args.next().expect("LEASE");
    let (renewed, lease) = watch::channel(from_now(ends.to_str().and_then(|ms| ms.parse().ok()).unwrap_or(TEN_HOURS)));
    let (dropping, dropped) = oneshot::channel();
    let _renewals = std::thread::spawn(move || {
        let Ok(ends) = std::fs::File::open(ends) else { return };
        for end in BufReader::new(ends).lines() {
            let end = end.expect("a line");
            if end == "drop" {
                dropping.send(()).expect("a supervision");
                return;
            }
            renewed.send_replace(from_now(end.parse().expect("milliseconds")));
        }
    });
    let job = Job {
        command: args.collect(),
        env: vec![("PEERLOCK_NAME".into(), "a name".into()), ("PEERLOCK_FENCING".into(), "7".into())],
        on_lost,
        grace: Duration::from_millis(grace),
        slack: Duration::from_secs(1),
        connection: None,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async {
        tokio::select! {
            outcome = supervise(&job, lease, |notice| say(&format!("notice: {notice:?}\n"))) => Some(outcome),
            Ok(()) = dropped => None,
        }
    });
    match outcome {
        Some(outcome) => outcome.expect("a start").end(),
        None => loop {
            std::thread::park();
        },
    }
}

fn from_now(ms: i64) -> Moment {
    let span = Duration::from_millis(ms.unsigned_abs());
    if ms < 0 { Moment::now() - span } else { Moment::now() + span }
}

/// Writes a line atomically, since the command writes to the same terminal.
fn say(line: &str) {
    let _gone = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
}
