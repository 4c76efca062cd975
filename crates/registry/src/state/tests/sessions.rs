use super::*;

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
