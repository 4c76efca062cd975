//! A single voter and its file.

use peerlock_registry::disk::{Disk, DiskThread, FileDisk, Write};
use peerlock_registry::file::{Damage, cluster_of};
use peerlock_registry::wire::{self, Answer, Question, RegistryMessage};
use peerlock_registry::{
    ClusterId, Command, Config, Effect, EventKind, Found, Incarnation, Info, Label, Look, Mutation, Outcome, Page,
    Registry, SessionId, Topic, Ttl, Versions, VoterId, inspect, recover,
};
use peerlock_types::{PeerId, Rng, Session, Span, Time};

const HOST: PeerId = PeerId::new(7);
const CLUSTER: ClusterId = ClusterId::new(0xabc);

fn info(versions: Versions) -> Info {
    Info { name: Label::new("host").expect("a short name"), addresses: Vec::new(), versions, keeps: true }
}

struct Voter {
    registry: Registry,
    file: Option<Vec<u8>>,
    now: Time,
    numbers: u64,
    answers: Vec<Answer>,
    sent: Vec<(Label, u64, EventKind)>,
    hangs: bool,
    writes: u64,
}

impl Voter {
    fn found(config: Config, versions: Versions) -> Self {
        let registry = Registry::found(config, CLUSTER, HOST, info(versions), Rng::new(1), Time::ZERO);
        Self::of(registry)
    }

    fn of(registry: Registry) -> Self {
        let mut voter = Self {
            registry,
            file: None,
            now: Time::ZERO,
            numbers: 0,
            answers: Vec::new(),
            sent: Vec::new(),
            hangs: false,
            writes: 0,
        };
        voter.settle();
        voter
    }

    fn settle(&mut self) {
        loop {
            let effects = self.registry.effects();
            if effects.is_empty() {
                return;
            }
            for effect in effects {
                match effect {
                    Effect::Send { registry_message: RegistryMessage::Answer { answer, .. }, .. } => {
                        self.answers.push(answer)
                    }
                    Effect::Send {
                        registry_message: RegistryMessage::Event { resource, generation, kind, .. },
                        ..
                    } => {
                        self.sent.push((resource, generation, kind));
                    }
                    Effect::Send { .. } => {}
                    Effect::Write { .. } if self.hangs => {}
                    Effect::Write { number, write } => {
                        self.writes += 1;
                        match write {
                            Write::Append(bytes) => self.file.as_mut().expect("a file").extend(bytes),
                            Write::Replace(bytes) => self.file = Some(bytes),
                            Write::Remove => self.file = None,
                        }
                        self.registry.on_written(number, self.now);
                    }
                }
            }
        }
    }

    fn ticks(&mut self, ticks: u64) {
        for _ in 0..ticks {
            self.now = self.now + Span::from_millis(50);
            self.registry.tick(self.now);
            self.settle();
        }
    }

    fn ask(&mut self, question: Question) {
        self.numbers += 1;
        self.registry.on_registry_message(HOST, RegistryMessage::Ask { number: self.numbers, question }, 1, self.now);
        self.settle();
    }

    fn open(&mut self, nonce: u64, replaces: Option<SessionId>) -> SessionId {
        self.open_for(nonce, replaces, 15_000)
    }

