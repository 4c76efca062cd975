//! What goes over the wire as JSON besides the service's own views, requests and grants.

use std::time::Duration;

use peerlock_service::{Granted, Progress, json};
use serde::{Deserialize, Serialize};
#[cfg(feature = "server")]
use utoipa::ToSchema;

use crate::Failure;

/// Which grant is meant. Unknown fields are ignored: refusing them would end a job that runs, and none can restrict
/// what was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
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
#[derive(Clone, Debug, PartialEq, Serialize)]
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
    /// The agent and the connection are alive. Comes at once and then at this interval, over TCP only.
    Alive {
        /// The interval. A client that receives nothing for three of them takes the connection for broken.
        #[serde(rename = "every_ms", with = "json")]
        #[cfg_attr(feature = "server", schema(value_type = u64))]
        every: Duration,
    },
}

impl Line {
    /// Parses a line of a `hold`. Returns `None` for a line of a kind that only newer agents send, which a client
    /// ignores; unknown fields are ignored, too.
    ///
    /// # Errors
    /// If it is not a JSON object, or a kind that we know lacks what we need.
    pub fn parse(text: &[u8]) -> serde_json::Result<Option<Self>> {
        #[derive(Deserialize)]
        struct Known {
            waiting: Option<Progress>,
            granted: Option<Granted>,
            lost: Option<Why>,
            failed: Option<Failure>,
            alive: Option<Every>,
        }
        #[derive(Deserialize)]
        struct Why {
            why: Option<Failure>,
        }
        #[derive(Deserialize)]
        struct Every {
            #[serde(rename = "every_ms", with = "json")]
            every: Duration,
        }
        let Known { waiting, granted, lost, failed, alive } = serde_json::from_slice(text)?;
        // The last lines first: a client must not miss one.
        Ok(failed
            .map(Self::Failed)
            .or(lost.map(|Why { why }| Self::Lost { why }))
            .or(granted.map(Self::Granted))
            .or(waiting.map(Self::Waiting))
            .or(alive.map(|Every { every }| Self::Alive { every })))
    }
}
