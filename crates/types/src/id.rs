use core::fmt;

/// A peer. In the simulator peers are numbered from 0; in the product the number is derived from the peer's public key.
/// Protocols only compare, store and send it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct PeerId(u64);

impl PeerId {
    /// Creates the peer with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number as it is sent over the network.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number as an index into a table of all peers, for drivers that number them from 0.
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

/// A request of one client of a peer: unique at its peer and never reused there.
///
/// [`Ticket::NONE`] names no request. It fills a place in a queue that no client has requested, such as the tail of a
/// token's queue before the first request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Ticket(u64);

impl Ticket {
    /// No request; clients number theirs from 1.
    pub const NONE: Self = Self(0);

    /// Creates the ticket with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the ticket's number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the next ticket.
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
