//! An abstract registry: a log that decides at once and loses nothing. All delays are in the delivery of its messages.

use peerlock_protocols::registry::{Detached, EventKind, RegistryEvent, RegistryRequest, Session};
use peerlock_types::PeerId;

use super::{FaultLimits, RegistryMutation};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Registry {
    pub(super) generation: u64,
    /// `None` if the generation was opened without parties.
    pub(super) coordinator: Option<Session>,
    pub(super) slots: u32,
    /// The sessions, and for each party the generation since which it is one.
    sessions: Vec<(Session, Option<u64>)>,
    /// Each detached grant with the session that granted or last renewed it.
    pub(super) detached: Vec<(Session, Detached)>,
    /// Valid sessions that were evicted and may not be notified yet.
    forced: Vec<Session>,
    /// The generation opened by the last resize, if commands may be duplicated.
    pub(super) resized: u64,
    mutation: Option<RegistryMutation>,
}

impl Registry {
    pub(super) fn new(ids: &[PeerId], faults: &FaultLimits, slots: u32) -> Self {
        let session = |(at, &peer)| (Session { peer, number: 0 }, (at < faults.parties).then_some(1));
        let sessions: Vec<_> = ids.iter().enumerate().map(session).collect();
        let coordinator = (faults.parties > 0).then(|| sessions[0].0);
        Self {
            generation: u64::from(faults.parties > 0),
            coordinator,
            slots,
            sessions,
            detached: Vec::new(),
            forced: Vec::new(),
            resized: 0,
            mutation: faults.mutation,
        }
    }

    pub(super) fn has(&self, mutation: RegistryMutation) -> bool {
        self.mutation == Some(mutation)
    }

    pub(super) fn sessions(&self) -> impl Iterator<Item = Session> {
        self.sessions.iter().map(|&(session, _)| session)
    }

    pub(super) fn stands(&self, session: Session) -> bool {
        self.sessions().any(|valid| valid == session)
    }

    pub(super) fn is_party(&self, session: Session) -> bool {
        self.parties().any(|party| party == session)
    }

    pub(super) fn since(&self, session: Session) -> Option<u64> {
        self.sessions.iter().find(|(valid, _)| *valid == session)?.1
    }

    fn parties(&self) -> impl Iterator<Item = Session> {
        self.sessions.iter().filter(|(_, since)| since.is_some()).map(|&(session, _)| session)
    }

    pub(super) fn choices(&self, any_coordinator: bool) -> usize {
        if any_coordinator { self.parties().count().max(1) } else { 1 }
    }

    fn open(&mut self, choice: usize) -> Option<RegistryEvent> {
        self.generation += 1;
        let asked: Vec<Session> = self.parties().collect();
        self.coordinator = asked.get(choice.min(asked.len().saturating_sub(1))).copied();
        let detached = self.detached.iter().map(|&(_, detached)| detached).collect();
        let kind = EventKind::Opened { slots: self.slots, asked, detached };
        Some(RegistryEvent { to: self.coordinator?, generation: self.generation, kind })
    }

    pub(super) fn grant(&mut self, from: Session, registry_request: &RegistryRequest) -> Option<RegistryEvent> {
        let at = self.sessions.iter().position(|&(session, _)| session == from)?;
        match registry_request {
            RegistryRequest::Join => {
                self.sessions[at].1 = Some(self.generation);
                match self.coordinator {
                    None => self.open(0),
                    Some(coordinator) => {
                        let kind = EventKind::Joined { coordinator: coordinator.peer, slots: self.slots };
                        Some(RegistryEvent { to: from, generation: self.generation, kind })
                    }
                }
            }
            RegistryRequest::Close { generation, remaining } if *generation == self.generation => {
                let removes_joiners = self.has(RegistryMutation::CloseRemovesJoiners);
                for (session, since) in &mut self.sessions {
                    let is_old = |since: u64| since < *generation || removes_joiners;
                    since.take_if(|since| is_old(*since) && !remaining.contains(session));
                }
                None
            }
            RegistryRequest::Close { .. } => None,
            RegistryRequest::Renumber { generation } => {
                (*generation == self.generation).then(|| self.open(0)).flatten()
            }
            RegistryRequest::Quit { .. } => None,
        }
    }

