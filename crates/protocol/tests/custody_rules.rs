//! The rules of docs/design/recovery.md, one test per statement.

use peerlock_protocol::custody::{Answer, Body, Config, Following, Message, Report, Timer, Update};
use peerlock_protocol::registry::{Detached, EventKind, RegistryEvent, RegistryRequest, Session};
use peerlock_protocol::token::{Arrival, Claim, Token};
use peerlock_protocol::{Custody, Cx, Effect, Grant, Input, Observe, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Effects = Vec<Effect<Message, Timer>>;

const CONFIG: Config = Config { numbers: 100, batch: None, reach: 8, always_ahead: false, without: None };

fn session(peer: u64) -> Session {
    Session { peer: PeerId::new(peer), number: 0 }
}

/// With peer 0 as coordinator and all tokens there.
fn founded(peer: u64, slots: u32) -> Custody {
    Custody::founded(session(peer), CONFIG, PeerId::new(0), slots)
}

fn announce(peer: &mut Custody, me: u64, input: Input<Message, Timer>) -> Effects {
    let (mut effects, mut rng) = (Vec::new(), Rng::new(0));
    step(peer, input, &mut Cx::new(PeerId::new(me), Time::ZERO, &mut rng, &mut effects));
    effects
}

fn ask(peer: &mut Custody, me: u64, ticket: u64) -> Effects {
    announce(peer, me, Input::Request(Ticket::new(ticket)))
}

fn feed(peer: &mut Custody, me: u64, from: u64, generation: u64, body: Body) -> Effects {
    announce(peer, me, Input::Message { from: PeerId::new(from), message: Message { generation, body } })
}

fn event(peer: &mut Custody, to: Session, generation: u64, kind: EventKind) -> Effects {
    announce(peer, to.peer.get(), Input::RegistryEvent(RegistryEvent { to, generation, kind }))
}

fn opened(slots: u32, asked: &[u64]) -> EventKind {
    EventKind::Opened { slots, asked: asked.iter().map(|&peer| session(peer)).collect(), detached: Vec::new() }
}

fn census(peer: u64, slots: u32) -> Body {
    Body::Census { session: session(peer), slots }
}

fn token(slot: u32, fencing: u64) -> Body {
    Body::Token { to: Ticket::new(1), token: Token { slot, fencing }, stay: 7, following: Following::default() }
}

fn nothing(peer: u64) -> Body {
    Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting: Vec::new() })
}

fn answer(effects: &Effects) -> &Answer {
    let mut answers = effects.iter().filter_map(|effect| match effect {
        Effect::Send { message: Message { body: Body::Answer(answer), .. }, .. } => Some(answer),
        _ => None,
    });
    answers.next().expect("one answer")
}

fn granted(effects: &Effects) -> Option<Grant> {
    effects.iter().find_map(|effect| match effect {
        Effect::Grant { grant, .. } => Some(*grant),
        _ => None,
    })
}

#[test]
fn r1_messages_of_older_generations_are_discarded() {
    let mut waiter = founded(1, 1);
    ask(&mut waiter, 1, 1);
    feed(&mut waiter, 1, 0, 2, census(1, 1));

    assert_eq!(feed(&mut waiter, 1, 0, 1, token(0, 101)), [], "a token of generation 1");
    assert_eq!(feed(&mut waiter, 1, 0, 2, census(1, 1)), [], "a duplicate census");
    assert_eq!(waiter.tokens(), 0);
    assert_eq!(granted(&feed(&mut waiter, 1, 0, 2, token(0, 201))), Some(Grant { slot: 0, fencing: 201 }));
}

#[test]
fn r2_party_that_replies_discards_successors() {
    let mut holder = founded(1, 1);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(0, 101));
    let claims = vec![Claim { peer: PeerId::new(2), ticket: Ticket::new(1) }];
    let following = Following { claims, ..Following::default() };
    feed(&mut holder, 1, 0, 1, Body::Next { slot: 0, stay: 7, following, replaces: true });
    feed(&mut holder, 1, 0, 2, census(1, 1));

    let effects = announce(&mut holder, 1, Input::Release(Ticket::new(1)));

    assert_eq!(holder.tokens(), 1, "it stays here: {effects:?}");
    assert!(granted(&ask(&mut holder, 1, 2)).is_none(), "and is not granted to a client of this peer");
}

