//! The clients of this peer: who waits, who is inside, and until when.
//!
//! A request of a client is a *ticket* from when it asks until nothing is left of it. The protocol knows it by an
//! *alias*, for as long as the session stands under which it was asked: under the next one a ticket that still waits is
//! asked for again, by another. A detached grant needs none after that: the register knows it.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_protocol::Grant;
use peerlock_registry::{Label, Ttl};
use peerlock_types::{Key, Span, Ticket, Time};

use crate::lease::{Bound, Lease, Verdict};
use crate::takeover::{GrantRecord, Since};
use crate::{Error, Name};

/// A request of a client, as long as it waits or is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

/// How long a client is willing to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// As long as it takes.
    Forever,
    /// At most this long.
    For(Span),
    /// Not at all: only if a slot is free and nobody else waits for it.
    Try,
}

/// What a client asks for.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The resource of which it wants a slot.
    pub name: Name,
    /// `None` for as many as the resource has, or one if it is new.
    pub slots: Option<u32>,
    /// How long a grant stands without being renewed.
    pub ttl: Span,
    /// How long before the end of its lease a grant is taken for lost.
    pub grace: Span,
    /// We renew the lease as long as we run; else the client does.
    pub auto_renew: bool,
    /// The grant outlives this process: its end is written into the register before the client is told, and only its
    /// client renews it. What the client calls it, so that a later process of this host knows it again
    /// ([`Effect::Returned`](crate::Effect::Returned)): 1 to 255 bytes, the same for nobody else. `None` if it ends
    /// with its session.
    pub detached: Option<String>,
    /// The client does not die with this process, and may go on with the grant at the next one of this host
    /// ([`Input::Resume`](crate::Input::Resume)): what it calls it, the same for nobody else. `None` if it is in this
    /// process, or detached.
    pub taken_over_as: Option<String>,
    /// How long the client is willing to wait.
    pub wait: Wait,
    /// What others see of the client.
    pub label: String,
    /// The client's process on this host, as far as that is known; others see it.
    pub pid: Option<u32>,
    /// The same request for the same resource is asked for once.
    pub request: Option<String>,
}

impl Wanted {
    /// Whether a client gets as many slots as it asks for.
    ///
    /// # Errors
    /// [`Error::SlotsMismatch`] if not.
    pub fn check(&self, has: u32) -> Result<(), Error> {
        match self.slots {
            Some(asked) if asked != has => Err(Error::SlotsMismatch { name: self.name.clone(), has, asked }),
            _ => Ok(()),
        }
    }

    /// How long the register is to keep a grant, and what it is called there, if it is to be detached and can be.
    pub fn detachable(&self) -> Option<(Ttl, Label)> {
        let millis = Ttl::from_millis(self.ttl.as_nanos() / 1_000_000);
        Some((millis.ok()?, Label::new(self.detached.clone()?).ok()?))
    }
}

/// A client's request, from when it asks until nothing is left of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was asked for.
    pub wanted: Wanted,
    /// The key of the resource's name.
    pub resource: Key,
    /// What the protocol knows it by; nothing while it cannot be asked for.
    alias: Option<Ticket>,
    pub asked: Time,
    /// How far it has come.
    pub stage: Stage,
    /// Somebody has asked for its slot, and it was told to stop for that.
    pub revoked: bool,
    /// It was detached by an earlier process and not renewed since: only the register knows when it ends.
    pub returned: bool,
    /// How often the register has refused to enter what was here for it.
    refused: u32,
}

/// How far a ticket has come.
#[derive(Clone, Debug)]
pub enum Stage {
    /// It is not inside yet.
    Waiting {
        /// How many are ahead, when we last heard …
        ahead: Option<u32>,
        /// … and when we first heard, with how many there were then: its speed follows from both.
        first: Option<(Time, u32)>,
    },
    /// A slot is here for it, which is being detached: its client is told when the register knows.
    Entering {
        /// The slot and the fencing number.
        grant: Grant,
    },
    /// It is inside.
    Held {
        /// The slot and the fencing number.
        grant: Grant,
        /// When it came in, perhaps under an earlier process of this host.
        since: Since,
        /// How long it may stay without renewal.
        lease: Lease,
    },
}

impl Entry {
    /// Whether it is inside.
    pub fn is_held(&self) -> bool {
        matches!(self.stage, Stage::Held { .. })
    }