    fn open_for(&mut self, nonce: u64, replaces: Option<SessionId>, millis: u64) -> SessionId {
        let ttl = Ttl::from_millis(millis).expect("a duration");
        let info = info(Versions::OURS);
        self.ask(Question::Do(Command::Open {
            host: HOST,
            nonce,
            incarnation: Incarnation { process: nonce, opening: 0 },
            ttl,
            info,
            voter: None,
            replaces,
            takes: Vec::new(),
        }));
        match self.answers.pop() {
            Some(Answer::Done { outcome: Outcome::Opened { session }, .. }) => session,
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn single_voter_retains_confirmed_state_over_restart() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    assert!(voter.registry.is_leader());
    let session = voter.open(1, None);
    voter.ask(Question::Do(Command::Join { session, resource: Label::new("r").unwrap(), slots: 3 }));
    let before = voter.registry.state().clone();
    let file = voter.file.clone().unwrap();
    let registry =
        Registry::restart(Config::default(), Versions::OURS, &file, Rng::new(2), Time::ZERO).expect("an intact file");
    let mut again = Voter::of(registry);
    assert_ne!(again.file.as_ref(), Some(&file), "every start writes a new file");
    again.ticks(60);
    assert_eq!(again.registry.state(), &before);
}

/// It owes the sessions of the previous leader their time.
#[test]
fn single_voter_leads_once_its_file_is_written() {
    let registry = Registry::found(Config::default(), CLUSTER, HOST, info(Versions::OURS), Rng::new(1), Time::ZERO);
    assert!(!registry.is_leader(), "its file is not written yet");
    let mut voter = Voter::of(registry);
    assert!(voter.registry.is_leader(), "it is written, and no time has passed");
    let session = voter.open(1, None);
    let file = voter.file.clone().unwrap();
    let restart = Registry::restart(Config::default(), Versions::OURS, &file, Rng::new(2), Time::ZERO);
    let mut again = Voter::of(restart.expect("an intact file"));
    assert!(again.registry.is_leader());
    again.ticks(20 * 15 + 13);
    assert!(
        again.registry.state().sessions().contains_key(&session),
        "the previous leader may have confirmed a renewal"
    );
    again.ticks(2);
    assert!(again.registry.state().is_over(session));
}

fn is_to_voter(effect: &Effect) -> bool {
    matches!(effect, Effect::Send { registry_message: RegistryMessage::Voter(_), .. })
}

/// Restarts a single voter that has learners. Returns it when it leads again, with the effects of that step, which
/// writes its vote.
fn single_voter_that_leads_again(config: Config) -> (Registry, Vec<Effect>) {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    let ttl = Ttl::from_millis(15_000).expect("15 s");
    for number in [8, 9] {
        let host = PeerId::new(number);
        let open = Command::Open {
            host,
            nonce: 1,
            incarnation: Incarnation::default(),
            ttl,
            info: info(Versions::OURS),
            voter: None,
            replaces: None,
            takes: Vec::new(),
        };
        voter.registry.on_registry_message(
            host,
            RegistryMessage::Ask { number, question: Question::Do(open) },
            1,
            voter.now,
        );
        voter.settle();
    }
    voter.open(1, None);
    voter.ticks(3);
    assert_eq!(voter.registry.state().conf().learners.len(), 2, "learners that have received nothing");
    let file = voter.file.expect("it was written");
    let restart = Registry::restart(config, Versions::OURS, &file, Rng::new(2), Time::ZERO);
    let mut registry = restart.expect("an intact file");
    let effects = registry.effects();
    let [Effect::Write { number, .. }] = effects[..] else { panic!("{effects:?}") };
    registry.on_written(number, Time::ZERO);
    assert!(registry.is_leader());
    let effects = registry.effects();
    (registry, effects)
}

/// It would lead in the same term again, with other entries.
#[test]
fn single_voter_sends_nothing_before_its_vote_is_written() {
    let (mut registry, effects) = single_voter_that_leads_again(Config::default());
    let [Effect::Write { number, .. }] = effects[..] else { panic!("{effects:?}") };
    registry.on_written(number, Time::ZERO);
    assert!(registry.effects().iter().any(is_to_voter), "the vote is on disk");
    let mutated = Config { mutation: Some(Mutation::LeadsBeforeDisk), ..Config::default() };
    let (_, effects) = single_voter_that_leads_again(mutated);
    assert!(effects.iter().any(is_to_voter), "the mutation is not detected: {effects:?}");
}

#[test]
fn renewal_is_confirmed_after_a_round() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    voter.ask(Question::Renew { session, renewal: 41 });
    assert_eq!(voter.answers, [], "the round begins with the next tick");
    voter.ticks(1);
    let voters = vec![HOST];
    assert_eq!(voter.answers, [Answer::Yes { session, renewal: 41, voters }]);
    voter.ticks(20 * 15);
    assert!(voter.registry.state().sessions().contains_key(&session));
    voter.ticks(20);
    assert!(voter.registry.state().is_over(session));
    voter.answers.clear();
    voter.ask(Question::Renew { session, renewal: 42 });
    assert_eq!(voter.answers, [Answer::Over { session }]);
}

#[test]
fn commands_for_other_hosts_are_refused() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    let end = Question::Do(Command::End { sessions: vec![session], term: 2 });
    let leave = Question::Do(Command::Leave { session });
    for (from, question) in [(HOST, end), (PeerId::new(8), leave)] {
        voter.registry.on_registry_message(from, RegistryMessage::Ask { number: 9, question }, 1, voter.now);
        voter.settle();
    }
    assert_eq!(voter.registry.unexpected().values().sum::<u64>(), 2);
    assert!(!voter.registry.state().is_over(session));
}

