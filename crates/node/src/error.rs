//! Errors, and their classes for programs.

use std::time::Duration;

use peerlock_types::{PeerId, roughly};
use serde::{Deserialize, Serialize};

use crate::lease::SHORTEST_TTL;
use crate::name::MOST_SLOTS;
use crate::{Name, json};

/// An error. Unless a variant says otherwise, the client holds nothing and waits for nothing afterwards.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Error {
    /// The name is invalid. Nothing was requested.
    #[error("{name:?} cannot be the name of a resource: {why}. Use 1 to 255 bytes of visible text")]
    BadName { name: String, why: String },
    /// The number of slots is invalid. Nothing was requested.
    #[error("a resource cannot have {slots} slots: give a number from 1 to {MOST_SLOTS}")]
    BadSlots {
        #[serde(rename = "asked")]
        slots: u32,
    },
    /// The lease is too short, or the grace period is not shorter. Nothing was requested.
    #[error(
        "a lease of {ttl:?} with a grace period of {grace:?} cannot be kept: use at least {} ms, and a grace period \
         shorter than half of it",
        SHORTEST_TTL.as_millis()
    )]
    BadLease {
        #[serde(rename = "ttl_ms", with = "json")]
        ttl: Duration,
        #[serde(rename = "grace_ms", with = "json")]
        grace: Duration,
    },
    /// The resource has another number of slots. It is unchanged.
    #[error(
        "{name} has {has} slot{}, not {asked}: ask for {has}, or change it with `peerlock resize {} {asked}`",
        if *.has == 1 { "" } else { "s" },
        quoted(name)
    )]
    SlotsMismatch {
        name: Name,
        has: u32,
        /// Expected by the request.
        asked: u32,
    },
    /// The cluster has no such resource.
    #[error("there is no resource {name}: it was never acquired, or the name is misspelt")]
    NoSuchResource { name: Name },
    /// The resource cannot be deleted: a client uses it, or an evicted session may not know of its eviction.
    #[error("{name} was not removed: {}", why_used(name, host, *forced))]
    InUse {
        name: Name,
        host: String,
        /// An evicted session is the only reason: its agent still has the same session.
        #[serde(default)]
        forced: bool,
    },
    /// The slot was not granted in time.
    #[error("{name} was not acquired{}", match .place {
        Some(0) => ": next in the queue".to_owned(),
        Some(1) => ": 1 request is ahead in the queue".to_owned(),
        Some(n) => format!(": {n} requests are ahead in the queue"),
        None => String::new(),
    })]
    NotAcquired {
        name: Name,
        /// Requests ahead, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<u32>,
    },
    /// This process has no session, since too few voters, or no member at all, can be reached.
    #[error(
        "no quorum for {}, so nothing can be granted: {}. Start their agents, or fix the network to them; this peer \
         then continues. Only if they are lost for good: `peerlock recover`", roughly(*.since), absent(.missing))]
    NoMajority {
        missing: Vec<Missing>,
        /// Since when the registry has not answered, or there is no session.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
    },
    /// A census is in progress, or the coordinator does not answer. The resource continues when all missing hosts have
    /// replied or their sessions have expired.
    #[error("{name} has been stalled for {}: {}", roughly(*.since), awaited(.missing))]
    Recovering {
        name: Name,
        missing: Vec<Missing>,
        /// The age of the census.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
    },
    /// The grant was lost with the session of its peer. Other clients may hold the slot.
    #[error("this grant is no longer valid: {why}, {} after its session was last confirmed", roughly(*.since))]
    SessionLost {
        /// From the last confirmed renewal of the session to its end.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
        why: String,
    },
    /// The grant was revoked: its holder has the rest of its lease to stop. Or its host was evicted, and other clients
    /// may already hold the slot.
    #[error("the slot of {name} was {}", match .forced {
        true => "taken by force: other clients may already hold it",
        false => "revoked by an administrator",
    })]
    Revoked {
        name: Name,
        /// The host was evicted, without waiting for the holder.
        #[serde(default)]
        forced: bool,
    },
    /// The peer belongs to another cluster. Nothing has changed here.
    #[error(
        "the peer at {address} belongs to cluster {theirs}, and this one to {ours}: two clusters cannot be merged. \
         Stop the agent that is to join the other, remove `cluster` and `registry` from its data directory, and start \
         it with --join"
    )]
    OtherCluster {
        #[serde(with = "json")]
        peer: PeerId,
        address: String,
        ours: String,
        theirs: String,
    },
    /// The peer's program supports no message version of this one. Nothing has changed here.
    #[error(
        "the peer at {address} supports version {theirs} of peerlock's messages, and this program {ours}: upgrade the \
         older of the two. Consecutive releases are compatible, so upgrade one release at a time"
    )]
    OtherVersion {
        #[serde(with = "json")]
        peer: PeerId,
        address: String,
        ours: String,
        theirs: String,
    },
    /// The lease expired before it was renewed, the grant was released, or it never existed.
    #[error("this grant is no longer valid: its lease expired or it was released")]
    Lost,
    /// Too many clients wait or hold a slot at this peer.
    #[error(
        "{limit} clients wait or hold a slot at this peer, which is the limit: try again later, or at another peer"
    )]
    Busy { limit: usize },
    /// No peer could be reached to join.
    #[error(
        "no peer could be reached at {}: check that a peer runs there, and that its port is open to this machine. Only \
         the first peer of a cluster starts without joining",
        .tried.iter().map(|(address, why)| format!("{address} ({why})")).collect::<Vec<_>>().join(", ")
    )]
    NoPeer { tried: Vec<(String, String)> },
    /// The peer is stopping.
    #[error("this peer is draining or stopping, and accepts no requests: use another machine, or try again later")]
    Stopped,
    /// There is no agent. Nothing was requested.
    #[error("no agent answers at {endpoint}: {why}. Start one with `peerlock agent`, or set PEERLOCK_AGENT")]
    NoAgent { endpoint: String, why: String },
    /// The outcome is unknown. A slot of the connection is released; a detached grant may remain until the end of its
    /// lease.
    #[error("the connection to the agent at {endpoint} broke: {why}. Check that it is running, and try again")]
    Broken { endpoint: String, why: String },
    /// The request was refused, for a reason in text.
    #[error("{message}")]
    Refused {
        class: Class,
        /// The failure, and its remedy.
        message: String,
    },
}

