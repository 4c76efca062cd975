//! The clients of this peer: waiters, holders, and their leases.
//!
//! A *ticket* is a request until it has ended. Custody knows it by an *alias*, which is valid for one session: in the
//! next session a waiting ticket is requested again, by another alias. A detached grant has no alias after its session.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_protocol::Grant;
use peerlock_protocol::token::Arrival;
use peerlock_registry::{Label, Ttl};
use peerlock_types::{Key, Span, Ticket, Time};

use crate::lease::{Bound, Lease, Verdict};
use crate::takeover::{GrantRecord, Since};
use crate::{Error, Name};

/// A request until it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    Forever,
    For(Span),
    /// Not at all: succeeds only if a slot is free and no client waits.
    Try,
}

#[derive(Clone, Debug)]
pub struct Wanted {
    pub name: Name,
    /// The expected number of slots, if any. A new resource gets one slot by default.
    pub slots: Option<u32>,
    pub ttl: Span,
    /// How long before the end of its lease a grant is declared lost.
    pub grace: Span,
    /// The peer renews the lease while it runs; otherwise the client does.
    pub auto_renew: bool,
    /// Requests a detached grant with this unique ID (1 to 255 bytes), which only the client renews, and a later
    /// process of this host reports ([`Effect::Returned`](crate::Effect::Returned)).
    pub detached: Option<String>,
    /// The unique grant ID by which a client outside this process may [resume](crate::Input::Resume) the grant at the
    /// next process of this host.
    pub taken_over_as: Option<String>,
    pub wait: Wait,
    pub label: String,
    /// The client's process ID on this host, if known. Visible to other users.
    pub pid: Option<u32>,
    /// The request ID: repeating it for the same resource returns the same ticket.
    pub request: Option<String>,
}

impl Wanted {
    /// A request that waits without limit for any number of slots, and is renewed by its client.
    pub fn new(name: Name, ttl: Span, grace: Span) -> Self {
        let (auto_renew, detached, taken_over_as) = (false, None, None);
        let (wait, label, pid, request) = (Wait::Forever, String::new(), None, None);
        Self { name, slots: None, ttl, grace, auto_renew, detached, taken_over_as, wait, label, pid, request }
    }

    /// Checks the expected number of slots.
    pub fn check(&self, has: u32) -> Result<(), Error> {
        match self.slots {
            Some(asked) if asked != has => Err(Error::SlotsMismatch { name: self.name.clone(), has, asked }),
            _ => Ok(()),
        }
    }

    /// Returns an identifier of the client that is valid at the next process of this host: its request ID or process.
    pub(crate) fn client(&self) -> Option<String> {
        let of_request = self.request.as_ref().map(|request| format!("request {request}"));
        of_request.or_else(|| self.pid.map(|pid| format!("process {pid}")))
    }

    /// Returns what the registry needs for a detached grant, if that is valid.
    pub fn detachable(&self) -> Option<(Ttl, Label)> {
        let millis = Ttl::from_millis(self.ttl.as_nanos() / 1_000_000);
        Some((millis.ok()?, Label::new(self.detached.clone()?).ok()?))
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub wanted: Wanted,
    pub resource: Key,
    /// `None` while the slot is not requested from custody.
    alias: Option<Ticket>,
    /// The confirmed position of a request, which also counts in the next session.
    pub arrival: Option<Arrival>,
    pub asked: Time,
    pub stage: Stage,
    /// The client was asked to stop because of a revocation.
    pub revoked: bool,
    /// The run that held the slot has ended. The slot is held until its period ends.
    pub concluded: bool,
    /// A detached grant of an earlier process, not renewed since: only the registry knows its deadline.
    pub returned: bool,
    refused: u32,
}

#[derive(Clone, Debug)]
pub enum Stage {
    Waiting {
        /// The last known position.
        ahead: Option<u32>,
        /// The first known position and its time, to estimate the rate.
        first: Option<(Time, u32)>,
    },
    /// Granted by custody, but the registry has to persist the grant first, or the session is about to expire.
    Entering {
        grant: Grant,
    },
    Held {
        grant: Grant,
        since: Since,
        lease: Lease,
    },
}

impl Entry {
    pub fn is_held(&self) -> bool {
        self.held().is_some()
    }

