use super::*;
use crate::command::{Incarnation, Opening};

const N: u64 = 1 << 32;

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn ttl() -> Ttl {
    Ttl::from_millis(15_000).unwrap()
}

fn info(max: u16, keeps: bool) -> Info {
    Info { name: label("host"), addresses: Vec::new(), versions: Versions { min: 1, max }, keeps }
}

fn open(host: u64, process: u64, replaces: Option<SessionId>) -> Command {
    opening(host, (process, 0), replaces)
}

fn opening(host: u64, (process, opening): (u64, u64), replaces: Option<SessionId>) -> Command {
    let incarnation = Incarnation { process, opening };
    Command::Open {
        host: PeerId::new(host),
        nonce: 100 * process + opening,
        incarnation,
        ttl: ttl(),
        info: info(1, true),
        voter: None,
        replaces,
        takes: Vec::new(),
    }
}

/// Makes an `Open` take over `r` and an unknown resource.
fn taking(open: Command) -> Command {
    let Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, .. } = open else { panic!("{open:?}") };
    let takes = vec![label("r"), label("unknown")];
    Command::Open { host, nonce, incarnation, ttl, info, voter, replaces, takes }
}

fn take_over(process: u64, replaces: SessionId) -> Command {
    taking(open(1, process, Some(replaces)))
}

fn join(session: SessionId) -> Command {
    Command::Join { session, resource: label("r"), slots: 2 }
}

fn resize(slots: u32, generation: u64) -> Command {
    Command::Resize { resource: label("r"), slots, generation }
}

fn evict(session: SessionId, since: u64) -> Command {
    Command::Evict { resource: label("r"), session, since }
}

fn take_back(fencing: u64, session: SessionId) -> Command {
    Command::TakeBack { resource: label("r"), fencing, session }
}

fn voter_records(hosts: &[u64], after: u64) -> Command {
    Command::SetVoters { hosts: Some(hosts.iter().copied().map(PeerId::new).collect()), after }
}

fn end(sessions: &[SessionId]) -> Command {
    Command::End { sessions: sessions.to_vec(), term: 1 }
}

fn detach(session: SessionId, fencing: u64) -> Command {
    Command::Detach { session, resource: label("r"), slot: 0, fencing, ttl: ttl(), note: label("note") }
}

/// Hosts 1 to 3 with sessions 1 to 3, all parties of `r`.
fn three() -> (State, [SessionId; 3]) {
    let mut state = State::found(ClusterId::new(1), PeerId::new(1), info(1, true));
    let sessions = [1, 2, 3].map(SessionId::new);
    for (host, session) in (1..).zip(sessions) {
        assert_eq!(state.apply(1, open(host, host, None)), Outcome::Opened { session });
        state.apply(1, join(session));
    }
    (state, sessions)
}

fn resource(state: &State) -> &Resource {
    &state.resources()[&label("r")]
}

#[test]
fn first_join_creates_the_resource() {
    let (mut state, [first, ..]) = three();
    assert_eq!(resource(&state).parties().len(), 3);
    for slots in [2, 5] {
        let again = Command::Join { session: first, resource: label("r"), slots };
        let coordinator = (first, PeerId::new(1));
        let joined = Outcome::Joined { generation: 1, coordinator, opened: true, slots: 2 };
        assert_eq!(state.apply(1, again), joined);
    }
    assert_eq!(state.apply(1, join(SessionId::new(9))), Outcome::Refused(Refusal::NoSession));
}

#[test]
fn ends_in_one_entry_open_one_generation() {
    let (mut state, [a, b, c]) = three();
    assert_eq!(state.apply(1, end(&[a, b])), Outcome::Ended { sessions: vec![a, b] });
    assert_eq!((resource(&state).generation(), resource(&state).coordinator()), (2, Some(c)));
    assert!(state.is_over(a) && !state.is_over(c) && !state.is_over(SessionId::new(4)));
    assert_eq!(state.apply(1, end(&[a])), Outcome::Ended { sessions: Vec::new() });
}

#[test]
fn end_opens_generations_only_where_session_is_party() {
    let (mut state, [a, _, c]) = three();
    state.apply(1, Command::Join { session: c, resource: label("other"), slots: 1 });
    state.apply(1, Command::Leave { session: a });
    assert_eq!((resource(&state).generation(), state.resources()[&label("other")].generation()), (2, 1));
}

#[test]
fn join_after_all_parties_ended_opens_generation() {
    let (mut state, sessions) = three();
    state.apply(1, end(&sessions));
    assert_eq!((resource(&state).generation(), resource(&state).coordinator()), (2, None));
    state.apply(1, open(1, 9, None));
    let session = SessionId::new(4);
    let coordinator = (session, PeerId::new(1));
    assert_eq!(state.apply(1, join(session)), Outcome::Joined { generation: 3, coordinator, opened: true, slots: 2 });
}

#[test]
fn resize_and_renumber_open_one_generation() {
    let (mut state, _) = three();
    assert!(matches!(state.apply(1, resize(3, 1)), Outcome::Advanced(Opening { generation: 2, .. })));
    assert_eq!(state.apply(1, resize(3, 1)), Outcome::Done);
    let renumber = Command::Renumber { resource: label("r"), generation: 2 };
    assert!(matches!(state.apply(1, renumber.clone()), Outcome::Advanced(Opening { generation: 3, .. })));
    assert_eq!(state.apply(1, renumber), Outcome::Refused(Refusal::OldGeneration));
    let unknown = Command::Resize { resource: label("x"), slots: 1, generation: 1 };
    assert_eq!(state.apply(1, unknown), Outcome::Refused(Refusal::NoResource));
}

