//! Public views of a peer and its cluster. The doc comments of serialized types are their OpenAPI descriptions.

use std::time::Duration;

use peerlock_registry::Label;
use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::{IntoParams, ToSchema};

use crate::{Error, Missing, Name, json};

/// Selects resources to list, in the order of their names.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct Listing {
    #[cfg_attr(feature = "schema", param(required = false))]
    pub prefix: String,
    /// Only names after this one: the last name of the previous page.
    #[cfg_attr(feature = "schema", param(value_type = Option<String>))]
    pub after: Option<Name>,
    /// A shorter page is the last one.
    pub limit: Option<u32>,
}

impl Listing {
    /// Selects all names with this prefix.
    pub fn of(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    pub(crate) fn label(&self) -> Result<Option<Label>, Error> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.is_empty());
        let bad = |why: &str| Error::BadName { name: self.prefix.clone(), why: why.to_owned() };
        prefix.map(|prefix| Label::new(prefix.as_str()).map_err(bad)).transpose()
    }
}

/// A resource that this peer knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ResourceView {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// Number of slots. Absent while this peer is not a party.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    pub holding_here: usize,
    pub waiting_here: usize,
    /// Whether a census is in progress, according to the registry.
    #[serde(default)]
    pub recovering: bool,
}

/// A resource in the whole cluster, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ResourceDetails {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    pub slots: u32,
    /// Peer that has the queue. Absent if the resource has no parties.
    #[serde(with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub coordinator: Option<PeerId>,
    pub holders: Vec<SlotView>,
    /// The waiting clients, in serving order.
    pub queue: Vec<WaiterView>,
    /// Increases when a party's session expires and when the resource is resized.
    pub generation: u64,
    /// The latest run, if runs take place once per period and this period has not ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<PeriodView>,
}

/// The latest run of a period.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct PeriodView {
    pub succeeded: bool,
    /// Number of failed runs.
    pub failures: u32,
    /// Whether no run may start before the period ends: one has succeeded, or there is no attempt left. Its slot is
    /// held until then.
    pub holds: bool,
    /// Name of the host of the latest run. Empty if unknown.
    pub host: String,
    /// The label of its request.
    pub label: String,
    pub fencing: u64,
    /// When it ended, by the clock of its host: Unix time.
    #[serde(rename = "ended_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub ended: Duration,
    /// Time until the period ends.
    #[serde(rename = "left_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub left: Duration,
}

/// A slot of a resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct SlotView {
    pub slot: u32,
    /// Peer that has the slot, or to which it is being handed over.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// Name of that peer's host. Empty if unknown.
    pub host: String,
    pub free: bool,
    /// Whether it is a detached grant, which outlives its agent.
    pub detached: bool,
    /// The holder, if its peer has reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
}

/// A waiting client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct WaiterView {
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// Name of that peer's host. Empty if unknown.
    pub host: String,
    /// Details of the client, if its peer has reported them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
}

/// A client that waits or holds a slot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ClientView {
    pub label: String,
    /// Time since the request, or since the grant for a holder.
    #[serde(rename = "age_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub age: Duration,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<u64>,
    /// Time until the lease expires unless renewed.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
    /// Process ID, if the kernel reported one for the client's Unix socket; for an embedded peer, that peer's process.
    /// Absent for detached grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A member of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct PeerView {
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    pub address: String,
    pub up: bool,
    /// Time since it connected or disconnected.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    pub is_me: bool,
    /// Name of the host. Empty until the registry has reported it.
    pub name: String,
    /// Newest registry version that the peer's program supports, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u16>,
    pub voter: Voter,
    /// Number of the host's open session, in which it may hold slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Whether the host has a data directory: only then it can vote, and remains a member while it is disconnected.
    pub keeps: bool,
}

/// Health of a peer, from local knowledge only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Health {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// Time since the peer gained or lost its session.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// Time until the session expires unless renewed.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
    pub sessions_lost: u64,
    /// Whether the peer is draining: it accepts no more requests.
    pub leaves: bool,
    /// Why the peer grants nothing, if it has no session or is draining.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Resources that this peer is a party of or has clients of, by name.
    pub resources: Vec<ResourceHealth>,
    /// Hosts of other clusters with the same secret. Slots held there do not exclude clients here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherCluster>,
    /// Why the registry of this host must not be trusted, or has halted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_fault: Option<String>,
}

/// A host of another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct OtherCluster {
    /// Name of the host if the registry knows it, else its number.
    pub host: String,
    pub address: String,
    pub cluster: String,
    /// Whether this peer was configured to join that address.
    pub is_joined: bool,
    #[serde(rename = "met_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub met: Duration,
}

/// Health of a resource, as one peer sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ResourceHealth {
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// Number of slots. Absent while this peer is not a party.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    pub holding: usize,
    pub waiting: usize,
    /// Time since the oldest of those requests.
    #[serde(rename = "oldest_wait_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub oldest_wait: Option<Duration>,
    /// Generation that this peer knows; 0 if it is not a party of the resource.
    pub generation: u64,
    /// Generations opened since this peer became a party in its current session: after a failure or a resize.
    pub recoveries: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
}

/// Why a resource is stalled: its peer has no session, or a census is in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Stall {
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// Hosts that have not replied, and when each is given up.
    pub missing: Vec<Missing>,
    /// The same as text.
    pub why: String,
}

