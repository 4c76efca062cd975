//! One process, told what it might be told: whose voter it becomes, and whom it asks.

use peerlock_base::{PeerId, Rng, Span, Time};
use peerlock_register::disk::Write;
use peerlock_register::wire::{self, Answer, Letter, Malformed, Question};
use peerlock_register::{
    ClusterId, Command, Config, Doing, Estate, Fact, Identity, Info, Label, Look, Member, Missing, Outcome, Page,
    Refusal, Seen, SessionId, Topic, Ttl, Versions, VoterId,
};

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
        estate: None,
    }
}

fn tell(member: &mut Member, letter: &Letter) -> Vec<Doing> {
    say(OTHER, member, letter)
}

fn say(from: PeerId, member: &mut Member, letter: &Letter) -> Vec<Doing> {
    member.on_bytes(from, &wire::encode(letter, 1, CLUSTER), Time::ZERO).expect("a letter of ours");
    member.doings()
}

/// The questions among what is to be done.
fn questions(doings: &[Doing]) -> Vec<(PeerId, u64, Question)> {
    let read = |doing: &Doing| match doing {
        Doing::Send(to, bytes) => match wire::decode(bytes, Versions::OURS, CLUSTER) {
            Ok((Letter::Ask { number, question }, _)) => Some((*to, number, question)),
            _ => None,
        },
        _ => None,
    };
    doings.iter().filter_map(read).collect()
}

/// A process whose session is this.
fn opened(session: SessionId, keeps: bool) -> Member {
    renewing(session, keeps).0
}

/// One whose session stands.
fn standing(session: SessionId) -> Member {
    let (mut member, number) = renewing(session, true);
    let answer = Answer::Yes { session, renewal: 1, voters: vec![OTHER] };
    tell(&mut member, &Letter::Answer { number, answer });
    member
}

