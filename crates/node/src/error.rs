//! What can go wrong, and what programs make of it.

use std::time::Duration;

use peerlock_types::{PeerId, roughly};
use serde::{Deserialize, Serialize};

use crate::lease::SHORTEST_TTL;
use crate::name::MOST_SLOTS;
use crate::{Name, json};

/// What can go wrong. After every one of these the client holds nothing and waits for nothing, unless it says
/// otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "error", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Error {
    /// Nothing was asked for: the name cannot be one.
    #[error("{name:?} cannot be the name of a resource: {why}. Use 1 to 255 bytes of visible text")]
    BadName {
        /// What was given.
        name: String,
        /// Why not, in words.
        why: String,
    },
    /// Nothing was asked for: there cannot be so many slots.
    #[error("a resource cannot have {slots} slots: give a number from 1 to {MOST_SLOTS}")]
    BadSlots {
        /// What was given.
        #[serde(rename = "asked")]
        slots: u32,
    },
    /// Nothing was asked for: the lease is too short, or its grace is not shorter than it.
    #[error(
        "a lease of {ttl:?} with a grace of {grace:?} cannot be kept: give at least {} ms, and less grace than half of \
         it",
        SHORTEST_TTL.as_millis()
    )]
    BadLease {
        /// How long the lease should be.
        #[serde(rename = "ttl_ms", with = "json")]
        ttl: Duration,
        /// How long before its end it should be taken for lost.
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
        /// The resource that was asked for.
        name: Name,
        /// How many slots it has.
        has: u32,
        /// How many the caller has said that it has.
        asked: u32,
    },
    /// The cluster knows no such resource.
    #[error("there is no resource {name}: nobody has acquired it yet, or it is spelt differently")]
    NoSuchResource {
        /// What was asked for.
        name: Name,
    },
    /// The name is not removed: somebody holds a slot of it or waits, or may do so without knowing that it was forced
    /// out.
    #[error("{name} is not removed: {}", why_used(name, host, *forced))]
    InUse {
        /// The name that was to be removed.
        name: Name,
        /// The host where it is used, as far as known.
        host: String,
        /// Nobody uses it, but somebody was forced out of it whose agent has had the same session since.
        #[serde(default)]
        forced: bool,
    },
    /// The wait is over, and others were first. `place` is how many are still ahead, if that is known.
    #[error("{name} was not acquired{}", match .place {
        Some(0) => ": next in line".to_owned(),
        Some(n) => format!(": {n} are ahead in line"),
        None => String::new(),
    })]
    NotAcquired {
        /// The resource that was asked for.
        name: Name,
        /// How many are ahead in line.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        place: Option<u32>,
    },
    /// Nothing moves: this process has no session, because too few of the hosts that vote on sessions can be reached,
    /// or none that knows of them.
    #[error(
        "no majority of the voters has answered this peer for {}, and nothing is granted without: {}. It goes on by \
         itself as soon as they can be reached: start their agents, or mend the network from here to them. Only if \
         they are lost for good: `peerlock recover`", roughly(*.since), absent(.missing))]
    NoMajority {
        /// Whom we have asked and not heard of.
        missing: Vec<Missing>,
        /// For how long it has not been answered, or has had no session.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
    },
    /// Nothing moves: somebody who took part has died and what is there is being counted, or the coordinator does not
    /// answer. It goes on by itself when everybody who is waited for has answered, or its session has ended.
    #[error("{name} has not moved for {}: {}", roughly(*.since), awaited(.missing))]
    Recovering {
        /// The resource that nobody can get now.
        name: Name,
        /// Who has not answered yet.
        missing: Vec<Missing>,
        /// How long the count has been waiting for them.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
    },
    /// The grant is gone with the session of the peer that gave it: others may be inside from now on.
    #[error("this grant does not stand any more: {why}, {} after its session was last confirmed", roughly(*.since))]
    SessionLost {
        /// How long before that the register had last been heard of.
        #[serde(rename = "since_ms", with = "json")]
        since: Duration,
        /// What has become of the session, in words.
        why: String,
    },
    /// The grant was taken away: its holder was asked to stop, and has the rest of its lease for that; or by force, and
    /// others may be inside already.
    #[error("the slot of {name} was {}", match .forced {
        true => "taken away by force: others may hold it already",
        false => "revoked: somebody has asked for it",
    })]
    Revoked {
        /// The resource that was held.
        name: Name,
        /// Without waiting for its holder.
        #[serde(default)]
        forced: bool,
    },
    /// The peer there belongs to another cluster. Nothing has changed here.
    #[error(
        "the peer at {address} belongs to cluster {theirs}, and this one to {ours}: two clusters that were founded \
         apart stay apart. Stop the one that is to join the other, remove `cluster` and `register` from its data \
         folder, and start it with --join"
    )]
    OtherCluster {
        /// The number of the peer that was met.
        #[serde(with = "json")]
        peer: PeerId,
        /// Where it was reached.
        address: String,
        /// The id of this cluster.
        ours: String,
        /// The id of the other one.
        theirs: String,
    },
    /// The peer there speaks a language that this one does not. Nothing has changed here.
    #[error(
        "the peer at {address} speaks version {theirs} of peerlock's messages, and this program {ours}: upgrade the \
         older of the two. Programs that follow each other understand each other, so go there one release at a time"
    )]
    OtherVersion {
        /// The number of the peer that was met.
        #[serde(with = "json")]
        peer: PeerId,
        /// Where it was reached.
        address: String,
        /// The versions that this program understands.
        ours: String,
        /// The versions that the other one understands.
        theirs: String,
    },
    /// The lease ended before it was renewed; or there never was such a grant.
    #[error("this grant does not stand any more: its lease has ended, or it was released")]
    Lost,
    /// Too many clients wait at this peer.
    #[error("{limit} clients wait or hold a slot at this peer, and no more fit: try again later, or at another peer")]
    Busy {
        /// How many there may be.
        limit: usize,
    },
    /// No other peer was there to join.
    #[error(
        "no peer could be reached at {}: check that a peer runs there, and that its port is open to this machine. Only \
         the first of a cluster starts without joining",
        .tried.iter().map(|(address, why)| format!("{address} ({why})")).collect::<Vec<_>>().join(", ")
    )]
    NoPeer {
        /// Where we tried, and what came of it.
        tried: Vec<(String, String)>,
    },
    /// The peer has been stopped.
    #[error("this peer stops, and serves nobody any more: ask again when it is back, or ask another")]
    Stopped,
    /// Nothing was asked for: there is no agent.
    #[error("no agent answers at {endpoint}: {why}. Start one with `peerlock agent`, or say where it is")]
    NoAgent {
        /// Where it was looked for.
        endpoint: String,
        /// What the system said.
        why: String,
    },
    /// It is not known what has become of the request. A slot that belongs to the connection is gone with it, and a
    /// detached one may stand until the end of its lease.
    #[error("the connection to the agent at {endpoint} broke: {why}. Look whether it still runs, and try again")]
    Broken {
        /// Where the agent is.
        endpoint: String,
        /// Why, in words.
        why: String,
    },
    /// It was refused for a reason that only people need to know more of.
    #[error("{message}")]
    Refused {
        /// Which kind of reason.
        class: Class,
        /// What happened, and what to do next.
        message: String,
    },
}