/// Otherwise the state could not be decoded.
#[test]
fn resize_is_refused_before_generations_run_out() {
    let (mut state, _) = three();
    state.resources.get_mut(&label("r")).unwrap().recover(&label("r"), MOST_GENERATION / 2 - 2);
    let last = resource(&state).generation();
    assert!(matches!(state.apply(1, resize(3, last)), Outcome::Advanced(_)));
    assert_eq!(state.apply(1, resize(2, last + 1)), Outcome::Refused(Refusal::Full));
    assert_eq!((state.apply(1, resize(3, last + 1)), resource(&state).slots()), (Outcome::Done, 3));
    let renumber = Command::Renumber { resource: label("r"), generation: resource(&state).generation() };
    assert_eq!(state.apply(1, renumber), Outcome::Refused(Refusal::Full));
}

#[test]
fn state_with_the_last_generation_decodes() {
    let (mut state, [a, b, c]) = three();
    state.resources.get_mut(&label("r")).unwrap().recover(&label("r"), MOST_GENERATION - 3);
    for (session, generation) in [(a, MOST_GENERATION - 2), (b, MOST_GENERATION - 1), (c, MOST_GENERATION - 1)] {
        assert!(matches!(state.apply(1, quit(session, generation)), Outcome::Advanced(_)));
        assert_eq!(State::decode(&state.encode(), Versions::OURS).as_ref(), Ok(&state));
    }
    state.recover(PeerId::new(1), 7, Ttl::from_millis(1000).unwrap());
    assert_eq!(State::decode(&state.encode(), Versions::OURS).as_ref(), Ok(&state));
}

/// Otherwise later numbers of the slot would be smaller.
#[test]
fn detach_of_a_future_generation_is_refused() {
    let (mut state, [a, ..]) = three();
    let next = (resource(&state).generation() + 1) * N;
    assert_eq!(state.apply(1, detach(a, next)), Outcome::Refused(Refusal::NoSuchGrant));
    assert_eq!(state.apply(1, detach(a, next - 1)), Outcome::Done);
}

/// The engine would panic.
#[test]
fn state_with_voter_zero_is_refused() {
    let (mut state, _) = three();
    let zero = VoterId::new(0);
    state.voter_records.insert(zero, VoterRecord { host: PeerId::new(1), session: None });
    assert!(State::decode(&state.encode(), Versions::OURS).is_ok(), "it is not in the configuration");
    state.conf.voters.insert(zero);
    assert!(State::decode(&state.encode(), Versions::OURS).is_err());
}

#[test]
fn quit_removes_party_once() {
    let (mut state, [a, b, c]) = three();
    assert_eq!(state.apply(1, quit(a, 0)), Outcome::Refused(Refusal::OldGeneration));
    assert!(matches!(state.apply(1, quit(a, 1)), Outcome::Advanced(Opening { generation: 2, .. })));
    assert!(!resource(&state).parties().contains_key(&a) && resource(&state).coordinator() != Some(a));
    assert!(matches!(state.apply(1, join(a)), Outcome::Joined { generation: 2, .. }));
    assert_eq!(state.apply(1, quit(a, 1)), Outcome::Refused(Refusal::OldGeneration));
    assert!(resource(&state).parties().contains_key(&a));
    for (session, generation) in [(a, 2), (b, 3), (c, 4)] {
        assert!(matches!(state.apply(1, quit(session, generation)), Outcome::Advanced(_)));
        assert_eq!(state.apply(1, quit(session, generation + 1)), Outcome::Refused(Refusal::NoParty));
    }
    assert_eq!((resource(&state).generation(), resource(&state).coordinator()), (5, None));
    assert!(matches!(state.apply(1, join(b)), Outcome::Joined { generation: 6, opened: true, .. }));
}

fn quit(session: SessionId, generation: u64) -> Command {
    Command::Quit { session, resource: label("r"), generation }
}

fn remove(generation: u64) -> Command {
    Command::Remove { resource: label("r"), generation }
}

/// `r` has no parties, and generation 4.
fn left() -> (State, [SessionId; 3]) {
    let (mut state, sessions) = three();
    for (session, generation) in sessions.into_iter().zip(1..) {
        assert!(matches!(state.apply(1, quit(session, generation)), Outcome::Advanced(_)));
    }
    (state, sessions)
}

#[test]
fn unused_resource_is_deleted_and_raises_floor() {
    let (mut state, [a, b, c]) = three();
    assert_eq!(state.apply(1, remove(1)), Outcome::Refused(Refusal::InUse));
    for (session, generation) in [(a, 1), (b, 2), (c, 3)] {
        assert_eq!(state.apply(1, remove(generation)), Outcome::Refused(Refusal::InUse));
        assert!(matches!(state.apply(1, quit(session, generation)), Outcome::Advanced(_)));
        assert_eq!(state.apply(1, remove(generation)), Outcome::Refused(Refusal::OldGeneration));
    }
    assert_eq!(state.apply(1, remove(4)), Outcome::Done);
    assert!(state.resources().is_empty());
    for late in [remove(4), quit(a, 4), close(a, 4, &[]), detach(a, N + 9), drop_detached(a, N + 9)] {
        assert_eq!(state.apply(1, late), Outcome::Refused(Refusal::NoResource));
    }
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()), "the floor is encoded");
    let other = |name| Command::Join { session: b, resource: label(name), slots: 5 };
    for name in ["r", "other"] {
        let joined = state.apply(1, other(name));
        assert!(matches!(joined, Outcome::Joined { generation: 5, opened: true, slots: 5, .. }), "{joined:?}");
    }
}

