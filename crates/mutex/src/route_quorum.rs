//! What the two protocols of Muhammad, Cheema and Gupta share beside Sigma's votes: requests that are sent on from one
//! queue to another. A winner's lease must end by its own clock, wherever its request has waited.

use core::fmt;

use peerlock_base::Time;

use crate::replicas::by_any_clock;
use crate::sigma::Stamp;
use crate::sigma::replica::Entry;

/// A request on its way from one queue to another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Waiting {
    /// Who waits, and where in the order.
    pub client: Stamp,
    /// A time that its own clock had passed when this was sent.
    pub sent: Time,
}

impl Waiting {
    pub(crate) fn arrived(self, now: Time) -> Entry {
        Entry { client: self.client, sent: self.sent, arrived: now }
    }
}

impl Entry {
    /// By its own clock the client sent the request at `sent`, and has waited here since: so by now its clock shows at
    /// least this.
    pub fn into_waiting(self, now: Time) -> Waiting {
        Waiting { client: self.client, sent: self.clock_there(now) }
    }

    /// What the client's clock shows at `now` by ours, or less.
    pub fn clock_there(&self, now: Time) -> Time {
        self.sent + by_any_clock(now.since(self.arrived))
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.client, f)
    }
}