#[test]
fn r3_census_is_counted_when_all_parties_have_replied() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    assert_eq!(feed(&mut coordinator, 1, 2, 2, nothing(2)), []);
    assert_eq!(feed(&mut coordinator, 1, 2, 2, nothing(2)), [], "a duplicate");
    assert_eq!(coordinator.tokens(), 0);

    let effects = feed(&mut coordinator, 1, 3, 2, nothing(3));

    assert_eq!(coordinator.tokens(), 1, "the missing token is created");
    assert_eq!(
        effects,
        [Effect::RegistryRequest(RegistryRequest::Close { generation: 2, remaining: vec![session(1)] })]
    );
}

#[test]
fn r4_joining_session_starts_in_generation_of_answer() {
    let mut joiner = Custody::new(session(2), CONFIG);
    assert_eq!(ask(&mut joiner, 2, 1), [Effect::RegistryRequest(RegistryRequest::Join)]);
    event(&mut joiner, session(2), 3, EventKind::Joined { coordinator: PeerId::new(0), slots: 1 });

    assert_eq!(feed(&mut joiner, 2, 1, 2, token(0, 201)), []);
    assert_eq!((joiner.generation(), joiner.tokens()), (3, 0));
}

#[test]
fn r5_session_that_is_not_a_party_accepts_no_token() {
    let mut joiner = Custody::new(session(2), CONFIG);
    ask(&mut joiner, 2, 1);
    assert_eq!(feed(&mut joiner, 2, 1, 1, token(0, 101)), []);
    assert_eq!(joiner.tokens(), 0);
}

#[test]
fn r6_other_session_of_same_host_does_not_reply() {
    let mut again = Custody::new(Session { number: 1, ..session(2) }, CONFIG);
    assert_eq!(feed(&mut again, 2, 0, 2, census(2, 1)), []);
    assert_eq!(event(&mut again, session(2), 2, opened(1, &[2])), []);
    assert_eq!(again.generation(), 0);
}

#[test]
fn r7_numbers_continue_above_older_generations() {
    let mut waiter = founded(1, 2);
    ask(&mut waiter, 1, 1);
    feed(&mut waiter, 1, 0, 5, census(1, 3));
    assert_eq!(granted(&feed(&mut waiter, 1, 0, 5, token(1, 108))), Some(Grant { slot: 1, fencing: 502 }));
    announce(&mut waiter, 1, Input::Release(Ticket::new(1)));
    assert_eq!(granted(&ask(&mut waiter, 1, 2)), Some(Grant { slot: 1, fencing: 505 }), "advances by k");
}

#[test]
fn r7_next_generation_is_requested_when_numbers_run_out() {
    let mut waiter = founded(1, 1);
    ask(&mut waiter, 1, 1);
    let effects = feed(&mut waiter, 1, 0, 1, token(0, 149));
    assert!(effects.contains(&Effect::RegistryRequest(RegistryRequest::Renumber { generation: 1 })), "{effects:?}");

    let mut late = founded(1, 1);
    ask(&mut late, 1, 1);
    assert_eq!(feed(&mut late, 1, 0, 1, token(0, 200)), [], "no number is left: the client waits with the token");
    let answer = answer(&feed(&mut late, 1, 0, 2, census(1, 1))).clone();
    assert_eq!((answer.tokens.len(), answer.waiting.len()), (1, 1));
}

#[test]
fn r8_party_without_tokens_joins_before_next_request() {
    let mut idle = founded(1, 1);
    let effects = feed(&mut idle, 1, 0, 2, census(1, 1));
    assert!(answer(&effects).is_empty());
    assert_eq!(ask(&mut idle, 1, 1), [Effect::RegistryRequest(RegistryRequest::Join)]);
}

#[test]
fn r9_updates_for_future_generation_are_buffered() {
    let mut coordinator = founded(0, 1);
    let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(1) };
    let request = Body::Update(Update::Request(claim));
    assert_eq!(feed(&mut coordinator, 0, 2, 2, request), []);

    let effects = event(&mut coordinator, session(0), 2, opened(1, &[0]));

    let is_token = |effect: &Effect<_, _>| {
        matches!(effect, Effect::Send { to, message: Message { generation: 2, body: Body::Token { .. } } }
            if *to == PeerId::new(2))
    };
    assert!(effects.iter().any(is_token), "{effects:?}");
}

