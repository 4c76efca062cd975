//! What goes over the wire as JSON. Durations are whole milliseconds, and peers the decimal digits of their number: it
//! does not fit into the numbers of JavaScript.

use std::time::{Duration, SystemTime};

use peerlock_service as service;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Failure;

/// What a client asks for. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Want {
    /// How many may be inside at a time. If it is not said: as many as the resource has, or one if it is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How long to wait. As long as the connection is open if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Do not wait: only if a slot is free and nobody else waits for it.
    #[serde(rename = "try", skip_serializing_if = "is_false")]
    pub try_only: bool,
    /// How long the grant stands without being renewed. 30000 if it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// How long before the end of its lease the grant is lost, for the holder to stop in time. A fifth of the lease if
    /// it is not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
    /// What others see of who waits or is inside, such as a host and a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Asked again with the same id for the same resource, while it waits or is inside, it is the same request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// A slot is held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Granted {
    /// What to renew and to release it by.
    pub grant: String,
    /// The resource.
    pub name: String,
    /// Which of its slots, counted from 0.
    pub slot: u32,
    /// The fencing number: strictly increasing per slot and unique within the resource.
    pub fencing: u64,
    /// How long the lease stands from when this was sent.
    pub ttl_ms: u64,
    /// How long it took to get in.
    pub waited_ms: u64,
}

/// Which grant is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// The `grant` of the answer to `acquire` or `hold`.
    pub grant: String,
}

/// A lease was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Renewed {
    /// How long it stands from when the agent got the request. Count from when it was sent, to be sure.
    pub ttl_ms: u64,
}

/// A slot was given back in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Released {}

/// One line of a `hold`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    /// Still waiting. Comes whenever the place changes.
    Waiting(Waiting),
    /// Inside, until the connection ends or the lease is not renewed.
    Granted(Granted),
    /// The lease was not renewed in time: stop now. The last line.
    Lost {},
    /// Not let in. The last line.
    Failed(Failure),
}

/// A place in line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiting {
    /// How many are ahead, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u32>,
    /// How long it will take at the speed of late, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<u64>,
}

/// A resource that the agent knows of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// How many may be inside at a time; absent while it is being founded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// How many clients of this agent are inside.
    pub holding_here: usize,
    /// How many clients of this agent wait.
    pub waiting_here: usize,
}

/// One resource in the whole cluster, at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Details {
    /// Its name.
    pub name: String,
    /// How many may be inside at a time.
    pub slots: u32,
    /// The peer that keeps the line.
    pub coordinator: String,
    /// Each slot, by number.
    pub holders: Vec<Slot>,
    /// Everybody who waits, the next first.
    pub queue: Vec<Waiter>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Slot {
    /// Its number.
    pub slot: u32,
    /// The peer that has it, or will in a moment.
    pub peer: String,
    /// Nobody is inside with it.
    pub free: bool,
    /// Who is inside, if its peer has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Waiter {
    /// The peer where it waits.
    pub peer: String,
    /// More of it, if its peer has told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client: Option<Client>,
}

/// A client as its peer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Client {
    /// What it says of itself.
    pub label: String,
    /// For how long it has been waiting, or inside.
    pub age_ms: u64,
    /// If it is inside, under which fencing number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fencing: Option<u64>,
}

/// A peer that the agent knows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Peer {
    /// Who.
    pub peer: String,
    /// Where it was reached last.
    pub address: String,
    /// Whether it is connected now.
    pub up: bool,
    /// For how long it is, or is not.
    pub since_ms: u64,
    /// It is the agent itself.
    pub is_me: bool,
}

/// Something that has happened at the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Happening {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What.
    #[serde(flatten)]
    pub event: Event,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of `peerlock_service::Event`")]