#[test]
fn late_remove_does_not_delete_next_resource_of_its_name() {
    let (mut state, [a, b, _]) = left();
    state.apply(1, remove(4));
    assert!(matches!(state.apply(1, join(a)), Outcome::Joined { generation: 5, .. }));
    let founded = state.clone();
    let renumber = Command::Renumber { resource: label("r"), generation: 4 };
    for late in [remove(4), quit(a, 4), close(a, 4, &[]), close(b, 4, &[]), renumber, detach(a, 4 * N + 1)] {
        assert!(matches!(state.apply(1, late), Outcome::Refused(_)));
        assert_eq!(state, founded);
    }
    assert!(matches!(state.apply(1, quit(a, 5)), Outcome::Advanced(_)));
    assert_eq!(state.apply(1, remove(4)), Outcome::Refused(Refusal::OldGeneration), "it was used since");
    assert_eq!(state.apply(1, remove(6)), Outcome::Done);
}

/// A client may hold a slot although there is no party.
#[test]
fn resource_with_detached_grant_is_not_deleted() {
    let (mut state, sessions) = three();
    state.apply(1, detach(sessions[0], N + 1));
    state.apply(1, end(&sessions));
    assert_eq!(state.apply(1, remove(2)), Outcome::Refused(Refusal::InUse));
    state.apply(1, Command::ExpireDetached { resource: label("r"), fencing: N + 1, renewals: 0 });
    assert_eq!(state.apply(1, remove(2)), Outcome::Done);
    assert_eq!(state.granted().count(), 0);
}

/// The session would continue as a party.
#[test]
fn resource_with_unnotified_eviction_is_not_deleted() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, evict(a, 1));
    assert!(matches!(state.apply(1, quit(b, 2)), Outcome::Advanced(_)));
    assert!(matches!(state.apply(1, quit(c, 3)), Outcome::Advanced(_)));
    assert_eq!(pending_events(&state), [(a, 2, Topic::Evicted)]);
    assert_eq!(state.apply(1, remove(4)), Outcome::Refused(Refusal::InUse));
    let mut ended = state.clone();
    ended.apply(1, end(&[a]));
    assert_eq!(ended.apply(1, remove(4)), Outcome::Done);
    // The `Quit` shows that the session knows of the eviction.
    assert!(matches!(state.apply(1, join(a)), Outcome::Joined { generation: 5, .. }));
    assert_eq!(state.apply(1, quit(a, 2)), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(pending_events(&state), [(a, 5, Topic::Opened), (a, 2, Topic::Evicted)]);
    assert!(matches!(state.apply(1, quit(a, 5)), Outcome::Advanced(_)));
    assert_eq!(state.apply(1, remove(6)), Outcome::Done);
}

#[test]
fn deleted_resources_leave_only_the_floor() {
    let (mut state, [a, ..]) = three();
    let before = state.encode().len();
    let name = |number: u64| label(&format!("build-{number}"));
    for number in 0..1000 {
        let resource = name(number);
        let Outcome::Joined { generation, .. } = state.apply(1, Command::Join { session: a, resource, slots: 1 })
        else {
            panic!("the resource is not created")
        };
        state.apply(1, Command::Quit { session: a, resource: name(number), generation });
        let remove = Command::Remove { resource: name(number), generation: generation + 1 };
        assert_eq!(state.apply(1, remove), Outcome::Done);
        assert_eq!(generation, 2 * number + 1);
    }
    assert!(state.encode().len() <= before + 2, "{} bytes", state.encode().len() - before);
    // The other resources still need generations.
    state.floor = MOST_REMOVED;
    let resource = name(1);
    state.apply(1, Command::Join { session: a, resource: resource.clone(), slots: 1 });
    state.apply(1, Command::Quit { session: a, resource: resource.clone(), generation: MOST_REMOVED + 1 });
    let remove = Command::Remove { resource, generation: MOST_REMOVED + 2 };
    assert_eq!(state.apply(1, remove), Outcome::Refused(Refusal::Full));
}

#[test]
fn end_decided_in_another_term_has_no_effect() {
    let (mut state, [a, ..]) = three();
    let before = state.clone();
    for entry in [2, 7] {
        assert_eq!(state.apply(entry, end(&[a])), Outcome::Refused(Refusal::OldTerm));
    }
    assert_eq!(state, before);
    assert!(matches!(state.apply(7, Command::Leave { session: a }), Outcome::Ended { .. }));
}

#[test]
fn open_is_idempotent_and_ends_the_replaced_session() {
    let (mut state, [a, b, _]) = three();
    assert_eq!(state.apply(1, open(1, 1, None)), Outcome::Opened { session: a });
    assert_eq!(state.apply(1, open(1, 2, Some(a))), Outcome::Opened { session: SessionId::new(4) });
    assert!(state.is_over(a));
    assert_eq!(resource(&state).generation(), 2);
    state.apply(1, open(1, 3, Some(b)));
    assert!(!state.is_over(b));
}