#[test]
fn file_does_not_grow_with_ended_sessions() {
    let sessions = std::env::var("SESSIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000);
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let (mut last, mut longest) = (None, 0);
    for nonce in 1..=sessions {
        last = Some(voter.open(nonce, last));
        if nonce % 100 == 0 {
            voter.ticks(1);
        }
        longest = longest.max(voter.registry.file_length());
        assert_eq!(voter.file.as_ref().map(Vec::len), Some(voter.registry.file_length()));
    }
    println!("{sessions} sessions, {} writes: at most {longest} bytes", voter.writes);
    assert!(longest < 200_000, "{longest} bytes");
    assert_eq!(voter.registry.state().sessions().len(), 1);
}

#[test]
fn voter_with_hanging_disk_does_not_lead() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    voter.hangs = true;
    let leave = Command::Leave { session: SessionId::new(1) };
    voter.ask(Question::Do(leave));
    assert_eq!(voter.answers, []);
    voter.ticks(18);
    assert!(voter.registry.is_leader(), "the disk is not slow enough yet");
    voter.ticks(100);
    assert!(!voter.registry.is_leader());
    voter.ask(Question::Renew { session: SessionId::new(9), renewal: 1 });
    assert!(matches!(voter.answers[..], [Answer::Elsewhere { leader: None, .. }]), "{:?}", voter.answers);
}

fn join(session: SessionId, name: &str) -> Question {
    Question::Do(Command::Join { session, resource: Label::new(name).expect("a short name"), slots: 1 })
}

#[test]
fn recovered_registry_continues_beyond_lost_numbers() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    voter.ask(join(session, "known"));
    let file = voter.file.clone().unwrap();
    assert_eq!(cluster_of(&file), Ok(CLUSTER));
    let recovered = recover(&file, Versions::OURS, 7).expect("an intact file");
    assert_eq!((recovered.cluster, recovered.host), (CLUSTER.recovered(7), HOST));
    assert_eq!(cluster_of(&recovered.file), Ok(CLUSTER.recovered(7)));
    assert!(recovered.voter > voter.registry.voter());
    assert_eq!(recovered.last, (voter.registry.term(), voter.registry.applied()));

    let registry = Registry::restart(Config::default(), Versions::OURS, &recovered.file, Rng::new(2), Time::ZERO);
    let mut again = Voter::of(registry.expect("an intact file"));
    again.ticks(60);
    assert!(again.registry.is_leader());
    let state = again.registry.state();
    assert!(state.sessions().contains_key(&session), "its process may still use it");
    assert!(state.is_over(SessionId::new(2)), "the lost voters may have allocated the next one");
    let lost = 1 << 16;
    assert!(state.resources()[&Label::new("known").unwrap()].generation() > lost);
    let session = again.open(2, None);
    again.answers.clear();
    for name in ["known", "unknown"] {
        again.ask(join(session, name));
        let answer = again.answers.pop();
        let Some(Answer::Done { outcome: Outcome::Joined { generation, .. }, .. }) = answer else {
            panic!("{answer:?}")
        };
        assert!(generation > lost, "{name}: {generation}");
    }
}

/// The lost voters may have opened sessions that the file does not contain.
#[test]
fn recovered_registry_announces_nothing_in_quarantine() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    // One of the same ttl may be in use.
    let long = voter.open_for(1, None, 60_000);
    voter.ask(Question::Do(Command::Leave { session: long }));
    let recovered = recover(&voter.file.clone().unwrap(), Versions::OURS, 7).expect("an intact file");
    assert_eq!(recovered.quarantine, Span::from_millis(62_050), "60 s · 1.03 + 0.25 s");
    let restart = |file: &[u8]| {
        Voter::of(
            Registry::restart(Config::default(), Versions::OURS, file, Rng::new(2), Time::ZERO)
                .expect("an intact file"),
        )
    };
    let mut again = restart(&recovered.file);
    again.ticks(60);
    let session = again.open_for(2, None, 600_000);
    again.ask(join(session, "r"));
    again.ticks(20 * 58);
    assert_eq!(again.sent, [], "61 s after the start");
    let mut again = restart(&again.file.clone().unwrap());
    again.ticks(20 * 61);
    assert_eq!(again.sent, []);
    again.ticks(20 * 2);
    assert!(again.registry.state().quarantine().is_none());
    let session = again.open(3, Some(session));
    again.ask(join(session, "r"));
    assert!(matches!(again.sent[..], [(_, _, EventKind::Opened { .. }), ..]), "{:?}", again.sent);
    let mut again = restart(&again.file.clone().unwrap());
    again.ticks(60);
    assert!(again.registry.state().quarantine().is_none(), "the quarantine has ended for good");
}

