//! Protocols by name, and [`Setting`]: everything that a simulated run depends on.
//!
//! Command lines and experiment files are both [`Flags`]. A [`Setting`] is one with all its defaults, checked;
//! [`Setting::command`] is the inverse, and [`Setting::run`] runs the simulation.
//!
//! ```
//! use peerlock_catalogue::{Flags, Setting};
//! let flags = Flags { peers: Some(8), trials: Some(2), entries: Some(50), ..Flags::default() };
//! let setting = Setting::try_from(flags)?;
//! assert!(setting.command().starts_with("peerlock-lab simulate --protocol fair-k --form repaired --peers 8"));
//! # Ok::<(), peerlock_catalogue::Refused>(())
//! ```
#![allow(missing_docs, reason = "a comment that repeats a name is left out")]

mod flags;
mod pair;
mod protocol;
mod run;
mod setting;

pub use flags::Flags;
pub use pair::{Pair, PairError, Partition};
pub use protocol::{Among, Form, Protocol, Recovery, UnknownProtocol};
pub use run::Error;
pub use setting::{Refused, Setting, Workload};
