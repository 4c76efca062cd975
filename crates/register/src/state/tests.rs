use super::*;

fn label(text: &str) -> Label {
    Label::new(text).unwrap()
}

fn ttl() -> Ttl {
    Ttl::from_millis(15_000).unwrap()
}

fn info(max: u16, keeps: bool) -> Info {
    Info { name: label("host"), addresses: Vec::new(), versions: Versions { min: 1, max }, keeps }
}

fn open(host: u64, nonce: u64, replaces: Option<SessionId>) -> Command {
    let host = PeerId::new(host);
    Command::Open { host, nonce, ttl: ttl(), info: info(1, true), voter: None, replaces }
}

fn join(session: SessionId) -> Command {
    Command::Join { session, resource: label("r"), slots: 2 }
}

fn end(sessions: &[SessionId]) -> Command {
    Command::End { sessions: sessions.to_vec(), term: 1 }
}

fn detach(session: SessionId, fencing: u64) -> Command {
    Command::Detach { session, resource: label("r"), slot: 0, fencing, ttl: ttl() }
}

/// Hosts 1 to 3 with sessions 1 to 3, which take part in `r`.
fn three() -> (State, [SessionId; 3]) {
    let mut state = State::found(ClusterId::new(1), PeerId::new(1), info(1, true));
    let sessions = [1, 2, 3].map(SessionId::new);
    for (host, session) in (1..).zip(sessions) {
        assert_eq!(state.apply(1, open(host, host, None)), Outcome::Opened { session, openings: Vec::new() });
        state.apply(1, join(session));
    }
    (state, sessions)
}

fn resource(state: &State) -> &Resource {
    &state.resources()[&label("r")]
}

#[test]
fn the_first_to_join_founds_and_the_answer_says_everything_that_a_joiner_must_know() {
    let (mut state, [first, ..]) = three();
    assert_eq!(resource(&state).parties().len(), 3);
    // Whoever joins again, or wanted another number of slots, hears the same.
    for slots in [2, 5] {
        let again = Command::Join { session: first, resource: label("r"), slots };
        assert_eq!(state.apply(1, again), Outcome::Joined { generation: 1, coordinator: first, slots: 2 });
    }
    assert_eq!(state.apply(1, join(SessionId::new(9))), Outcome::Refused(Refusal::NoSession));
}

#[test]
fn several_ends_in_one_entry_open_one_generation() {
    let (mut state, [a, b, c]) = three();
    let Outcome::Ended { sessions, openings } = state.apply(1, end(&[a, b])) else { panic!("{state:?}") };
    assert_eq!(sessions, [a, b]);
    assert_eq!(openings, [Opening { resource: label("r"), generation: 2, coordinator: Some(c) }]);
    // Who has ended is over for good, and ending it again changes nothing.
    assert!(state.is_over(a) && !state.is_over(c) && !state.is_over(SessionId::new(4)));
    assert_eq!(state.apply(1, end(&[a])), Outcome::Ended { sessions: Vec::new(), openings: Vec::new() });
}

#[test]
fn an_end_concerns_the_resources_of_its_parties_only() {
    let (mut state, [a, _, c]) = three();
    state.apply(1, Command::Join { session: c, resource: label("other"), slots: 1 });
    state.apply(1, Command::Leave { session: a });
    assert_eq!((resource(&state).generation(), state.resources()[&label("other")].generation()), (2, 1));
}

#[test]
fn when_everybody_is_gone_the_next_one_counts_in_a_new_generation() {
    let (mut state, sessions) = three();
    state.apply(1, end(&sessions));
    assert_eq!((resource(&state).generation(), resource(&state).coordinator()), (2, None));
    state.apply(1, open(1, 9, None));
    let session = SessionId::new(4);
    assert_eq!(state.apply(1, join(session)), Outcome::Joined { generation: 3, coordinator: session, slots: 2 });
}

