//! Runs a command while a lease is valid, and returns how it ended.
//!
//! The caller renews the lease and moves its end. This crate ensures that the command's process group is dead after
//! that end. Linux only.
//!
//! ```no_run
//! use peerlock_supervise::{Job, Moment, OnLost, errand, supervise};
//! use std::process::ExitCode;
//! use std::time::Duration;
//!
//! fn main() -> ExitCode {
//!     // `supervise` executes this program again as the guard, and as the process that becomes the command.
//!     if let Some(code) = errand() {
//!         return code;
//!     }
//!     let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
//!     runtime.block_on(async {
//!         let (renewed, lease) = tokio::sync::watch::channel(Moment::now() + Duration::from_secs(30));
//!         let job = Job {
//!             command: vec!["rsync".into(), "-a".into(), "/home".into(), "backup:".into()],
//!             env: vec![("PEERLOCK_FENCING".into(), "7".into())],
//!             on_lost: OnLost::Term,
//!             grace: Duration::from_secs(5),
//!             slack: Duration::from_secs(1),
//!             connection: None,
//!         };
//!         let notify = |notice| eprint!("{}", format!("peerlock: {notice}\n"));
//!         let outcome = supervise(&job, lease, notify).await.unwrap();
//!         drop(renewed); // Until then, renewals of the grant send later ends to it.
//!         outcome.end()
//!     })
//! }
//! ```
//!
//! `docs/guide.md` has the guarantees, `docs/notes/2026-11-19-run.md` the design.

#![allow(missing_docs, reason = "internal: comments say only what the names do not")]

mod child;
mod clock;
mod death;
mod errand;
mod group;
mod guard;
mod lease;
mod signals;
mod supervise;
mod terminal;

pub use errand::errand;
pub use lease::OnLost;
pub use peerlock_clock::Moment;
pub use signals::Signals;
pub use supervise::{Job, Notice, Outcome, supervise};