    /// Returns the events for the session and for the new coordinator.
    pub(super) fn quit(&mut self, from: Session, generation: u64, choice: usize) -> [Option<RegistryEvent>; 2] {
        if !self.stands(from) {
            return [None, None];
        }
        let left = |now| Some(RegistryEvent { to: from, generation: now, kind: EventKind::Left { quit: generation } });
        let is_due = generation == self.generation || self.has(RegistryMutation::QuitsLate);
        if !is_due || !self.is_party(from) {
            return [left(generation + u64::from(!is_due)), None];
        }
        self.sessions.iter_mut().filter(|(valid, _)| *valid == from).for_each(|(_, since)| *since = None);
        self.forced.retain(|forced| *forced != from);
        let opened = self.open(choice);
        [left(self.generation), opened]
    }

    pub(super) fn is_left(&self) -> bool {
        self.parties().next().is_none() && self.detached.is_empty()
    }

    /// R11. The next resource of this name starts in a later generation.
    pub(super) fn remove(&mut self, generation: u64) -> bool {
        let is_unused = generation == self.generation && self.is_left() || self.has(RegistryMutation::RemovesUsed);
        if !is_unused || !self.forced.is_empty() && !self.has(RegistryMutation::RemovesForced) {
            return false;
        }
        self.sessions.iter_mut().for_each(|(_, since)| *since = None);
        self.coordinator = None;
        self.detached.clear();
        self.forced.clear();
        if self.has(RegistryMutation::ForgetsFloor) {
            self.generation = 0;
        }
        true
    }

    pub(super) fn begin(&mut self, session: Session) {
        self.sessions.push((session, None));
        self.sessions.sort_unstable();
    }

    pub(super) fn end(&mut self, session: Session, choice: usize) -> Option<RegistryEvent> {
        let was_party = self.is_party(session);
        self.sessions.retain(|&(valid, _)| valid != session);
        if self.has(RegistryMutation::EndUnnoticed) && was_party && self.coordinator != Some(session) {
            return None;
        }
        self.forced.retain(|forced| *forced != session);
        if was_party { self.open(choice) } else { None }
    }

    /// Replaces one session by another in one entry. With holders, the new one is a party.
    pub(super) fn take_over(
        &mut self,
        old: Session,
        new: Session,
        has_clients: bool,
        choice: usize,
    ) -> Option<RegistryEvent> {
        let was_party = self.is_party(old);
        self.sessions.retain(|&(valid, _)| valid != old);
        self.forced.retain(|forced| *forced != old);
        self.begin(new);
        if has_clients {
            self.make_party(new);
        }
        if was_party || has_clients { self.open(choice) } else { None }
    }

    fn make_party(&mut self, session: Session) {
        let generation = self.generation;
        let is_it = |entry: &&mut (Session, Option<u64>)| entry.0 == session;
        self.sessions.iter_mut().filter(is_it).for_each(|(_, since)| *since = Some(generation));
    }

    pub(super) fn replace(&mut self, old: Session, new: Session) {
        for (session, _) in &mut self.sessions {
            if *session == old {
                *session = new;
            }
        }
        if self.coordinator == Some(old) {
            self.coordinator = Some(new);
        }
    }

    /// Returns the events for the session and for the new coordinator.
    pub(super) fn evict(&mut self, session: Session, choice: usize) -> [Option<RegistryEvent>; 2] {
        self.sessions.iter_mut().filter(|(valid, _)| *valid == session).for_each(|(_, since)| *since = None);
        self.detached.retain(|&(of, _)| of != session);
        let opened = self.open(choice);
        [Some(RegistryEvent { to: session, generation: self.generation, kind: EventKind::Evicted }), opened]
    }

    /// Records an evicted session until it is notified: before, the resource cannot be removed.
    pub(super) fn note_forced(&mut self, session: Session) {
        self.forced.push(session);
        self.forced.sort_unstable();
        self.forced.dedup();
    }

    pub(super) fn resize(&mut self, slots: u32, choice: usize) -> Option<RegistryEvent> {
        self.slots = slots;
        self.open(choice)
    }

    pub(super) fn expire(&mut self, at: usize) -> Option<RegistryEvent> {
        let (_, detached) = self.detached.remove(at);
        Some(RegistryEvent { to: self.coordinator?, generation: self.generation, kind: EventKind::Expired(detached) })
    }

    pub(super) fn place_of(&self, fencing: u64) -> Option<usize> {
        self.detached.iter().position(|(_, it)| it.fencing == fencing)
    }

    /// Ends a detached grant, if the session is valid and no later one has renewed it.
    pub(super) fn drop_detached(&mut self, from: Session, fencing: u64) -> Option<RegistryEvent> {
        let at = self.place_of(fencing)?;
        let (last, _) = self.detached[at];
        let is_renewed = last > from && !self.has(RegistryMutation::AttachesRenewed);
        if self.stands(from) && !is_renewed { self.expire(at) } else { None }
    }
}
