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
    #[cfg_attr(feature = "server", schema(max_length = 64))]
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

/// How many slots a resource is to have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Slots {
    /// How many may be inside at a time from now on.
    #[cfg_attr(feature = "server", schema(minimum = 1, maximum = 1024))]
    pub slots: u32,
}

/// Which host is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Whom {
    /// Its number, as in `GET /v1/peers`.
    #[cfg_attr(feature = "server", schema(pattern = "^[0-9]{1,20}$"))]
    pub peer: String,
}

/// Which grant is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its fencing number, as in `GET /v1/resources/{name}`: so that it is no other than the one that was seen there.
    pub fencing: u64,
}

/// Which hosts are to vote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Voters {
    /// Their numbers, as in `GET /v1/peers`; without them the cluster chooses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
}

/// It is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Done {}

/// One line of a `hold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Still waiting. Comes whenever the place changes.
    Waiting(Progress),
    /// Inside, until the connection ends or the lease is not renewed.
    Granted(Granted),
    /// It must stop now. The last line.
    Lost {
        /// Why: the lease was not renewed in time, somebody has asked for the slot, the agent stops.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Failure>,
    },
    /// Not let in. The last line.
    Failed(Failure),
}