/// Otherwise a host whose clients wait for 50 ms each and retry exhausts its limit at the coordinator.
#[test]
fn withdrawal_during_census_removes_buffered_request() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    feed(&mut coordinator, 1, 2, 2, nothing(2));
    for ticket in 1..=100 {
        let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(ticket) };
        feed(&mut coordinator, 1, 2, 2, Body::Update(Update::Request(claim)));
        feed(&mut coordinator, 1, 2, 2, Body::Update(Update::Withdraw(claim)));
    }
    assert_eq!(coordinator.retained(Some(PeerId::new(2))), 1, "its answer");
    let effects = feed(&mut coordinator, 1, 3, 2, nothing(3));
    assert_eq!(effects.len(), 1, "no client waits: {effects:?}");
}

fn waits_since(peer: u64, number: u64) -> Body {
    let claim = Claim { peer: PeerId::new(peer), ticket: Ticket::new(2) };
    Body::Update(Update::RequestAgain(claim, Arrival { generation: 1, number }))
}

/// A coordinator of generation 2 with two waiters of generation 1, numbers 5 and 9, and the token in use.
fn coordinator_with_waiters() -> Custody {
    let mut coordinator = founded(0, 1);
    ask(&mut coordinator, 0, 1);
    event(&mut coordinator, session(0), 2, opened(1, &[0, 1, 2]));
    for (peer, number) in [(1, 9), (2, 5)] {
        let waiting = vec![(Ticket::new(1), Some(Arrival { generation: 1, number }))];
        feed(
            &mut coordinator,
            0,
            peer,
            2,
            Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting }),
        );
    }
    assert_eq!(coordinator.queue().map(|queue| queue.len()), Some(2));
    coordinator
}

fn renumbers(effects: &Effects) -> usize {
    let renumber = |effect: &&Effect<_, _>| matches!(effect, Effect::RegistryRequest(RegistryRequest::Renumber { .. }));
    effects.iter().filter(renumber).count()
}

#[test]
fn returned_waiter_behind_later_ones_opens_a_generation() {
    let mut coordinator = coordinator_with_waiters();
    assert_eq!(renumbers(&feed(&mut coordinator, 0, 3, 2, waits_since(3, 7))), 1);
    assert_eq!(renumbers(&feed(&mut coordinator, 0, 4, 2, waits_since(4, 2))), 0, "one generation sorts them all");

    // Its census has the order of arrival.
    event(&mut coordinator, session(0), 3, opened(1, &[0, 1, 2, 3, 4]));
    for (peer, ticket, number) in [(1, 1, 9), (2, 1, 5), (3, 2, 7), (4, 2, 2)] {
        let waiting = vec![(Ticket::new(ticket), Some(Arrival { generation: 1, number }))];
        let answer = Answer { session: session(peer), tokens: Vec::new(), waiting };
        let effects = feed(&mut coordinator, 0, peer, 3, Body::Answer(answer));
        assert_eq!(renumbers(&effects), 0);
    }
    let queue = coordinator.queue().into_iter().flat_map(|queue| queue.waiting()).map(|claim| claim.peer.get());
    assert_eq!(queue.collect::<Vec<_>>(), [4, 2, 3, 1]);
}

#[test]
fn returned_waiter_in_order_opens_no_generation() {
    let mut coordinator = coordinator_with_waiters();
    let effects = feed(&mut coordinator, 0, 3, 2, waits_since(3, 12));
    assert_eq!(renumbers(&effects), 0);
    let is_arrival =
        |effect: &Effect<_, _>| matches!(effect, Effect::Send { message: Message { body: Body::Arrivals(_), .. }, .. });
    assert!(!effects.iter().any(is_arrival), "its number is known: {effects:?}");
}

#[test]
fn arrival_number_not_given_yet_is_replaced() {
    let mut coordinator = coordinator_with_waiters();
    let claim = Claim { peer: PeerId::new(3), ticket: Ticket::new(2) };
    let late = Update::RequestAgain(claim, Arrival { generation: 7, number: 1 });
    let effects = feed(&mut coordinator, 0, 3, 2, Body::Update(late));
    let arrivals = vec![(Ticket::new(2), Arrival { generation: 2, number: 1 })];
    let message = Message { generation: 2, body: Body::Arrivals(arrivals) };
    assert!(effects.contains(&Effect::Send { to: PeerId::new(3), message }), "{effects:?}");
    assert_eq!(renumbers(&effects), 0);
}