    /// What the protocol knows it by.
    pub fn alias(&self) -> Option<Ticket> {
        self.alias
    }

    /// How many are ahead of it, if it waits and that is known.
    pub fn ahead(&self) -> Option<u32> {
        match self.stage {
            Stage::Waiting { ahead, .. } => ahead,
            Stage::Entering { .. } | Stage::Held { .. } => None,
        }
    }

    /// Whether it is inside and was told to stop.
    pub fn is_notified(&self) -> bool {
        matches!(self.stage, Stage::Held { lease: Lease { lost: Some(_), .. }, .. })
    }

    /// Whether it outlives sessions.
    pub fn is_detached(&self) -> bool {
        self.wanted.detached.is_some()
    }
}

/// The tickets of one resource.
#[derive(Clone, Debug)]
struct Waiters {
    name: Name,
    waiting: BTreeSet<TicketId>,
    holding: BTreeSet<TicketId>,
}

/// All tickets of this peer.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    tickets: BTreeMap<TicketId, Entry>,
    aliases: BTreeMap<Ticket, TicketId>,
    requests: BTreeMap<(Key, String), TicketId>,
    /// Every resource that was asked for here, and not [forgotten](Self::forget) since.
    waiters: BTreeMap<Key, Waiters>,
    last_alias: u64,
    last_ticket: u64,
}

impl Clients {
    /// Nobody yet. Aliases are counted from after this one, which is another for each process: an earlier process of
    /// this host may still be in somebody's line.
    pub fn after(last_alias: u64) -> Self {
        Self { last_alias, ..Self::default() }
    }

    /// How many tickets there are.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// How much there is to look over: tickets, and the resources that were ever asked for here.
    pub fn extent(&self) -> usize {
        self.tickets.len() + self.waiters.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// How many are inside.
    pub fn holding(&self) -> usize {
        self.waiters.values().map(|waiters| waiters.holding.len()).sum()
    }

    /// The ticket of this number, unless nothing is left of it.
    pub fn get(&self, ticket: TicketId) -> Option<&Entry> {
        self.tickets.get(&ticket)
    }

    /// The tickets that end with this process.
    pub fn attached(&self) -> impl Iterator<Item = TicketId> {
        let ends = |entry: &Entry| !(entry.is_detached() && entry.is_held());
        self.tickets.iter().filter(move |(_, entry)| ends(entry)).map(|(ticket, _)| *ticket)
    }

    /// All tickets, oldest first.
    pub fn ids(&self) -> Vec<TicketId> {
        self.tickets.keys().copied().collect()
    }

    /// The same request, if it was made before and something is left of it.
    pub fn same(&self, wanted: &Wanted) -> Option<TicketId> {
        let request = (wanted.name.key(), wanted.request.clone()?);
        self.requests.get(&request).copied()
    }

    /// A new ticket, which waits. True if nobody else waits here for the same.
    pub fn admit(&mut self, wanted: Wanted, now: Time) -> (TicketId, bool) {
        self.last_ticket += 1;
        let (ticket, resource) = (TicketId(self.last_ticket), wanted.name.key());
        if let Some(request) = wanted.request.clone() {
            let before = self.requests.insert((resource, request), ticket);
            assert!(before.is_none(), "the same request is one ticket: who asks again is told which");
        }
        let waiters = self.waiters.entry(resource).or_insert_with(|| Waiters {
            name: wanted.name.clone(),
            waiting: BTreeSet::new(),
            holding: BTreeSet::new(),
        });
        let first = waiters.waiting.is_empty();
        waiters.waiting.insert(ticket);
        let stage = Stage::Waiting { ahead: None, first: None };
        let (alias, revoked, returned, refused) = (None, false, false, 0);
        self.tickets.insert(ticket, Entry { wanted, resource, alias, asked: now, stage, revoked, returned, refused });
        (ticket, first)
    }

    /// A detached grant of an earlier process of this host: a ticket that is inside from the beginning, and when to
    /// look at it.
    pub fn readmit(&mut self, wanted: Wanted, grant: Grant, now: Time) -> (TicketId, Time) {
        let (ticket, _) = self.admit(wanted, now);
        let (look, _) = self.grant(ticket, grant, now, None).expect("it was just admitted");
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.returned = true;
        }
        (ticket, look)
    }