/// One that has its session, and the number of the question by which it renews it for the first time.
fn renewing(session: SessionId, keeps: bool) -> (Member, u64) {
    let mut member = Member::new(identity(keeps), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let asked = questions(&member.doings());
    let [(OTHER, number, Question::Do(Command::Open { .. }))] = asked[..] else { panic!("{asked:?}") };
    let answer = Answer::Done { outcome: Outcome::Opened { session }, index: 1 };
    let next = questions(&tell(&mut member, &Letter::Answer { number, answer }));
    let [(OTHER, number, Question::Renew { renewal: 1, .. })] = next[..] else { panic!("{next:?}") };
    (member, number)
}

#[test]
fn a_voters_file_is_begun_once_and_by_the_process_for_which_it_was_given_out() {
    let (mine, others) = (SessionId::new(3), SessionId::new(2));
    let enlist = |voter, session| Letter::Enlist { voter: VoterId::new(voter), session, alone: false };
    let mut member = standing(mine);
    // A letter for the process before this one, whose file is gone.
    assert_eq!(tell(&mut member, &enlist(5, others)), []);
    assert!(member.register().is_none());
    let begun = tell(&mut member, &enlist(5, mine));
    assert!(matches!(begun[..], [Doing::Write { number: 1, write: Write::Replace(_) }]), "{begun:?}");
    assert_eq!(tell(&mut member, &enlist(6, mine)), [], "it is one already");
    assert_eq!(tell(&mut member, &Letter::Retired { voter: VoterId::new(4) }), [], "that is another");
    let removed = tell(&mut member, &Letter::Retired { voter: VoterId::new(5) });
    assert_eq!(removed, [Doing::Write { number: 2, write: Write::Remove }]);
    assert_eq!(tell(&mut member, &enlist(5, mine)), [], "a late letter of the first time");
    let again = tell(&mut member, &enlist(6, mine));
    assert!(matches!(again[..], [Doing::Write { number: 3, write: Write::Replace(_) }]), "{again:?}");
}

/// Only who leads or votes has anything to say of it: any other member could have a cluster's files removed.
#[test]
fn no_voter_begins_or_ends_because_just_anybody_says_so() {
    let (session, stranger) = (SessionId::new(3), PeerId::new(7));
    let enlist = |voter, alone| Letter::Enlist { voter: VoterId::new(voter), session, alone };
    let retired = Letter::Retired { voter: VoterId::new(5) };
    let mut member = standing(session);
    // What anybody says of who votes is no proof of it.
    let number = member.look(Look::Cluster, Time::ZERO);
    let answer = Answer::Elsewhere { leader: None, voters: vec![stranger] };
    say(stranger, &mut member, &Letter::Answer { number, answer });
    member.doings();
    assert_eq!(say(stranger, &mut member, &enlist(5, false)), []);
    assert!(member.register().is_none());
    tell(&mut member, &enlist(5, false));
    assert_eq!(say(stranger, &mut member, &retired), []);
    assert_eq!(say(stranger, &mut member, &enlist(6, true)), []);
    assert_eq!(member.register().map(|register| register.voter()), Some(VoterId::new(5)));
}

/// Whoever has lost its seat hears of no leader any more.
#[test]
fn no_voter_ends_while_it_is_led() {
    let (mut member, _) = founder();
    let voter = member.register().unwrap().voter();
    let session = member.client().session().unwrap();
    let enlist = Letter::Enlist { voter: VoterId::new(voter.get() + 1), session, alone: true };
    for letter in [Letter::Retired { voter }, enlist] {
        assert_eq!(say(ME, &mut member, &letter), [], "{letter:?}");
    }
    assert_eq!(member.register().map(|register| register.voter()), Some(voter));
}

/// It asked before there was anybody to ask, and does not wait for its next turn when its own voter is elected.
#[test]
fn who_founds_a_cluster_has_its_session_with_the_first_round() {
    let (_, answered) = founder();
    assert!(matches!(answered[..], [Doing::Answered(_, Outcome::Refused(Refusal::NoResource))]), "{answered:?}");
}

/// Who has founded a cluster and has its session, and what it heard of a first question.
fn founder() -> (Member, Vec<Doing>) {
    let mut member = Member::found(identity(true), Config::default(), Rng::new(1), Time::ZERO);
    let resource = Label::new("r").expect("a short name");
    member.ask(Command::Resize { resource, slots: 2, generation: 1 }, Time::ZERO);
    member.wake(Time::ZERO);
    let mut answered = Vec::new();
    for tick in 0..2 {
        let now = Time::ZERO + Config::default().tick * tick;
        member.wake(now);
        loop {
            let doings = member.doings();
            if doings.is_empty() {
                break;
            }
            for doing in doings {
                match doing {
                    Doing::Write { number, .. } => member.on_written(number, now),
                    doing => answered.push(doing),
                }
            }
        }
        assert_eq!(member.client().stands(now).is_some(), tick == 1, "tick {tick}");
    }
    (member, answered)
}

#[test]
fn who_has_no_data_folder_never_becomes_a_voter() {
    let mut member = opened(SessionId::new(3), false);
    let enlist = Letter::Enlist { voter: VoterId::new(5), session: SessionId::new(3), alone: false };
    assert_eq!(tell(&mut member, &enlist), []);
}

#[test]
fn a_question_is_put_again_until_it_is_answered_and_then_no_more() {
    let mut member = opened(SessionId::new(3), true);
    let resource = Label::new("r").unwrap();
    let number = member.ask(Command::Resize { resource, slots: 2, generation: 1 }, Time::ZERO);
    assert_eq!(questions(&member.doings()).len(), 1);
    member.wake(Time::ZERO + Span::from_millis(299));
    assert!(questions(&member.doings()).iter().all(|(_, asked, _)| *asked != number));
    member.wake(Time::ZERO + Span::from_millis(300));
    assert!(questions(&member.doings()).iter().any(|(_, asked, _)| *asked == number));
    let answer = Answer::Done { outcome: Outcome::Refused(Refusal::NoResource), index: 1 };
    let heard = tell(&mut member, &Letter::Answer { number, answer: answer.clone() });
    assert!(heard.contains(&Doing::Answered(number, Outcome::Refused(Refusal::NoResource))), "{heard:?}");
    assert!(!tell(&mut member, &Letter::Answer { number, answer }).iter().any(|it| matches!(it, Doing::Answered(..))));
}

#[test]
fn an_answer_that_takes_longer_than_a_retry_still_opens_the_session() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let first = questions(&member.doings());
    member.wake(Time::ZERO + Span::from_secs(1));
    assert_eq!(questions(&member.doings()), first);
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    tell(&mut member, &Letter::Answer { number: first[0].1, answer });
    assert_eq!(member.client().session(), Some(SessionId::new(8)));
}