#[test]
fn evicted_or_returned_client_sends_its_arrival_number() {
    let arrival = Arrival { generation: 1, number: 4 };
    let sends = |effects: &Effects, ticket| {
        let claim = Claim { peer: PeerId::new(1), ticket: Ticket::new(ticket) };
        let message = Message { generation: 2, body: Body::Update(Update::RequestAgain(claim, arrival)) };
        effects.contains(&Effect::Send { to: PeerId::new(0), message })
    };
    let joined = EventKind::Joined { coordinator: PeerId::new(0), slots: 1 };

    let mut evicted = founded(1, 1);
    ask(&mut evicted, 1, 1);
    feed(&mut evicted, 1, 0, 1, Body::Arrivals(vec![(Ticket::new(1), arrival)]));
    event(&mut evicted, session(1), 2, EventKind::Evicted);
    assert!(sends(&event(&mut evicted, session(1), 2, joined.clone()), 1));

    let (mut effects, mut rng) = (Vec::new(), Rng::new(0));
    evicted.request_again(Ticket::new(2), arrival, &mut Cx::new(PeerId::new(1), Time::ZERO, &mut rng, &mut effects));
    assert!(sends(&effects, 2), "{effects:?}");
}

/// Otherwise a census would count a request that was withdrawn.
#[test]
fn withdrawal_during_census_removes_returned_request() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 3]));
    feed(&mut coordinator, 1, 2, 2, waits_since(2, 4));
    let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(2) };
    feed(&mut coordinator, 1, 2, 2, Body::Update(Update::Withdraw(claim)));
    assert_eq!(coordinator.retained(Some(PeerId::new(2))), 0);
}

#[test]
fn queue_is_rebuilt_by_arrival_number() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    let waits = |peer: u64, arrival: Option<Arrival>| {
        let waiting = vec![(Ticket::new(1), arrival)];
        Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting })
    };
    feed(&mut coordinator, 1, 2, 2, waits(2, Some(Arrival { generation: 1, number: 9 })));
    feed(&mut coordinator, 1, 3, 2, waits(3, Some(Arrival { generation: 1, number: 4 })));

    let queue = coordinator.queue().expect("every party has replied");
    assert_eq!(queue.to_string(), "waiting [2], tokens [0 at 3, next 2]", "3 came first and has the token");
}

#[test]
fn census_rebuilds_long_queue_and_many_slots() {
    const PARTIES: u64 = 4;
    const EACH: u64 = 25_000;
    const SLOTS: u32 = 1000;
    let mut keeper = founded(0, 1);
    event(&mut keeper, session(0), 2, opened(SLOTS, &[0, 1, 2, 3, 4]));
    let mut effects = Vec::new();
    for peer in 1..=PARTIES {
        let arrival = |number| Arrival { generation: 1, number: number * PARTIES + peer };
        let waiting = (1..=EACH).map(|ticket| (Ticket::new(ticket), Some(arrival(ticket)))).collect();
        let body = Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting });
        assert_eq!(Message { generation: 2, body: body.clone() }.check(), Ok(()), "within the bounds of one message");
        effects = feed(&mut keeper, 0, peer, 2, body);
    }
    let queue = keeper.queue().expect("the census is complete");
    let tokens = effects
        .iter()
        .filter(|effect| matches!(effect, Effect::Send { message: Message { body: Body::Token { .. }, .. }, .. }));
    assert_eq!((tokens.count(), queue.locations().len()), (SLOTS as usize, SLOTS as usize));
    assert_eq!(queue.len() as u64, PARTIES * EACH - u64::from(SLOTS), "all others wait");
    let first: Vec<String> = queue.waiting().take(5).map(|claim| claim.to_string()).collect();
    assert_eq!(first, ["1#251", "2#251", "3#251", "4#251", "1#252"], "in order of arrival");
}

#[test]
fn token_is_created_when_last_detached_grant_ends() {
    let mut coordinator = founded(1, 1);
    let detached = |fencing| Detached { slot: 0, fencing };
    let both = vec![detached(101), detached(103)];
    let kind = EventKind::Opened { slots: 1, asked: vec![session(1)], detached: both };
    event(&mut coordinator, session(1), 2, kind);
    assert_eq!(coordinator.tokens(), 0);
    event(&mut coordinator, session(1), 2, EventKind::Expired(detached(101)));
    assert_eq!(coordinator.tokens(), 0, "another grant of the same slot is valid");
    event(&mut coordinator, session(1), 2, EventKind::Expired(detached(103)));
    assert_eq!(coordinator.tokens(), 1);
}

