use peerlock_overlay::KeyRange;
use peerlock_protocols::Grant;
use peerlock_types::{Key, PeerId, Span, Ticket};

/// The messages between peers. `O` are the overlay's messages, `M` the protocol's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Wire<O, M> {
    /// A message of the overlay. Protocols do not receive it.
    Overlay(O),
    /// Sent by one instance of a resource's protocol to another one.
    Direct {
        /// The key of the resource's name.
        resource: Key,
        /// The argument of the receiver's [`Protocol::on_message`](peerlock_protocols::Protocol::on_message).
        message: M,
    },
    /// Forwarded from hop to hop to the owner of `key`. A hop that has a route, and the owner, answer with `Got` if the
    /// message has a receipt.
    Routed {
        /// The key of the resource's name.
        resource: Key,
        /// The key whose owner is the destination.
        key: Key,
        /// The peer that routed it.
        origin: PeerId,
        /// The number of hops so far, including this one.
        hops: u8,
        /// The number to confirm to the previous hop, if it expects a confirmation.
        receipt: Option<u64>,
        /// The argument of [`Protocol::on_routed`](peerlock_protocols::Protocol::on_routed) at the owner, after
        /// `on_forward` at each hop.
        message: M,
    },
    /// Sent by a hop to the previous one: it has the routed message. The receiver stops its timer.
    Got {
        /// The receipt of the message.
        receipt: u64,
    },
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
pub enum Input<O, M, T> {
    /// Joins the overlay of this peer, or starts a new one.
    Join(Option<PeerId>),
    /// Leaves the overlay permanently.
    Leave,
    /// A client requests a resource.
    Request {
        /// The key of its name.
        resource: Key,
        /// The client's ticket, issued by this peer.
        ticket: Ticket,
    },
    /// A client releases the resource or withdraws its request.
    Release {
        /// The key of the resource's name.
        resource: Key,
        /// The ticket of the request.
        ticket: Ticket,
    },
    /// A message arrived.
    Message {
        /// The previous hop, which need not be the origin.
        from: PeerId,
        /// The message.
        wire: Wire<O, M>,
    },
    /// A timer expired.
    Timer(Timer<T>),
    /// A peer could not be reached.
    Unreachable(PeerId),
    /// This peer lost all state that it stores for others.
    Reset {
        /// The number of the new incarnation.
        incarnation: u64,
    },
}

/// A change of a client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The client holds the resource.
    Granted(Grant),
    /// The client held the resource, and its lease expired.
    Lost,
    /// The request is refused.
    Refused,
}

/// An action for the driver. Drivers carry effects out in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O, M, T> {
    /// Send `wire` to another peer.
    Send {
        /// The receiver.
        to: PeerId,
        /// The argument of the receiver's [`Input::Message`].
        wire: Wire<O, M>,
    },
    /// Notify a client.
    Client {
        /// The key of the resource's name.
        resource: Key,
        /// The ticket of [`Input::Request`].
        ticket: Ticket,
        /// The change.
        event: Event,
    },
    /// Wake the peer with `timer` after `after`; a pending timer of the same name is replaced.
    SetTimer {
        /// The timer.
        timer: Timer<T>,
        /// The time from now.
        after: Span,
    },
    /// Cancel the timer if it is pending.
    CancelTimer {
        /// The timer.
        timer: Timer<T>,
    },
    /// This peer now owns exactly these keys; `None` if it has left the overlay.
    Owns(Option<KeyRange>),
    /// A routed message was dropped: it took too many hops, or this peer has no route.
    Undelivered {
        /// The key of the resource's name.
        resource: Key,
        /// The key of its destination.
        key: Key,
    },
    /// An unexpected message was dropped. Drivers count and trace it.
    Unexpected {
        /// The reason.
        why: &'static str,
    },
}
