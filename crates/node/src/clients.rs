//! The clients of this peer: who waits, who is inside, and until when.
//!
//! A request of a client is a *ticket* from when it asks until nothing is left of it. The protocol knows it by a
//! *claim*: a ticket that has lost its place in line is asked for once more, under another claim.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_base::{Key, Span, Ticket, Time};
use peerlock_mutex::Grant;

use crate::lease::{Lease, Verdict};
use crate::{Error, Name};

/// A request of a client, as long as it waits or is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TicketId(pub u64);

/// A client's connection to this peer; what it has ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub u64);

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
    pub kept: bool,
    /// The grant outlives this process: its end is written into the register before the client is told, and only its
    /// client renews it. What the client calls it, so that a later process of this host knows it again
    /// ([`Effect::Returned`](crate::Effect::Returned)): 1 to 255 bytes, the same for nobody else. `None` if it ends with
    /// its session.
    pub detached: Option<String>,
    /// How long the client is willing to wait.
    pub wait: Wait,
    /// What others see of the client.
    pub label: String,
    /// Whose request it is.
    pub session: SessionId,
    /// The same request of the same session for the same resource is asked for once.
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
}

/// A client's request, from when it asks until nothing is left of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// What was asked for.
    pub wanted: Wanted,
    /// The key of the resource's name.
    pub resource: Key,
    /// What the protocol knows it by; nothing while it cannot be asked for.
    claim: Option<Ticket>,
    /// When it was asked for.
    pub asked: Time,
    /// It does not end with its session.
    detached: bool,
    /// How far it has come.
    pub stage: Stage,
}

/// How far a ticket has come.
#[derive(Clone, Debug)]
pub enum Stage {
    /// It is not inside yet.
    Waiting {
        /// How many are ahead, when we last heard …
        ahead: Option<u32>,
        /// … and first.
        first: Option<(Time, u32)>,
        /// How often in a row the coordinator did not know it.
        missing: u8,
    },
    /// It is inside.
    Held {
        /// The slot and the fencing number.
        grant: Grant,
        /// When it came in.
        since: Time,
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
    pub fn claim(&self) -> Option<Ticket> {
        self.claim
    }

    /// How many are ahead of it, if it waits and that is known.
    pub fn ahead(&self) -> Option<u32> {
        match self.stage {
            Stage::Waiting { ahead, .. } => ahead,
            Stage::Held { .. } => None,
        }
    }
}

/// The tickets of one resource.
#[derive(Clone, Debug)]
struct Crowd {
    name: Name,
    waiting: BTreeSet<TicketId>,
    holding: BTreeSet<TicketId>,
}

/// All tickets of this peer.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    tickets: BTreeMap<TicketId, Entry>,
    claims: BTreeMap<Ticket, TicketId>,
    requests: BTreeMap<(SessionId, Key, String), TicketId>,
    /// Every resource that was ever asked for here.
    crowds: BTreeMap<Key, Crowd>,
    last_claim: u64,
    last_ticket: u64,
}

impl Clients {
    /// How many tickets there are.
    pub fn len(&self) -> usize {
        self.tickets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tickets.is_empty()
    }

    /// How many are inside.
    pub fn holding(&self) -> usize {
        self.crowds.values().map(|crowd| crowd.holding.len()).sum()
    }

    /// The ticket of this number, unless nothing is left of it.
    pub fn get(&self, ticket: TicketId) -> Option<&Entry> {
        self.tickets.get(&ticket)
    }

    /// All tickets, oldest first.
    pub fn ids(&self) -> Vec<TicketId> {
        self.tickets.keys().copied().collect()
    }

    /// The same request of the same session, if it was made before and something is left of it.
    pub fn same(&self, wanted: &Wanted) -> Option<TicketId> {
        let request = (wanted.session, wanted.name.key(), wanted.request.clone()?);
        self.requests.get(&request).copied()
    }