#[test]
fn void_token_is_dropped_and_its_client_notified() {
    let grant = Grant { slot: 0, fencing: 104 };
    let mut evicted = Custody::taking_over(Session { number: 1, ..session(2) }, CONFIG, &[(Ticket::new(1), grant)]);
    let census = Body::Census { session: Session { number: 1, ..session(2) }, slots: 1 };
    let effects = feed(&mut evicted, 2, 0, 3, census);
    let report = answer(&effects).tokens[0];
    assert_eq!(report, Report { token: Token { slot: 0, fencing: 105 }, in_use: true });

    let effects = feed(&mut evicted, 2, 0, 3, Body::Void(report.token));

    assert_eq!((effects, evicted.tokens()), (vec![Effect::Lost { ticket: Ticket::new(1) }], 0));
}

#[test]
fn newer_token_may_overtake_void() {
    let me = Session { number: 1, ..session(2) };
    let grant = Grant { slot: 0, fencing: 104 };
    let mut evicted = Custody::taking_over(me, CONFIG, &[(Ticket::new(1), grant)]);
    assert_eq!(ask(&mut evicted, 2, 2), [], "a takeover does not send Join");
    feed(&mut evicted, 2, 0, 3, Body::Census { session: me, slots: 1 });
    let older = Token { slot: 0, fencing: 105 };
    let token = Token { slot: 0, fencing: 301 };
    let younger = Body::Token { to: Ticket::new(2), token, stay: 302, following: Following::default() };

    let effects = feed(&mut evicted, 2, 0, 3, younger);

    assert_eq!(effects[0], Effect::Lost { ticket: Ticket::new(1) });
    assert_eq!(granted(&effects), Some(Grant { slot: 0, fencing: 301 }));
    assert_eq!((feed(&mut evicted, 2, 0, 3, Body::Void(older)), evicted.tokens()), (vec![], 1));
}

#[test]
fn evicted_session_drops_tokens_and_joins_again() {
    let mut holder = founded(1, 2);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(0, 101));
    ask(&mut holder, 1, 2);

    let effects = event(&mut holder, session(1), 2, EventKind::Evicted);

    assert_eq!(effects, [Effect::Lost { ticket: Ticket::new(1) }, Effect::RegistryRequest(RegistryRequest::Join)]);
    assert_eq!(event(&mut holder, session(1), 2, EventKind::Evicted), [], "once");
}

#[test]
fn surplus_token_is_dropped_on_release() {
    let mut holder = founded(1, 2);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(1, 102));
    feed(&mut holder, 1, 0, 2, census(1, 1));

    let effects = announce(&mut holder, 1, Input::Release(Ticket::new(1)));

    let dropped = Message { generation: 2, body: Body::Dropped { slot: 1, stay: 104 } };
    assert_eq!((effects, holder.tokens()), (vec![Effect::Send { to: PeerId::new(0), message: dropped }], 0));
}

#[test]
fn r10_quitting_session_has_no_tokens_until_answer() {
    let mut holder = founded(0, 2);
    assert_eq!(ask(&mut holder, 0, 1).len(), 1, "it is granted");
    assert_eq!(announce(&mut holder, 0, Input::Forget), [], "a client holds a slot");
    announce(&mut holder, 0, Input::Release(Ticket::new(1)));
    assert_eq!(
        announce(&mut holder, 0, Input::Forget),
        [Effect::RegistryRequest(RegistryRequest::Quit { generation: 1 })]
    );
    assert_eq!(holder.held().count(), 0);
    assert_eq!(announce(&mut holder, 0, Input::Forget), [], "Quit was sent already");
    assert!(!holder.is_nothing(), "the registry may not have applied Quit");
    // Neither a token of its own nor a late answer to its join makes it a party.
    assert_eq!(ask(&mut holder, 0, 2), []);
    assert_eq!(event(&mut holder, session(0), 1, EventKind::Joined { coordinator: PeerId::new(0), slots: 2 }), []);
    assert!(!holder.is_party());
    assert_eq!(
        event(&mut holder, session(0), 2, EventKind::Left { quit: 1 }),
        [Effect::RegistryRequest(RegistryRequest::Join)]
    );
}

