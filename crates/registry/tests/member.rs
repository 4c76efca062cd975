//! A single `Member`: when it starts and removes a voter, and which hosts it asks.

use peerlock_registry::disk::Write;
use peerlock_registry::wire::{self, Answer, Malformed, Question, RegistryMessage};
use peerlock_registry::{
    ClusterId, Command, Config, EventKind, Found, Identity, Info, Label, Look, Member, Missing, Outcome, Output, Page,
    Predecessor, Refusal, SessionId, Topic, Ttl, Versions, VoterId,
};
use peerlock_types::{Detached, PeerId, Rng, Span, Time};

const CLUSTER: ClusterId = ClusterId::new(3);
const ME: PeerId = PeerId::new(1);
const OTHER: PeerId = PeerId::new(2);

fn identity(keeps: bool) -> Identity {
    let name = Label::new("host").expect("a short name");
    Identity {
        process: 1,
        cluster: CLUSTER,
        host: ME,
        info: Info { name, addresses: Vec::new(), versions: Versions::OURS, keeps },
        ttl: Ttl::from_millis(15_000).expect("15 seconds"),
        predecessor: None,
    }
}

fn delivery(member: &mut Member, registry_message: &RegistryMessage) -> Vec<Output> {
    say(OTHER, member, registry_message)
}

fn say(from: PeerId, member: &mut Member, registry_message: &RegistryMessage) -> Vec<Output> {
    member.on_bytes(from, &wire::encode(registry_message, 1, CLUSTER), Time::ZERO).expect("a valid message");
    member.take_outputs()
}

fn questions(outputs: &[Output]) -> Vec<(PeerId, u64, Question)> {
    let read = |output: &Output| match output {
        Output::Send(to, bytes) => match wire::decode(bytes, Versions::OURS, CLUSTER) {
            Ok((RegistryMessage::Ask { number, question }, _)) => Some((*to, number, question)),
            _ => None,
        },
        _ => None,
    };
    outputs.iter().filter_map(read).collect()
}

fn opened(session: SessionId, keeps: bool) -> Member {
    renewing(session, keeps).0
}

fn valid(session: SessionId) -> Member {
    let (mut member, number) = renewing(session, true);
    let answer = Answer::Yes { session, renewal: 1, voters: vec![OTHER] };
    delivery(&mut member, &RegistryMessage::Answer { number, answer });
    member
}

