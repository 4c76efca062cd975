//! What goes over the wire as JSON besides the service's own views, requests and grants.

use std::time::Duration;

use peerlock_service::{Granted, Progress, json};
use serde::{Deserialize, Serialize};
#[cfg(feature = "server")]
use utoipa::ToSchema;

use crate::Failure;

/// Which grant is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// The `grant` of the answer to `acquire` or `hold`.
    pub grant: String,
}

/// A lease was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Renewed {
    /// How long it stands from when the agent got the request. Count from when it was sent, to be sure.
    #[serde(rename = "ttl_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub ttl: Duration,
}

/// A slot was given back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Released {}

/// One line of a `hold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Still waiting. Comes whenever the place changes.
    Waiting(Progress),
    /// Inside, until the connection ends or the lease is not renewed.
    Granted(Granted),
    /// The lease was not renewed in time: stop now. The last line.
    Lost {},
    /// Not let in. The last line.
    Failed(Failure),
}
