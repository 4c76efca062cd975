//! The view of an agent.

use std::time::Duration;

use peerlock_service::{Health, json};
use serde::{Deserialize, Serialize};
#[cfg(feature = "server")]
use utoipa::ToSchema;

/// A running agent: its program, addresses, uptime and health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct AgentView {
    /// The program, and its configuration.
    pub program: Program,
    /// Its process ID.
    pub pid: u32,
    /// Its uptime.
    #[serde(rename = "runs_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub runs: Duration,
    /// How long the machine has slept meanwhile.
    #[serde(rename = "slept_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub slept: Duration,
    /// Its health, with the resources that are stalled.
    pub health: Health,
    /// The cluster secret, if it was read from a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretView>,
}

/// Which cluster secret an agent uses, without the secret itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct SecretView {
    /// The file that it was read from.
    pub file: String,
    /// The fingerprint of the preferred secret; during a rotation also that of the previous one.
    pub fingerprints: Vec<String>,
    /// Linked peers that have proved only the previous secret: they may not know the new one yet.
    pub behind: Vec<String>,
    /// Linked peers that have proved the preferred secret. Peers that are not linked appear in neither list.
    #[serde(default)]
    pub proved: Vec<String>,
}

/// The agent's program and configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Program {
    /// The program's version.
    pub version: String,
    /// The commit that it was built from.
    pub commit: String,
    /// Its data directory, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_dir: Option<String>,
    /// Its listening address for other peers; empty if there is none.
    pub listens: String,
    /// The addresses at which other peers can reach it, the likeliest first.
    pub addresses: Vec<String>,
    /// The addresses that it was configured to join.
    #[serde(default)]
    pub join: Vec<String>,
}

impl Default for Program {
    fn default() -> Self {
        let (version, commit) = (env!("CARGO_PKG_VERSION").to_owned(), "unknown".to_owned());
        Self { version, commit, data_dir: None, listens: String::new(), addresses: Vec::new(), join: Vec::new() }
    }
}

/// The agent has a valid session, so slots can be granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Healthy {
    /// The number of the agent's session.
    pub session: u64,
    /// When the session expires unless it is renewed.
    #[serde(rename = "ends_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub ends: Duration,
}
