use peerlock_overlay::KeyRange;
use peerlock_protocols::Grant;
use peerlock_types::{Key, PeerId, Span, Ticket};
use serde::{Deserialize, Serialize};

/// The messages between peers: `O` of the overlay, `M` of the protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Wire<O, M> {
    /// A message of the overlay.
    Overlay(O),
    /// From one instance of a resource's protocol to another.
    Direct { resource: Key, message: M },
    /// Forwarded to the owner of `key`. With a receipt, the owner and each hop with a route answer with `Got`.
    Routed { resource: Key, key: Key, origin: PeerId, hops: u8, receipt: Option<u64>, message: M },
    /// Confirms a routed message to the previous hop.
    Got { receipt: u64 },
}

/// The timers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer<T> {
    /// A timer of the overlay.
    Overlay(peerlock_overlay::Timer),
    /// A timer of one resource's protocol.
    Resource(Key, T),
    /// The wait for the confirmation of a next hop.
    Hop(u64),
}

/// An input of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<O, M, T> {
    /// The peer joins, through another if any.
    Join(Option<PeerId>),
    /// The peer leaves.
    Leave,
    /// A client requests.
    Request { resource: Key, ticket: Ticket },
    /// A client releases or withdraws.
    Release { resource: Key, ticket: Ticket },
    /// From the previous hop, which need not be the origin.
    Message { from: PeerId, wire: Wire<O, M> },
    /// A timer has expired.
    Timer(Timer<T>),
    /// A peer cannot be reached.
    Unreachable(PeerId),
    /// The state stored for others is lost.
    Reset { incarnation: u64 },
}

/// A change of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Granted(Grant),
    Lost,
    Refused,
}

/// An action for the driver, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O, M, T> {
    /// Sends to another peer.
    Send { to: PeerId, wire: Wire<O, M> },
    /// A change of a request.
    Client { resource: Key, ticket: Ticket, event: Event },
    /// Replaces a pending timer of the same name.
    SetTimer { timer: Timer<T>, after: Span },
    /// Cancels a pending timer.
    CancelTimer { timer: Timer<T> },
    /// This peer now owns these keys.
    Owns(Option<KeyRange>),
    /// A routed message took too many hops, or this peer has no route.
    Undelivered { resource: Key, key: Key },
    /// A dropped message.
    Unexpected { why: &'static str },
}