    pub fn alias(&self) -> Option<Ticket> {
        self.alias
    }

    pub fn ahead(&self) -> Option<u32> {
        match self.stage {
            Stage::Waiting { ahead, .. } => ahead,
            Stage::Entering { .. } | Stage::Held { .. } => None,
        }
    }

    /// Returns the grant of a holder, its time and its lease.
    pub fn held(&self) -> Option<(Grant, Since, Lease)> {
        match self.stage {
            Stage::Held { grant, since, lease } => Some((grant, since, lease)),
            Stage::Waiting { .. } | Stage::Entering { .. } => None,
        }
    }

    /// Returns whether it holds, or is entering with, this fencing number.
    pub fn has(&self, number: u64) -> bool {
        matches!(self.stage, Stage::Held { grant, .. } | Stage::Entering { grant } if grant.fencing == number)
    }

    pub fn is_notified(&self) -> bool {
        self.held().is_some_and(|(.., lease)| lease.lost.is_some())
    }

    /// Returns whether its grant is, or will be, detached.
    pub fn is_detached(&self) -> bool {
        self.wanted.detached.is_some()
    }
}

#[derive(Clone, Debug)]
struct Waiters {
    name: Name,
    waiting: BTreeSet<TicketId>,
    holding: BTreeSet<TicketId>,
}

#[derive(Clone, Debug, Default)]
pub struct Clients {
    tickets: BTreeMap<TicketId, Entry>,
    aliases: BTreeMap<Ticket, TicketId>,
    requests: BTreeMap<(Key, String), TicketId>,
    /// Every requested resource that was not [forgotten](Self::forget).
    waiters: BTreeMap<Key, Waiters>,
    last_alias: u64,
    last_ticket: u64,
}

impl Clients {
    /// Aliases differ between processes: one of an earlier process may still be in a queue.
    pub fn after(last_alias: u64) -> Self {
        Self { last_alias, ..Self::default() }
    }

    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    pub fn extent(&self) -> usize {
        self.tickets.len() + self.waiters.len()
    }

    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    pub fn holding(&self) -> usize {
        self.waiters.values().map(|waiters| waiters.holding.len()).sum()
    }

    pub fn get(&self, ticket: TicketId) -> Option<&Entry> {
        self.tickets.get(&ticket)
    }

    pub fn attached(&self) -> impl Iterator<Item = TicketId> {
        let ends = |entry: &Entry| !(entry.is_detached() && entry.is_held());
        self.tickets.iter().filter(move |(_, entry)| ends(entry)).map(|(ticket, _)| *ticket)
    }

    pub fn ids(&self) -> Vec<TicketId> {
        self.tickets.keys().copied().collect()
    }

    pub fn same(&self, wanted: &Wanted) -> Option<TicketId> {
        let request = (wanted.name.key(), wanted.request.clone()?);
        self.requests.get(&request).copied()
    }

    /// Returns whether it is the only waiting ticket of its resource.
    pub fn admit(&mut self, wanted: Wanted, now: Time) -> (TicketId, bool) {
        self.last_ticket += 1;
        let (ticket, resource) = (TicketId(self.last_ticket), wanted.name.key());
        if let Some(request) = wanted.request.clone() {
            let before = self.requests.insert((resource, request), ticket);
            assert!(before.is_none(), "a repeated request ID returns the existing ticket");
        }
        let waiters = self.waiters.entry(resource).or_insert_with(|| Waiters {
            name: wanted.name.clone(),
            waiting: BTreeSet::new(),
            holding: BTreeSet::new(),
        });
        let first = waiters.waiting.is_empty();
        waiters.waiting.insert(ticket);
        let stage = Stage::Waiting { ahead: None, first: None };
        let (alias, arrival, revoked, concluded, returned, refused) = (None, None, false, false, false, 0);
        let entry =
            Entry { wanted, resource, alias, arrival, asked: now, stage, revoked, concluded, returned, refused };
        self.tickets.insert(ticket, entry);
        (ticket, first)
    }