#[test]
fn empty_voter_cannot_be_recovered_from() {
    let empty = Registry::enlist(Config::default(), Versions::OURS, CLUSTER, VoterId::new(2), Rng::new(1), Time::ZERO);
    let file = Voter::of(empty).file.unwrap();
    assert!(matches!(recover(&file, Versions::OURS, 7), Err(Damage::NoRegister(_))));
    let mut torn = file;
    torn.truncate(70);
    assert!(matches!(recover(&torn, Versions::OURS, 7), Err(Damage::Record { .. })));
}

#[test]
fn opened_is_repeated_until_closed() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    voter.ask(join(session, "r"));
    let resource = Label::new("r").unwrap();
    let opened = EventKind::Opened {
        slots: 1,
        asked: vec![Session { peer: HOST, number: session.get() }],
        detached: Vec::new(),
    };
    assert_eq!(voter.sent, [(resource.clone(), 1, opened)], "when the entry is applied");
    voter.ticks(5);
    assert_eq!(voter.sent.len(), 1);
    voter.ticks(1);
    assert_eq!(voter.sent.len(), 2, "300 ms later");
    voter.ask(Question::Do(Command::Close {
        session,
        resource: resource.clone(),
        generation: 1,
        remaining: Vec::new(),
    }));
    voter.ticks(20);
    assert_eq!(voter.sent.len(), 2);
    voter.sent.clear();
    voter.ask(Question::Do(Command::Evict { resource: resource.clone(), session, since: 1 }));
    voter.ticks(12);
    assert_eq!(voter.sent, vec![(resource.clone(), 2, EventKind::Evicted); 3], "no party is left for a census");
    let received =
        || RegistryMessage::EventAck { resource: resource.clone(), session, generation: 2, topic: Topic::Evicted };
    voter.registry.on_registry_message(PeerId::new(8), received(), 1, voter.now);
    assert_eq!(voter.registry.unexpected().values().sum::<u64>(), 1, "from another host");
    voter.registry.on_registry_message(HOST, received(), 1, voter.now);
    voter.ticks(20);
    assert_eq!(voter.sent.len(), 3);
}

#[test]
fn new_leader_sends_events_in_batches() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    // All of these may be open at one coordinator.
    for number in 0..1000 {
        voter.ask(join(session, &format!("r{number}")));
    }
    let file = voter.file.clone().unwrap();
    let registry = Registry::restart(Config::default(), Versions::OURS, &file, Rng::new(2), Time::ZERO);
    let mut again = Voter::of(registry.expect("an intact file"));
    while again.sent.is_empty() {
        again.ticks(1);
    }
    assert!(again.sent.len() < 500, "not all at once: {}", again.sent.len());
    again.ticks(8);
    let names: std::collections::BTreeSet<&Label> = again.sent.iter().map(|(name, ..)| name).collect();
    assert_eq!(names.len(), 1000, "all before the first repetition");
}