pub enum Event {
    /// A client waits.
    Waiting {
        name: String,
        label: String,
        ticket: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        ahead: Option<u32>,
    },
    /// A client is inside.
    Granted { name: String, label: String, ticket: u64, slot: u32, fencing: u64, waited_ms: u64 },
    /// A client has left.
    Released { name: String, ticket: u64, held_ms: u64 },
    /// A client waits no more and was not let in.
    Withdrawn { name: String, ticket: u64, why: String },
    /// A client has not renewed its lease and must stop.
    Lost { name: String, ticket: u64 },
    /// Another peer is connected.
    PeerUp { peer: String, address: String },
    /// Another peer is not connected any more.
    PeerDown { peer: String, why: String },
    /// Nobody could be reached at an address.
    Unreached { address: String, why: String },
    /// This reader was too slow for so many events, and has not seen them.
    Missed { count: u64 },
}

/// Whole milliseconds, rounded down.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn since_1970(at: SystemTime) -> u64 {
    ms(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

impl From<service::Progress> for Waiting {
    fn from(progress: service::Progress) -> Self {
        Self { ahead: progress.ahead, expected_ms: progress.expected.map(ms) }
    }
}

impl From<service::ResourceView> for Resource {
    fn from(view: service::ResourceView) -> Self {
        let service::ResourceView { name, slots, holding_here, waiting_here } = view;
        Self { name: name.into(), slots, holding_here, waiting_here }
    }
}

impl From<service::ResourceDetails> for Details {
    fn from(details: service::ResourceDetails) -> Self {
        let service::ResourceDetails { name, slots, coordinator, holders, queue } = details;
        let slot = |view: service::SlotView| Slot {
            slot: view.slot,
            peer: view.peer.to_string(),
            free: view.free,
            client: view.client.map(Client::from),
        };
        let waiter =
            |view: service::WaiterView| Waiter { peer: view.peer.to_string(), client: view.client.map(Client::from) };
        Self {
            name: name.into(),
            slots,
            coordinator: coordinator.to_string(),
            holders: holders.into_iter().map(slot).collect(),
            queue: queue.into_iter().map(waiter).collect(),
        }
    }
}

impl From<service::ClientView> for Client {
    fn from(view: service::ClientView) -> Self {
        Self { label: view.label, age_ms: ms(view.age), fencing: view.fencing }
    }
}

impl From<service::PeerView> for Peer {
    fn from(view: service::PeerView) -> Self {
        let service::PeerView { peer, address, up, since, is_me } = view;
        Self { peer: peer.to_string(), address, up, since_ms: ms(since), is_me }
    }
}

impl From<service::Happening> for Happening {
    fn from(happening: service::Happening) -> Self {
        Self { at_ms: since_1970(happening.at), event: happening.event.into() }
    }
}

impl From<service::Event> for Event {
    fn from(event: service::Event) -> Self {
        use service::Event as E;
        match event {
            E::Waiting { name, label, ticket, ahead } => Self::Waiting { name: name.into(), label, ticket, ahead },
            E::Granted { name, label, ticket, slot, fencing, waited } => {
                Self::Granted { name: name.into(), label, ticket, slot, fencing, waited_ms: ms(waited) }
            }
            E::Released { name, ticket, held } => Self::Released { name: name.into(), ticket, held_ms: ms(held) },
            E::Withdrawn { name, ticket, why } => Self::Withdrawn { name: name.into(), ticket, why },
            E::Lost { name, ticket } => Self::Lost { name: name.into(), ticket },
            E::PeerUp { peer, address } => Self::PeerUp { peer: peer.to_string(), address },
            E::PeerDown { peer, why } => Self::PeerDown { peer: peer.to_string(), why },
            E::Unreached { address, why } => Self::Unreached { address, why },
        }
    }
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

    /// The resource that it is about, if it is about one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Self::Waiting { name, .. }
            | Self::Granted { name, .. }
            | Self::Released { name, .. }
            | Self::Withdrawn { name, .. }
            | Self::Lost { name, .. } => Some(name),
            Self::PeerUp { .. } | Self::PeerDown { .. } | Self::Unreached { .. } | Self::Missed { .. } => None,
        }
    }
}
