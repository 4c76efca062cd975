//! What people and programs want to see of the register. Nothing is decided by it: any voter answers from what it has
//! applied, and says up to where that is.

use std::collections::BTreeSet;
use std::ops::Bound;

use peerlock_types::PeerId;
use serde::{Deserialize, Serialize};

use crate::command::{Info, MOST_ADDRESSES};
use crate::state::{Resource, State};
use crate::{Label, SessionId, Ttl, VoterId};

/// The most resources on one page.
pub const MOST_ON_PAGE: u32 = 1000;
/// The most hosts that can be asked for by number.
pub const MOST_HOSTS: usize = 1024;
/// A page ends after the resource with which it comes to about this many bytes.
const LONG_PAGE: usize = 256 << 10;

/// What can be asked of the register without changing it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Look {
    /// Voters, and the first members with their sessions. Answered by [`Found::Cluster`].
    Cluster,
    /// Resources in the order of their names. Answered by [`Found::Resources`].
    Resources {
        /// Those whose names begin with this; all if it is none.
        prefix: Option<Label>,
        /// Those that come after this one; from the first one on if it is none.
        after: Option<Label>,
        /// At most so many, and never more than [`MOST_ON_PAGE`].
        most: u32,
        /// Only those with a detached grant of this host.
        granted_by: Option<PeerId>,
    },
    /// The resource of this name. Answered by [`Found::Resources`], which has nothing if there is none.
    Resource(Label),
    /// The same as `Cluster`, with the members that come after this one.
    Further(PeerId),
    /// The same with those of these hosts that are members, at most [`MOST_HOSTS`], and with those that vote or learn
    /// to.
    Hosts(Vec<PeerId>),
}

/// Answers to [`Look`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Found {
    /// The members and voters that were asked for.
    Cluster(View),
    /// A page of resources.
    Resources(Page),
}

/// Who there is, as one voter knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct View {
    /// The last entry that the voter has applied.
    pub index: u64,
    /// The version that the register is of.
    pub version: u16,
    /// The leader's host, as far as the voter knows.
    pub leader: Option<PeerId>,
    /// Members with what each has said of itself: those that were to be looked at.
    pub members: Vec<(PeerId, Info)>,
    /// Whether there are others behind the last one.
    pub more: bool,
    /// Their sessions that stand, with their hosts, and for how long each does after a renewal.
    pub sessions: Vec<(SessionId, PeerId, Ttl)>,
    /// Who votes, with the host of each one's file.
    pub voters: Vec<(VoterId, PeerId)>,
    /// Who learns to vote.
    pub learners: Vec<(VoterId, PeerId)>,
    /// The hosts that shall vote, if somebody has chosen them.
    pub chosen: Option<Vec<PeerId>>,
    /// How often that was chosen, or left to the register again.
    pub choices: u64,
}

/// Some of the resources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page {
    /// The last entry that the voter has applied.
    pub index: u64,
    /// In the order of their names.
    pub resources: Vec<ResourceView>,
    /// Whether there are others behind the last one.
    pub more: bool,
}

/// A resource as the register knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceView {
    /// What it is called.
    pub name: Label,
    /// How many may hold it at once.
    pub slots: u32,
    /// The last generation that was opened; they are counted from 1.
    pub generation: u64,
    /// Whether that generation's count is over.
    pub closed: bool,
    /// Who coordinates, and where; nobody if nobody takes part.
    pub coordinator: Option<(SessionId, PeerId)>,
    /// The sessions that take part, in the order of their numbers.
    pub parties: Vec<PartyView>,
    /// The grants that outlive their sessions.
    pub detached: Vec<GrantView>,
}

/// A session that takes part in a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartyView {
    /// The session.
    pub session: SessionId,
    /// Its host.
    pub host: PeerId,
    /// The generation in which it became a party.
    pub since: u64,
}

/// One grant that outlives the session that gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantView {
    /// Its number.
    pub fencing: u64,
    /// The slot that it is for.
    pub slot: u32,
    /// The host that has given it, whose sessions may renew it and give it back.
    pub host: PeerId,
    /// The session that gave it, which may be over.
    pub session: SessionId,
    /// How long it stands since it was last renewed.
    pub ttl: Ttl,
    /// What its host has noted, to find it again.
    pub note: Label,
}

/// Who there is, by this state and index: the members after this one, a page of them.
pub(crate) fn cluster(state: &State, index: u64, leader: Option<PeerId>, after: Option<PeerId>) -> View {
    let after = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
    let mut hosts: BTreeSet<PeerId> =
        state.members().range(after).map(|(host, _)| *host).take(MOST_ON_PAGE as usize + 1).collect();
    let more = hosts.len() > MOST_ON_PAGE as usize && hosts.pop_last().is_some();
    View { more, ..view(state, index, leader, &hosts) }
}

/// The same, with these hosts and those that vote.
pub(crate) fn hosts(state: &State, index: u64, leader: Option<PeerId>, hosts: &[PeerId]) -> View {
    let seated = state.voter_records().values().map(|voter_record| voter_record.host);
    view(state, index, leader, &hosts.iter().copied().take(MOST_HOSTS).chain(seated).collect())
}

fn view(state: &State, index: u64, leader: Option<PeerId>, hosts: &BTreeSet<PeerId>) -> View {
    let voter_records = |of: &BTreeSet<VoterId>| {
        of.iter().filter_map(|voter| state.voter_records().get(voter).map(|it| (*voter, it.host))).collect()
    };
    // However many they are, it has to fit into one letter: of many some addresses of each do.
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

/// The resources that begin with `prefix` and come after `after`, at most `most`, perhaps only those with grants of a
/// host.
pub(crate) fn resources(
    state: &State,
    index: u64,
    (prefix, after): (Option<&Label>, Option<&Label>),
    most: u32,
    granted_by: Option<PeerId>,
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
        page.resources.push(resource_view(state, name, resource));
    }
    page
}

/// The resource of a name, if there is one.
pub(crate) fn resource(state: &State, index: u64, name: &Label) -> Page {
    let found = state.resources().get(name).map(|resource| resource_view(state, name, resource));
    Page { index, resources: found.into_iter().collect(), more: false }
}

fn resource_view(state: &State, name: &Label, resource: &Resource) -> ResourceView {
    let at = |session: SessionId| state.sessions().get(&session).map(|it| (session, it.host));
    let grant = |(&fencing, grant): (&u64, &crate::Detached)| GrantView {
        fencing,
        slot: grant.slot,
        host: grant.host,
        session: grant.session,
        ttl: grant.ttl,
        note: grant.note.clone(),
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