#[test]
fn members_with_a_data_directory_are_retained() {
    let (mut state, sessions) = three();
    let host = PeerId::new(7);
    let passing = Command::Open {
        host,
        nonce: 1,
        incarnation: Incarnation::default(),
        ttl: ttl(),
        info: info(1, false),
        voter: None,
        replaces: None,
        takes: Vec::new(),
    };
    state.apply(1, passing);
    assert!(state.members().contains_key(&host));
    state.apply(1, end(&[SessionId::new(4)]));
    state.apply(1, end(&sessions));
    assert_eq!(state.members().keys().map(|host| host.get()).collect::<Vec<_>>(), [1, 2, 3]);
}

fn pending_events(state: &State) -> Vec<(SessionId, u64, Topic)> {
    state.with_events(None).flat_map(|(_, resource)| resource.pending_events()).collect()
}

fn close(session: SessionId, generation: u64, remaining: &[SessionId]) -> Command {
    Command::Close { session, resource: label("r"), generation, remaining: remaining.to_vec() }
}

fn drop_detached(session: SessionId, fencing: u64) -> Command {
    Command::DropDetached { session, resource: label("r"), fencing }
}

#[test]
fn detach_requires_a_valid_session_of_the_host() {
    let (mut state, [a, b, _]) = three();
    assert_eq!(state.apply(1, detach(a, N + 100)), Outcome::Done);
    assert_eq!(state.apply(1, detach(b, N + 100)), Outcome::Refused(Refusal::NotYours));
    assert_eq!(state.apply(1, detach(b, N + 101)), Outcome::Done);
    assert_eq!(state.apply(1, drop_detached(a, N + 101)), Outcome::Refused(Refusal::NotYours));
    assert_eq!(state.apply(1, drop_detached(b, N + 101)), Outcome::Done);
    assert_eq!(state.apply(1, drop_detached(b, N + 101)), Outcome::Done, "a copy");
    state.apply(1, end(&[a, b]));
    for late in [detach(b, N + 102), drop_detached(a, N + 100)] {
        assert_eq!(state.apply(1, late), Outcome::Refused(Refusal::NoSession));
    }
    assert_eq!(resource(&state).detached().keys().copied().collect::<Vec<_>>(), [N + 100], "it outlives its session");
    assert_eq!(state.apply(1, open(9, 9, None)), Outcome::Opened { session: SessionId::new(4) });
    assert_eq!(state.apply(1, detach(SessionId::new(4), N + 103)), Outcome::Refused(Refusal::NoParty));
}

#[test]
fn later_session_of_host_renews_and_drops_grant() {
    let (mut state, [a, ..]) = three();
    state.apply(1, detach(a, N + 100));
    state.apply(1, end(&[a]));
    state.apply(1, open(1, 9, None));
    let later = SessionId::new(4);
    assert_eq!(state.apply(1, detach(later, N + 100)), Outcome::Done, "it need not be a party");
    let grant = &resource(&state).detached()[&(N + 100)];
    assert_eq!((grant.session, grant.host, grant.renewals, grant.note.as_str()), (later, PeerId::new(1), 1, "note"));
    assert_eq!(state.apply(1, drop_detached(later, N + 100)), Outcome::Done);
    assert!(resource(&state).detached().is_empty());
}

/// Both sessions of a host may be valid for a while.
#[test]
fn earlier_session_does_not_drop_renewed_grant() {
    let (mut state, [a, ..]) = three();
    assert_eq!(state.apply(1, detach(a, N + 100)), Outcome::Done);
    let Outcome::Opened { session: later } = state.apply(1, open(1, 9, None)) else { panic!("no session") };
    assert_eq!(state.apply(1, detach(later, N + 100)), Outcome::Done);
    assert_eq!(state.apply(1, detach(a, N + 100)), Outcome::Done, "a late copy of an earlier renewal");
    assert_eq!(state.apply(1, drop_detached(a, N + 100)), Outcome::Done);
    assert!(resource(&state).detached().contains_key(&(N + 100)));
    assert_eq!(state.apply(1, drop_detached(later, N + 100)), Outcome::Done);
    assert!(resource(&state).detached().is_empty());
}

/// It would exist beside that of the slot's next holder.
#[test]
fn ended_grant_is_not_restored() {
    let (mut state, [a, ..]) = three();
    for over in
        [drop_detached(a, N + 100), Command::ExpireDetached { resource: label("r"), fencing: N + 100, renewals: 0 }]
    {
        let mut state = state.clone();
        state.apply(1, detach(a, N + 100));
        assert_eq!(state.apply(1, over), Outcome::Done);
        assert_eq!(state.apply(1, detach(a, N + 100)), Outcome::Refused(Refusal::NoSuchGrant));
        assert_eq!(state.apply(1, detach(a, N + 99)), Outcome::Refused(Refusal::NoSuchGrant), "nor an older one");
        assert_eq!(state.apply(1, detach(a, N + 101)), Outcome::Done);
    }
    state.apply(1, detach(a, N + 100));
    state.apply(1, detach(a, N + 101));
    state.apply(1, drop_detached(a, N + 101));
    assert_eq!(state.apply(1, detach(a, N + 100)), Outcome::Done);
}

#[test]
fn late_renewal_does_not_shorten_grant() {
    let (mut state, [a, ..]) = three();
    let renew = |millis| {
        let (ttl, note) = (Ttl::from_millis(millis).unwrap(), label("note"));
        Command::Detach { session: a, resource: label("r"), slot: 0, fencing: N + 100, ttl, note }
    };
    for (millis, expected) in [(5_000, 5_000), (9_000, 9_000), (5_000, 9_000)] {
        assert_eq!(state.apply(1, renew(millis)), Outcome::Done);
        assert_eq!(u64::from(resource(&state).detached()[&(N + 100)].ttl), expected);
    }
}