    /// A new ticket, which waits. True if nobody else waits here for the same.
    pub fn admit(&mut self, wanted: Wanted, now: Time) -> (TicketId, bool) {
        self.last_ticket += 1;
        let (ticket, resource) = (TicketId(self.last_ticket), wanted.name.key());
        if let Some(request) = wanted.request.clone() {
            let before = self.requests.insert((wanted.session, resource, request), ticket);
            assert!(before.is_none(), "the same request is one ticket: who asks again is told which");
        }
        let crowd = self.crowds.entry(resource).or_insert_with(|| Crowd {
            name: wanted.name.clone(),
            waiting: BTreeSet::new(),
            holding: BTreeSet::new(),
        });
        let first = crowd.waiting.is_empty();
        crowd.waiting.insert(ticket);
        let stage = Stage::Waiting { ahead: None, first: None, missing: 0 };
        self.tickets.insert(ticket, Entry { wanted, resource, claim: None, asked: now, detached: false, stage });
        (ticket, first)
    }

    /// A ticket is asked for: what the protocol shall know it by.
    pub fn claim(&mut self, ticket: TicketId) -> Option<Ticket> {
        let entry = self.tickets.get_mut(&ticket).filter(|entry| entry.claim.is_none())?;
        self.last_claim += 1;
        let claim = Ticket::new(self.last_claim);
        entry.claim = Some(claim);
        self.claims.insert(claim, ticket);
        Some(claim)
    }

    /// A ticket is not asked for any more: what the protocol knew it by.
    pub fn unclaim(&mut self, ticket: TicketId) -> Option<Ticket> {
        let claim = self.tickets.get_mut(&ticket)?.claim.take()?;
        self.claims.remove(&claim);
        Some(claim)
    }

    /// The ticket that the protocol knows by this claim.
    pub fn claimant(&self, claim: Ticket) -> Option<TicketId> {
        self.claims.get(&claim).copied()
    }

    /// The tickets that are still to be asked for.
    pub fn unclaimed(&self) -> Vec<TicketId> {
        self.tickets.iter().filter(|(_, entry)| entry.claim.is_none()).map(|(id, _)| *id).collect()
    }

    /// A ticket is inside from now on: when its lease is to be looked at, and when it ends.
    pub fn grant(&mut self, ticket: TicketId, grant: Grant, now: Time) -> Option<(Time, Time)> {
        let entry = self.tickets.get_mut(&ticket)?;
        assert!(!entry.is_held(), "{ticket:?} is let in twice");
        let Wanted { ttl, grace, kept, .. } = entry.wanted;
        let lease = Lease { ttl, grace, kept, renewed: now, lost: false };
        entry.stage = Stage::Held { grant, since: now, lease };
        let crowd = self.crowds.get_mut(&entry.resource)?;
        crowd.waiting.remove(&ticket);
        crowd.holding.insert(ticket);
        Some((lease.next(), lease.deadline()))
    }