#[test]
fn a_late_answer_to_an_earlier_process_is_nobodys() {
    let mut before = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    before.wake(Time::ZERO);
    let (_, number, _) = questions(&before.doings()).remove(0);
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(2), Time::ZERO);
    member.wake(Time::ZERO);
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    tell(&mut member, &Letter::Answer { number, answer });
    assert_eq!(member.client().session(), None);
}

/// Later sessions of the same process have clients of their own only.
#[test]
fn only_the_first_session_of_a_process_takes_over_from_the_one_before_it() {
    let (before, name) = (SessionId::new(3), Label::new("r").expect("a short name"));
    let estate = Some(Estate { session: before, names: vec![name.clone()] });
    let identity = Identity { estate, ..identity(true) };
    let mut member = Member::new(identity, Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let asked = questions(&member.doings());
    let [(_, number, Question::Do(Command::Open { replaces, takes, .. }))] = &asked[..] else { panic!("{asked:?}") };
    assert_eq!((*replaces, &takes[..]), (Some(before), &[name][..]));
    let answer = Answer::Done { outcome: Outcome::Opened { session: SessionId::new(8) }, index: 1 };
    let next = questions(&tell(&mut member, &Letter::Answer { number: *number, answer }));
    let [(_, number, Question::Renew { renewal: 1, .. })] = next[..] else { panic!("{next:?}") };
    let yes = Answer::Yes { session: SessionId::new(8), renewal: 1, voters: vec![OTHER] };
    tell(&mut member, &Letter::Answer { number, answer: yes });
    member.wake(Time::ZERO + Span::from_secs(16));
    let asked = questions(&member.doings());
    let opens = asked.iter().find_map(|(_, _, question)| match question {
        Question::Do(Command::Open { replaces, takes, .. }) => Some((*replaces, takes.len())),
        _ => None,
    });
    assert!(matches!(opens, Some((replaces, 0)) if replaces != Some(before)), "{asked:?}");
}

#[test]
fn who_is_sent_elsewhere_asks_there_at_once_but_not_in_a_circle() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let (_, number, _) = questions(&member.doings()).remove(0);
    let leader = PeerId::new(9);
    let elsewhere = Answer::Elsewhere { leader: Some(leader), voters: vec![leader, OTHER] };
    let letter = Letter::Answer { number, answer: elsewhere };
    let asked = questions(&tell(&mut member, &letter));
    assert!(matches!(asked[..], [(to, ..)] if to == leader), "{asked:?}");
    assert_eq!(questions(&tell(&mut member, &letter)), [], "who is sent on again and again waits for a moment");
}

/// Once only those were asked whom somebody had named as voters: when the one that led died before it had named the
/// others, a process that was linked with everybody was without a session for ever.
#[test]
fn who_is_not_answered_by_the_leader_asks_whom_it_has_met() {
    let mut member = opened(SessionId::new(3), true);
    let third = PeerId::new(7);
    member.meet(third, Time::ZERO);
    member.meet(ME, Time::ZERO);
    assert_eq!(questions(&member.doings()), [], "whoever has a session has somebody to ask");
    let mut asked = Vec::new();
    for tenths in 1..50 {
        member.wake(Time::ZERO + Span::from_millis(100 * tenths));
        asked.extend(questions(&member.doings()).into_iter().map(|(to, ..)| to));
    }
    assert!(asked.contains(&third) && !asked.contains(&ME), "{asked:?}");
}

