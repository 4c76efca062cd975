use core::fmt;

/// One peer in the overlay.
///
/// In the simulator peers are numbered from 0; on the network the number is drawn from the peer's public key. A
/// protocol only ever compares, stores and sends it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerId(u64);

impl PeerId {
    /// The peer with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number as it goes over the wire.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number as a place in a table of all peers, for drivers that number them from 0.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

/// One request of one client of a peer: unique at its peer, never reused there.
///
/// [`Ticket::NONE`] names no request. It stands where a queue has a place but nobody ever asked for it, such as the
/// tail of a token's queue before the first request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ticket(u64);

impl Ticket {
    /// No request at all; clients number theirs from 1.
    pub const NONE: Self = Self(0);

    /// The ticket with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// The ticket's number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The ticket after this one.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "t{}", self.0)
    }
}
