use peerlock_overlay::KeyRange;
use peerlock_protocols::Grant;
use peerlock_types::{Key, PeerId, Span, Ticket};

/// The messages between peers: `O` of the overlay, `M` of the protocol. `resource` is the key of its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[expect(missing_docs, reason = "the text of a variant describes its fields")]
pub enum Wire<O, M> {
    /// A message of the overlay.
    Overlay(O),
    /// From one instance of a resource's protocol to another.
    Direct { resource: Key, message: M },
    /// Forwarded from `origin` to the owner of `key`, in `hops` including this one. A hop that has a route, and the owner,
    /// answer with `Got` if there is a receipt.
    Routed { resource: Key, key: Key, origin: PeerId, hops: u8, receipt: Option<u64>, message: M },
    /// Confirms a routed message to the previous hop.
    Got { receipt: u64 },
}

/// The timers; at most one of each name is pending at a peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer<T> {
    /// A timer of the overlay.
    Overlay(peerlock_overlay::Timer),
    /// A timer of the protocol of one resource.
    Resource(Key, T),
    /// The next hop has not confirmed the message with this receipt.
    Hop(u64),
}

/// An input of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of a variant describes its fields")]
pub enum Input<O, M, T> {
    /// Join the overlay of this peer, or start a new one.
    Join(Option<PeerId>),
    /// Leave the overlay.
    Leave,
    /// A client requests a resource.
    Request { resource: Key, ticket: Ticket },
    /// A client releases the resource or withdraws its request.
    Release { resource: Key, ticket: Ticket },
    /// A message from the previous hop, which need not be the origin.
    Message { from: PeerId, wire: Wire<O, M> },
    /// A timer expired.
    Timer(Timer<T>),
    /// A peer could not be reached.
    Unreachable(PeerId),
    /// This peer lost all state that it stores for others.
    Reset { incarnation: u64 },
}

/// A change of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client holds the resource.
    Granted(Grant),
    /// Its lease expired.
    Lost,
    /// The request is refused.
    Refused,
}

/// An action for the driver. Drivers carry effects out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the text of a variant describes its fields")]
pub enum Effect<O, M, T> {
    /// Send to another peer.
    Send { to: PeerId, wire: Wire<O, M> },
    /// Notify a client.
    Client { resource: Key, ticket: Ticket, event: Event },
    /// Set a timer, replacing a pending one of the same name.
    SetTimer { timer: Timer<T>, after: Span },
    /// Cancel the timer if it is pending.
    CancelTimer { timer: Timer<T> },
    /// This peer now owns these keys.
    Owns(Option<KeyRange>),
    /// A routed message was dropped: it took too many hops, or this peer has no route.
    Undelivered { resource: Key, key: Key },
    /// An unexpected message was dropped.
    Unexpected { why: &'static str },
}