#[test]
fn renewed_grant_does_not_expire() {
    let (mut state, [a, ..]) = three();
    state.apply(1, detach(a, N + 100));
    state.apply(1, detach(a, N + 100));
    let expire_detached = |renewals| Command::ExpireDetached { resource: label("r"), fencing: N + 100, renewals };
    assert_eq!(state.apply(1, expire_detached(0)), Outcome::Refused(Refusal::NoSuchGrant), "it was renewed");
    assert_eq!(state.apply(1, expire_detached(1)), Outcome::Done);
    assert_eq!(state.apply(1, expire_detached(1)), Outcome::Refused(Refusal::NoSuchGrant));
}

#[test]
fn coordinator_is_notified_of_ends_of_known_grants() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, detach(a, N + 100));
    state.apply(1, end(&[a]));
    let coordinator = resource(&state).coordinator().unwrap();
    let opened = (coordinator, 2, Topic::Opened);
    state.apply(1, detach(b, N + 101));
    let sent = |state: &State| state.event(&label("r"), coordinator, 2, Topic::Opened).expect("it is open");
    let EventKind::Opened { slots: 2, asked, detached } = sent(&state).1 else { panic!("{state:?}") };
    assert_eq!((asked, detached), (vec![(b, PeerId::new(2)), (c, PeerId::new(3))], vec![(0, N + 100)]));
    let before = sent(&state);
    state.apply(1, drop_detached(b, N + 101));
    assert_eq!(pending_events(&state), [opened]);
    state.apply(1, Command::ExpireDetached { resource: label("r"), fencing: N + 100, renewals: 0 });
    assert_eq!(pending_events(&state), [opened, (coordinator, 2, Topic::Expired(N + 100))]);
    assert_eq!(sent(&state), before, "`Opened` has the same content");
    let (host, kind) = state.event(&label("r"), coordinator, 2, Topic::Expired(N + 100)).unwrap();
    assert_eq!((host, kind), (state.sessions()[&coordinator].host, EventKind::Expired { slot: 0, fencing: N + 100 }));
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()), "all of it is encoded");
    state.apply(1, Command::Renumber { resource: label("r"), generation: 2 });
    let next = resource(&state).coordinator().unwrap();
    assert_eq!(pending_events(&state), [(next, 3, Topic::Opened)]);
}

#[test]
fn opened_is_pending_until_closed() {
    let (mut state, [a, b, c]) = three();
    assert_eq!(pending_events(&state), [(a, 1, Topic::Opened)]);
    assert_eq!(state.apply(1, close(a, 1, &[])), Outcome::Done);
    assert_eq!(pending_events(&state), []);
    assert_eq!(resource(&state).parties().len(), 3, "they have joined in this generation");
    state.apply(1, resize(1, 1));
    let coordinator = resource(&state).coordinator().unwrap();
    let others: Vec<SessionId> = [a, b, c].into_iter().filter(|it| *it != coordinator).collect();
    assert_eq!(state.apply(1, close(coordinator, 1, &[])), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(state.apply(1, close(others[0], 2, &[])), Outcome::Refused(Refusal::NotYours));
    assert_eq!(pending_events(&state), [(coordinator, 2, Topic::Opened)]);
    assert_eq!(state.apply(1, close(coordinator, 2, &[others[0]])), Outcome::Done);
    let closed = state.clone();
    assert_eq!(state.apply(1, close(coordinator, 2, &[])), Outcome::Done);
    assert_eq!(state, closed);
    let left: BTreeSet<SessionId> = resource(&state).parties().keys().copied().collect();
    assert_eq!(left, BTreeSet::from([coordinator, others[0]]));
}

#[test]
fn close_retains_parties_that_joined_since() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, resize(1, 1));
    state.apply(1, open(4, 4, None));
    let late = SessionId::new(4);
    state.apply(1, join(late));
    let coordinator = resource(&state).coordinator().unwrap();
    let again = [a, b, c].into_iter().find(|it| *it != coordinator).unwrap();
    state.apply(1, join(again));
    // The second `Join` may have been a late copy.
    assert_eq!(resource(&state).asked().collect::<Vec<_>>(), [a, b, c]);
    state.apply(1, close(coordinator, 2, &[]));
    let left: BTreeSet<SessionId> = resource(&state).parties().keys().copied().collect();
    assert_eq!(left, BTreeSet::from([coordinator, again, late]));
}

#[test]
fn evicted_session_is_notified_and_not_in_census() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, detach(b, N + 100));
    assert!(matches!(state.apply(1, evict(b, 1)), Outcome::Advanced(Opening { generation: 2, .. })));
    assert_eq!(state.apply(1, evict(b, 1)), Outcome::Refused(Refusal::NoParty));
    let coordinator = resource(&state).coordinator().unwrap();
    let evicted = (b, 2, Topic::Evicted);
    assert_eq!(pending_events(&state), [(coordinator, 2, Topic::Opened), evicted]);
    assert_eq!(resource(&state).asked().collect::<Vec<_>>(), [a, c]);
    assert_eq!(resource(&state).detached_before(), []);
    // Nor does a late `Join` show that it knows.
    state.apply(1, join(b));
    state.apply(1, close(coordinator, 2, &[a, c]));
    assert_eq!(pending_events(&state), [evicted]);
    state.apply(1, end(&[b]));
    assert!(pending_events(&state).iter().all(|(session, ..)| *session != b));
}