fn renewing(session: SessionId, keeps: bool) -> (Member, u64) {
    let mut member = Member::new(identity(keeps), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let asked = questions(&member.take_outputs());
    let [(OTHER, number, Question::Do(Command::Open { .. }))] = asked[..] else { panic!("{asked:?}") };
    let answer = Answer::Done { outcome: Outcome::Opened { session }, index: 1 };
    let next = questions(&delivery(&mut member, &RegistryMessage::Answer { number, answer }));
    let [(OTHER, number, Question::Renew { renewal: 1, .. })] = next[..] else { panic!("{next:?}") };
    (member, number)
}

#[test]
fn voter_starts_once_and_in_the_named_session() {
    let (mine, others) = (SessionId::new(3), SessionId::new(2));
    let enlist = |voter, session| RegistryMessage::Enlist { voter: VoterId::new(voter), session, alone: false };
    let mut member = valid(mine);
    assert_eq!(delivery(&mut member, &enlist(5, others)), []);
    assert!(member.registry().is_none());
    let started = delivery(&mut member, &enlist(5, mine));
    assert!(matches!(started[..], [Output::Write { number: 1, write: Write::Replace(_) }]), "{started:?}");
    assert_eq!(delivery(&mut member, &enlist(6, mine)), [], "it is a voter already");
    assert_eq!(delivery(&mut member, &RegistryMessage::Retired { voter: VoterId::new(4) }), [], "another voter");
    let removed = delivery(&mut member, &RegistryMessage::Retired { voter: VoterId::new(5) });
    assert_eq!(removed, [Output::Write { number: 2, write: Write::Remove }]);
    assert_eq!(delivery(&mut member, &enlist(5, mine)), [], "a late copy");
    let again = delivery(&mut member, &enlist(6, mine));
    assert!(matches!(again[..], [Output::Write { number: 3, write: Write::Replace(_) }]), "{again:?}");
}

/// Otherwise any member could have the cluster's files removed.
#[test]
fn enlist_from_an_arbitrary_host_is_ignored() {
    let (session, unauthenticated) = (SessionId::new(3), PeerId::new(7));
    let enlist = |voter, alone| RegistryMessage::Enlist { voter: VoterId::new(voter), session, alone };
    let retired = RegistryMessage::Retired { voter: VoterId::new(5) };
    let mut member = valid(session);
    let number = member.look(Look::Cluster, Time::ZERO);
    let answer = Answer::Elsewhere { leader: None, voters: vec![unauthenticated] };
    say(unauthenticated, &mut member, &RegistryMessage::Answer { number, answer });
    member.take_outputs();
    assert_eq!(say(unauthenticated, &mut member, &enlist(5, false)), []);
    assert!(member.registry().is_none());
    delivery(&mut member, &enlist(5, false));
    assert_eq!(say(unauthenticated, &mut member, &retired), []);
    assert_eq!(say(unauthenticated, &mut member, &enlist(6, true)), []);
    assert_eq!(member.registry().map(|registry| registry.voter()), Some(VoterId::new(5)));
}

#[test]
fn voter_with_a_leader_is_not_removed() {
    let (mut member, _) = founder();
    let voter = member.registry().unwrap().voter();
    let session = member.client().session().unwrap();
    let enlist = RegistryMessage::Enlist { voter: VoterId::new(voter.get() + 1), session, alone: true };
    for registry_message in [RegistryMessage::Retired { voter }, enlist] {
        assert_eq!(say(ME, &mut member, &registry_message), [], "{registry_message:?}");
    }
    assert_eq!(member.registry().map(|registry| registry.voter()), Some(voter));
}

#[test]
fn founder_has_its_session_after_the_first_round() {
    let (_, answered) = founder();
    assert!(matches!(answered[..], [Output::Answered(_, Outcome::Refused(Refusal::NoResource))]), "{answered:?}");
}

fn founder() -> (Member, Vec<Output>) {
    let mut member = Member::found(identity(true), Config::default(), Rng::new(1), Time::ZERO);
    let resource = Label::new("r").expect("a short name");
    member.ask(Command::Resize { resource, slots: 2, generation: 1 }, Time::ZERO);
    member.wake(Time::ZERO);
    let mut answered = Vec::new();
    for tick in 0..2 {
        let now = Time::ZERO + Config::default().tick * tick;
        member.wake(now);
        loop {
            let outputs = member.take_outputs();
            if outputs.is_empty() {
                break;
            }
            for output in outputs {
                match output {
                    Output::Write { number, .. } => member.on_written(number, now),
                    output => answered.push(output),
                }
            }
        }
        assert_eq!(member.client().stands(now).is_some(), tick == 1, "tick {tick}");
    }
    (member, answered)
}

#[test]
fn member_without_data_directory_ignores_enlist() {
    let mut member = opened(SessionId::new(3), false);
    let enlist = RegistryMessage::Enlist { voter: VoterId::new(5), session: SessionId::new(3), alone: false };
    assert_eq!(delivery(&mut member, &enlist), []);
}

#[test]
fn question_is_retransmitted_until_answered() {
    let mut member = opened(SessionId::new(3), true);
    let resource = Label::new("r").unwrap();
    let number = member.ask(Command::Resize { resource, slots: 2, generation: 1 }, Time::ZERO);
    assert_eq!(questions(&member.take_outputs()).len(), 1);
    member.wake(Time::ZERO + Span::from_millis(299));
    assert!(questions(&member.take_outputs()).iter().all(|(_, asked, _)| *asked != number));
    member.wake(Time::ZERO + Span::from_millis(300));
    assert!(questions(&member.take_outputs()).iter().any(|(_, asked, _)| *asked == number));
    let answer = Answer::Done { outcome: Outcome::Refused(Refusal::NoResource), index: 1 };
    let received = delivery(&mut member, &RegistryMessage::Answer { number, answer: answer.clone() });
    assert!(received.contains(&Output::Answered(number, Outcome::Refused(Refusal::NoResource))), "{received:?}");
    assert!(
        !delivery(&mut member, &RegistryMessage::Answer { number, answer })
            .iter()
            .any(|it| matches!(it, Output::Answered(..)))
    );
}

#[test]
fn answer_after_a_retry_opens_the_session() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let first = questions(&member.take_outputs());
    member.wake(Time::ZERO + Span::from_secs(1));
    assert_eq!(questions(&member.take_outputs()), first);
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    delivery(&mut member, &RegistryMessage::Answer { number: first[0].1, answer });
    assert_eq!(member.client().session(), Some(SessionId::new(8)));
}

#[test]
fn answer_to_an_earlier_process_is_ignored() {
    let mut before = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    before.wake(Time::ZERO);
    let (_, number, _) = questions(&before.take_outputs()).remove(0);
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(2), Time::ZERO);
    member.wake(Time::ZERO);
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    delivery(&mut member, &RegistryMessage::Answer { number, answer });
    assert_eq!(member.client().session(), None);
}