/// Role of a host in the registry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Voter {
    #[default]
    No,
    /// Receives the log, but has no vote yet.
    Learns,
    Votes,
    Leads,
}

/// The cluster as a voter knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ClusterView {
    /// Cluster ID, 32 hexadecimal digits. Empty while this peer knows none.
    pub cluster: String,
    /// Version of the registry. Absent if no voter has answered; the other fields are then from this peer's own
    /// knowledge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// All members, this peer first.
    pub peers: Vec<PeerView>,
    /// Time until this peer's session expires unless renewed. Absent without a session.
    #[serde(rename = "session_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub session: Option<Duration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The local state of one peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    pub peer: PeerId,
    pub others: Vec<PeerId>,
    pub parts: Vec<PartView>,
}

/// The participation of a peer in one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartView {
    pub name: Name,
    /// Number of slots; `None` while the peer is not a party.
    pub slots: Option<u32>,
    /// The coordinator; `None` while it is not a party.
    pub keeper: Option<PeerId>,
    /// In serving order, if this peer is the coordinator.
    pub queue: Option<Vec<TicketView>>,
    pub tokens: Vec<TokenView>,
    /// The clients of this peer: holders, then waiters.
    pub clients: Vec<PartClient>,
}

/// A queue entry: a ticket of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketView {
    pub peer: PeerId,
    /// The alias, which changes if the peer has to request again.
    pub ticket: u64,
}

/// A token at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenView {
    pub slot: u32,
    pub free: bool,
    /// The first successor, if this peer knows one.
    pub next: Option<TicketView>,
}

/// A client in a [`PartView`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartClient {
    pub ticket: u64,
    pub slot: Option<u32>,
    pub client: ClientView,
}

/// Queue position of a waiting client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Progress {
    /// Number of clients ahead. Absent while unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
    #[serde(rename = "expected_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub expected: Option<Duration>,
}

/// An event with its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Happening {
    #[serde(rename = "at_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub at: Duration,
    /// The event. In JSON its fields are beside `at_ms`.
    #[serde(flatten)]
    pub event: Event,
}

/// An event at this peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A client of this peer waits.
    Waiting {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        label: String,
        /// Ticket of the request at this peer.
        ticket: u64,
        /// Number of clients ahead, if known.
        #[serde(skip_serializing_if = "Option::is_none")]
        ahead: Option<u32>,
    },
    /// A client of this peer acquired a slot.
    Granted {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        label: String,
        ticket: u64,
        slot: u32,
        fencing: u64,
        #[serde(rename = "waited_ms", with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = u64))]
        waited: Duration,
    },
    /// A client of this peer released its slot.
    Released {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        ticket: u64,
        #[serde(rename = "held_ms", with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = u64))]
        held: Duration,
    },
    /// A request of this peer ended without a grant.
    Withdrawn {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        ticket: u64,
        why: String,
    },
    /// A client of this peer must stop: its grant is lost or was revoked.
    Lost {
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        ticket: u64,
        #[serde(default)]
        why: String,
    },
    /// Another peer connected.
    PeerUp {
        #[serde(with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        peer: PeerId,
        /// The dialled address, or the listening address that the peer reported.
        address: String,
    },
    /// Another peer disconnected.
    PeerDown {
        #[serde(with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        peer: PeerId,
        why: String,
    },
    /// Dialling an address failed.
    Unreached { address: String, why: String },
    /// Events were dropped because this reader was too slow.
    Missed { count: u64 },
}

impl Event {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::Granted { .. } => "granted",
            Self::Released { .. } => "released",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Lost { .. } => "lost",
            Self::PeerUp { .. } => "peer_up",
            Self::PeerDown { .. } => "peer_down",
            Self::Unreached { .. } => "unreached",
            Self::Missed { .. } => "missed",
        }
    }

    /// Returns the resource and the ticket of an event about a client.
    pub fn client(&self) -> Option<(&Name, u64)> {
        match self {
            Self::Waiting { name, ticket, .. }
            | Self::Granted { name, ticket, .. }
            | Self::Released { name, ticket, .. }
            | Self::Withdrawn { name, ticket, .. }
            | Self::Lost { name, ticket, .. } => Some((name, *ticket)),
            Self::PeerUp { .. } | Self::PeerDown { .. } | Self::Unreached { .. } | Self::Missed { .. } => None,
        }
    }

    /// Returns whether a reader of this resource's events needs this one.
    pub fn is_about(&self, name: &Name) -> bool {
        matches!(self, Self::Missed { .. }) || self.client().is_some_and(|(about, _)| about == name)
    }
}

/// Counters since the start of this peer; `waiting`, `holding` and `links` are gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub received: u64,
    pub sent: u64,
    pub links: u64,
    /// Frames sent relayed through the registry leader.
    pub relayed: u64,
    pub malformed: u64,
    pub unexpected: u64,
    /// Connections that did not prove the cluster secret.
    pub unauthenticated: u64,
    pub sessions_lost: u64,
    pub asked: u64,
    pub granted: u64,
    /// Grants released before their deadline.
    pub released: u64,
    pub lost: u64,
    /// Requests that ended without a grant.
    pub refused: u64,
    pub waiting: u64,
    pub holding: u64,
}