    /// Those that have returned and were not renewed since: of which resource, and with which number.
    pub fn returned(&self) -> impl Iterator<Item = (TicketId, Key, u64)> {
        self.tickets.iter().filter(|(_, entry)| entry.returned).filter_map(|(ticket, entry)| match entry.stage {
            Stage::Held { grant, .. } => Some((*ticket, entry.resource, grant.fencing)),
            Stage::Entering { .. } | Stage::Waiting { .. } => None,
        })
    }

    /// The register has refused to enter what was here for a ticket: how often by now.
    pub fn refuse(&mut self, ticket: TicketId) -> u32 {
        let Some(entry) = self.tickets.get_mut(&ticket) else { return 0 };
        entry.refused += 1;
        entry.refused
    }

    /// A client of an earlier process of this host that is inside until then, unless it comes here: a ticket, and when
    /// to look at it. Nobody is there to be told anything before its end.
    pub fn inherit(&mut self, record: &GrantRecord, now: Time, bound: Bound) -> (TicketId, Time) {
        let GrantRecord { grant, since, until, .. } = *record;
        assert!(until <= bound.until, "a session is renewed later than the one before it, and no shorter");
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

    /// It comes here, and has its lease as it was asked for, if it has not ended.
    pub fn resume(&mut self, ticket: TicketId, now: Time) -> Option<Lease> {
        let Wanted { ttl, grace, auto_renew, .. } = self.tickets.get(&ticket)?.wanted;
        let lease = self.lease(ticket).filter(|lease| lease.lost.is_none() && now < lease.deadline())?;
        *lease = Lease { ttl, grace, auto_renew, renewed: now, ..*lease };
        Some(*lease)
    }

    /// Whether a grant of this number is here.
    pub fn has(&self, resource: Key, number: u64) -> bool {
        let is_it = |entry: &Entry| match entry.stage {
            Stage::Held { grant, .. } | Stage::Entering { grant } => grant.fencing == number,
            Stage::Waiting { .. } => false,
        };
        self.of(resource).any(is_it)
    }

    /// Who is inside with this number.
    pub fn holder(&self, resource: Key, number: u64) -> Option<TicketId> {
        let is_it = |ticket: &&TicketId| match self.tickets.get(ticket).map(|entry| &entry.stage) {
            Some(Stage::Held { grant, .. }) => grant.fencing == number,
            Some(Stage::Entering { .. } | Stage::Waiting { .. }) | None => false,
        };
        self.waiters.get(&resource)?.holding.iter().find(is_it).copied()
    }

    /// Somebody has asked for a ticket's slot: when its lease ends, whether it was told to stop before or not.
    pub fn revoke(&mut self, ticket: TicketId) -> Option<Time> {
        let entry = self.tickets.get_mut(&ticket)?;
        entry.revoked = true;
        match &mut entry.stage {
            Stage::Held { lease, .. } => {
                let end = lease.deadline();
                Some(*lease.lost.get_or_insert(end))
            }
            Stage::Entering { .. } | Stage::Waiting { .. } => None,
        }
    }

    /// A ticket is asked for: what the protocol shall know it by.
    pub fn give_alias(&mut self, ticket: TicketId) -> Option<Ticket> {
        let entry = self.tickets.get_mut(&ticket).filter(|entry| entry.alias.is_none())?;
        self.last_alias += 1;
        let alias = Ticket::new(self.last_alias);
        entry.alias = Some(alias);
        self.aliases.insert(alias, ticket);
        Some(alias)
    }

    /// A ticket is not asked for any more: what the protocol knew it by.
    pub fn take_alias(&mut self, ticket: TicketId) -> Option<Ticket> {
        let alias = self.tickets.get_mut(&ticket)?.alias.take()?;
        self.aliases.remove(&alias);
        Some(alias)
    }

    /// The ticket that the protocol knows by this alias.
    pub fn by_alias(&self, alias: Ticket) -> Option<TicketId> {
        self.aliases.get(&alias).copied()
    }

    /// The tickets that are still to be asked for.
    pub fn without_alias(&self) -> impl Iterator<Item = TicketId> {
        let asks = |entry: &Entry| entry.alias.is_none() && !entry.is_held();
        self.tickets.iter().filter(move |(_, entry)| asks(entry)).map(|(id, _)| *id)
    }

    /// A slot is here for a ticket that is to be detached.
    pub fn enter(&mut self, ticket: TicketId, grant: Grant) {
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.stage = Stage::Entering { grant };
        }
    }