/// So that older messages are discarded.
#[test]
fn r10_returning_session_keeps_its_generation() {
    let mut holder = founded(0, 1);
    announce(&mut holder, 0, Input::Forget);
    event(&mut holder, session(0), 2, EventKind::Left { quit: 1 });
    assert!(holder.is_nothing());
    let mut again = Custody::returning(session(0), CONFIG, holder.memory());
    assert_eq!(event(&mut again, session(0), 1, opened(1, &[0])), [], "a late event");
    assert_eq!((again.held().count(), again.generation()), (0, 2));
    let effects = event(&mut again, session(0), 3, opened(1, &[0]));
    assert_eq!(
        effects,
        [Effect::RegistryRequest(RegistryRequest::Close { generation: 3, remaining: vec![session(0)] })]
    );
    assert_eq!(again.held().count(), 1);
}

/// Another generation was opened before the `Quit` was applied.
#[test]
fn r10_quitting_session_replies_nothing_to_next_census() {
    let mut idle = founded(1, 1);
    assert_eq!(
        announce(&mut idle, 1, Input::Forget),
        [Effect::RegistryRequest(RegistryRequest::Quit { generation: 1 })]
    );
    let effects = feed(&mut idle, 1, 0, 2, census(1, 1));
    let answer = Answer { session: session(1), tokens: Vec::new(), waiting: Vec::new() };
    let message = Message { generation: 2, body: Body::Answer(answer) };
    assert_eq!(effects, [Effect::Send { to: PeerId::new(0), message }]);
    assert!(idle.is_nothing());
    assert_eq!(event(&mut idle, session(1), 2, EventKind::Left { quit: 1 }), []);
}

/// Another generation was opened first, and its event arrives before the census.
#[test]
fn r10_session_that_has_quit_replies_to_later_census() {
    let mut idle = founded(1, 1);
    announce(&mut idle, 1, Input::Forget);
    event(&mut idle, session(1), 2, EventKind::Left { quit: 1 });
    assert!(idle.is_nothing());
    let mut again = Custody::returning(session(1), CONFIG, idle.memory());
    assert_eq!(feed(&mut again, 1, 0, 2, census(1, 1)).len(), 1);
    assert_eq!(feed(&mut again, 1, 0, 2, census(1, 1)), [], "once");
}

/// A session that has joined generation 3, has not received its census yet, and has sent `Quit` meanwhile. A client
/// waits.
fn quits_before_census() -> Custody {
    let mut idle = founded(1, 1);
    feed(&mut idle, 1, 0, 2, census(1, 1));
    assert_eq!(ask(&mut idle, 1, 1), [Effect::RegistryRequest(RegistryRequest::Join)]);
    event(&mut idle, session(1), 3, EventKind::Joined { coordinator: PeerId::new(0), slots: 1 });
    announce(&mut idle, 1, Input::Release(Ticket::new(1)));
    assert_eq!(
        announce(&mut idle, 1, Input::Forget),
        [Effect::RegistryRequest(RegistryRequest::Quit { generation: 3 })]
    );
    assert_eq!(ask(&mut idle, 1, 2), []);
    idle
}

/// The registry may remove it from this generation at any time.
#[test]
fn r10_quitting_session_replies_nothing_to_same_generation() {
    let mut idle = quits_before_census();
    let effects = feed(&mut idle, 1, 0, 3, census(1, 1));
    assert_eq!(*answer(&effects), Answer { session: session(1), tokens: Vec::new(), waiting: Vec::new() });
    assert_eq!(feed(&mut idle, 1, 0, 3, census(1, 1)), [], "once");
    assert_eq!(feed(&mut idle, 1, 0, 3, token(0, 301)), []);
    assert_eq!((idle.tokens(), idle.is_party()), (0, false));
    assert_eq!(
        event(&mut idle, session(1), 4, EventKind::Left { quit: 3 }),
        [Effect::RegistryRequest(RegistryRequest::Join)]
    );
}

/// The next generation is opened when the registry applies the `Quit`.
#[test]
fn r10_quitting_session_does_not_coordinate() {
    let mut idle = quits_before_census();
    assert_eq!(event(&mut idle, session(1), 3, opened(1, &[0, 1])), []);
    assert_eq!((idle.missing(), idle.is_party()), (None, false));
    let effects = event(&mut idle, session(1), 4, opened(1, &[1]));
    assert_eq!(granted(&effects), Some(Grant { slot: 0, fencing: 401 }), "it coordinates the next, with its waiter");
}