#[test]
fn queries_are_answered_in_pages() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    for name in ["a", "b", "c", "c/1", "c/2", "c/2/x", "c0", "d"] {
        voter.ask(join(session, name));
    }
    let (resource, ttl, note) =
        (Label::new("b").unwrap(), Ttl::from_millis(5000).unwrap(), Label::new("note").unwrap());
    voter.ask(Question::Do(Command::Detach { session, resource, slot: 0, fencing: 1 << 32, ttl, note, run: None }));
    let label = |name: Option<&str>| name.map(|name| Label::new(name).unwrap());
    let mut look = |prefix, after, most, granted_by| {
        let (prefix, after) = (label(prefix), label(after));
        voter.ask(Question::Look { look: Look::Resources { prefix, after, most, granted_by }, since: 0 });
        match voter.answers.pop() {
            Some(Answer::Found(Found::Resources(page))) => page,
            other => panic!("{other:?}"),
        }
    };
    let names = |page: &Page| page.resources.iter().map(|it| it.name.to_string()).collect::<Vec<_>>();
    let first = look(None, None, 2, None);
    assert_eq!((names(&first), first.more), (vec!["a".to_owned(), "b".to_owned()], true));
    assert_eq!(first.resources[0].coordinator, Some((session, HOST)));
    assert_eq!(first.resources[1].detached[0].note.as_str(), "note");
    let last = look(None, Some("c/2/x"), 2, None);
    assert_eq!((names(&last), last.more), (vec!["c0".to_owned(), "d".to_owned()], false));
    assert_eq!(names(&look(None, None, 9, Some(HOST))), ["b"]);
    assert_eq!(names(&look(None, None, 9, Some(PeerId::new(8)))), [""; 0]);
    for (prefix, after, most, found, more) in [
        ("c/", None, 9, &["c/1", "c/2", "c/2/x"][..], false),
        ("c/", None, 2, &["c/1", "c/2"], true),
        ("c/", Some("c/2"), 9, &["c/2/x"], false),
        ("c/", Some("c/2/x"), 9, &[], false),
        ("c/", Some("a"), 1, &["c/1"], true),
        ("c/", Some("d"), 9, &[], false),
        ("c", None, 9, &["c", "c/1", "c/2", "c/2/x", "c0"], false),
        ("c", Some("c"), 1, &["c/1"], true),
        ("x", None, 9, &[], false),
    ] {
        let page = look(Some(prefix), after, most, None);
        assert_eq!(
            (names(&page), page.more),
            (found.iter().map(ToString::to_string).collect(), more),
            "{prefix} {after:?}"
        );
    }
    for (name, found) in [("b", vec!["b".to_owned()]), ("bb", vec![]), ("e", vec![])] {
        voter.ask(Question::Look { look: Look::Resource(Label::new(name).unwrap()), since: 0 });
        let Some(Answer::Found(Found::Resources(page))) = voter.answers.pop() else { panic!("{:?}", voter.answers) };
        assert_eq!((names(&page), page.more), (found, false), "{name}");
    }
    voter.answers.clear();
    voter.ask(Question::Look { look: Look::Cluster, since: 1 << 20 });
    assert_eq!(voter.answers, []);
    // A leader that is asked so, and leads still, has lost an entry.
    assert_eq!(voter.registry.forgotten(), None);
    voter.ask(Question::Renew { session, renewal: 1 });
    voter.ticks(4);
    assert!(voter.registry.forgotten().is_some_and(|why| why.contains("host 7 knows entry 1048576")));
    voter.answers.clear();
    voter.ask(Question::Look { look: Look::Cluster, since: 0 });
    let Some(Answer::Found(Found::Cluster(view))) = voter.answers.pop() else { panic!("{:?}", voter.answers) };
    assert_eq!(
        (view.leader, view.sessions, view.voters),
        (Some(HOST), vec![(session, HOST, Ttl::from_millis(15_000).unwrap())], vec![(VoterId::new(1), HOST)])
    );
}

/// The session was opened in entries that the file does not have any more.
#[test]
fn renewal_of_an_unknown_session_shows_lost_entries() {
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let session = voter.open(1, None);
    for (session, expected) in [(session, None), (SessionId::new(session.get() + 1), Some("session s2"))] {
        voter.ask(Question::Renew { session, renewal: 1 });
        voter.ticks(4);
        let why = voter.registry.forgotten();
        assert!(expected.map_or(why.is_none(), |words| why.is_some_and(|why| why.contains(words))), "{why:?}");
    }
}

#[test]
fn old_program_refuses_a_newer_file() {
    let newer = Versions { min: 1, max: 2 };
    let mut voter = Voter::found(Config::default(), newer);
    voter.ticks(60);
    assert_eq!(voter.registry.state().version(), 2, "a founder uses its newest version");
    let file = voter.file.clone().unwrap();
    let old = Registry::restart(Config::default(), Versions::OURS, &file, Rng::new(1), Time::ZERO);
    let damage = old.err().expect("version 2 is not understood");
    assert_eq!(damage, Damage::Version { version: 2, ours: Versions::OURS });
    assert_eq!(inspect(&file, Versions::OURS), Err(damage.clone()));
    assert_eq!(
        damage.to_string(),
        "the registry in this file has version 2, and this program understands 1: start the program that wrote it"
    );
    let again = Registry::restart(Config::default(), newer, &file, Rng::new(1), Time::ZERO);
    assert!(again.is_ok());
}