#[test]
fn a_process_that_is_not_let_in_says_why() {
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    member.wake(Time::ZERO);
    let (_, number, _) = questions(&member.doings()).remove(0);
    let answer = Answer::Done { outcome: Outcome::Refused(Refusal::Version(2)), index: 1 };
    let heard = tell(&mut member, &Letter::Answer { number, answer });
    assert!(heard.contains(&Doing::Refused(Refusal::Version(2))), "{heard:?}");
    let other = wire::encode(&Letter::Retired { voter: VoterId::new(1) }, 1, ClusterId::new(1 << 60));
    let refused = member.on_bytes(OTHER, &other, Time::ZERO);
    assert_eq!(refused, Err(Malformed::Cluster { theirs: ClusterId::new(1 << 60), ours: CLUSTER }));
    assert_eq!(member.strange(), 0, "another cluster is told, and not strange");
}

/// The session of an earlier process will end, and with it comes the next generation. One that may not be used yet is
/// told again, if it does not say that it has heard it: once it said so, and threw it away (seed 18755 of whole nodes).
#[test]
fn what_is_told_to_an_earlier_session_of_the_host_or_before_this_one_stands_is_dropped() {
    let (mut member, number) = renewing(SessionId::new(3), true);
    let resource = Label::new("r").unwrap();
    let told = |session, fact| Letter::Told {
        resource: resource.clone(),
        session: SessionId::new(session),
        generation: 7,
        fact,
    };
    let expired = Fact::Expired { slot: 0, fencing: 9 };
    for session in [2, 3] {
        assert_eq!(tell(&mut member, &told(session, Fact::Expelled)), []);
        assert_eq!(tell(&mut member, &told(session, expired.clone())), []);
    }
    let answer = Answer::Yes { session: SessionId::new(3), renewal: 1, voters: vec![OTHER] };
    tell(&mut member, &Letter::Answer { number, answer });
    assert_eq!(tell(&mut member, &told(2, Fact::Expelled)), []);
    let opened = Fact::Opened { slots: 1, asked: Vec::new(), detached: Vec::new() };
    let doing = |fact| Doing::Told { resource: resource.clone(), session: SessionId::new(3), generation: 7, fact };
    assert_eq!(tell(&mut member, &told(3, opened.clone())), [doing(opened)], "it is answered when it is counted");
    let heard = tell(&mut member, &told(3, Fact::Expelled));
    let [Doing::Send(OTHER, bytes), last] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(*last, doing(Fact::Expelled));
    let (session, topic) = (SessionId::new(3), Topic::Expelled);
    let letter = Letter::Heard { resource: resource.clone(), session, generation: 7, topic };
    assert_eq!(wire::decode(bytes, Versions::OURS, CLUSTER), Ok((letter, 1)));
}

/// A learner that was dropped writes to nobody, and does not hear of it otherwise.
#[test]
fn a_host_with_one_seat_is_not_the_voter_that_it_was() {
    let session = SessionId::new(3);
    let mut member = standing(session);
    let enlist = |voter, alone| Letter::Enlist { voter: VoterId::new(voter), session, alone };
    tell(&mut member, &enlist(5, true));
    assert_eq!(tell(&mut member, &enlist(6, false)), [], "the fifth voter may have its seat");
    assert_eq!(tell(&mut member, &enlist(4, true)), [], "a late letter");
    let doings = tell(&mut member, &enlist(6, true));
    assert!(
        matches!(
            doings[..],
            [Doing::Write { write: Write::Remove, .. }, Doing::Write { write: Write::Replace(_), .. }]
        ),
        "{doings:?}"
    );
    assert_eq!(member.register().map(|register| register.voter()), Some(VoterId::new(6)));
}

