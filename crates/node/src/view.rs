//! What can be seen from outside.

use std::time::Duration;

use peerlock_registry::Label;
use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};
#[cfg(feature = "schema")]
use utoipa::{IntoParams, ToSchema};

use crate::{Error, Missing, Name, json};

/// Which resources to list, in the order of their names. By default all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(IntoParams), into_params(parameter_in = Query))]
#[serde(default, deny_unknown_fields)]
pub struct Listing {
    /// Only those whose names begin with this.
    #[cfg_attr(feature = "schema", param(required = false))]
    pub prefix: String,
    /// Only those that come after this name: the last one of the page before.
    #[cfg_attr(feature = "schema", param(value_type = Option<String>))]
    pub after: Option<Name>,
    /// At most so many; fewer are all that there are.
    pub limit: Option<u32>,
}

impl Listing {
    /// All whose names begin with this.
    pub fn of(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), ..Self::default() }
    }

    /// The prefix as the register takes it; none if it is empty.
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
    /// The name by which clients ask for it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// How many may be inside at a time; `None` while this peer has no part in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many clients of this peer are inside.
    pub holding_here: usize,
    /// How many clients of this peer wait.
    pub waiting_here: usize,
    /// By the register, somebody who took part has died or it was resized, and what is there is being counted.
    #[serde(default)]
    pub recovering: bool,
}

/// One resource in the whole cluster, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ResourceDetails {
    /// The name by which clients ask for it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// How many may be inside at a time.
    pub slots: u32,
    /// Who keeps the line; nobody if nobody takes part.
    #[serde(with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<String>))]
    pub coordinator: Option<PeerId>,
    /// Each slot, by number.
    pub holders: Vec<SlotView>,
    /// Everybody who waits, the next first.
    pub queue: Vec<WaiterView>,
    /// Its generation: goes up whenever somebody who took part has died, or it was resized.
    pub generation: u64,
}

/// One slot of a resource, and where its token is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct SlotView {
    /// Which of the resource's slots; no two clients hold the same one.
    pub slot: u32,
    /// The peer that has it, or will in a moment.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// The name of that peer's host; empty if it is not known.
    pub host: String,
    /// Nobody is inside with it.
    pub free: bool,
    /// Its client is inside until the end of its own lease, whatever becomes of the peer.
    pub detached: bool,
    /// Who is inside, if its peer has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
}

/// A place in line, as `show` has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct WaiterView {
    /// The peer where it waits.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// The name of that peer's host; empty if it is not known.
    pub host: String,
    /// More of it, if its peer has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<ClientView>,
}

/// A client as its peer knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ClientView {
    /// What it says of itself.
    pub label: String,
    /// For how long it has been waiting, or inside.
    #[serde(rename = "age_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub age: Duration,
    /// If it is inside, under which fencing number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<u64>,
    /// If it is inside, how long its lease stands from now unless it is renewed.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
    /// Its process on its host, if it came through that host's Unix socket, as the kernel says; or that of a peer that
    /// is a client itself. What is detached belongs to no process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
}

/// A peer that this one knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct PeerView {
    /// The number by which its host is known in the cluster.
    #[serde(with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub peer: PeerId,
    /// Where it was reached last.
    pub address: String,
    /// Whether it is connected now.
    pub up: bool,
    /// For how long it is, or is not.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// It is this peer itself.
    pub is_me: bool,
    /// The host's name, once the register has told it; empty before.
    pub name: String,
    /// The newest version of the register that its program understands, once that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u16>,
    /// Its part in keeping the register.
    pub voter: Voter,
    /// The number of its session, if the register has one open: it, or an earlier process of the same host, may hold
    /// slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// It has a data folder: it can vote, and stays a member when it is away.
    pub keeps: bool,
}