/// A host that is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Missing {
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// Name of the host, or its address. Empty if both are unknown.
    pub name: String,
    /// Time since it disconnected, or for which a connected host has not answered.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// For `recovering`, if the host is disconnected: time until its session has expired at the latest, unless a second
    /// election is needed.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
}

fn quoted(name: &Name) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    match name.as_str() {
        plain if plain.chars().all(is_plain) && !plain.starts_with('-') => plain.to_owned(),
        name => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

fn why_used(name: &Name, host: &str, forced: bool) -> String {
    let name = quoted(name);
    if forced {
        return "an evicted session may not have been notified yet. Try again when its agent has been restarted, or has \
                used the resource again"
            .to_owned();
    }
    let at = if host.is_empty() { String::new() } else { format!(" at {host}") };
    format!("a client{at} holds a slot or waits (`peerlock show {name}`). Try again when it is not in use")
}

impl Missing {
    fn called(&self) -> String {
        if self.name.is_empty() { self.peer.to_string() } else { self.name.clone() }
    }
}

fn absent(hosts: &[Missing]) -> String {
    let one = |it: &Missing| format!("{} for {}", it.called(), roughly(it.since));
    match hosts {
        [] => "no voter has answered yet".to_owned(),
        hosts => format!("no connection to the voters {}", hosts.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

fn awaited(hosts: &[Missing]) -> String {
    let one = |it: &Missing| match it.ends {
        Some(ends) if ends.is_zero() => {
            format!("{} (disconnected for {}; its session is about to expire)", it.called(), roughly(it.since))
        }
        Some(ends) => {
            let (since, ends) = (roughly(it.since), roughly(ends));
            format!("{} (disconnected for {since}; its session expires within {ends})", it.called())
        }
        None => format!("{} (connected, but has not answered for {})", it.called(), roughly(it.since)),
    };
    match hosts {
        [] => "its next coordinator is not known yet. It continues by itself".to_owned(),
        hosts => {
            let hosts = hosts.iter().map(one).collect::<Vec<_>>().join(", ");
            format!("it waits for {hosts}. It continues when they have answered or their sessions have expired")
        }
    }
}

/// The class of an error. It determines the HTTP status and the exit code.
///
/// ```
/// use peerlock_node::{Class, Error};
///
/// let class = Error::Lost.class();
/// assert_eq!(class, Class::Lost);
/// assert_eq!((class.status(), class.exit_code()), (410, 76));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Class {
    BadRequest,
    /// The bearer token is missing or wrong.
    Unauthorized,
    Forbidden,
    NoSuchResource,
    /// The agent has no such route, as it is of another version.
    NotFound,
    /// The agent's route does not take this method, as it is of another version.
    MethodNotAllowed,
    SlotsMismatch,
    Lost,
    TooLarge,
    /// The slot was not granted in time; or a resource to be deleted is in use.
    NotAcquired,
    Busy,
    /// A required host cannot be reached, or is stopping: try again later.
    Unavailable,
}

impl Error {
    pub fn class(&self) -> Class {
        match self {
            Self::BadName { .. } | Self::BadSlots { .. } | Self::BadLease { .. } => Class::BadRequest,
            Self::SlotsMismatch { .. } => Class::SlotsMismatch,
            Self::NoSuchResource { .. } => Class::NoSuchResource,
            Self::NotAcquired { .. } | Self::InUse { .. } => Class::NotAcquired,
            Self::Lost | Self::SessionLost { .. } | Self::Revoked { .. } => Class::Lost,
            Self::Busy { .. } => Class::Busy,
            Self::NoMajority { .. }
            | Self::Recovering { .. }
            | Self::OtherCluster { .. }
            | Self::OtherVersion { .. }
            | Self::NoPeer { .. }
            | Self::Stopped
            | Self::NoAgent { .. }
            | Self::Broken { .. } => Class::Unavailable,
            Self::Refused { class, .. } => *class,
        }
    }
}

impl Class {
    pub const fn status(self) -> u16 {
        self.codes().0
    }

    /// Returns the exit code of a command, after sysexits.h where it has one.
    pub const fn exit_code(self) -> u8 {
        self.codes().1
    }

    const fn codes(self) -> (u16, u8) {
        match self {
            Self::BadRequest => (400, 64),
            Self::Unauthorized => (401, 77),
            Self::Forbidden => (403, 77),
            Self::NoSuchResource => (404, 66),
            Self::NotFound => (404, 70),
            Self::MethodNotAllowed => (405, 70),
            Self::SlotsMismatch => (409, 64),
            Self::Lost => (410, 76),
            Self::TooLarge => (413, 64),
            // Not 408, after which some clients repeat the request automatically.
            Self::NotAcquired => (423, 75),
            Self::Busy => (503, 75),
            Self::Unavailable => (503, 69),
        }
    }
}