#[test]
fn slots_and_numbers_open_generations_once() {
    let (mut state, _) = three();
    let resize = Command::Resize { resource: label("r"), slots: 3 };
    assert!(matches!(state.apply(1, resize.clone()), Outcome::Advanced(Opening { generation: 2, .. })));
    assert_eq!(state.apply(1, resize), Outcome::Done);
    let renumber = Command::Renumber { resource: label("r"), generation: 2 };
    assert!(matches!(state.apply(1, renumber.clone()), Outcome::Advanced(Opening { generation: 3, .. })));
    assert_eq!(state.apply(1, renumber), Outcome::Refused(Refusal::OldGeneration));
    let unknown = Command::Resize { resource: label("x"), slots: 1 };
    assert_eq!(state.apply(1, unknown), Outcome::Refused(Refusal::NoResource));
}

/// The entry's own term decides, which is the same at all voters.
#[test]
fn an_end_that_was_decided_in_another_term_has_no_effect() {
    let (mut state, [a, ..]) = three();
    let before = state.clone();
    for entry in [2, 7] {
        assert_eq!(state.apply(entry, end(&[a])), Outcome::Refused(Refusal::OldTerm));
    }
    assert_eq!(state, before);
    // What a process asks itself was decided by nobody else.
    assert!(matches!(state.apply(7, Command::Leave { session: a }), Outcome::Ended { .. }));
}

#[test]
fn the_same_nonce_is_the_same_session_and_a_new_process_takes_over_in_one_entry() {
    let (mut state, [a, b, _]) = three();
    assert_eq!(state.apply(1, open(1, 1, None)), Outcome::Opened { session: a, openings: Vec::new() });
    let Outcome::Opened { session, openings } = state.apply(1, open(1, 2, Some(a))) else { panic!("{state:?}") };
    assert_eq!((session, openings.len()), (SessionId::new(4), 1));
    assert!(state.is_over(a));
    // Nobody ends another host's session that way.
    state.apply(1, open(1, 3, Some(b)));
    assert!(!state.is_over(b));
}

#[test]
fn members_with_a_data_folder_are_never_forgotten_and_others_with_their_last_session() {
    let (mut state, sessions) = three();
    let host = PeerId::new(7);
    let passing = Command::Open { host, nonce: 1, ttl: ttl(), info: info(1, false), voter: None, replaces: None };
    state.apply(1, passing);
    assert!(state.members().contains_key(&host));
    state.apply(1, end(&[SessionId::new(4)]));
    state.apply(1, end(&sessions));
    assert_eq!(state.members().keys().map(|host| host.get()).collect::<Vec<_>>(), [1, 2, 3]);
}

/// Else a grant could be registered after its slot was made anew, or a late word take away the next one's.
#[test]
fn a_detached_grant_is_named_by_its_number_and_given_by_a_session_that_stands() {
    let (mut state, [a, b, _]) = three();
    assert_eq!(state.apply(1, detach(a, 100)), Outcome::Done);
    assert_eq!(state.apply(1, detach(b, 100)), Outcome::Refused(Refusal::NotYours));
    assert_eq!(state.apply(1, detach(b, 101)), Outcome::Done);
    let attach = |session, fencing| Command::Attach { session, resource: label("r"), fencing };
    assert_eq!(state.apply(1, attach(a, 101)), Outcome::Refused(Refusal::NotYours));
    assert_eq!(state.apply(1, attach(b, 101)), Outcome::Done);
    assert_eq!(state.apply(1, attach(b, 101)), Outcome::Done, "it is not there, as was asked");
    state.apply(1, end(&[a, b]));
    for late in [detach(b, 102), attach(a, 100)] {
        assert_eq!(state.apply(1, late), Outcome::Refused(Refusal::NoSession));
    }
    assert_eq!(resource(&state).detached().keys().copied().collect::<Vec<_>>(), [100], "it outlives its session");
    assert_eq!(state.apply(1, open(9, 9, None)), Outcome::Opened { session: SessionId::new(4), openings: Vec::new() });
    assert_eq!(state.apply(1, detach(SessionId::new(4), 103)), Outcome::Refused(Refusal::NoParty));
}