#[test]
fn only_the_first_session_takes_over() {
    let (before, name) = (SessionId::new(3), Label::new("r").expect("a short name"));
    let predecessor = Some(Predecessor { session: before, names: vec![name.clone()] });
    let identity = Identity { predecessor, ..identity(true) };
    let mut member = Member::new(identity, Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let asked = questions(&member.take_outputs());
    let [(_, number, Question::Do(Command::Open { replaces, takes, .. }))] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((*replaces, &takes[..]), (Some(before), &[name][..]));
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    let next = questions(&delivery(&mut member, &RegistryMessage::Answer { number: *number, answer }));
    let [(_, number, Question::Renew { renewal: 1, .. })] = next[..] else { panic!("{next:?}") };
    let yes = Answer::Yes { session: SessionId::new(8), renewal: 1, voters: vec![OTHER] };
    delivery(&mut member, &RegistryMessage::Answer { number, answer: yes });
    member.wake(Time::ZERO + Span::from_secs(16));
    let asked = questions(&member.take_outputs());
    let opens = asked.iter().find_map(|(_, _, question)| match question {
        Question::Do(Command::Open { replaces, takes, .. }) => Some((*replaces, takes.len())),
        _ => None,
    });
    assert!(matches!(opens, Some((replaces, 0)) if replaces != Some(before)), "{asked:?}");
}

#[test]
fn redirected_question_is_sent_at_once_but_once() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let (_, number, _) = questions(&member.take_outputs()).remove(0);
    let leader = PeerId::new(9);
    let elsewhere = Answer::Elsewhere { leader: Some(leader), voters: vec![leader, OTHER] };
    let registry_message = RegistryMessage::Answer { number, answer: elsewhere };
    let asked = questions(&delivery(&mut member, &registry_message));
    assert!(matches!(asked[..], [(to, ..)] if to == leader), "{asked:?}");
    assert_eq!(questions(&delivery(&mut member, &registry_message)), [], "a second redirection waits");
}

/// The leader may have died before it named the other voters.
#[test]
fn unanswered_question_is_sent_to_contacts() {
    let mut member = opened(SessionId::new(3), true);
    let third = PeerId::new(7);
    member.meet(third, Time::ZERO);
    member.meet(ME, Time::ZERO);
    assert_eq!(questions(&member.take_outputs()), [], "a session has a leader to ask");
    let mut asked = Vec::new();
    for tenths in 1..50 {
        member.wake(Time::ZERO + Span::from_millis(100 * tenths));
        asked.extend(questions(&member.take_outputs()).into_iter().map(|(to, ..)| to));
    }
    assert!(asked.contains(&third) && !asked.contains(&ME), "{asked:?}");
}

#[test]
fn refused_process_reports_why() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let (_, number, _) = questions(&member.take_outputs()).remove(0);
    let answer = Answer::Done { outcome: Outcome::Refused(Refusal::Version(2)), index: 1 };
    let received = delivery(&mut member, &RegistryMessage::Answer { number, answer });
    assert!(received.contains(&Output::Refused(Refusal::Version(2))), "{received:?}");
    let other = wire::encode(&RegistryMessage::Retired { voter: VoterId::new(1) }, 1, ClusterId::new(1 << 60));
    let refused = member.on_bytes(OTHER, &other, Time::ZERO);
    assert_eq!(refused, Err(Malformed::Cluster { theirs: ClusterId::new(1 << 60), ours: CLUSTER }));
    assert_eq!(member.unexpected(), 0, "a message of another cluster is not malformed");
}

/// The end of that session opens another generation.
#[test]
fn event_without_valid_session_is_dropped() {
    let (mut member, number) = renewing(SessionId::new(3), true);
    let resource = Label::new("r").unwrap();
    let sent = |session, kind| RegistryMessage::Event {
        resource: resource.clone(),
        session: SessionId::new(session),
        generation: 7,
        kind,
    };
    let expired = EventKind::Expired(Detached { slot: 0, fencing: 9 });
    for session in [2, 3] {
        assert_eq!(delivery(&mut member, &sent(session, EventKind::Evicted)), []);
        assert_eq!(delivery(&mut member, &sent(session, expired.clone())), []);
    }
    let answer = Answer::Yes { session: SessionId::new(3), renewal: 1, voters: vec![OTHER] };
    delivery(&mut member, &RegistryMessage::Answer { number, answer });
    assert_eq!(delivery(&mut member, &sent(2, EventKind::Evicted)), []);
    let opened = EventKind::Opened { slots: 1, asked: Vec::new(), detached: Vec::new() };
    let output = |kind| Output::Event { resource: resource.clone(), session: SessionId::new(3), generation: 7, kind };
    assert_eq!(delivery(&mut member, &sent(3, opened.clone())), [output(opened)], "answered by `Close`");
    let received = delivery(&mut member, &sent(3, EventKind::Evicted));
    let [Output::Send(OTHER, bytes), last] = &received[..] else { panic!("{received:?}") };
    assert_eq!(*last, output(EventKind::Evicted));
    let (session, topic) = (SessionId::new(3), Topic::Evicted);
    let registry_message = RegistryMessage::EventAck { resource: resource.clone(), session, generation: 7, topic };
    assert_eq!(wire::decode(bytes, Versions::OURS, CLUSTER), Ok((registry_message, 1)));
}

