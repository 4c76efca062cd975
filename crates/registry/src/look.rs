//! Queries. Any voter answers from its applied state.

use std::collections::BTreeSet;
use std::ops::Bound;

use peerlock_types::{PeerId, Span};
use serde::{Deserialize, Serialize};

use crate::command::{Info, MOST_ADDRESSES};
use crate::state::{DetachedRecord, Resource, RunRecord, State};
use crate::{Label, SessionId, Ttl, VoterId};

pub const MOST_ON_PAGE: u32 = 1000;
pub const MOST_HOSTS: usize = 1024;
/// Bytes, roughly.
const LONG_PAGE: usize = 256 << 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    Cluster,
    Resources {
        prefix: Option<Label>,
        after: Option<Label>,
        /// At most [`MOST_ON_PAGE`].
        most: u32,
        /// Only resources with a detached grant of this host.
        granted_by: Option<PeerId>,
    },
    Resource(Label),
    /// Like `Cluster`, with the members after this host.
    Further(PeerId),
    /// Like `Cluster`, with at most [`MOST_HOSTS`] of these hosts, and the voters and learners.
    Hosts(Vec<PeerId>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    Cluster(View),
    Resources(Page),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The last applied entry.
    pub index: u64,
    pub version: u16,
    pub leader: Option<PeerId>,
    pub members: Vec<(PeerId, Info)>,
    pub more: bool,
    pub sessions: Vec<(SessionId, PeerId, Ttl)>,
    pub voters: Vec<(VoterId, PeerId)>,
    pub learners: Vec<(VoterId, PeerId)>,
    pub chosen: Option<Vec<PeerId>>,
    pub choices: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The last applied entry.
    pub index: u64,
    pub resources: Vec<ResourceView>,
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceView {
    pub name: Label,
    pub slots: u32,
    pub generation: u64,
    pub closed: bool,
    pub coordinator: Option<(SessionId, PeerId)>,
    pub parties: Vec<PartyView>,
    pub detached: Vec<GrantView>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartyView {
    pub session: SessionId,
    pub host: PeerId,
    pub since: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    pub fencing: u64,
    pub slot: u32,
    pub host: PeerId,
    /// Last renewed it. May have ended.
    pub session: SessionId,
    pub ttl: Ttl,
    /// Opaque to the registry.
    pub note: Label,
    pub run: Option<RunRecord>,
    /// In milliseconds, as the answering voter counts.
    pub left: u64,
}

impl GrantView {
    /// Returns whether it holds its slot.
    pub fn holds(&self) -> bool {
        self.run.is_none_or(|run| run.holds)
    }
}

pub(crate) fn cluster(state: &State, index: u64, leader: Option<PeerId>, after: Option<PeerId>) -> View {
    let after = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let mut hosts: BTreeSet<PeerId> =
        state.members().range(after).map(|(host, _)| *host).take(MOST_ON_PAGE as usize + 1).collect();
    let more = hosts.len() > MOST_ON_PAGE as usize && hosts.pop_last().is_some();
    View { more, ..view(state, index, leader, &hosts) }
}

pub(crate) fn hosts(state: &State, index: u64, leader: Option<PeerId>, hosts: &[PeerId]) -> View {
    let voters = state.voter_records().values().map(|voter_record| voter_record.host);
    view(state, index, leader, &hosts.iter().copied().take(MOST_HOSTS).chain(voters).collect())
}

fn view(state: &State, index: u64, leader: Option<PeerId>, hosts: &BTreeSet<PeerId>) -> View {
    let voter_records = |of: &BTreeSet<VoterId>| {
        of.iter().filter_map(|voter| state.voter_records().get(voter).map(|it| (*voter, it.host))).collect()
    };
    // The view has to fit into one message.
    let most = (LONG_PAGE / 64 / hosts.len().max(1)).clamp(1, MOST_ADDRESSES);
    let members = hosts.iter().filter_map(|host| state.members().get(host).map(|info| (*host, sent(info, most))));
    let mut sessions: Vec<(SessionId, PeerId, Ttl)> = Vec::new();
    for host in hosts {
        sessions.extend(state.sessions_of(*host).map(|(id, session)| (id, *host, session.ttl)));
    }
    sessions.sort_unstable();
    View {
        index,
        version: state.version(),
        leader,
        members: members.collect(),
        more: false,
        sessions,
        voters: voter_records(&state.conf().voters),
        learners: voter_records(&state.conf().learners),
        chosen: state.chosen().map(|hosts| hosts.iter().copied().collect()),
        choices: state.choices(),
    }
}

fn sent(info: &Info, most: usize) -> Info {
    Info { addresses: info.addresses.iter().take(most).cloned().collect(), ..info.clone() }
}

pub(crate) fn resources(
    state: &State,
    index: u64,
    (prefix, after): (Option<&Label>, Option<&Label>),
    most: u32,
    granted_by: Option<PeerId>,
    left: impl Fn(&Label, u64, &DetachedRecord) -> Span,
) -> Page {
    let mut page = Page { index, resources: Vec::new(), more: false };
    let mut bytes = 0;
    for (name, resource) in state.resources_after(prefix, after) {
        if granted_by.is_some_and(|host| resource.detached().values().all(|grant| grant.host != host)) {
            continue;
        }
        bytes += 300 + 16 * resource.parties().len() + 300 * resource.detached().len();
        let is_full = page.resources.len() >= most.clamp(1, MOST_ON_PAGE) as usize || bytes > LONG_PAGE;
        if is_full && !page.resources.is_empty() {
            page.more = true;
            break;
        }
        page.resources.push(resource_view(state, name, resource, &left));
    }
    page
}

pub(crate) fn resource(
    state: &State,
    index: u64,
    name: &Label,
    left: impl Fn(&Label, u64, &DetachedRecord) -> Span,
) -> Page {
    let found = state.resources().get(name).map(|resource| resource_view(state, name, resource, left));
    Page { index, resources: found.into_iter().collect(), more: false }
}

fn resource_view(
    state: &State,
    name: &Label,
    resource: &Resource,
    left: impl Fn(&Label, u64, &DetachedRecord) -> Span,
) -> ResourceView {
    let at = |session: SessionId| state.sessions().get(&session).map(|it| (session, it.host));
    let grant = |(&fencing, grant): (&u64, &DetachedRecord)| GrantView {
        fencing,
        slot: grant.slot,
        host: grant.host,
        session: grant.session,
        ttl: grant.ttl,
        note: grant.note.clone(),
        run: grant.run,
        left: left(name, fencing, grant).as_nanos() / 1_000_000,
    };
    ResourceView {
        name: name.clone(),
        slots: resource.slots(),
        generation: resource.generation(),
        closed: resource.is_closed(),
        coordinator: resource.coordinator().and_then(at),
        parties: resource
            .parties()
            .iter()
            .filter_map(|(session, party)| {
                let (session, host) = at(*session)?;
                Some(PartyView { session, host, since: party.since })
            })
            .collect(),
        detached: resource.detached().iter().map(grant).collect(),
    }
}
