use super::*;

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