    /// Adds the detached grant of an earlier process. Returns its next timer.
    pub fn readmit(&mut self, wanted: Wanted, grant: Grant, now: Time) -> (TicketId, Time) {
        let (ticket, _) = self.admit(wanted, now);
        let (look, _) = self.grant(ticket, grant, now, None).expect("it was just admitted");
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.returned = true;
        }
        (ticket, look)
    }

    /// Returns the returned grants: ticket, resource, fencing number.
    pub fn returned(&self) -> impl Iterator<Item = (TicketId, Key, u64)> {
        let returned = self.tickets.iter().filter(|(_, entry)| entry.returned);
        returned.filter_map(|(ticket, entry)| Some((*ticket, entry.resource, entry.held()?.0.fencing)))
    }

    pub fn refuse(&mut self, ticket: TicketId) -> u32 {
        let Some(entry) = self.tickets.get_mut(&ticket) else { return 0 };
        entry.refused += 1;
        entry.refused
    }

    /// Adds a taken-over grant, without a grace period: no client has resumed it yet.
    pub fn inherit(&mut self, record: &GrantRecord, now: Time, bound: Bound) -> (TicketId, Time) {
        let GrantRecord { grant, since, until, .. } = *record;
        assert!(until <= bound.until, "a session ends after its predecessor");
        let (ticket, _) = self.admit(record.wanted(), now);
        let (ttl, grace) = (until.since(now), Span::ZERO);
        let lease = Lease { ttl, grace, auto_renew: false, renewed: now, bound: Some(bound), lost: None };
        let entry = self.tickets.get_mut(&ticket).expect("it was just admitted");
        entry.stage = Stage::Held { grant, since, lease };
        if let Some(waiters) = self.waiters.get_mut(&entry.resource) {
            waiters.waiting.remove(&ticket);
            waiters.holding.insert(ticket);
        }
        (ticket, lease.next())
    }

    pub fn resume(&mut self, ticket: TicketId, now: Time) -> Option<Lease> {
        let Wanted { ttl, grace, auto_renew, .. } = self.tickets.get(&ticket)?.wanted;
        let lease = self.lease(ticket).filter(|lease| lease.lost.is_none() && now < lease.deadline())?;
        *lease = Lease { ttl, grace, auto_renew, renewed: now, ..*lease };
        Some(*lease)
    }

    pub fn has(&self, resource: Key, number: u64) -> bool {
        self.of(resource).any(|entry| entry.has(number))
    }

    pub fn holder(&self, resource: Key, number: u64) -> Option<TicketId> {
        let has = |ticket: &&TicketId| self.tickets.get(ticket).is_some_and(|entry| entry.has(number));
        self.waiters.get(&resource)?.holding.iter().find(has).copied()
    }

    pub fn is_concluded(&self, ticket: TicketId) -> bool {
        self.tickets.get(&ticket).is_some_and(|entry| entry.concluded)
    }

    /// Replaces the lease by one that ends with the period. Returns its next timer; `None` if it was replaced before.
    pub fn conclude(&mut self, ticket: TicketId, now: Time, until: Time) -> Option<Time> {
        let entry = self.tickets.get_mut(&ticket).filter(|entry| !entry.concluded)?;
        let Stage::Held { lease, .. } = &mut entry.stage else { return None };
        let ttl = until.since(now);
        *lease = Lease { ttl, grace: Span::ZERO, auto_renew: false, renewed: now, bound: None, lost: None };
        entry.concluded = true;
        entry.wanted.detached.get_or_insert_with(String::new);
        entry.wanted.taken_over_as = None;
        Some(lease.next())
    }

    /// Returns the end of the revoked lease.
    pub fn revoke(&mut self, ticket: TicketId) -> Option<Time> {
        self.tickets.get_mut(&ticket)?.revoked = true;
        let lease = self.lease(ticket)?;
        let end = lease.deadline();
        Some(*lease.lost.get_or_insert(end))
    }