    /// The slot that was here for a ticket is not any more: it waits again.
    pub fn wait_again(&mut self, ticket: TicketId) {
        if let Some(entry) = self.tickets.get_mut(&ticket)
            && matches!(entry.stage, Stage::Entering { .. })
        {
            entry.stage = Stage::Waiting { ahead: None, first: None };
        }
    }

    /// A ticket is inside, with a lease that began then and ends with this session: when that is to be looked at, and
    /// when it ends.
    pub fn grant(&mut self, ticket: TicketId, grant: Grant, since: Time, bound: Option<Bound>) -> Option<(Time, Time)> {
        let entry = self.tickets.get_mut(&ticket)?;
        assert!(!entry.is_held(), "{ticket:?} is let in twice");
        let Wanted { ttl, grace, auto_renew, .. } = entry.wanted;
        let lease = Lease { ttl, grace, auto_renew: auto_renew && bound.is_some(), renewed: since, bound, lost: None };
        entry.stage = Stage::Held { grant, since: since.into(), lease };
        let waiters = self.waiters.get_mut(&entry.resource)?;
        waiters.waiting.remove(&ticket);
        waiters.holding.insert(ticket);
        Some((lease.next(), lease.deadline()))
    }

    /// The tickets that have a slot here, end with the session, and were not let in.
    pub fn entering(&self) -> Vec<TicketId> {
        let enters = |entry: &Entry| matches!(entry.stage, Stage::Entering { .. }) && !entry.is_detached();
        self.tickets.iter().filter(|(_, entry)| enters(entry)).map(|(ticket, _)| *ticket).collect()
    }