#[test]
fn old_program_halts_at_a_newer_entry() {
    let newer = Versions { min: 1, max: 2 };
    // With version 1, and entries of version 2.
    let mut voter = Voter::found(Config::default(), Versions::OURS);
    voter.ticks(60);
    let file = voter.file.clone().unwrap();
    let mut upgraded =
        Voter::of(Registry::restart(Config::default(), newer, &file, Rng::new(1), Time::ZERO).expect("an intact file"));
    upgraded.ticks(60);
    assert_eq!(upgraded.registry.state().version(), 1, "the member still has its old description");
    let ttl = Ttl::from_millis(15_000).unwrap();
    let open = |nonce| Command::Open {
        host: HOST,
        nonce,
        incarnation: Incarnation { process: nonce, opening: 0 },
        ttl,
        info: info(newer),
        voter: None,
        replaces: None,
        takes: Vec::new(),
    };
    upgraded.ask(Question::Do(open(1)));
    while upgraded.registry.state().version() < 2 {
        upgraded.ticks(1);
    }
    upgraded.ask(Question::Do(open(2)));
    let file = upgraded.file.clone().unwrap();
    // The release after this one can read it.
    upgraded.ticks(1);
    let later = Versions { min: 2, max: 3 };
    assert!(inspect(&file, later).is_err() && inspect(upgraded.file.as_ref().unwrap(), later).is_ok());
    let old = Registry::restart(Config::default(), Versions::OURS, &file, Rng::new(1), Time::ZERO);
    let mut old = Voter::of(old.expect("an intact file"));
    assert!(matches!(inspect(&file, Versions::OURS), Err(Damage::Version { version: 2, .. })), "`inspect` finds it");
    assert_eq!(inspect(&file, newer), Ok((CLUSTER, 0)));
    old.ticks(60);
    let sentence = old.registry.halted().expect("it met an entry of version 2");
    assert!(sentence.contains("has version 2, and this program understands 1: upgrade it"), "{sentence}");
    old.ask(Question::Do(open(3)));
    assert_eq!(old.answers, [], "a halted voter does not answer");
}

#[test]
fn message_of_another_cluster_is_refused() {
    let registry_message =
        RegistryMessage::Ask { number: 1, question: Question::Renew { session: SessionId::new(1), renewal: 1 } };
    let bytes = wire::encode(&registry_message, 1, CLUSTER);
    let refused = wire::decode(&bytes, Versions::OURS, ClusterId::new(1)).unwrap_err().to_string();
    assert!(refused.contains(&CLUSTER.to_string()), "{refused}");
}

#[test]
fn real_file_is_written_by_its_thread() {
    let dir = std::env::temp_dir().join(format!("peerlock-registry-voter-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("registry");
    let (sent, receives) = std::sync::mpsc::channel();
    let thread = DiskThread::start(FileDisk::new(&path), move |number| _ = sent.send(number), |_| ()).unwrap();
    let mut now = Time::ZERO;
    let mut registry = Registry::found(Config::default(), CLUSTER, HOST, info(Versions::OURS), Rng::new(1), Time::ZERO);
    for _ in 0..60 {
        now = now + Span::from_millis(50);
        registry.tick(now);
        loop {
            let writes: Vec<_> = registry
                .effects()
                .into_iter()
                .filter_map(|effect| match effect {
                    Effect::Write { number, write } => Some((number, write)),
                    Effect::Send { .. } => None,
                })
                .collect();
            if writes.is_empty() {
                break;
            }
            for (number, write) in writes {
                thread.write(number, write);
                registry.on_written(receives.recv().unwrap(), now);
            }
        }
    }
    assert!(registry.is_leader());
    drop(thread);
    let bytes = FileDisk::new(&path).load().unwrap().expect("a file");
    assert_eq!(bytes.len(), registry.file_length());
    assert!(Registry::restart(Config::default(), Versions::OURS, &bytes, Rng::new(1), Time::ZERO).is_ok());
    std::fs::remove_dir_all(&dir).unwrap();
}