    pub fn give_alias(&mut self, ticket: TicketId) -> Option<Ticket> {
        let entry = self.tickets.get_mut(&ticket).filter(|entry| entry.alias.is_none())?;
        self.last_alias += 1;
        let alias = Ticket::new(self.last_alias);
        entry.alias = Some(alias);
        self.aliases.insert(alias, ticket);
        Some(alias)
    }

    pub fn take_alias(&mut self, ticket: TicketId) -> Option<Ticket> {
        let alias = self.tickets.get_mut(&ticket)?.alias.take()?;
        self.aliases.remove(&alias);
        Some(alias)
    }

    /// Sets the arrival number of a request. Returns whether it is new.
    pub fn arrive(&mut self, ticket: TicketId, arrival: Arrival) -> bool {
        let entry = self.tickets.get_mut(&ticket);
        entry.is_some_and(|entry| entry.arrival.replace(arrival) != Some(arrival))
    }

    pub fn by_alias(&self, alias: Ticket) -> Option<TicketId> {
        self.aliases.get(&alias).copied()
    }

    pub fn without_alias(&self) -> impl Iterator<Item = TicketId> {
        let asks = |entry: &Entry| entry.alias.is_none() && !entry.is_held();
        self.tickets.iter().filter(move |(_, entry)| asks(entry)).map(|(id, _)| *id)
    }