    /// The session stands for longer: whose leases do, and until when.
    pub fn extend(&mut self, bound: Bound) -> Vec<(TicketId, Time)> {
        let holding: Vec<TicketId> =
            self.waiters.values().flat_map(|waiters| waiters.holding.iter().copied()).collect();
        let extend = |ticket: TicketId| {
            let lease = self.lease(ticket)?;
            lease.extend(bound).then(|| (ticket, lease.deadline()))
        };
        holding.into_iter().filter_map(extend).collect()
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn granted(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        match self.tickets.get(&ticket)?.stage {
            Stage::Held { grant, lease, .. } if lease.lost.is_none() => Some((grant, lease.deadline())),
            Stage::Held { .. } | Stage::Entering { .. } | Stage::Waiting { .. } => None,
        }
    }

    /// What has become of a ticket's lease, and when to look again; `None` if it waits.
    pub fn look(&mut self, ticket: TicketId, now: Time) -> Option<(Verdict, Lease)> {
        let lease = self.lease(ticket)?;
        let verdict = lease.look(now);
        Some((verdict, *lease))
    }

    /// Renews the lease of a ticket, if it still can be.
    pub fn renew(&mut self, ticket: TicketId, now: Time) -> Option<Lease> {
        let lease = self.lease(ticket)?;
        lease.renew(now).then_some(*lease)
    }

    /// Renews the lease of a ticket as of an earlier moment, unless its client was told to stop since.
    pub fn renew_from(&mut self, ticket: TicketId, from: Time) -> Option<Lease> {
        let lease = self.lease(ticket).filter(|lease| lease.lost.is_none())?;
        lease.renewed = lease.renewed.max(from);
        let lease = *lease;
        if let Some(entry) = self.tickets.get_mut(&ticket) {
            entry.returned = false;
        }
        Some(lease)
    }

    /// A holder must stop, if it was not told before: when its lease ends all the same.
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

    /// A waiting ticket is in line behind `ahead` others: whether that is news, and when it was first heard with how
    /// many.
    pub fn place(&mut self, ticket: TicketId, now_ahead: u32, now: Time) -> Option<(bool, (Time, u32))> {
        let Stage::Waiting { ahead, first } = &mut self.tickets.get_mut(&ticket)?.stage else { return None };
        let changed = ahead.replace(now_ahead) != Some(now_ahead);
        Some((changed, *first.get_or_insert((now, now_ahead))))
    }

    /// Nothing is left of a ticket that the protocol does not know any more.
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

    /// Every resource that was asked for here: its name, how many of its clients are inside and how many wait.
    pub fn resources(&self) -> impl Iterator<Item = (Key, &Name, usize, usize)> {
        self.waiters.iter().map(|(key, waiters)| (*key, &waiters.name, waiters.holding.len(), waiters.waiting.len()))
    }

    /// Forgets the resources with nobody here of which this is true.
    pub fn forget(&mut self, is_unused: impl Fn(Key) -> bool) {
        let has_any = |waiters: &Waiters| !waiters.holding.is_empty() || !waiters.waiting.is_empty();
        self.waiters.retain(|resource, waiters| has_any(waiters) || !is_unused(*resource));
    }

    /// Whether anybody here waits for a resource or is inside.
    pub fn has_any(&self, resource: Key) -> bool {
        self.waiters.get(&resource).is_some_and(|waiters| !waiters.holding.is_empty() || !waiters.waiting.is_empty())
    }

    /// How many wait for a resource.
    pub fn waits(&self, resource: Key) -> usize {
        self.waiters.get(&resource).map_or(0, |waiters| waiters.waiting.len())
    }

    /// The tickets that wait for a resource.
    pub fn waiting(&self, resource: Key) -> impl Iterator<Item = (TicketId, &Entry)> {
        let waiting = self.waiters.get(&resource).into_iter().flat_map(|waiters| &waiters.waiting);
        waiting.filter_map(|ticket| Some((*ticket, self.tickets.get(ticket)?)))
    }

    /// The tickets of a resource: those inside, then those who wait.
    pub fn of(&self, resource: Key) -> impl Iterator<Item = &Entry> {
        let waiters = self.waiters.get(&resource).into_iter();
        waiters
            .flat_map(|waiters| waiters.holding.iter().chain(&waiters.waiting))
            .filter_map(|ticket| self.tickets.get(ticket))
    }

    /// What must be true after each step, whatever happened, under this session; `has_alarm` tells whether a ticket
    /// will be looked at again.
    pub fn check(&self, session: Option<Bound>, has_alarm: impl Fn(TicketId) -> bool) {
        for (alias, ticket) in &self.aliases {
            let known = self.tickets.get(ticket).and_then(|entry| entry.alias);
            assert_eq!(known, Some(*alias), "the protocol is asked for {alias:?}, and no ticket waits for it");
        }
        let known = self.tickets.values().filter(|entry| entry.alias.is_some()).count();
        assert_eq!(known, self.aliases.len(), "two tickets have one alias, or one is not in the list");
        for (request, ticket) in &self.requests {
            assert!(
                self.tickets.contains_key(ticket),
                "nothing is left of {ticket:?}, and {request:?} still leads to it"
            );
        }
        for (ticket, entry) in &self.tickets {
            let waiters = self.waiters.get(&entry.resource).expect("a ticket's resource was asked for");
            let (waits, holds) = (waiters.waiting.contains(ticket), waiters.holding.contains(ticket));
            assert_eq!((waits, holds), (!entry.is_held(), entry.is_held()), "{ticket:?} is in exactly one place");
            assert!(
                !holds || entry.alias.is_some() || entry.is_detached(),
                "{ticket:?} is inside, and neither the protocol nor the register knows it"
            );
            if let Stage::Held { lease: Lease { bound: Some(_), .. }, .. } = entry.stage {
                assert!(session.is_some(), "{ticket:?} is inside, and its session is over");
            }
            let watched = holds || matches!(entry.wanted.wait, Wait::For(_));
            assert!(!watched || has_alarm(*ticket), "nobody looks when the time of {ticket:?} is over");
        }
        let placed: usize = self.waiters.values().map(|waiters| waiters.waiting.len() + waiters.holding.len()).sum();
        assert_eq!(placed, self.tickets.len(), "somebody waits or is inside of whom nothing is left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(name: &str) -> Wanted {
        Wanted {
            name: name.parse().unwrap(),
            slots: None,
            ttl: Span::from_secs(30),
            grace: Span::from_secs(6),
            auto_renew: false,
            wait: Wait::Forever,
            label: String::new(),
            pid: None,
            request: Some("7".into()),
            detached: None,
            taken_over_as: None,
        }
    }

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    #[test]
    fn a_ticket_waits_then_is_inside_then_is_gone() {
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
    fn what_is_detached_does_not_end_with_its_session_once_it_is_inside() {
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
    #[should_panic(expected = "nobody looks when the time of TicketId(1) is over")]
    fn a_lease_that_nobody_looks_at_is_a_broken_promise() {
        let mut clients = Clients::default();
        let (ticket, _) = clients.admit(wanted("r"), at(0));
        clients.give_alias(ticket);
        clients.grant(ticket, Grant { slot: 0, fencing: 9 }, at(1), None);
        clients.check(None, |_| false);
    }
}
