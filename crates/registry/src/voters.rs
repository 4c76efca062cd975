//! Chooses the voters, one configuration change at a time. A new voter starts as a learner, so that no majority waits
//! for an empty log.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::PeerId;

use crate::state::{State, VoterRecord};
use crate::{SessionId, VoterId};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    Enlist(VoterId, VoterRecord),
    Switch { add: Vec<VoterId>, remove: Vec<VoterId> },
    Leave,
    Drop(VoterId),
    Resign,
}

pub fn target(hosts: usize) -> usize {
    match hosts {
        0..=2 => 1,
        3..=6 => 3,
        _ => 5,
    }
}

/// Returns the leader's next change. No host becomes a voter in the session in which it was `stuck`.
pub fn plan(
    leader: VoterId,
    state: &State,
    lost: &BTreeSet<VoterId>,
    stuck: &BTreeMap<PeerId, SessionId>,
    caught_up: impl Fn(VoterId) -> bool,
) -> Option<Change> {
    let conf = state.conf();
    if !conf.outgoing.is_empty() {
        // Otherwise the leader would end its own leadership.
        return Some(if conf.voters.contains(&leader) { Change::Leave } else { Change::Resign });
    }
    if let Some(learner) = conf.learners.iter().find(|learner| lost.contains(learner)) {
        return Some(Change::Drop(*learner));
    }
    if let Some(chosen) = state.chosen() {
        return plan_chosen(leader, state, chosen, lost, caught_up);
    }
    let gone: Vec<VoterId> = conf.voters.iter().copied().filter(|voter| lost.contains(voter)).collect();
    let missing = target(state.keepers()).saturating_sub(conf.voters.len());
    let ready: Vec<VoterId> = conf.learners.iter().copied().filter(|learner| caught_up(*learner)).collect();
    let replaced = gone.len().min(ready.len());
    if replaced > 0 {
        return Some(Change::Switch { add: ready[..replaced].to_vec(), remove: gone[..replaced].to_vec() });
    }
    if missing > 0 && gone.is_empty() && ready.len() >= missing {
        return Some(Change::Switch { add: ready[..missing].to_vec(), remove: Vec::new() });
    }
    if conf.learners.len() >= gone.len() + missing {
        return None;
    }
    let (session, host) = candidate(state, lost, stuck)?;
    Some(Change::Enlist(state.next_voter(), VoterRecord { host, session: Some(session) }))
}

/// Returns the next change towards a choice. All chosen hosts become voters before any other is removed, so an
/// unreachable choice changes nothing.
fn plan_chosen(
    leader: VoterId,
    state: &State,
    chosen: &BTreeSet<PeerId>,
    lost: &BTreeSet<VoterId>,
    caught_up: impl Fn(VoterId) -> bool,
) -> Option<Change> {
    let conf = state.conf();
    let host = |voter: &VoterId| state.voter_records().get(voter).map(|voter_record| voter_record.host);
    let is_chosen = |voter: &VoterId| host(voter).is_some_and(|host| chosen.contains(&host));
    if let Some(learner) = conf.learners.iter().find(|learner| !is_chosen(learner)) {
        return Some(Change::Drop(*learner));
    }
    let stays = |voter: &VoterId| is_chosen(voter) && !lost.contains(voter);
    let voting_hosts: BTreeSet<PeerId> = conf.voters.iter().filter(|voter| stays(voter)).filter_map(host).collect();
    let mut add = Vec::new();
    let mut waits = false;
    for wanted in chosen.difference(&voting_hosts) {
        match conf.learners.iter().find(|learner| host(learner) == Some(*wanted)) {
            Some(learner) if caught_up(*learner) => add.push(*learner),
            Some(_) => waits = true,
            None => match state.session_of(*wanted).filter(|_| can_vote(state, *wanted)) {
                Some((session, _)) => {
                    let voter_record = VoterRecord { host: *wanted, session: Some(session) };
                    return Some(Change::Enlist(state.next_voter(), voter_record));
                }
                None => waits = true,
            },
        }
    }
    // A smaller set may depend on a voter that has failed unnoticed. So remaining voters must be active and have
    // everything committed.
    waits |= conf.voters.iter().any(|voter| stays(voter) && *voter != leader && !caught_up(*voter));
    let remove: Vec<VoterId> = conf.voters.iter().copied().filter(|voter| !stays(voter) && *voter != leader).collect();
    match (waits, add.is_empty() && remove.is_empty()) {
        (true, _) => None,
        (false, false) => Some(Change::Switch { add, remove }),
        (false, true) => (!is_chosen(&leader)).then_some(Change::Resign),
    }
}

fn can_vote(state: &State, host: PeerId) -> bool {
    state.members().get(&host).is_some_and(|info| info.keeps && info.versions.has(state.version()))
}

