//! JSON bodies besides the service's own views, requests and grants.

use std::time::Duration;

use peerlock_service::{Conclusion, Granted, Progress, json};
use serde::{Deserialize, Serialize};
#[cfg(feature = "server")]
use utoipa::ToSchema;

use crate::Failure;

/// The grant that a request concerns. Unknown fields are ignored: none can restrict a grant that exists, and rejecting
/// them would stop a running job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Which {
    /// The `grant` in the answer to `acquire` or `hold`.
    #[cfg_attr(feature = "server", schema(max_length = 64))]
    pub grant: String,
}

/// The lease has been renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Renewed {
    /// The lease duration, counted from when the agent received the request. To be safe, count from when it was sent.
    #[serde(rename = "ttl_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64))]
    pub ttl: Duration,
}

/// The end of a run that takes place once per period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[expect(missing_docs, reason = "a field is named after its content")]
pub struct Conclude {
    /// The `grant` in the answer to `hold`.
    #[cfg_attr(feature = "server", schema(max_length = 64))]
    pub grant: String,
    pub succeeded: bool,
    /// The number of failed runs after which the period has no further one. A failed run counts until the time that it
    /// would have held the slot is over.
    #[serde(default = "attempts")]
    #[cfg_attr(feature = "server", schema(minimum = 1, maximum = 1000))]
    pub attempts: u32,
    /// How long no other run may start, from now on.
    #[serde(rename = "hold_ms", with = "json")]
    #[cfg_attr(feature = "server", schema(value_type = u64, minimum = 100, maximum = 2_592_000_000_u64))]
    pub hold: Duration,
}

fn attempts() -> u32 {
    Conclusion::ATTEMPTS
}

/// The end of the run is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Concluded {
    /// Whether the slot is held until the period ends, whatever becomes of the client. Otherwise release it for the
    /// next attempt.
    pub holds: bool,
}

/// The slot has been released before its lease expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
pub struct Released {}

/// A line of the answer to `hold`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "server", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// The request waits. Sent whenever its position changes.
    Waiting(Progress),
    /// The slot is granted, until the connection ends or the lease expires.
    Granted(Granted),
    /// The grant is lost: the client must stop. The last line.
    Lost {
        /// The reason: the lease was not renewed in time, the grant was revoked, or the agent stops.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        why: Option<Failure>,
    },
    /// The request failed. The last line.
    Failed(Failure),
    /// The agent and the connection are alive. Sent at once and then at this interval, over TCP only.
    Alive {
        /// The interval. A client that receives nothing for three intervals considers the connection broken.
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
    /// If it is not a JSON object, or a known kind lacks a required field.
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
        // The final lines first: a client must not miss one.
        Ok(failed
            .map(Self::Failed)
            .or(lost.map(|Why { why }| Self::Lost { why }))
            .or(granted.map(Self::Granted))
            .or(waiting.map(Self::Waiting))
            .or(alive.map(|Every { every }| Self::Alive { every })))
    }
}
