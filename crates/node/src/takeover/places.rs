//! Positions in queues that outlive a process.
//!
//! Each confirmed arrival number is recorded with its client, and ends with the grant or the withdrawal. At the next
//! process the client requests again, and its request gets the recorded number; of several recorded for one client, the
//! lowest. A number is used once, within a minute, so a host that restarts often is not preferred.
//!
//! A client is known by its request ID or its process. One without either, such as over TCP, gets a new number.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_protocol::token::Arrival;
use peerlock_types::{Span, Time};

use super::{JournalEntry, Takeover};
use crate::Name;
use crate::clients::TicketId;

/// Our choice: twice as long as a client waits for the next process.
pub(super) const KEPT: Span = Span::from_secs(60);

/// The position of a waiting client.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub name: Name,
    /// The request ID of the client, or its process.
    pub client: String,
    pub arrival: Arrival,
}

#[derive(Default)]
pub(super) struct Places {
    /// The predecessor's, whose clients have not requested again.
    left: BTreeSet<Place>,
    /// The end of these; `None` before the first session.
    until: Option<Time>,
    /// The recorded ones of this process.
    recorded: BTreeMap<TicketId, (Name, Arrival)>,
}

impl Places {
    pub fn new(left: impl Iterator<Item = Place>) -> Self {
        Self { left: left.collect(), ..Self::default() }
    }

    pub fn expire_at(&mut self, until: Time) {
        self.until.get_or_insert(until);
    }

    /// Returns the entries that end them.
    pub fn forget_left(&mut self) -> impl Iterator<Item = JournalEntry> + use<> {
        take(&mut self.left).into_iter().map(|Place { name, arrival, .. }| JournalEntry::Waited { name, arrival })
    }

    pub fn check(&self, is_there: impl Fn(TicketId) -> bool) {
        for ticket in self.recorded.keys() {
            assert!(is_there(*ticket), "the place of {ticket:?} is recorded, which has ended");
        }
    }
}

impl Takeover {
    /// Returns the arrival number of a request that continues one of the predecessor's.
    pub fn reclaim(&mut self, ticket: TicketId, name: &Name, client: String, now: Time) -> Option<Arrival> {
        self.forget_old_places(now);
        let first = Place { name: name.clone(), client, arrival: Arrival { generation: 0, number: 0 } };
        let is_it = |place: &&Place| (&place.name, &place.client) == (&first.name, &first.client);
        let place = self.places.left.range(&first..).next().filter(is_it)?.clone();
        self.places.left.remove(&place);
        let Place { name, arrival, .. } = place;
        self.places.recorded.insert(ticket, (name, arrival));
        Some(arrival)
    }

    /// Records a confirmed arrival number.
    pub fn on_arrival(&mut self, ticket: TicketId, place: Place) {
        self.on_waited(ticket, false);
        self.places.recorded.insert(ticket, (place.name.clone(), place.arrival));
        self.out.push(JournalEntry::Waiting(Box::new(place)));
    }

    /// The client of this ticket waits no more, or `goes_on` at the next process.
    pub fn on_waited(&mut self, ticket: TicketId, goes_on: bool) {
        if let Some((name, arrival)) = self.places.recorded.remove(&ticket)
            && !goes_on
        {
            self.out.push(JournalEntry::Waited { name, arrival });
        }
    }

    pub fn forget_old_places(&mut self, now: Time) {
        if self.places.until.is_some_and(|until| until <= now) {
            self.out.extend(self.places.forget_left());
        }
    }
}
