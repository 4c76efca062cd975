//! Requests that move between queues, in E2E and Non-E2E. A winner's lease ends by its own clock, so each queue
//! converts the send time.

use core::fmt;

use peerlock_types::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::replicas::by_any_clock;
use crate::sigma::Stamp;
use crate::sigma::replica::Entry;

/// The lease of votes that never expire: 272 years.
pub(crate) const FOREVER: Span = Span::from_secs(1 << 33);

/// A request that moves between queues.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Waiting {
    pub client: Stamp,
    /// A lower bound of the client's clock at the time of sending.
    pub sent: Time,
}

impl Waiting {
    pub(crate) fn arrived(self, now: Time) -> Entry {
        Entry { client: self.client, sent: self.sent, arrived: now }
    }
}

impl Entry {
    pub fn into_waiting(self, now: Time) -> Waiting {
        Waiting { client: self.client, sent: self.client_clock(now) }
    }

    /// A lower bound of the client's clock at `now` by this peer's clock.
    pub fn client_clock(&self, now: Time) -> Time {
        self.sent + by_any_clock(now.since(self.arrived))
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.client, f)
    }
}