#[test]
fn late_evict_does_not_evict_a_session_that_joined_again() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, evict(b, 1));
    state.apply(1, join(b));
    state.apply(1, detach(b, 2 * N + 100));
    let joined = state.clone();
    assert_eq!(state.apply(1, evict(b, 1)), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(state, joined);
    let coordinator = resource(&state).coordinator().unwrap();
    let idle = [a, c].into_iter().find(|it| *it != coordinator).unwrap();
    assert_eq!(state.apply(1, close(coordinator, 2, &[])), Outcome::Done);
    assert!(!resource(&state).parties().contains_key(&idle));
    state.apply(1, join(idle));
    let joined = state.clone();
    assert_eq!(state.apply(1, evict(idle, 1)), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(state, joined);
    // A later generation does not protect the same participation.
    state.apply(1, end(&[a]));
    assert!(matches!(state.apply(1, evict(b, 2)), Outcome::Advanced(_)));
    assert!(resource(&state).detached().is_empty(), "its detached grants end with it");
}

#[test]
fn revocation_ends_one_grant_and_no_party() {
    let (mut state, [a, b, _]) = three();
    for (session, fencing) in [(a, N + 100), (a, N + 101), (b, N + 102)] {
        state.apply(1, detach(session, fencing));
    }
    assert_eq!(state.apply(1, take_back(N + 102, b)), Outcome::Done);
    assert_eq!((resource(&state).generation(), resource(&state).parties().len()), (1, 3));
    state.apply(1, end(&[a]));
    assert_eq!(state.apply(1, take_back(N + 100, a)), Outcome::Done);
    let coordinator = resource(&state).coordinator().unwrap();
    assert!(pending_events(&state).contains(&(coordinator, 2, Topic::Expired(N + 100))));
    assert_eq!(resource(&state).detached().keys().copied().collect::<Vec<_>>(), [N + 101]);
    let taken = state.clone();
    assert_eq!(state.apply(1, take_back(N + 100, a)), Outcome::Done);
    assert_eq!(state, taken);
    state.apply(1, open(1, 9, None));
    assert_eq!(state.apply(1, detach(SessionId::new(4), N + 100)), Outcome::Refused(Refusal::NoSuchGrant));
}

#[test]
fn revocation_of_a_renewed_grant_is_refused() {
    let (mut state, [a, ..]) = three();
    state.apply(1, detach(a, N + 100));
    state.apply(1, end(&[a]));
    state.apply(1, open(1, 9, None));
    state.apply(1, detach(SessionId::new(4), N + 100));
    let renewed = state.clone();
    assert_eq!(state.apply(1, take_back(N + 100, a)), Outcome::Refused(Refusal::Superseded));
    assert_eq!(state, renewed);
    assert_eq!(state.apply(1, take_back(N + 100, SessionId::new(4))), Outcome::Done);
}

#[test]
fn late_resize_does_not_undo_a_newer_one() {
    let (mut state, [a, ..]) = three();
    assert!(matches!(state.apply(1, resize(3, 1)), Outcome::Advanced(_)));
    state.apply(1, end(&[a]));
    assert!(matches!(state.apply(1, resize(5, 2)), Outcome::Advanced(Opening { generation: 4, .. })));
    let resized = state.clone();
    for late in [resize(3, 1), resize(3, 2), resize(3, 3), resize(3, 9)] {
        assert_eq!(state.apply(1, late), Outcome::Refused(Refusal::Superseded));
        assert_eq!(state, resized);
    }
    assert_eq!(state.apply(1, resize(5, 2)), Outcome::Done, "asked again");
    assert!(matches!(state.apply(1, resize(3, 4)), Outcome::Advanced(_)));
}

#[test]
fn late_resize_does_not_change_the_next_resource_of_its_name() {
    let (mut state, [a, ..]) = left();
    state.apply(1, remove(4));
    assert!(matches!(state.apply(1, join(a)), Outcome::Joined { generation: 5, slots: 2, .. }));
    for late in [1, 4] {
        assert_eq!(state.apply(1, resize(3, late)), Outcome::Refused(Refusal::Superseded));
    }
    assert!(matches!(state.apply(1, resize(3, 5)), Outcome::Advanced(_)));
}

#[test]
fn absent_member_is_forgotten_and_may_return() {
    let (mut state, [_, second, third]) = three();
    let forget = |host, after| Command::Forget { host: PeerId::new(host), after };
    for host in [1, 3] {
        assert_eq!(state.apply(1, forget(host, 0)), Outcome::Refused(Refusal::Present), "votes, or has a session");
    }
    state.apply(1, detach(second, N + 9));
    state.apply(1, end(&[second, third]));
    assert_eq!(state.apply(1, forget(2, 0)), Outcome::Refused(Refusal::Present), "it has given a grant");
    state.apply(1, voter_records(&[3], 0));
    assert_eq!(state.apply(1, forget(3, 1)), Outcome::Refused(Refusal::Present), "it is chosen");
    state.apply(1, Command::SetVoters { hosts: None, after: 1 });
    assert_eq!(state.apply(1, forget(3, 1)), Outcome::Refused(Refusal::Superseded));
    assert_eq!((state.apply(1, forget(3, 2)), state.choices()), (Outcome::Done, 3));
    assert_eq!(state.members().keys().map(|host| host.get()).collect::<Vec<_>>(), [1, 2]);
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()));
    assert_eq!((state.apply(1, forget(9, 3)), state.choices()), (Outcome::Done, 4), "no member");
    // A late copy changes nothing, also after the host has returned.
    let before = state.clone();
    assert_eq!((state.apply(1, forget(3, 2)), &state), (Outcome::Done, &before));
    let Outcome::Opened { session } = state.apply(1, open(3, 2, None)) else { panic!("{state:?}") };
    state.apply(1, end(&[session]));
    let before = state.clone();
    assert_eq!((state.apply(1, forget(3, 2)), &state), (Outcome::Refused(Refusal::Superseded), &before));
    let Outcome::Opened { session } = state.apply(1, open(9, 2, None)) else { panic!("{state:?}") };
    state.apply(1, end(&[session]));
    assert_eq!(state.apply(1, forget(9, 3)), Outcome::Refused(Refusal::Superseded));
}

