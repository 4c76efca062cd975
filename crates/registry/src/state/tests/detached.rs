use super::*;

/// Otherwise later numbers of the slot would be smaller.
#[test]
fn detach_of_a_future_generation_is_refused() {
    let (mut state, [a, ..]) = three();
    let next = (resource(&state).generation() + 1) * N;
    assert_eq!(state.apply(1, detach(a, next)), Outcome::Refused(Refusal::NoSuchGrant));
    assert_eq!(state.apply(1, detach(a, next - 1)), Outcome::Done);
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
        Command::Detach { session: a, resource: label("r"), slot: 0, fencing: N + 100, ttl, note, run: None }
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
    let parties = [b, c].map(|id| Session { peer: PeerId::new(id.get()), number: id.get() }).to_vec();
    assert_eq!((asked, detached), (parties, vec![Detached { slot: 0, fencing: N + 100 }]));
    let before = sent(&state);
    state.apply(1, drop_detached(b, N + 101));
    assert_eq!(pending_events(&state), [opened]);
    state.apply(1, Command::ExpireDetached { resource: label("r"), fencing: N + 100, renewals: 0 });
    assert_eq!(pending_events(&state), [opened, (coordinator, 2, Topic::Expired(N + 100))]);
    assert_eq!(sent(&state), before, "`Opened` has the same content");
    let (host, kind) = state.event(&label("r"), coordinator, 2, Topic::Expired(N + 100)).unwrap();
    let expired = EventKind::Expired(Detached { slot: 0, fencing: N + 100 });
    assert_eq!((host, kind), (state.sessions()[&coordinator].host, expired));
    assert_eq!(State::decode(&state.encode(), Versions::OURS), Ok(state.clone()), "all of it is encoded");
    state.apply(1, Command::Renumber { resource: label("r"), generation: 2 });
    let next = resource(&state).coordinator().unwrap();
    assert_eq!(pending_events(&state), [(next, 3, Topic::Opened)]);
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