    /// The grant of a ticket and until when it stands, if it has one.
    pub fn granted(&self, ticket: TicketId) -> Option<(Grant, Time)> {
        match self.tickets.get(&ticket)?.stage {
            Stage::Held { grant, lease, .. } if !lease.lost => Some((grant, lease.deadline())),
            Stage::Held { .. } | Stage::Waiting { .. } => None,
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

    /// From now on its session does not matter, and it is its client that renews its lease, if it has one.
    pub fn detach(&mut self, ticket: TicketId) -> Option<Lease> {
        self.tickets.get_mut(&ticket)?.detached = true;
        let lease = self.lease(ticket)?;
        lease.kept = false;
        Some(*lease)
    }

    /// A holder must stop, if it was not told before: when its lease ends all the same.
    pub fn lose(&mut self, ticket: TicketId) -> Option<Time> {
        let lease = self.lease(ticket)?;
        (!std::mem::replace(&mut lease.lost, true)).then(|| lease.deadline())
    }

    fn lease(&mut self, ticket: TicketId) -> Option<&mut Lease> {
        match &mut self.tickets.get_mut(&ticket)?.stage {
            Stage::Held { lease, .. } => Some(lease),
            Stage::Waiting { .. } => None,
        }
    }

    /// A waiting ticket is in line behind `ahead` others: whether that is news, and when it was first heard with how
    /// many.
    pub fn place(&mut self, ticket: TicketId, now_ahead: u32, now: Time) -> Option<(bool, (Time, u32))> {
        let Stage::Waiting { ahead, first, missing } = &mut self.tickets.get_mut(&ticket)?.stage else { return None };
        let changed = ahead.replace(now_ahead) != Some(now_ahead);
        *missing = 0;
        Some((changed, *first.get_or_insert((now, now_ahead))))
    }

    /// The coordinator does not know a waiting ticket. Once: its token may be on the way. Twice, which is true: it was
    /// struck out when we could not be reached.
    pub fn miss(&mut self, ticket: TicketId) -> bool {
        let Some(Entry { stage: Stage::Waiting { missing, .. }, .. }) = self.tickets.get_mut(&ticket) else {
            return false;
        };
        *missing = (*missing + 1) % 2;
        *missing == 0
    }

    /// Nothing is left of a ticket that the protocol does not know any more.
    pub fn remove(&mut self, ticket: TicketId) -> Option<Entry> {
        let entry = self.tickets.remove(&ticket)?;
        assert!(entry.claim.is_none(), "the protocol still knows {ticket:?}");
        if let Some(request) = entry.wanted.request.clone() {
            self.requests.remove(&(entry.wanted.session, entry.resource, request));
        }
        if let Some(crowd) = self.crowds.get_mut(&entry.resource) {
            crowd.waiting.remove(&ticket);
            crowd.holding.remove(&ticket);
        }
        Some(entry)
    }

    /// What ends with a session.
    pub fn of_session(&self, session: SessionId) -> Vec<TicketId> {
        let ends = |entry: &Entry| entry.wanted.session == session && !entry.detached;
        self.tickets.iter().filter(|(_, entry)| ends(entry)).map(|(id, _)| *id).collect()
    }

    /// Every resource that was asked for here: its name, how many of its clients are inside and how many wait.
    pub fn resources(&self) -> impl Iterator<Item = (Key, &Name, usize, usize)> {
        self.crowds.iter().map(|(key, crowd)| (*key, &crowd.name, crowd.holding.len(), crowd.waiting.len()))
    }

    /// The name of a resource that was asked for here.
    pub fn name(&self, resource: Key) -> Option<&Name> {
        self.crowds.get(&resource).map(|crowd| &crowd.name)
    }

    /// The tickets that wait for a resource.
    pub fn waiting(&self, resource: Key) -> impl Iterator<Item = (TicketId, &Entry)> {
        let waiting = self.crowds.get(&resource).into_iter().flat_map(|crowd| &crowd.waiting);
        waiting.filter_map(|ticket| Some((*ticket, self.tickets.get(ticket)?)))
    }

    /// The tickets of a resource: those inside, then those who wait.
    pub fn of(&self, resource: Key) -> impl Iterator<Item = &Entry> {
        let crowd = self.crowds.get(&resource).into_iter();
        crowd.flat_map(|crowd| crowd.holding.iter().chain(&crowd.waiting)).filter_map(|ticket| self.tickets.get(ticket))
    }

    /// What must be true after each step, whatever happened; `has_alarm` tells whether a ticket will be looked at
    /// again.
    pub fn check(&self, has_alarm: impl Fn(TicketId) -> bool) {
        for (claim, ticket) in &self.claims {
            let known = self.tickets.get(ticket).and_then(|entry| entry.claim);
            assert_eq!(known, Some(*claim), "the protocol is asked for {claim:?}, and no ticket waits for it");
        }
        let claimed = self.tickets.values().filter(|entry| entry.claim.is_some()).count();
        assert_eq!(claimed, self.claims.len(), "two tickets have one claim, or one has none that we know of");
        for (request, ticket) in &self.requests {
            assert!(
                self.tickets.contains_key(ticket),
                "nothing is left of {ticket:?}, and {request:?} still leads to it"
            );
        }
        for (ticket, entry) in &self.tickets {
            let crowd = self.crowds.get(&entry.resource).expect("a ticket's resource was asked for");
            let (waits, holds) = (crowd.waiting.contains(ticket), crowd.holding.contains(ticket));
            assert_eq!((waits, holds), (!entry.is_held(), entry.is_held()), "{ticket:?} is in exactly one place");
            assert!(!holds || entry.claim.is_some(), "{ticket:?} is inside, and the protocol does not know it");
            let watched = holds || matches!(entry.wanted.wait, Wait::For(_));
            assert!(!watched || has_alarm(*ticket), "nobody looks when the time of {ticket:?} is over");
        }
        let placed: usize = self.crowds.values().map(|crowd| crowd.waiting.len() + crowd.holding.len()).sum();
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
            kept: false,
            wait: Wait::Forever,
            label: String::new(),
            session: SessionId(1),
            request: Some("7".into()),
            detached: None,
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
        assert_eq!(clients.unclaimed(), [ticket]);
        let claim = clients.claim(ticket).unwrap();
        assert_eq!((clients.claim(ticket), clients.claimant(claim)), (None, Some(ticket)));
        clients.check(|_| false);

        let (look, ends) = clients.grant(ticket, Grant { slot: 0, fencing: 9 }, at(1)).unwrap();
        assert_eq!((look, ends), (at(25), at(31)));
        clients.check(|_| true);
        assert_eq!(clients.renew(ticket, at(20)).unwrap().deadline(), at(50));
        assert_eq!(clients.look(ticket, at(44)).unwrap().0, Verdict::Lost);
        assert_eq!((clients.granted(ticket), clients.renew(ticket, at(44))), (None, None));

        assert_eq!(clients.unclaim(ticket), Some(claim));
        assert!(clients.remove(ticket).unwrap().is_held());
        assert_eq!((clients.len(), clients.same(&wanted("r")), clients.claimant(claim)), (0, None, None));
        clients.check(|_| false);
    }

    #[test]
    fn who_is_missing_twice_in_a_row_has_lost_its_place() {
        let mut clients = Clients::default();
        let (ticket, _) = clients.admit(wanted("r"), at(0));
        assert!(!clients.miss(ticket));
        assert_eq!(clients.place(ticket, 5, at(1)), Some((true, (at(1), 5))));
        assert!(!clients.miss(ticket), "it was there in between");
        assert!(clients.miss(ticket));
        assert_eq!(clients.place(ticket, 3, at(2)), Some((true, (at(1), 5))));
        assert_eq!(clients.place(ticket, 3, at(3)), Some((false, (at(1), 5))));
    }

    #[test]
    fn what_is_detached_does_not_end_with_its_session() {
        let mut clients = Clients::default();
        let (stays, _) = clients.admit(wanted("r"), at(0));
        let (ends, first) = clients.admit(Wanted { request: None, ..wanted("r") }, at(0));
        assert!(!first);
        clients.detach(stays);
        assert_eq!(clients.of_session(SessionId(1)), [ends]);
        assert_eq!(clients.of_session(SessionId(2)), []);
    }

    #[test]
    #[should_panic(expected = "nobody looks when the time of TicketId(1) is over")]
    fn a_lease_that_nobody_looks_at_is_a_broken_promise() {
        let mut clients = Clients::default();
        let (ticket, _) = clients.admit(wanted("r"), at(0));
        clients.claim(ticket);
        clients.grant(ticket, Grant { slot: 0, fencing: 9 }, at(1));
        clients.check(|_| false);
    }
}