/// How this peer stands, from what it knows by itself: nobody is asked, so this is told at once, also without a
/// majority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Health {
    /// The number of its session, if one stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// For how long it has had a session, or none.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// How long the session stands from now unless it is renewed.
    #[serde(rename = "ends_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub ends: Option<Duration>,
    /// How many sessions were over before it left.
    pub sessions_lost: u64,
    /// It lets nobody in any more, and leaves.
    pub leaves: bool,
    /// Why it grants nothing, in words, if it has no session or leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// The resources that it takes part in or has clients of, by name.
    pub resources: Vec<ResourceHealth>,
    /// Hosts of other clusters that have the same secret: what is held there excludes nobody here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<OtherCluster>,
}

/// A host that was met and belongs to another cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct OtherCluster {
    /// Its name if the register knows it, else its number.
    pub host: String,
    /// The address at which it was met.
    pub address: String,
    /// The id of its cluster.
    pub cluster: String,
    /// This peer was told to join that address.
    pub is_joined: bool,
    /// How long ago it was met last.
    #[serde(rename = "met_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub met: Duration,
}

/// How a resource does, as one peer sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ResourceHealth {
    /// The name by which clients ask for it.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    pub name: Name,
    /// How many may be inside at a time; `None` while this peer has no part in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many clients of this peer are inside.
    pub holding: usize,
    /// How many clients of this peer wait.
    pub waiting: usize,
    /// How long the first of those has waited.
    #[serde(rename = "oldest_wait_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub oldest_wait: Option<Duration>,
    /// The generation that this peer knows of; 0 if it has no part in it.
    pub generation: u64,
    /// How many generations have followed the first that this peer was part of under its present session: somebody who
    /// took part had died, or it was resized.
    pub recoveries: u64,
    /// Why nothing moves, if nothing does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stall: Option<Stall>,
}

/// Why a resource does not move: there is no session, or it is being recovered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Stall {
    /// How long nothing has moved.
    #[serde(rename = "since_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub since: Duration,
    /// Who is waited for, and until when.
    pub missing: Vec<Missing>,
    /// All of it in words.
    pub why: String,
}

/// Whether a host keeps the register.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Voter {
    /// It does not.
    #[default]
    No,
    /// It gets everything and has no vote yet.
    Learns,
    /// It has one of the votes by which the register decides.
    Votes,
    /// It votes, and leads.
    Leads,
}

/// The cluster as a voter knows it, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct ClusterView {
    /// The cluster's id, in 32 hexadecimal digits; empty where this peer knows none yet.
    pub cluster: String,
    /// The version that the register is of; nothing if no voter has answered, and then the rest is what this peer knows
    /// by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u16>,
    /// How many entries of its log the voter that answered had applied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<u64>,
    /// Every member, this peer first.
    pub peers: Vec<PeerView>,
    /// Until when this peer's own session stands unless it is renewed, from now; nothing if it has none.
    #[serde(rename = "session_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub session: Option<Duration>,
    /// What keeps this peer from having one, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// One peer from the inside, at one moment: what it knows by itself, without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The number of the inspected peer.
    pub peer: PeerId,
    /// The other peers that it has met.
    pub others: Vec<PeerId>,
    /// Its part in every resource that it knows of, by name.
    pub parts: Vec<PartView>,
}

/// A peer's part in one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartView {
    /// The resource's name.
    pub name: Name,
    /// How many may be inside at a time; `None` while this peer has no part in it.
    pub slots: Option<u32>,
    /// The pointer: who keeps the line as far as this peer knows, and so where its requests go. `None` while it has no
    /// part in it.
    pub keeper: Option<PeerId>,
    /// The line, the next first, if this peer keeps it.
    pub queue: Option<Vec<TicketView>>,
    /// The tokens that are here, by slot.
    pub tokens: Vec<TokenView>,
    /// The clients of this peer: those inside, then those who wait.
    pub clients: Vec<PartClient>,
}

/// A place in line: a ticket, and the peer where its client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketView {
    /// The peer that the client asked.
    pub peer: PeerId,
    /// Which ticket of that peer's; it is another one if the peer had to ask again.
    pub ticket: u64,
}

/// A token that is at a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenView {
    /// The slot that it stands for.
    pub slot: u32,
    /// Nobody is inside with it.
    pub free: bool,
    /// To whom it goes from here, as far as this peer was told.
    pub next: Option<TicketView>,
}

