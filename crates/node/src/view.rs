//! What can be seen from outside.

use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use peerlock_base::{Key, PeerId};

use crate::Name;

/// A resource that this peer knows of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceView {
    /// Its name.
    pub name: Name,
    /// How many may be inside at a time; `None` while it is being founded.
    pub slots: Option<u32>,
    /// How many clients of this peer are inside.
    pub holding_here: usize,
    /// How many clients of this peer wait.
    pub waiting_here: usize,
}

/// One resource in the whole cluster, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceDetails {
    /// Its name.
    pub name: Name,
    /// How many may be inside at a time.
    pub slots: u32,
    /// Who keeps the line.
    pub coordinator: PeerId,
    /// Each slot, by number.
    pub holders: Vec<SlotView>,
    /// Everybody who waits, the next first.
    pub queue: Vec<WaiterView>,
}

/// One slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotView {
    /// Its number.
    pub slot: u32,
    /// The peer that has it, or will in a moment.
    pub peer: PeerId,
    /// Nobody is inside with it.
    pub free: bool,
    /// Who is inside, if its peer has told.
    pub client: Option<ClientView>,
}

/// One who waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaiterView {
    /// The peer where it waits.
    pub peer: PeerId,
    /// More of it, if its peer has told.
    pub client: Option<ClientView>,
}

/// A client as its peer knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientView {
    /// What it says of itself.
    pub label: String,
    /// For how long it has been waiting, or inside.
    pub age: Duration,
    /// If it is inside, under which fencing number.
    pub fencing: Option<u64>,
}

/// A peer that this one knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerView {
    /// Who.
    pub peer: PeerId,
    /// Where it was reached last.
    pub address: String,
    /// Whether it is connected now.
    pub up: bool,
    /// For how long it is, or is not.
    pub since: Duration,
    /// It is this peer itself.
    pub is_me: bool,
}

/// One peer from the inside, at one moment: what it knows by itself, without asking anybody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Who.
    pub peer: PeerId,
    /// Where it lies on the ring.
    pub place: Key,
    /// The next on the ring clockwise of those that are connected, if it is not alone.
    pub successor: Option<PeerId>,
    /// The next on the ring the other way.
    pub predecessor: Option<PeerId>,
    /// The other peers that it has met, and where they lie.
    pub others: Vec<(PeerId, Key)>,
    /// Its part in every resource that it knows of, by name.
    pub parts: Vec<Part>,
}

/// A peer's part in one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which resource.
    pub name: Name,
    /// How many may be inside at a time; `None` while it is being founded.
    pub slots: Option<u32>,
    /// The pointer: who keeps the line as far as this peer knows, and so where its requests go. `None` while the
    /// resource is being founded.
    pub keeper: Option<PeerId>,
    /// The line, the next first, if this peer keeps it.
    pub line: Option<Vec<TicketView>>,
    /// The tokens that are here, by slot.
    pub tokens: Vec<TokenView>,
    /// The clients of this peer: those inside, then those who wait.
    pub clients: Vec<PartClient>,
}

/// A place in line: a ticket, and the peer where its client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TicketView {
    /// The peer.
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

/// A client of a peer, as [`Part`] has it.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// How many are ahead; `None` while that is not known.
    pub ahead: Option<u32>,
    /// How long it will take at the speed of late.
    pub expected: Option<Duration>,
}

/// What can happen at a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A client of this peer waits, with so many ahead of it.
    Waiting {
        /// For what.
        name: Name,
        /// Who, in its own words.
        label: String,
        /// Which of this peer's tickets.
        ticket: u64,
        /// How many are ahead, as far as known.
        ahead: Option<u32>,
    },
    /// A client of this peer is inside.
    Granted {
        /// With what.
        name: Name,
        /// Who, in its own words.
        label: String,
        /// Which of this peer's tickets.
        ticket: u64,
        /// Which slot.
        slot: u32,
        /// Under which fencing number.
        fencing: u64,
        /// How long it has waited.
        waited: Duration,
    },
    /// A client of this peer has left.
    Released {
        /// What.
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
        /// How long it was inside.
        held: Duration,
    },
    /// A client of this peer waits no more and was not let in.
    Withdrawn {
        /// For what.
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
        /// Why, in words.
        why: String,
    },
    /// A client of this peer has not renewed its lease and must stop.
    Lost {
        /// What.
        name: Name,
        /// Which of this peer's tickets.
        ticket: u64,
    },
    /// Another peer is connected.
    PeerUp {
        /// Who.
        peer: PeerId,
        /// Where.
        address: String,
    },
    /// Another peer is not connected any more.
    PeerDown {
        /// Who.
        peer: PeerId,
        /// Why, in words.
        why: String,
    },
    /// Nobody could be reached at an address.
    Unreached {
        /// Where.
        address: String,
        /// Why, in words.
        why: String,
    },
}

/// What this peer has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames that came in, all kinds.
    pub received: u64,
    /// Frames that went out.
    pub sent: u64,
    /// Frames that were of no version or format that we know.
    pub malformed: u64,
    /// Messages that made no sense.
    pub strange: u64,
    /// Connections that were refused because nobody proved on them to belong to the cluster.
    pub strangers: u64,
    /// Routed messages that found no way.
    pub undelivered: u64,
    /// Tickets that were asked for.
    pub asked: u64,
    /// Grants.
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