/// Returns the host with the oldest session among those that can vote and do not. A host without its file replaces its
/// own voter.
fn candidate(
    state: &State,
    lost: &BTreeSet<VoterId>,
    stuck: &BTreeMap<PeerId, SessionId>,
) -> Option<(SessionId, PeerId)> {
    let is_known = |host| {
        state.voter_records().iter().any(|(voter, voter_record)| voter_record.host == host && !lost.contains(voter))
    };
    let is_stuck =
        |host| stuck.get(&host).is_some_and(|stuck| state.session_of(host).is_some_and(|(id, _)| id == *stuck));
    let sessions = state.sessions().iter().map(|(id, session)| (*id, session.host));
    sessions
        .filter(|(_, host)| can_vote(state, *host) && !is_known(*host) && !is_stuck(*host))
        .min()
        .map(|(_, host)| host)
        .and_then(|host| state.session_of(host).map(|(session, _)| (session, host)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Command, Incarnation, Info, Outcome, Refusal};
    use crate::state::Conf;
    use crate::{ClusterId, Label, Ttl, Versions};

    fn info(keeps: bool) -> Info {
        Info { name: Label::new("h").unwrap(), addresses: Vec::new(), versions: Versions::OURS, keeps }
    }

    fn cluster(hosts: u64) -> State {
        let mut state = State::found(ClusterId::new(1), PeerId::new(1), info(true));
        (1..=hosts).for_each(|host| open(&mut state, host, true));
        state
    }

    fn open(state: &mut State, host: u64, keeps: bool) {
        open_in(state, host, keeps, 0);
    }

    /// Opens a session in the host's process of this number.
    fn open_in(state: &mut State, host: u64, keeps: bool, process: u64) {
        let host = PeerId::new(host);
        let ttl = Ttl::from_millis(1000).unwrap();
        state.apply(
            1,
            Command::Open {
                host,
                nonce: 1 + process,
                incarnation: Incarnation { process, opening: 0 },
                ttl,
                info: info(keeps),
                voter: None,
                replaces: None,
                takes: Vec::new(),
            },
        );
    }

    /// Every learner catches up.
    fn settle(state: &mut State, lost: &BTreeSet<VoterId>) -> Vec<String> {
        let mut done = Vec::new();
        let mut leader = VoterId::new(1);
        while let Some(change) = plan(leader, state, lost, &BTreeMap::new(), |_| true) {
            done.push(format!("{change:?}").split([' ', '(']).next().unwrap_or_default().to_owned());
            let mut conf = state.conf().clone();
            let mut enlisted = None;
            match change {
                Change::Enlist(voter, voter_record) => {
                    assert!(state.may_enlist(voter, voter_record));
                    conf.learners.insert(voter);
                    enlisted = Some((voter, voter_record));
                }
                Change::Switch { add, remove } => {
                    conf.outgoing = conf.voters.clone();
                    conf.learners.retain(|learner| !add.contains(learner));
                    conf.voters.extend(add);
                    conf.voters.retain(|voter| !remove.contains(voter));
                }
                Change::Leave => conf.outgoing.clear(),
                Change::Drop(learner) => _ = conf.learners.remove(&learner),
                Change::Resign => leader = *conf.voters.iter().find(|voter| **voter != leader).expect("another voter"),
            }
            state.configure(conf, enlisted);
            assert!(done.len() < 50, "{done:?}");
        }
        done
    }

    #[test]
    fn voters_are_one_three_or_five() {
        for (hosts, voters) in [(1, 1), (2, 1), (3, 3), (4, 3), (6, 3), (7, 5), (20, 5)] {
            let mut state = cluster(hosts);
            settle(&mut state, &BTreeSet::new());
            assert_eq!(state.conf().voters.len(), voters, "{hosts}");
            assert_eq!(state.conf(), &Conf { voters: state.conf().voters.clone(), ..Conf::default() });
        }
    }

    #[test]
    fn two_learners_become_voters_in_one_change() {
        let done = settle(&mut cluster(3), &BTreeSet::new());
        assert_eq!(done, ["Enlist", "Enlist", "Switch", "Leave"]);
    }

    #[test]
    fn lost_voter_is_replaced_by_a_learner() {
        let mut state = cluster(4);
        settle(&mut state, &BTreeSet::new());
        let lost = BTreeSet::from([VoterId::new(3)]);
        assert_eq!(settle(&mut state, &lost), ["Enlist", "Switch", "Leave"]);
        assert_eq!(state.conf().voters, [1, 2, 4].map(VoterId::new).into());
        assert!(state.is_retired(VoterId::new(3)));
    }

    #[test]
    fn host_without_its_file_replaces_its_own_voter() {
        let mut state = cluster(3);
        settle(&mut state, &BTreeSet::new());
        let lost = BTreeSet::from([VoterId::new(2)]);
        settle(&mut state, &lost);
        assert_eq!(state.conf().voters, [1, 3, 4].map(VoterId::new).into());
        assert_eq!(state.voter_records()[&VoterId::new(4)].host, PeerId::new(2));
    }

    /// It has the oldest session among the hosts that do not vote.
    #[test]
    fn host_of_a_stuck_voter_is_not_chosen_in_that_session() {
        let mut state = cluster(4);
        settle(&mut state, &BTreeSet::new());
        let (host, voter) = (PeerId::new(2), VoterId::new(2));
        let session = state.session_of(host).unwrap().0;
        let (lost, stuck) = (BTreeSet::from([voter]), BTreeMap::from([(host, session)]));
        let enlisted =
            |state: &State, stuck: &BTreeMap<_, _>| match plan(VoterId::new(1), state, &lost, stuck, |_| true) {
                Some(Change::Enlist(_, record)) => record.host.get(),
                other => panic!("{other:?}"),
            };
        assert_eq!((enlisted(&state, &BTreeMap::new()), enlisted(&state, &stuck)), (2, 4));
        // The next process may have another disk.
        state.apply(1, Command::Leave { session });
        open_in(&mut state, 2, true, 1);
        state.apply(1, Command::Leave { session: state.session_of(PeerId::new(4)).unwrap().0 });
        assert_eq!(enlisted(&state, &stuck), 2);
    }

    #[test]
    fn host_without_data_directory_never_votes() {
        let mut state = cluster(2);
        (10..20).for_each(|host| open(&mut state, host, false));
        assert_eq!(plan(VoterId::new(1), &state, &BTreeSet::new(), &BTreeMap::new(), |_| true), None);
        let mut state = cluster(3);
        settle(&mut state, &BTreeSet::new());
        state.apply(1, Command::Leave { session: state.session_of(PeerId::new(3)).unwrap().0 });
        assert_eq!(plan(VoterId::new(1), &state, &BTreeSet::from([VoterId::new(3)]), &BTreeMap::new(), |_| true), None);
        assert_eq!(state.members().len(), 3, "hosts with a data directory stay members");
    }

    fn choose(state: &mut State, hosts: Option<&[u64]>) {
        let hosts = hosts.map(|hosts| hosts.iter().copied().map(PeerId::new).collect());
        assert_eq!(state.apply(1, Command::SetVoters { hosts, after: state.choices() }), Outcome::Done);
    }

    fn voting(state: &State) -> Vec<u64> {
        state.voter_hosts().iter().map(|host| host.get()).collect()
    }

    #[test]
    fn leader_resigns_before_it_is_removed() {
        let mut state = cluster(5);
        settle(&mut state, &BTreeSet::new());
        choose(&mut state, Some(&[3, 4, 5]));
        let done = settle(&mut state, &BTreeSet::new());
        assert_eq!(done, ["Enlist", "Enlist", "Switch", "Leave", "Resign", "Switch", "Leave"]);
        assert_eq!(voting(&state), [3, 4, 5]);
        choose(&mut state, Some(&[2]));
        settle(&mut state, &BTreeSet::new());
        assert_eq!(voting(&state), [2]);
        choose(&mut state, None);
        settle(&mut state, &BTreeSet::new());
        assert_eq!(voting(&state).len(), 3);
    }

    #[test]
    fn joint_configuration_is_left_by_a_remaining_voter() {
        let mut state = cluster(3);
        settle(&mut state, &BTreeSet::new());
        let [first, second, third] = [1, 2, 3].map(VoterId::new);
        let (voters, outgoing) = (BTreeSet::from([second, third]), BTreeSet::from([first, second]));
        state.configure(Conf { voters, outgoing, ..Conf::default() }, None);
        for (leader, change) in [(first, Change::Resign), (second, Change::Leave)] {
            assert_eq!(plan(leader, &state, &BTreeSet::new(), &BTreeMap::new(), |_| true), Some(change), "{leader}");
        }
    }

    /// A remaining voter may have lost its disk while its session is valid.
    #[test]
    fn no_voter_is_removed_while_a_remaining_one_is_silent() {
        let mut state = cluster(3);
        settle(&mut state, &BTreeSet::new());
        choose(&mut state, Some(&[1, 2]));
        let (leader, silent) = (VoterId::new(1), VoterId::new(2));
        assert_eq!(plan(leader, &state, &BTreeSet::new(), &BTreeMap::new(), |voter| voter != silent), None);
        settle(&mut state, &BTreeSet::new());
        assert_eq!(voting(&state), [1, 2]);
    }

    #[test]
    fn no_voter_is_removed_for_an_absent_host() {
        let mut state = cluster(4);
        settle(&mut state, &BTreeSet::new());
        state.apply(1, Command::Leave { session: state.session_of(PeerId::new(4)).unwrap().0 });
        choose(&mut state, Some(&[1, 4]));
        assert_eq!(settle(&mut state, &BTreeSet::new()), [""; 0]);
        choose(&mut state, Some(&[1, 2, 3]));
        settle(&mut state, &BTreeSet::from([VoterId::new(3)]));
        assert_eq!(voting(&state), [1, 2, 3]);
        assert!(state.is_retired(VoterId::new(3)));
        let passing = Command::SetVoters { hosts: Some(vec![PeerId::new(77)]), after: state.choices() };
        assert_eq!(state.apply(1, passing), Outcome::Refused(Refusal::NoKeeper));
    }
}