/// A removed learner sends nothing, so it never receives `Retired`.
#[test]
fn enlist_alone_removes_the_former_voter() {
    let session = SessionId::new(3);
    let mut member = valid(session);
    let enlist = |voter, alone| RegistryMessage::Enlist { voter: VoterId::new(voter), session, alone };
    delivery(&mut member, &enlist(5, true));
    assert_eq!(delivery(&mut member, &enlist(6, false)), [], "voter 5 may be one as well");
    assert_eq!(delivery(&mut member, &enlist(4, true)), [], "a late copy");
    let outputs = delivery(&mut member, &enlist(6, true));
    assert!(
        matches!(
            outputs[..],
            [Output::Write { write: Write::Remove, .. }, Output::Write { write: Write::Replace(_), .. }]
        ),
        "{outputs:?}"
    );
    assert_eq!(member.registry().map(|registry| registry.voter()), Some(VoterId::new(6)));
}

#[test]
fn missing_names_silent_voters() {
    let third = PeerId::new(3);
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER, third], Rng::new(1), Time::ZERO);
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    member.wake(at(100));
    let number = questions(&member.take_outputs())[0].1;
    assert_eq!(member.missing(at(1099)), None, "the question is recent");
    let silent = vec![(OTHER, None), (third, None)];
    assert_eq!(member.missing(at(1100)), Some(Missing { since: at(100), silent, received: Vec::new() }));
    let answer = Answer::Elsewhere { leader: None, voters: vec![OTHER, third] };
    let registry_message = RegistryMessage::Answer { number, answer };
    member.on_bytes(OTHER, &wire::encode(&registry_message, 1, CLUSTER), at(1200)).expect("a valid message");
    let missing = Missing { since: at(100), silent: vec![(third, None)], received: vec![OTHER] };
    assert_eq!(member.missing(at(1300)), Some(missing));
    let registry_message = RegistryMessage::Answer { number, answer: Answer::Over { session: SessionId::new(1) } };
    member.on_bytes(third, &wire::encode(&registry_message, 1, CLUSTER), at(1400)).expect("a valid message");
    assert_eq!(member.missing(at(1400)), None);
}

#[test]
fn stopped_member_ends_its_session_and_opens_no_other() {
    let mut member = opened(SessionId::new(3), true);
    member.stop(Time::ZERO);
    let asked = questions(&member.take_outputs());
    let [(_, number, Question::Do(Command::Leave { .. }))] = asked[..] else { panic!("{asked:?}") };
    assert!(!member.has_stopped());
    member.wake(Time::ZERO + Span::from_secs(1));
    let again = questions(&member.take_outputs());
    assert!(again.iter().all(|(_, same, _)| *same == number), "{again:?}");
    let outcome = Outcome::Ended { sessions: vec![SessionId::new(3)] };
    assert_eq!(
        questions(&delivery(
            &mut member,
            &RegistryMessage::Answer { number, answer: Answer::Done { outcome, index: 2 } }
        )),
        []
    );
    assert!(member.has_stopped());
    assert_eq!(member.next(), Time::END);
}

#[test]
fn query_names_the_last_known_entry() {
    let mut member = opened(SessionId::new(3), true);
    let number = member.look(Look::Cluster, Time::ZERO);
    let asked = questions(&member.take_outputs());
    assert!(matches!(asked[..], [(_, _, Question::Look { look: Look::Cluster, since: 1 })]), "{asked:?}");
    let page = Found::Resources(Page { index: 1, resources: Vec::new(), more: false });
    let found = delivery(&mut member, &RegistryMessage::Answer { number, answer: Answer::Found(page.clone()) });
    assert!(found.contains(&Output::Found(number, page)), "{found:?}");
}

/// The recovered cluster sends it nothing else.
#[test]
fn message_of_the_old_cluster_is_answered_with_the_new_id() {
    let mut identity = identity(true);
    identity.cluster = CLUSTER.recovered(7);
    let mut member = Member::new(identity, Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    let registry_message =
        RegistryMessage::Ask { number: 1, question: Question::Look { look: Look::Cluster, since: 0 } };
    assert!(member.on_bytes(OTHER, &wire::encode(&registry_message, 1, CLUSTER), Time::ZERO).is_err());
    let outputs = member.take_outputs();
    let [Output::Send(OTHER, bytes)] = &outputs[..] else { panic!("{outputs:?}") };
    let theirs = CLUSTER.recovered(7);
    assert_eq!(wire::decode(bytes, Versions::OURS, CLUSTER), Err(Malformed::Recovered { theirs, ours: CLUSTER }));
}
