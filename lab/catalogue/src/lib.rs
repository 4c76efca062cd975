//! The protocols by name, and [`Setting`]: everything that one simulated run depends on.
//!
//! The flags of `peerlock-lab simulate` and the tables of experiment files are both [`Flags`]: the same names, defaults
//! and checks. [`Setting::try_from`] creates a setting from them, [`Setting::command`] is the inverse, and
//! [`Setting::run`] carries out the run. Apart from the product's peer, only this crate names concrete protocols.
//!
//! ```
//! use peerlock_catalogue::{Flags, Setting};
//! let flags = Flags { peers: Some(8), trials: Some(2), entries: Some(50), ..Flags::default() };
//! let setting = Setting::try_from(flags)?;
//! assert!(setting.command().starts_with("peerlock-lab simulate --protocol fair-k --form repaired --peers 8"));
//! # Ok::<(), peerlock_catalogue::Refused>(())
//! ```

mod flags;
mod pair;
mod protocol;
mod run;
mod setting;

pub use flags::Flags;
pub use pair::{Pair, PairError, Partition};
pub use protocol::{Among, Form, Protocol, Recovery, UnknownProtocol};
pub use run::Error;
pub use setting::{Backups, Closed, Load, Open, Refused, Rounds, Setting, Voters};