#[test]
fn late_choice_of_voters_does_not_undo_a_newer_one() {
    let (mut state, _) = three();
    assert_eq!((state.choices(), state.apply(1, voter_records(&[1], 0))), (0, Outcome::Done));
    assert_eq!(state.apply(1, voter_records(&[1], 0)), Outcome::Done, "asked again");
    assert_eq!(state.apply(1, voter_records(&[9], 1)), Outcome::Refused(Refusal::NoKeeper));
    assert_eq!((state.choices(), state.apply(1, voter_records(&[2, 3], 1))), (1, Outcome::Done));
    let chosen = state.clone();
    for late in [voter_records(&[1], 0), voter_records(&[1], 1), voter_records(&[1], 3), voter_records(&[2, 3], 0)] {
        assert_eq!(state.apply(1, late), Outcome::Refused(Refusal::Superseded));
        assert_eq!(state, chosen);
    }
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()));
    assert_eq!(state.apply(1, Command::SetVoters { hosts: None, after: 2 }), Outcome::Done);
    assert_eq!(state.chosen(), None);
}

/// The model of custody assumes this.
#[test]
fn takeover_opens_one_generation_with_new_session() {
    let (mut state, [a, b, c]) = three();
    let other = Command::Join { session: a, resource: label("other"), slots: 1 };
    state.apply(1, other);
    let new = SessionId::new(4);
    assert_eq!(state.apply(1, take_over(10, a)), Outcome::Opened { session: new });
    assert_eq!(resource(&state).generation(), 2);
    assert_eq!(resource(&state).asked().collect::<Vec<_>>(), [b, c, new]);
    assert!(state.is_over(a));
    assert_eq!(state.resources()[&label("other")].parties().len(), 0, "only named resources are taken over");
    assert_eq!(state.apply(1, take_over(10, a)), Outcome::Opened { session: new });
    assert_eq!(resource(&state).generation(), 2);
    // A session that reports nothing is removed.
    let coordinator = resource(&state).coordinator().unwrap();
    let close = Command::Close { session: coordinator, resource: label("r"), generation: 2, remaining: vec![b, c] };
    assert_eq!(state.apply(1, close), Outcome::Done);
    assert_eq!(resource(&state).parties().contains_key(&new), coordinator == new);
}

#[test]
fn takeover_of_an_ended_session_opens_generation() {
    let (mut state, [a, ..]) = three();
    state.apply(1, end(&[a]));
    assert_eq!(state.apply(1, take_over(10, a)), Outcome::Opened { session: SessionId::new(4) });
    assert_eq!(resource(&state).generation(), 3);
    assert!(resource(&state).asked().any(|asked| asked == SessionId::new(4)));
}

/// A process is killed after its session was opened and before it stored it.
#[test]
fn unstored_session_ends_with_the_one_it_replaced() {
    let (mut state, [a, b, c]) = three();
    let [unstored, next, last] = [4, 5, 6].map(SessionId::new);
    assert_eq!(state.apply(1, take_over(10, a)), Outcome::Opened { session: unstored });
    assert_eq!(state.apply(1, take_over(11, a)), Outcome::Opened { session: next });
    assert!(state.is_over(unstored), "no process has stored it");
    assert_eq!(resource(&state).asked().collect::<Vec<_>>(), [b, c, next]);
    assert_eq!(resource(&state).generation(), 3, "one generation per entry");
    // A process is killed after it has requested its next session.
    assert_eq!(state.apply(1, opening(1, (11, 1), Some(next))), Outcome::Opened { session: last });
    assert_eq!(state.apply(1, take_over(12, next)), Outcome::Opened { session: SessionId::new(7) });
    assert!(state.is_over(next) && state.is_over(last));
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state));
}

/// Two agents of one data directory may have used two sockets, hence two takeover files.
#[test]
fn session_of_another_file_is_not_replaced() {
    let (mut state, [a, ..]) = three();
    let other = SessionId::new(4);
    assert_eq!(state.apply(1, open(1, 10, None)), Outcome::Opened { session: other });
    state.apply(1, join(other));
    assert_eq!(state.apply(1, take_over(11, a)), Outcome::Opened { session: SessionId::new(5) });
    assert!(state.is_over(a) && !state.is_over(other), "its clients may hold slots");
}

#[test]
fn late_open_of_an_earlier_process_changes_nothing() {
    let (mut state, [a, ..]) = three();
    let [first, second] = [take_over(10, a), opening(1, (10, 1), Some(SessionId::new(4)))];
    let third = open(1, 11, Some(SessionId::new(5)));
    for (command, session) in [(&first, 4), (&second, 5), (&third, 6)] {
        assert_eq!(state.apply(1, command.clone()), Outcome::Opened { session: SessionId::new(session) });
        assert_eq!(state.apply(1, command.clone()), Outcome::Opened { session: SessionId::new(session) });
    }
    for ends in [false, true] {
        if ends {
            state.apply(1, end(&[SessionId::new(6)]));
        }
        let before = state.clone();
        for late in [&first, &second].into_iter().chain(ends.then_some(&third)) {
            assert_eq!(state.apply(1, late.clone()), Outcome::Refused(Refusal::OldProcess));
            assert_eq!(state, before);
        }
    }
    assert_eq!(state.apply(1, opening(1, (11, 1), None)), Outcome::Opened { session: SessionId::new(7) });
}