#[test]
fn a_grant_lapses_in_its_last_stretch_only_and_makes_a_generation_if_nobody_has_its_token() {
    let (mut state, [a, ..]) = three();
    state.apply(1, detach(a, 100));
    state.apply(1, detach(a, 100));
    let lapse = |stretch| Command::Lapse { resource: label("r"), fencing: 100, stretch };
    assert_eq!(state.apply(1, lapse(0)), Outcome::Refused(Refusal::NoSuchGrant), "it was renewed");
    let mut orphaned = state.clone();
    assert_eq!(state.apply(1, lapse(1)), Outcome::Done);
    orphaned.apply(1, end(&[a]));
    assert!(matches!(orphaned.apply(1, lapse(1)), Outcome::Advanced(Opening { generation: 3, .. })));
}

/// Who joined in this generation was not asked in it.
#[test]
fn a_count_removes_those_only_that_were_asked_and_have_nothing() {
    let (mut state, [a, b, c]) = three();
    state.apply(1, Command::Resize { resource: label("r"), slots: 1 });
    state.apply(1, open(4, 4, None));
    let late = SessionId::new(4);
    state.apply(1, join(late));
    state.apply(1, detach(b, 7));
    let coordinator = resource(&state).coordinator().unwrap();
    let close =
        |session, generation| Command::Close { session, resource: label("r"), generation, idle: vec![a, b, c, late] };
    assert_eq!(state.apply(1, close(late, 2)), Outcome::Refused(Refusal::NotYours));
    assert_eq!(state.apply(1, close(coordinator, 1)), Outcome::Refused(Refusal::OldGeneration));
    assert_eq!(state.apply(1, close(coordinator, 2)), Outcome::Done);
    let left: BTreeSet<SessionId> = resource(&state).parties().keys().copied().collect();
    assert_eq!(left, BTreeSet::from([coordinator, b, late]));
}

#[test]
fn the_version_goes_up_when_everybody_who_is_there_understands_the_next_one() {
    let (mut state, [a, b, c]) = three();
    let upgraded = |host, replaces| {
        let host = PeerId::new(host);
        Command::Open { host, nonce: 10, ttl: ttl(), info: info(2, true), voter: None, replaces: Some(replaces) }
    };
    state.apply(1, upgraded(1, a));
    state.apply(1, upgraded(2, b));
    let raise = Command::Raise { version: 2 };
    assert_eq!(state.apply(1, raise.clone()), Outcome::Refused(Refusal::Version(1)));
    // Host 3 does not vote: it need not be waited for once it is gone, and has to be upgraded before it comes back.
    state.apply(1, end(&[c]));
    assert_eq!(state.apply(1, Command::Raise { version: 3 }), Outcome::Refused(Refusal::Version(1)));
    assert_eq!(state.apply(1, raise), Outcome::Done);
    assert_eq!(state.apply(1, open(3, 11, None)), Outcome::Refused(Refusal::Version(2)));
    assert!(Refusal::Version(2).to_string().contains("version 2"));
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Err(Undecodable::Version(2)));
    assert_eq!(State::decode(&state.encode(), Versions { min: 1, max: 2 }), Ok(state));
}

#[test]
fn nothing_grows_without_a_bound() {
    let (mut state, [a, ..]) = three();
    for fencing in 0..MOST_DETACHED as u64 {
        assert_eq!(state.apply(1, detach(a, fencing)), Outcome::Done);
    }
    assert_eq!(state.apply(1, detach(a, 1 << 40)), Outcome::Refused(Refusal::Full));
    for host in 4..=MOST_MEMBERS as u64 {
        state.apply(1, open(host, 1, None));
    }
    assert_eq!(state.apply(1, open(1 << 40, 1, None)), Outcome::Refused(Refusal::Full));
}