/// Somebody who is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Missing {
    /// The number of its host.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// The host's name, or its address if no more is known of it; empty if nothing is.
    pub name: String,
    /// For how long it has not been connected, or has not answered if it is.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// `recovering`: if it is not connected, how long it is waited for at most: until its session is over. Longer only
    /// if the voters must elect another leader once more.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
}

/// A name as a shell takes it for one word.
fn quoted(name: &Name) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:@%+=,".contains(c);
    match name.as_str() {
        plain if plain.chars().all(is_plain) && !plain.starts_with('-') => plain.to_owned(),
        name => format!("'{}'", name.replace('\'', r"'\''")),
    }
}

/// Why a name is not removed, in words.
fn why_used(name: &Name, host: &str, forced: bool) -> String {
    let name = quoted(name);
    if forced {
        return "somebody was forced out of it, and may not have heard of that. It can be removed when the agent there \
                has been started again, or has used it again"
            .to_owned();
    }
    let at = if host.is_empty() { String::new() } else { format!(" at {host}") };
    format!("somebody{at} holds a slot of it or waits (`peerlock show {name}`). It can be removed when nobody does")
}

impl Missing {
    fn called(&self) -> String {
        if self.name.is_empty() { self.peer.to_string() } else { self.name.clone() }
    }
}

/// Which voters are not there, in words.
fn absent(hosts: &[Missing]) -> String {
    let one = |it: &Missing| format!("{} for {}", it.called(), roughly(it.since));
    match hosts {
        [] => "no voter has answered yet".to_owned(),
        hosts => format!("no connection to the voters {}", hosts.iter().map(one).collect::<Vec<_>>().join(", ")),
    }
}

/// Whom a recovery waits for, and until when, in words.
fn awaited(hosts: &[Missing]) -> String {
    let one = |it: &Missing| match it.ends {
        Some(ends) if ends.is_zero() => {
            format!("{} (not connected for {}; its session ends any moment)", it.called(), roughly(it.since))
        }
        Some(ends) => {
            let (since, ends) = (roughly(it.since), roughly(ends));
            format!("{} (not connected for {since}; its session ends within {ends})", it.called())
        }
        None => format!("{} (connected, and has not answered for {})", it.called(), roughly(it.since)),
    };
    match hosts {
        [] => "its next coordinator is not known yet. It goes on by itself".to_owned(),
        hosts => {
            let hosts = hosts.iter().map(one).collect::<Vec<_>>().join(", ");
            format!("it waits for {hosts}. It goes on by itself when they have answered or their sessions are over")
        }
    }
}

/// What an error means for a program. HTTP status and exit code follow from it.
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
    /// What was asked for cannot be: ask for something else.
    BadRequest,
    /// The bearer token is missing or wrong.
    Unauthorized,
    /// The caller is not allowed to.
    Forbidden,
    /// No peer has heard of the resource.
    NoSuchResource,
    /// The agent has no such route: it is of another version.
    NotFound,
    /// The agent's route does not take this method: it is of another version.
    MethodNotAllowed,
    /// The resource has another number of slots.
    SlotsMismatch,
    /// The grant does not stand any more.
    Lost,
    /// What was asked for is too long.
    TooLarge,
    /// The wait is over, and others were first; or what nobody must use is in use.
    NotAcquired,
    /// Too many clients are there already: try again later.
    Busy,
    /// Somebody who is needed cannot be reached, or stops: try again later.
    Unavailable,
}

impl Error {
    /// What it means for a program.
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
    /// The HTTP status of an answer that says so.
    pub const fn status(self) -> u16 {
        self.codes().0
    }

    /// The exit code of a command that ends for it; after sysexits.h where it has one.
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
            // Not 408: that tells a client to send the same again by itself.
            Self::NotAcquired => (423, 75),
            Self::Busy => (503, 75),
            Self::Unavailable => (503, 69),
        }
    }
}
