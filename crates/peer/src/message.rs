use peerlock_base::{Key, PeerId, Span, Ticket};
use peerlock_mutex::Grant;
use peerlock_overlay::KeyRange;

/// What peers say to each other. `O` are the overlay's messages, `M` the protocol's.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Wire<O, M> {
    /// For the upkeep of the overlay; no protocol sees it.
    Overlay(O),
    /// From one instance of a resource's protocol to another.
    Direct {
        /// The key of the resource's name.
        resource: Key,
        /// For the instance's [`Protocol::on_message`](peerlock_mutex::Protocol::on_message).
        message: M,
    },
    /// On its way to the owner of a key. Answered by `Got` if it has a receipt and the receiver knows the way.
    Routed {
        /// The key of the resource's name.
        resource: Key,
        /// Whose owner shall get it.
        key: Key,
        /// Who routed it.
        origin: PeerId,
        /// How many hops it has behind it, this one included.
        hops: u8,
        /// What to confirm to the peer that handed it over.
        receipt: Option<u64>,
        /// For the owner's [`Protocol::on_routed`](peerlock_mutex::Protocol::on_routed), after each hop's `on_forward`.
        message: M,
    },
    /// A routed message has come to the next hop.
    Got {
        /// As it was in the message.
        receipt: u64,
    },
}

/// The names of the timers; at most one of each name is pending at a peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer<T> {
    /// Upkeep of the overlay.
    Overlay(peerlock_overlay::Timer),
    /// Of the protocol of one resource.
    Resource(Key, T),
    /// The next hop has not confirmed the message with this receipt.
    Hop(u64),
}

/// Everything that can happen to a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input<O, M, T> {
    /// Join the overlay of this peer, or begin one.
    Join(Option<PeerId>),
    /// Leave the overlay for good.
    Leave,
    /// A client asks for a resource.
    Request {
        /// The key of its name.
        resource: Key,
        /// The client, by a ticket of this peer's.
        ticket: Ticket,
    },
    /// A client leaves, or withdraws.
    Release {
        /// The key of the resource's name.
        resource: Key,
        /// As it was in `Request`.
        ticket: Ticket,
    },
    /// A message arrived.
    Message {
        /// The last hop, which need not be where it comes from.
        from: PeerId,
        /// The message as it was sent.
        wire: Wire<O, M>,
    },
    /// A timer ran out.
    Timer(Timer<T>),
    /// The network could not reach this peer.
    Unreachable(PeerId),
    /// All that this peer keeps for others is lost.
    Reset {
        /// The number of its new life.
        incarnation: u64,
    },
}

/// What becomes of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It is inside from now on.
    Granted(Grant),
    /// It was inside, and its lease has ended.
    Lost,
    /// It will not be let in.
    Refused,
}

/// What a peer wants done. The driver carries effects out in the order they were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect<O, M, T> {
    /// Send `wire` to another peer.
    Send {
        /// Who shall get it.
        to: PeerId,
        /// For its [`Input::Message`].
        wire: Wire<O, M>,
    },
    /// Tell a client.
    Client {
        /// The key of the resource's name.
        resource: Key,
        /// The client, as it was in [`Input::Request`].
        ticket: Ticket,
        /// What has become of it.
        event: Event,
    },
    /// Wake the peer with `timer` after `after`; a pending timer of the same name is replaced.
    SetTimer {
        /// At most one of this name is pending.
        timer: Timer<T>,
        /// How long from now.
        after: Span,
    },
    /// Forget the timer if it is pending.
    CancelTimer {
        /// As it was set.
        timer: Timer<T>,
    },
    /// The peer owns these keys from now on, and no others. `None` if it is not in the overlay any more.
    Owns(Option<KeyRange>),
    /// A routed message could not be brought to its owner: too many hops, or nobody to hand it to.
    Undelivered {
        /// The key of the resource's name.
        resource: Key,
        /// Whose owner should have got it.
        key: Key,
    },
    /// A message made no sense here and was dropped. Drivers count and trace it.
    Strange {
        /// What was strange, in words.
        why: &'static str,
    },
}