#[test]
fn who_gets_no_answer_says_whom_it_misses() {
    let third = PeerId::new(3);
    let mut member = Member::new(identity(true), Config::default(), vec![OTHER, third], Rng::new(1), Time::ZERO);
    let at = |millis| Time::ZERO + Span::from_millis(millis);
    member.wake(at(100));
    let number = questions(&member.doings())[0].1;
    assert_eq!(member.missing(at(1099)), None, "it has just asked");
    let silent = vec![(OTHER, None), (third, None)];
    assert_eq!(member.missing(at(1100)), Some(Missing { since: at(100), silent, heard: Vec::new() }));
    // One of two voters is there, and has nothing to say.
    let answer = Answer::Elsewhere { leader: None, voters: vec![OTHER, third] };
    let letter = Letter::Answer { number, answer };
    member.on_bytes(OTHER, &wire::encode(&letter, 1, CLUSTER), at(1200)).expect("a letter of ours");
    let missing = Missing { since: at(100), silent: vec![(third, None)], heard: vec![OTHER] };
    assert_eq!(member.missing(at(1300)), Some(missing));
    // Something is decided: all is well.
    let letter = Letter::Answer { number, answer: Answer::Over { session: SessionId::new(1) } };
    member.on_bytes(third, &wire::encode(&letter, 1, CLUSTER), at(1400)).expect("a letter of ours");
    assert_eq!(member.missing(at(1400)), None);
}

#[test]
fn who_stops_leaves_its_session_and_opens_no_other() {
    let mut member = opened(SessionId::new(3), true);
    member.stop(Time::ZERO);
    let asked = questions(&member.doings());
    let [(_, number, Question::Do(Command::Leave { .. }))] = asked[..] else { panic!("{asked:?}") };
    assert!(!member.has_stopped());
    member.wake(Time::ZERO + Span::from_secs(1));
    let again = questions(&member.doings());
    assert!(again.iter().all(|(_, same, _)| *same == number), "{again:?}");
    let outcome = Outcome::Ended { sessions: vec![SessionId::new(3)] };
    assert_eq!(
        questions(&tell(&mut member, &Letter::Answer { number, answer: Answer::Done { outcome, index: 2 } })),
        []
    );
    assert!(member.has_stopped());
    assert_eq!(member.next(), Time::END);
}

/// What it was told must be in what it sees.
#[test]
fn who_looks_says_what_it_knows_already() {
    let mut member = opened(SessionId::new(3), true);
    let number = member.look(Look::Cluster, Time::ZERO);
    let asked = questions(&member.doings());
    assert!(matches!(asked[..], [(_, _, Question::Look { look: Look::Cluster, since: 1 })]), "{asked:?}");
    let page = Seen::Resources(Page { index: 1, resources: Vec::new(), more: false });
    let seen = tell(&mut member, &Letter::Answer { number, answer: Answer::Seen(page.clone()) });
    assert!(seen.contains(&Doing::Seen(number, page)), "{seen:?}");
}

/// Else it would never hear of it, since nobody of the recovered cluster has a reason to write to it.
#[test]
fn who_asks_under_the_old_id_of_a_recovered_cluster_is_written_to_under_the_new_one() {
    let mut identity = identity(true);
    identity.cluster = CLUSTER.recovered(7);
    let mut member = Member::new(identity, Config::default(), vec![OTHER], Rng::new(1), Time::ZERO);
    let letter = Letter::Ask { number: 1, question: Question::Look { look: Look::Cluster, since: 0 } };
    assert!(member.on_bytes(OTHER, &wire::encode(&letter, 1, CLUSTER), Time::ZERO).is_err());
    let doings = member.doings();
    let [Doing::Send(OTHER, bytes)] = &doings[..] else { panic!("{doings:?}") };
    let theirs = CLUSTER.recovered(7);
    assert_eq!(wire::decode(bytes, Versions::OURS, CLUSTER), Err(Malformed::Recovered { theirs, ours: CLUSTER }));
}