    pub fn enter(&mut self, ticket: TicketId, grant: Grant) {
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.stage = Stage::Entering { grant };
        }
    }

    /// Moves an entering ticket back to waiting: its slot is gone.
    pub fn wait_again(&mut self, ticket: TicketId) {
        if let Some(entry) = self.tickets.get_mut(&ticket)
            && matches!(entry.stage, Stage::Entering { .. })
        {
            entry.stage = Stage::Waiting { ahead: None, first: None };
        }
    }

    /// Starts a lease at `since`. Returns its next timer and its deadline.
    pub fn grant(&mut self, ticket: TicketId, grant: Grant, since: Time, bound: Option<Bound>) -> Option<(Time, Time)> {
        let entry = self.tickets.get_mut(&ticket)?;
        assert!(!entry.is_held(), "{ticket:?} is granted twice");
        let Wanted { ttl, grace, auto_renew, .. } = entry.wanted;
        let lease = Lease { ttl, grace, auto_renew: auto_renew && bound.is_some(), renewed: since, bound, lost: None };
        entry.stage = Stage::Held { grant, since: since.into(), lease };
        let waiters = self.waiters.get_mut(&entry.resource)?;
        waiters.waiting.remove(&ticket);
        waiters.holding.insert(ticket);
        Some((lease.next(), lease.deadline()))
    }

    pub fn entering(&self) -> Vec<TicketId> {
        let enters = |entry: &Entry| matches!(entry.stage, Stage::Entering { .. }) && !entry.is_detached();
        self.tickets.iter().filter(|(_, entry)| enters(entry)).map(|(ticket, _)| *ticket).collect()
    }

    pub fn extend(&mut self, bound: Bound) -> Vec<(TicketId, Time)> {
        let holding: Vec<TicketId> =
            self.waiters.values().flat_map(|waiters| waiters.holding.iter().copied()).collect();
        let extend = |ticket: TicketId| {
            let lease = self.lease(ticket)?;
            lease.extend(bound).then(|| (ticket, lease.deadline()))
        };
        holding.into_iter().filter_map(extend).collect()
    }

    pub fn granted(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        let (grant, _, lease) = self.tickets.get(&ticket)?.held()?;
        lease.lost.is_none().then(|| (grant, lease.deadline()))
    }

    pub fn look(&mut self, ticket: TicketId, now: Time) -> Option<(Verdict, Lease)> {
        let lease = self.lease(ticket)?;
        let verdict = lease.look(now);
        Some((verdict, *lease))
    }

    pub fn renew(&mut self, ticket: TicketId, now: Time) -> Option<Lease> {
        let lease = self.lease(ticket)?;
        lease.renew(now).then_some(*lease)
    }

    /// Renews as of an earlier moment, unless the client was asked to stop since.
    pub fn renew_from(&mut self, ticket: TicketId, from: Time) -> Option<Lease> {
        let lease = self.lease(ticket).filter(|lease| lease.lost.is_none())?;
        lease.renewed = lease.renewed.max(from);
        let lease = *lease;
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.returned = false;
        }
        Some(lease)
    }

    /// Returns the end of the lease, or `None` if it was lost already.
    pub fn lose(&mut self, ticket: TicketId) -> Option<Time> {
        let lease = self.lease(ticket)?;
        let end = lease.deadline();
        lease.lost.replace(end).is_none().then_some(end)
    }

    fn lease(&mut self, ticket: TicketId) -> Option<&mut Lease> {
        match &mut self.tickets.get_mut(&ticket)?.stage {
            Stage::Held { lease, .. } => Some(lease),
            Stage::Entering { .. } | Stage::Waiting { .. } => None,
        }
    }

    /// Returns whether the position changed, and the first known one with its time.
    pub fn place(&mut self, ticket: TicketId, now_ahead: u32, now: Time) -> Option<(bool, (Time, u32))> {
        let Stage::Waiting { ahead, first } = &mut self.tickets.get_mut(&ticket)?.stage else { return None };
        let changed = ahead.replace(now_ahead) != Some(now_ahead);
        Some((changed, *first.get_or_insert((now, now_ahead))))
    }

    pub fn remove(&mut self, ticket: TicketId) -> Option<Entry> {
        let entry = self.tickets.remove(&ticket)?;
        assert!(entry.alias.is_none(), "the protocol still knows {ticket:?}");
        if let Some(request) = entry.wanted.request.clone() {
            self.requests.remove(&(entry.resource, request));
        }
        if let Some(waiters) = self.waiters.get_mut(&entry.resource) {
            waiters.waiting.remove(&ticket);
            waiters.holding.remove(&ticket);
        }
        Some(entry)
    }

    pub fn resources(&self) -> impl Iterator<Item = (Key, &Name, usize, usize)> {
        self.waiters.iter().map(|(key, waiters)| (*key, &waiters.name, waiters.holding.len(), waiters.waiting.len()))
    }

    pub fn forget(&mut self, is_unused: impl Fn(Key) -> bool) {
        let has_any = |waiters: &Waiters| !waiters.holding.is_empty() || !waiters.waiting.is_empty();
        self.waiters.retain(|resource, waiters| has_any(waiters) || !is_unused(*resource));
    }

    pub fn has_any(&self, resource: Key) -> bool {
        self.waiters.get(&resource).is_some_and(|waiters| !waiters.holding.is_empty() || !waiters.waiting.is_empty())
    }

    pub fn waits(&self, resource: Key) -> usize {
        self.waiters.get(&resource).map_or(0, |waiters| waiters.waiting.len())
    }

    pub fn waiting(&self, resource: Key) -> impl Iterator<Item = (TicketId, &Entry)> {
        let waiting = self.waiters.get(&resource).into_iter().flat_map(|waiters| &waiters.waiting);
        waiting.filter_map(|ticket| Some((*ticket, self.tickets.get(ticket)?)))
    }

    pub fn of(&self, resource: Key) -> impl Iterator<Item = &Entry> {
        let waiters = self.waiters.get(&resource).into_iter();
        waiters
            .flat_map(|waiters| waiters.holding.iter().chain(&waiters.waiting))
            .filter_map(|ticket| self.tickets.get(ticket))
    }

    pub fn check(&self, session: Option<Bound>, has_alarm: impl Fn(TicketId) -> bool) {
        for (alias, ticket) in &self.aliases {
            let known = self.tickets.get(ticket).and_then(|entry| entry.alias);
            assert_eq!(known, Some(*alias), "{alias:?} is requested from the protocol and has no ticket");
        }
        let known = self.tickets.values().filter(|entry| entry.alias.is_some()).count();
        assert_eq!(known, self.aliases.len(), "tickets and aliases are one-to-one");
        for (request, ticket) in &self.requests {
            assert!(self.tickets.contains_key(ticket), "{request:?} names {ticket:?}, which has ended");
        }
        for (ticket, entry) in &self.tickets {
            let waiters = self.waiters.get(&entry.resource).expect("a ticket's resource is known");
            let (waits, holds) = (waiters.waiting.contains(ticket), waiters.holding.contains(ticket));
            assert_eq!((waits, holds), (!entry.is_held(), entry.is_held()), "{ticket:?} is in exactly one place");
            assert!(
                !holds || entry.alias.is_some() || entry.is_detached(),
                "{ticket:?} holds a slot, but has no alias and is not detached"
            );
            let is_bound = entry.held().is_some_and(|(.., lease)| lease.bound.is_some());
            assert!(!is_bound || session.is_some(), "{ticket:?} holds a slot, but its session is over");
            let watched = holds || matches!(entry.wanted.wait, Wait::For(_));
            assert!(!watched || has_alarm(*ticket), "{ticket:?} has a deadline, but no timer");
        }
        let placed: usize = self.waiters.values().map(|waiters| waiters.waiting.len() + waiters.holding.len()).sum();
        assert_eq!(placed, self.tickets.len(), "waiters and holders have tickets");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str) -> Wanted {
        let wanted = Wanted::new(name.parse().unwrap(), Span::from_secs(30), Span::from_secs(6));
        Wanted { request: Some("7".into()), ..wanted }
    }

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    #[test]
    fn ticket_waits_holds_and_ends() {
        let mut clients = Clients::default();
        let (ticket, first) = clients.admit(wanted("r"), at(0));
        assert!(first);
        assert_eq!(clients.same(&wanted("r")), Some(ticket));
        assert_eq!(clients.same(&wanted("another")), None);
        assert!(clients.without_alias().eq([ticket]));
        let alias = clients.give_alias(ticket).unwrap();
        assert_eq!((clients.give_alias(ticket), clients.by_alias(alias)), (None, Some(ticket)));
        clients.check(None, |_| false);

        let (look, ends) = clients.grant(ticket, Grant { slot: 0, fencing: 9 }, at(1), None).unwrap();
        assert_eq!((look, ends), (at(25), at(31)));
        clients.check(None, |_| true);
        assert_eq!(clients.renew(ticket, at(20)).unwrap().deadline(), at(50));
        assert_eq!(clients.look(ticket, at(44)).unwrap().0, Verdict::Lost);
        assert_eq!((clients.granted(ticket), clients.renew(ticket, at(44))), (None, None));

        assert_eq!(clients.take_alias(ticket), Some(alias));
        assert!(clients.remove(ticket).unwrap().is_held());
        assert_eq!((clients.len(), clients.same(&wanted("r")), clients.by_alias(alias)), (0, None, None));
        clients.check(None, |_| false);
    }

    #[test]
    fn held_detached_grant_outlives_its_session() {
        let mut clients = Clients::default();
        let (stays, _) = clients.admit(Wanted { detached: Some("one".into()), ..wanted("r") }, at(0));
        let (ends, first) = clients.admit(Wanted { request: None, ..wanted("r") }, at(0));
        assert!(!first);
        assert_eq!(clients.attached().collect::<Vec<_>>(), [stays, ends]);
        clients.give_alias(stays);
        clients.enter(stays, Grant { slot: 0, fencing: 9 });
        assert!(clients.has("r".parse::<Name>().unwrap().key(), 9));
        clients.grant(stays, Grant { slot: 0, fencing: 9 }, at(1), None);
        clients.take_alias(stays);
        clients.check(None, |_| true);
        assert_eq!(clients.attached().collect::<Vec<_>>(), [ends]);
        assert!(clients.without_alias().eq([ends]));
        assert_eq!(clients.extend(Bound { until: at(90), grace: Span::from_secs(1) }), []);
    }

    #[test]
    #[should_panic(expected = "TicketId(1) has a deadline, but no timer")]
    fn lease_without_a_timer_panics() {
        let mut clients = Clients::default();
        let (ticket, _) = clients.admit(wanted("r"), at(0));
        clients.give_alias(ticket);
        clients.grant(ticket, Grant { slot: 0, fencing: 9 }, at(1), None);
        clients.check(None, |_| false);
    }
}
