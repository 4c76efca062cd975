//! Indexes, so that frequent queries do not visit every resource. Not part of snapshots.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::PeerId;

use super::{Resource, SessionRecord};
use crate::command::Info;
use crate::{Label, SessionId};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) with_events: BTreeSet<Label>,
    pub(super) granted: BTreeMap<Label, usize>,
    grants: usize,
    sessions: BTreeMap<PeerId, BTreeSet<SessionId>>,
    keepers: usize,
}

impl Index {
    pub(super) fn of(
        members: &BTreeMap<PeerId, Info>,
        sessions: &BTreeMap<SessionId, SessionRecord>,
        resources: &BTreeMap<Label, Resource>,
    ) -> Self {
        let mut index = Self::default();
        members.values().for_each(|info| index.note_member(None, Some(info)));
        sessions.iter().for_each(|(id, session)| index.note_open(session.host, *id));
        resources.iter().for_each(|(name, resource)| index.note(name, resource));
        index
    }

    pub(super) fn note_member(&mut self, before: Option<&Info>, now: Option<&Info>) {
        let keeps = |info: Option<&Info>| usize::from(info.is_some_and(|info| info.keeps));
        self.keepers = self.keepers + keeps(now) - keeps(before);
    }

    pub(super) fn note_open(&mut self, host: PeerId, session: SessionId) {
        self.sessions.entry(host).or_default().insert(session);
    }

    pub(super) fn note_end(&mut self, host: PeerId, session: SessionId) {
        if let Some(sessions) = self.sessions.get_mut(&host) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.sessions.remove(&host);
            }
        }
    }

    /// Oldest first.
    pub(super) fn sessions_of(&self, host: PeerId) -> impl DoubleEndedIterator<Item = SessionId> {
        self.sessions.get(&host).into_iter().flatten().copied()
    }

    pub(super) fn keepers(&self) -> usize {
        self.keepers
    }

    pub(super) fn note(&mut self, name: &Label, resource: &Resource) {
        set(&mut self.with_events, name, resource.pending_events().next().is_some());
        let (before, now) = (self.granted.get(name).copied().unwrap_or(0), resource.detached().len());
        self.grants = self.grants - before + now;
        match (before, now) {
            (_, 0) => _ = self.granted.remove(name),
            (before, now) if before == now => {}
            (_, now) => _ = self.granted.insert(name.clone(), now),
        }
    }

    pub(super) fn forget(&mut self, name: &Label) {
        self.with_events.remove(name);
        self.grants -= self.granted.remove(name).unwrap_or(0);
    }

    pub(super) fn grants(&self) -> usize {
        self.grants
    }
}

fn set(names: &mut BTreeSet<Label>, name: &Label, is_in: bool) {
    if !is_in {
        names.remove(name);
    } else if !names.contains(name) {
        names.insert(name.clone());
    }
}
