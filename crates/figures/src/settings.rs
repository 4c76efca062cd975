//! Everything that one run depends on, by the names that people use on the command line.

mod closed;
mod open;
mod rounds;

use std::fmt::Display;

use peerlock_sim::Failure;
use serde::{Deserialize, Serialize};

use crate::AnyProtocol;
use crate::metric::Measured;
pub use closed::Closed;
pub use open::Open;
pub use rounds::Rounds;

/// The settings of one run, as they stand in an experiment file. The protocol decides which, and whether there is an
/// overlay.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Settings {
    /// So many peers, each of which asks again and again.
    Closed(Closed),
    /// Clients without number, who ask replicas for their votes.
    Open(Open),
    /// Peers on an overlay, round after round.
    Rounds(Rounds),
}

impl Settings {
    /// The settings of a run from a table of an experiment file.
    ///
    /// # Errors
    /// A setting is missing, unknown, or makes no sense; in a sentence.
    pub fn from_table(table: toml::Table) -> Result<Self, String> {
        let protocol = table.get("protocol").and_then(toml::Value::as_str).unwrap_or_default();
        if table.contains_key("overlay") {
            Rounds::from_table(table).map(Self::Rounds)
        } else if protocol == open::THEORY || matches!(protocol.parse(), Ok(AnyProtocol::Open(_))) {
            Open::from_table(table).map(Self::Open)
        } else {
            Closed::from_table(table).map(Self::Closed)
        }
    }

    /// The settings as text, by name.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        match self {
            Self::Closed(closed) => closed.pairs(),
            Self::Open(open) => open.pairs(),
            Self::Rounds(rounds) => rounds.pairs(),
        }
    }

    /// What a run costs: about how many clients go inside.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Closed(closed) => u64::from(closed.trials) * closed.entries_in_a_trial(),
            Self::Open(open) => u64::from(open.trials) * open.clients_in_a_trial(),
            Self::Rounds(rounds) => rounds.cost(),
        }
    }

    /// What a person sees while it runs.
    pub fn name(&self) -> String {
        match self {
            Self::Closed(closed) => closed.protocol.to_string(),
            Self::Open(open) => open.name(),
            Self::Rounds(rounds) => rounds.name(),
        }
    }

    /// Does the run. `progress` is told how much of its cost is done.
    ///
    /// # Errors
    /// A setting makes no sense, in a sentence; or else a rule was broken.
    pub fn run(&self, seed: u64, progress: impl Fn(u64) + Sync) -> Result<Result<Measured, Box<Failure>>, String> {
        match self {
            Self::Closed(closed) => {
                let (experiment, per_trial) = (closed.experiment(seed)?, closed.entries_in_a_trial());
                let report = closed.protocol.run(closed.form()?, &experiment, |trials| progress(trials * per_trial));
                Ok(report.map(Measured::from))
            }
            Self::Open(open) => open.run(seed, progress),
            Self::Rounds(rounds) => Ok(rounds.run(seed, progress)?.map(Measured::from)),
        }
    }

    /// The command that does the same run.
    pub fn command(&self, seed: u64) -> String {
        let flag = |(name, value): (&str, String)| match value.as_str() {
            "true" => format!("--{name}"), // A switch; settings that are off are not listed.
            value => format!("--{name} {value}"),
        };
        let flags: Vec<String> = self.pairs().into_iter().map(flag).collect();
        format!("peerlock simulate {} --seed {seed}", flags.join(" "))
    }
}

fn in_words(error: impl Display) -> String {
    error.to_string()
}

/// Things that are written as the name a person types.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<T: Display, S: Serializer>(thing: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(thing)
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<T, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
