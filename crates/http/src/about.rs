//! What an agent says of itself.

use std::time::Duration;

use peerlock_service::{Health, json};
use serde::{Deserialize, Serialize};
#[cfg(feature = "server")]
use utoipa::ToSchema;

/// A running agent: which program, where, since when, and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct AgentView {
    /// The program that runs, and where.
    pub program: Program,
    /// Its process.
    pub pid: u32,
    /// For how long it has run.
    #[serde(rename = "runs_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub runs: Duration,
    /// How long the machine has slept meanwhile.
    #[serde(rename = "slept_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub slept: Duration,
    /// How it stands; of the resources only those that do not move.
    pub health: Health,
    /// What it has to know to be a member of its cluster, if it has that from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretView>,
}

/// The cluster secret that an agent goes by: which it is, and never what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct SecretView {
    /// The file that it was read from.
    pub file: String,
    /// The fingerprint of the secret that it proves to know first; then that of the one before it, while both count.
    pub fingerprints: Vec<String>,
    /// The numbers of the peers that are linked with it and have proved only the one before it: they may not know the
    /// new one yet.
    pub behind: Vec<String>,
    /// The numbers of the peers that are linked with it and have proved the first. Of others it knows nothing.
    #[serde(default)]
    pub proved: Vec<String>,
}

/// The program that an agent is, and what it was told at its start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Program {
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// Its data folder, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<String>,
    /// Where it listens for other peers; empty if it does not.
    pub listens: String,
    /// Where other peers are told to find it, the likeliest first.
    pub addresses: Vec<String>,
}

impl Default for Program {
    fn default() -> Self {
        let (version, commit) = (env!("CARGO_PKG_VERSION").to_owned(), "unknown".to_owned());
        Self { version, commit, data_dir: None, listens: String::new(), addresses: Vec::new() }
    }
}

/// The session stands, and slots are granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Healthy {
    /// The number of the agent's session.
    pub session: u64,
    /// How long it stands from now unless it is renewed.
    #[serde(rename = "ends_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub ends: Duration,
}