/// A client of a peer, as [`PartView`] has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartClient {
    /// Its ticket, by which it stands in line.
    pub ticket: u64,
    /// The slot, if it is inside.
    pub slot: Option<u32>,
    /// More of it.
    pub client: ClientView,
}

/// How far a client has come in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[non_exhaustive]
pub struct Progress {
    /// How many are ahead; `None` while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
    /// How long it will take at the recent rate.
    #[serde(rename = "expected_ms", with = "json", default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<u64>))]
    pub expected: Option<Duration>,
}

/// Something that has happened at this peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
pub struct Happening {
    /// When, since the beginning of 1970.
    #[serde(rename = "at_ms", with = "json")]
    #[cfg_attr(feature = "schema", schema(value_type = u64))]
    pub at: Duration,
    /// What happened; its fields stand beside `at_ms` in JSON.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(ToSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Event {
    /// A client of this peer waits in line.
    Waiting {
        /// The resource that it waits for.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        /// Who, in its own words.
        label: String,
        /// Which of this peer's tickets.
        ticket: u64,
        /// How many are ahead, as far as known.
        #[serde(skip_serializing_if = "Option::is_none")]
        ahead: Option<u32>,
    },
    /// A client of this peer is inside.
    Granted {
        /// The resource of which it holds a slot.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        /// Who, in its own words.
        label: String,
        /// Which of this peer's tickets.
        ticket: u64,
        /// The slot that it holds.
        slot: u32,
        /// Under which fencing number.
        fencing: u64,
        /// From its request to this.
        #[serde(rename = "waited_ms", with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = u64))]
        waited: Duration,
    },
    /// A client of this peer has left.
    Released {
        /// The resource that it held.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
        /// How long it was inside.
        #[serde(rename = "held_ms", with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = u64))]
        held: Duration,
    },
    /// A client of this peer waits no more and was not let in.
    Withdrawn {
        /// The resource that it waited for.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
        /// Why, in words.
        why: String,
    },
    /// A client of this peer must stop.
    Lost {
        /// The resource that it held.
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
        /// Why, in words.
        #[serde(default)]
        why: String,
    },
    /// Another peer is connected.
    PeerUp {
        /// The number of the other peer.
        #[serde(with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        peer: PeerId,
        /// Where it was reached, or where it says that it listens.
        address: String,
    },
    /// Another peer is not connected any more.
    PeerDown {
        /// The number of the other peer.
        #[serde(with = "json")]
        #[cfg_attr(feature = "schema", schema(value_type = String))]
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
    /// Nobody could be reached at an address.
    Unreached {
        /// The address that was dialled.
        address: String,
        /// Why, in words.
        why: String,
    },
    /// This watcher was too slow, and has missed events.
    Missed {
        /// How many events were left out here.
        count: u64,
    },
}

impl Event {
    /// What it is called, as in the field `event`.
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

    /// The resource that it is about and the ticket of the client, if it is about one.
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

    /// Whether a watcher of one resource wants to know of it: it is about that resource, or tells what was missed.
    pub fn is_about(&self, name: &Name) -> bool {
        matches!(self, Self::Missed { .. }) || self.client().is_some_and(|(about, _)| about == name)
    }
}

/// What this peer has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in, all kinds.
    pub received: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Hosts that are linked with this one now.
    pub links: u64,
    /// Frames of ours that went by way of the register's leader, since there was no other way yet.
    pub relayed: u64,
    /// Frames that were of no version or format that we know.
    pub malformed: u64,
    /// Messages that made no sense.
    pub unexpected: u64,
    /// Connections that were refused because nobody proved on them to belong to the cluster.
    pub unauthenticated: u64,
    /// How often a session of this peer was over.
    pub sessions_lost: u64,
    /// Tickets that were asked for.
    pub asked: u64,
    /// Tickets that got a slot.
    pub granted: u64,
    /// Grants that were released in time.
    pub released: u64,
    /// Grants whose lease ended.
    pub lost: u64,
    /// Tickets that ended without a grant.
    pub refused: u64,
    /// Clients that wait now.
    pub waiting: u64,
    /// Clients that are inside now.
    pub holding: u64,
}