#[test]
fn version_increases_when_all_understand_the_next() {
    let (mut state, [a, b, c]) = three();
    let upgraded = |host, replaces| {
        let host = PeerId::new(host);
        Command::Open {
            host,
            nonce: 10,
            incarnation: Incarnation { process: 10, opening: 0 },
            ttl: ttl(),
            info: info(2, true),
            voter: None,
            replaces: Some(replaces),
            takes: Vec::new(),
        }
    };
    state.apply(1, upgraded(1, a));
    state.apply(1, upgraded(2, b));
    let raise = Command::Raise { version: 2 };
    assert_eq!(state.apply(1, raise.clone()), Outcome::Refused(Refusal::Version(1)));
    // Host 3 has neither vote nor session, so it is not waited for.
    state.apply(1, end(&[c]));
    assert_eq!(state.apply(1, Command::Raise { version: 3 }), Outcome::Refused(Refusal::Version(1)));
    assert_eq!(state.apply(1, raise), Outcome::Done);
    assert_eq!(state.apply(1, open(3, 11, None)), Outcome::Refused(Refusal::Version(2)));
    assert!(Refusal::Version(2).to_string().contains("version 2"));
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Err(Undecodable::Version(2)));
    assert_eq!(State::decode(&state.encode(), Versions { min: 1, max: 2 }), Ok(state));
}

/// A former voter that is removed too early can be missing when another voter restarts.
#[test]
fn change_of_voters_is_settled_by_a_later_entry() {
    let (mut state, _) = three();
    assert_eq!(state.unsettled(), None);
    let voters = |all: &[u64]| all.iter().copied().map(VoterId::new).collect();
    state.configure(Conf { voters: voters(&[2]), outgoing: voters(&[1, 2]), learners: voters(&[]) }, None);
    state.configure(Conf { voters: voters(&[2]), ..Conf::default() }, None);
    assert_eq!(state.unsettled(), Some(2));
    assert_eq!(state.apply(1, Command::Settle { change: 1 }), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(state.unsettled(), Some(2));
    assert_eq!(state.apply(1, Command::Settle { change: 2 }), Outcome::Done);
    assert_eq!(state.unsettled(), None);
}

#[test]
fn every_collection_is_bounded() {
    let (mut state, [a, ..]) = three();
    for fencing in 0..MOST_DETACHED as u64 {
        assert_eq!(state.apply(1, detach(a, N + fencing)), Outcome::Done);
    }
    assert_eq!(state.apply(1, detach(a, 2 * N - 1)), Outcome::Refused(Refusal::Full));
    let join = |name: usize| Command::Join { session: a, resource: label(&format!("n{name}")), slots: 1 };
    for name in state.resources().len()..MOST_RESOURCES {
        assert!(matches!(state.apply(1, join(name)), Outcome::Joined { .. }));
    }
    // Existing parties are not refused.
    assert_eq!(state.apply(1, join(0)), Outcome::Refused(Refusal::Full));
    assert!(matches!(state.apply(1, join(MOST_RESOURCES - 1)), Outcome::Joined { .. }));
    for host in 4..=MOST_MEMBERS as u64 {
        state.apply(1, open(host, 1, None));
    }
    assert_eq!(state.apply(1, open(1 << 40, 1, None)), Outcome::Refused(Refusal::Full));
}

#[test]
fn index_follows_from_state() {
    let mut state = State::found(ClusterId::new(1), PeerId::new(1), info(1, true));
    let opens = |host, nonce, keeps, replaces: Option<u64>| Command::Open {
        host: PeerId::new(host),
        nonce,
        incarnation: Incarnation { process: nonce, opening: 0 },
        ttl: ttl(),
        info: info(1, keeps),
        voter: None,
        replaces: replaces.map(SessionId::new),
        takes: Vec::new(),
    };
    for (command, sessions_of_two, keepers) in [
        (opens(1, 1, true, None), vec![], 1),
        (opens(2, 1, false, None), vec![2], 1),
        (opens(2, 2, false, None), vec![2, 3], 1),
        (opens(2, 2, false, None), vec![2, 3], 1),
        (join(SessionId::new(2)), vec![2, 3], 1),
        (end(&[SessionId::new(2)]), vec![3], 1),
        (opens(2, 3, true, Some(3)), vec![4], 2),
        (opens(3, 1, true, None), vec![4], 3),
        (end(&[SessionId::new(4), SessionId::new(5)]), vec![], 3),
        (opens(2, 4, false, None), vec![6], 2),
        (end(&[SessionId::new(6)]), vec![], 2),
    ] {
        state.apply(1, command.clone());
        let sessions: Vec<u64> = state.sessions_of(PeerId::new(2)).map(|(id, _)| id.get()).collect();
        assert_eq!((sessions, state.keepers()), (sessions_of_two, keepers), "after {command:?}");
        assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()), "after {command:?}");
    }
    assert!(!state.members().contains_key(&PeerId::new(2)), "it has no data directory, and its last session has ended");
}
