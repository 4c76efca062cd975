//! The rules of lab/docs/custody.md, a sentence per test, without a network: state, event, check.

use peerlock_protocol::custody::{Answer, Body, Config, Following, Message, Report, Timer, Update};
use peerlock_protocol::registry::{Detached, EventKind, RegistryEvent, RegistryRequest, Session};
use peerlock_protocol::token::{Arrival, Claim, Token};
use peerlock_protocol::{Custody, Cx, Effect, Grant, Input, Observe, step};
use peerlock_types::{PeerId, Rng, Ticket, Time};

type Said = Vec<Effect<Message, Timer>>;

/// A hundred numbers per generation, and arrival numbers told at once.
const CONFIG: Config = Config { numbers: 100, batch: None, reach: 8, always_ahead: false, without: None };

fn session(peer: u64) -> Session {
    Session { peer: PeerId::new(peer), number: 0 }
}

/// Peer 0 coordinates generation 1 and has all tokens.
fn founded(peer: u64, slots: u32) -> Custody {
    Custody::founded(session(peer), CONFIG, PeerId::new(0), slots)
}

fn announce(peer: &mut Custody, me: u64, input: Input<Message, Timer>) -> Said {
    let (mut said, mut rng) = (Vec::new(), Rng::new(0));
    step(peer, input, &mut Cx::new(PeerId::new(me), Time::ZERO, &mut rng, &mut said));
    said
}

fn ask(peer: &mut Custody, me: u64, ticket: u64) -> Said {
    announce(peer, me, Input::Request(Ticket::new(ticket)))
}

fn feed(peer: &mut Custody, me: u64, from: u64, generation: u64, body: Body) -> Said {
    announce(peer, me, Input::Message { from: PeerId::new(from), message: Message { generation, body } })
}

fn event(peer: &mut Custody, to: Session, generation: u64, kind: EventKind) -> Said {
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

/// The only answer in what was said.
fn answer(said: &Said) -> &Answer {
    let mut answers = said.iter().filter_map(|effect| match effect {
        Effect::Send { message: Message { body: Body::Answer(answer), .. }, .. } => Some(answer),
        _ => None,
    });
    answers.next().expect("an answer")
}

fn granted(said: &Said) -> Option<Grant> {
    said.iter().find_map(|effect| match effect {
        Effect::Grant { grant, .. } => Some(*grant),
        _ => None,
    })
}

#[test]
fn r1_what_is_older_is_void() {
    let mut waiter = founded(1, 1);
    ask(&mut waiter, 1, 1);
    feed(&mut waiter, 1, 0, 2, census(1, 1));

    assert_eq!(feed(&mut waiter, 1, 0, 1, token(0, 101)), [], "a token of generation 1");
    assert_eq!(feed(&mut waiter, 1, 0, 2, census(1, 1)), [], "the question twice");
    assert_eq!(waiter.tokens(), 0);
    assert_eq!(granted(&feed(&mut waiter, 1, 0, 2, token(0, 201))), Some(Grant { slot: 0, fencing: 201 }));
}

#[test]
fn r2_who_answers_forgets_who_comes_next() {
    let mut holder = founded(1, 1);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(0, 101));
    let claims = vec![Claim { peer: PeerId::new(2), ticket: Ticket::new(1) }];
    let following = Following { claims, ..Following::default() };
    feed(&mut holder, 1, 0, 1, Body::Next { slot: 0, stay: 7, following, replaces: true });
    feed(&mut holder, 1, 0, 2, census(1, 1));

    let said = announce(&mut holder, 1, Input::Release(Ticket::new(1)));

    assert_eq!(holder.tokens(), 1, "it lies where it is: {said:?}");
    assert!(granted(&ask(&mut holder, 1, 2)).is_none(), "and is not for a client of this peer, either");
}

#[test]
fn r3_nothing_is_counted_before_everybody_has_answered() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    assert_eq!(feed(&mut coordinator, 1, 2, 2, nothing(2)), []);
    assert_eq!(feed(&mut coordinator, 1, 2, 2, nothing(2)), [], "the same one twice is one");
    assert_eq!(coordinator.tokens(), 0);

    let said = feed(&mut coordinator, 1, 3, 2, nothing(3));

    assert_eq!(coordinator.tokens(), 1, "the missing token is made");
    assert_eq!(said, [Effect::RegistryRequest(RegistryRequest::Close { generation: 2, remaining: vec![session(1)] })]);
}

#[test]
fn r4_who_joins_begins_in_the_generation_of_the_answer() {
    let mut joiner = Custody::new(session(2), CONFIG);
    assert_eq!(ask(&mut joiner, 2, 1), [Effect::RegistryRequest(RegistryRequest::Join)]);
    event(&mut joiner, session(2), 3, EventKind::Joined { coordinator: PeerId::new(0), slots: 1 });

    assert_eq!(feed(&mut joiner, 2, 1, 2, token(0, 201)), []);
    assert_eq!((joiner.generation(), joiner.tokens()), (3, 0));
}

#[test]
fn r5_who_does_not_know_that_it_is_a_party_takes_no_token() {
    let mut joiner = Custody::new(session(2), CONFIG);
    ask(&mut joiner, 2, 1);
    assert_eq!(feed(&mut joiner, 2, 1, 1, token(0, 101)), []);
    assert_eq!(joiner.tokens(), 0);
}

#[test]
fn r6_another_session_of_the_same_host_is_silent() {
    let mut again = Custody::new(Session { number: 1, ..session(2) }, CONFIG);
    assert_eq!(feed(&mut again, 2, 0, 2, census(2, 1)), []);
    assert_eq!(event(&mut again, session(2), 2, opened(1, &[2])), []);
    assert_eq!(again.generation(), 0);
}

#[test]
fn r7_numbers_go_on_above_those_of_every_older_generation() {
    let mut waiter = founded(1, 2);
    ask(&mut waiter, 1, 1);
    feed(&mut waiter, 1, 0, 5, census(1, 3));
    assert_eq!(granted(&feed(&mut waiter, 1, 0, 5, token(1, 108))), Some(Grant { slot: 1, fencing: 502 }));
    announce(&mut waiter, 1, Input::Release(Ticket::new(1)));
    assert_eq!(granted(&ask(&mut waiter, 1, 2)), Some(Grant { slot: 1, fencing: 505 }), "and step by the slots");
}

#[test]
fn r7_a_generation_whose_numbers_run_out_is_followed_by_another() {
    let mut waiter = founded(1, 1);
    ask(&mut waiter, 1, 1);
    let said = feed(&mut waiter, 1, 0, 1, token(0, 149));
    assert!(said.contains(&Effect::RegistryRequest(RegistryRequest::Renumber { generation: 1 })), "{said:?}");

    let mut late = founded(1, 1);
    ask(&mut late, 1, 1);
    assert_eq!(feed(&mut late, 1, 0, 1, token(0, 200)), [], "there is no number left: it waits with the token");
    let answer = answer(&feed(&mut late, 1, 0, 2, census(1, 1))).clone();
    assert_eq!((answer.tokens.len(), answer.waiting.len()), (1, 1));
}

#[test]
fn r8_who_has_nothing_joins_again_before_its_next_request() {
    let mut idle = founded(1, 1);
    let said = feed(&mut idle, 1, 0, 2, census(1, 1));
    assert!(answer(&said).is_empty());
    assert_eq!(ask(&mut idle, 1, 1), [Effect::RegistryRequest(RegistryRequest::Join)]);
}

#[test]
fn r9_news_for_a_generation_to_come_are_kept() {
    let mut coordinator = founded(0, 1);
    let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(1) };
    let request = Body::Update(Update::Request(claim));
    assert_eq!(feed(&mut coordinator, 0, 2, 2, request), []);

    let said = event(&mut coordinator, session(0), 2, opened(1, &[0]));

    let is_token = |effect: &Effect<_, _>| {
        matches!(effect, Effect::Send { to, message: Message { generation: 2, body: Body::Token { .. } } }
            if *to == PeerId::new(2))
    };
    assert!(said.iter().any(is_token), "{said:?}");
}

/// A host whose clients wait for 50 ms each and ask again fills its ration at the coordinator otherwise.
#[test]
fn withdrawal_during_a_count_removes_the_kept_request() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    feed(&mut coordinator, 1, 2, 2, nothing(2));
    for ticket in 1..=100 {
        let claim = Claim { peer: PeerId::new(2), ticket: Ticket::new(ticket) };
        feed(&mut coordinator, 1, 2, 2, Body::Update(Update::Request(claim)));
        feed(&mut coordinator, 1, 2, 2, Body::Update(Update::Withdraw(claim)));
    }
    assert_eq!(coordinator.retained(Some(PeerId::new(2))), 1, "its answer");
    let said = feed(&mut coordinator, 1, 3, 2, nothing(3));
    assert_eq!(said.len(), 1, "nobody is waiting: {said:?}");
}

#[test]
fn the_line_is_put_together_by_arrival_number() {
    let mut coordinator = founded(1, 1);
    event(&mut coordinator, session(1), 2, opened(1, &[1, 2, 3]));
    let waits = |peer: u64, arrival: Option<Arrival>| {
        let waiting = vec![(Ticket::new(1), arrival)];
        Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting })
    };
    feed(&mut coordinator, 1, 2, 2, waits(2, Some(Arrival { generation: 1, number: 9 })));
    feed(&mut coordinator, 1, 3, 2, waits(3, Some(Arrival { generation: 1, number: 4 })));

    let queue = coordinator.queue().expect("all have answered");
    assert_eq!(queue.to_string(), "waiting [2], tokens [0 at 3, next 2]", "3 came first and has got the token");
}

/// A line that is too long for one message is put together from as many as there are parties, and a thousand slots are
/// founded by one word.
#[test]
fn a_long_line_and_many_slots_move_in_pieces() {
    const PARTIES: u64 = 4;
    const EACH: u64 = 25_000;
    const SLOTS: u32 = 1000;
    let mut keeper = founded(0, 1);
    event(&mut keeper, session(0), 2, opened(SLOTS, &[0, 1, 2, 3, 4]));
    let mut said = Vec::new();
    for peer in 1..=PARTIES {
        let arrival = |number| Arrival { generation: 1, number: number * PARTIES + peer };
        let waiting = (1..=EACH).map(|ticket| (Ticket::new(ticket), Some(arrival(ticket)))).collect();
        let body = Body::Answer(Answer { session: session(peer), tokens: Vec::new(), waiting });
        assert_eq!(Message { generation: 2, body: body.clone() }.check(), Ok(()), "within the bounds of one message");
        said = feed(&mut keeper, 0, peer, 2, body);
    }
    let queue = keeper.queue().expect("all is counted");
    let tokens = said
        .iter()
        .filter(|effect| matches!(effect, Effect::Send { message: Message { body: Body::Token { .. }, .. }, .. }));
    assert_eq!((tokens.count(), queue.locations().len()), (SLOTS as usize, SLOTS as usize));
    assert_eq!(queue.len() as u64, PARTIES * EACH - u64::from(SLOTS), "everybody else waits");
    let first: Vec<String> = queue.waiting().take(5).map(|claim| claim.to_string()).collect();
    assert_eq!(first, ["1#251", "2#251", "3#251", "4#251", "1#252"], "in order of arrival");
}

#[test]
fn a_slot_with_a_detached_client_is_made_when_that_grant_is_over() {
    let mut coordinator = founded(1, 1);
    let detached = |fencing| Detached { slot: 0, fencing };
    let both = vec![detached(101), detached(103)];
    let kind = EventKind::Opened { slots: 1, asked: vec![session(1)], detached: both };
    event(&mut coordinator, session(1), 2, kind);
    assert_eq!(coordinator.tokens(), 0);
    event(&mut coordinator, session(1), 2, EventKind::Expired(detached(101)));
    assert_eq!(coordinator.tokens(), 0, "another grant of the same slot is not over");
    event(&mut coordinator, session(1), 2, EventKind::Expired(detached(103)));
    assert_eq!(coordinator.tokens(), 1);
}

#[test]
fn of_two_tokens_of_a_slot_the_older_is_void_and_its_client_hears_of_it() {
    let grant = Grant { slot: 0, fencing: 104 };
    let mut forced = Custody::taking_over(Session { number: 1, ..session(2) }, CONFIG, &[(Ticket::new(1), grant)]);
    let census = Body::Census { session: Session { number: 1, ..session(2) }, slots: 1 };
    let said = feed(&mut forced, 2, 0, 3, census);
    let report = answer(&said).tokens[0];
    assert_eq!(report, Report { token: Token { slot: 0, fencing: 105 }, in_use: true });

    let said = feed(&mut forced, 2, 0, 3, Body::Void(report.token));

    assert_eq!((said, forced.tokens()), (vec![Effect::Lost { ticket: Ticket::new(1) }], 0));
}

#[test]
fn a_younger_token_may_be_faster_than_word_that_the_older_one_is_void() {
    let me = Session { number: 1, ..session(2) };
    let grant = Grant { slot: 0, fencing: 104 };
    let mut forced = Custody::taking_over(me, CONFIG, &[(Ticket::new(1), grant)]);
    assert_eq!(ask(&mut forced, 2, 2), [], "who takes over does not ask to join");
    feed(&mut forced, 2, 0, 3, Body::Census { session: me, slots: 1 });
    let older = Token { slot: 0, fencing: 105 };
    let token = Token { slot: 0, fencing: 301 };
    let younger = Body::Token { to: Ticket::new(2), token, stay: 302, following: Following::default() };

    let said = feed(&mut forced, 2, 0, 3, younger);

    assert_eq!(said[0], Effect::Lost { ticket: Ticket::new(1) });
    assert_eq!(granted(&said), Some(Grant { slot: 0, fencing: 301 }));
    assert_eq!((feed(&mut forced, 2, 0, 3, Body::Void(older)), forced.tokens()), (vec![], 1));
}

#[test]
fn who_is_forced_out_gives_up_what_it_has_and_asks_anew() {
    let mut holder = founded(1, 2);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(0, 101));
    ask(&mut holder, 1, 2);

    let said = event(&mut holder, session(1), 2, EventKind::Expelled);

    assert_eq!(said, [Effect::Lost { ticket: Ticket::new(1) }, Effect::RegistryRequest(RegistryRequest::Join)]);
    assert_eq!(event(&mut holder, session(1), 2, EventKind::Expelled), [], "once");
}

#[test]
fn a_surplus_token_ends_when_it_is_left() {
    let mut holder = founded(1, 2);
    ask(&mut holder, 1, 1);
    feed(&mut holder, 1, 0, 1, token(1, 102));
    feed(&mut holder, 1, 0, 2, census(1, 1));

    let said = announce(&mut holder, 1, Input::Release(Ticket::new(1)));

    let dropped = Message { generation: 2, body: Body::Dropped { slot: 1, stay: 104 } };
    assert_eq!((said, holder.tokens()), (vec![Effect::Send { to: PeerId::new(0), message: dropped }], 0));
}

/// R10.
#[test]
fn who_gives_up_its_part_has_nothing_before_it_says_so_and_takes_nothing_before_the_answer() {
    let mut holder = founded(0, 2);
    assert_eq!(ask(&mut holder, 0, 1).len(), 1, "it is let in");
    assert_eq!(announce(&mut holder, 0, Input::Forget), [], "somebody is inside");
    announce(&mut holder, 0, Input::Release(Ticket::new(1)));
    assert_eq!(
        announce(&mut holder, 0, Input::Forget),
        [Effect::RegistryRequest(RegistryRequest::Quit { generation: 1 })]
    );
    assert_eq!(holder.held().count(), 0);
    assert_eq!(announce(&mut holder, 0, Input::Forget), [], "it has said so");
    assert!(!holder.is_nothing(), "the register may not have heard of it");
    // Neither what it had before nor a late answer to its join makes it a party.
    assert_eq!(ask(&mut holder, 0, 2), []);
    assert_eq!(event(&mut holder, session(0), 1, EventKind::Joined { coordinator: PeerId::new(0), slots: 2 }), []);
    assert!(!holder.is_party());
    assert_eq!(
        event(&mut holder, session(0), 2, EventKind::Left { quit: 1 }),
        [Effect::RegistryRequest(RegistryRequest::Join)]
    );
}

/// R10. The generation stays, so that what is older is void.
#[test]
fn who_has_given_up_its_part_begins_again_where_it_was() {
    let mut holder = founded(0, 1);
    announce(&mut holder, 0, Input::Forget);
    event(&mut holder, session(0), 2, EventKind::Left { quit: 1 });
    assert!(holder.is_nothing());
    let mut again = Custody::returning(session(0), CONFIG, holder.memory());
    assert_eq!(event(&mut again, session(0), 1, opened(1, &[0])), [], "a late word");
    assert_eq!((again.held().count(), again.generation()), (0, 2));
    let said = event(&mut again, session(0), 3, opened(1, &[0]));
    assert_eq!(said, [Effect::RegistryRequest(RegistryRequest::Close { generation: 3, remaining: vec![session(0)] })]);
    assert_eq!(again.held().count(), 1);
}

/// R10. Another generation was opened first: in that one it is asked.
#[test]
fn who_gives_up_its_part_too_late_answers_that_it_has_nothing() {
    let mut idle = founded(1, 1);
    assert_eq!(
        announce(&mut idle, 1, Input::Forget),
        [Effect::RegistryRequest(RegistryRequest::Quit { generation: 1 })]
    );
    let said = feed(&mut idle, 1, 0, 2, census(1, 1));
    let answer = Answer { session: session(1), tokens: Vec::new(), waiting: Vec::new() };
    let message = Message { generation: 2, body: Body::Answer(answer) };
    assert_eq!(said, [Effect::Send { to: PeerId::new(0), message }]);
    assert!(idle.is_nothing());
    assert_eq!(event(&mut idle, session(1), 2, EventKind::Left { quit: 1 }), []);
}

/// R10. Another generation was opened first, and word of that came before the question: it is answered all the same.
#[test]
fn who_has_given_up_its_part_answers_when_it_is_asked_in_the_generation_that_came_before() {
    let mut idle = founded(1, 1);
    announce(&mut idle, 1, Input::Forget);
    event(&mut idle, session(1), 2, EventKind::Left { quit: 1 });
    assert!(idle.is_nothing());
    let mut again = Custody::returning(session(1), CONFIG, idle.memory());
    assert_eq!(feed(&mut again, 1, 0, 2, census(1, 1)).len(), 1);
    assert_eq!(feed(&mut again, 1, 0, 2, census(1, 1)), [], "once");
}

/// Peer 1 has joined generation 3, in which it is asked, too, since the register still had it from before; and has
/// given that up before the question came. Somebody waits there since then.
fn gives_up_before_it_is_asked() -> Custody {
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

/// R10. The register takes it out of this generation whenever it hears of it: it must not have anything then.
#[test]
fn who_is_asked_in_a_generation_that_it_has_given_up_has_nothing_and_takes_nothing() {
    let mut idle = gives_up_before_it_is_asked();
    let said = feed(&mut idle, 1, 0, 3, census(1, 1));
    assert_eq!(*answer(&said), Answer { session: session(1), tokens: Vec::new(), waiting: Vec::new() });
    assert_eq!(feed(&mut idle, 1, 0, 3, census(1, 1)), [], "once");
    assert_eq!(feed(&mut idle, 1, 0, 3, token(0, 301)), []);
    assert_eq!((idle.tokens(), idle.is_party()), (0, false));
    assert_eq!(
        event(&mut idle, session(1), 4, EventKind::Left { quit: 3 }),
        [Effect::RegistryRequest(RegistryRequest::Join)]
    );
}

/// R10. Nor does it coordinate it: the next one begins when the register hears that it is given up.
#[test]
fn nobody_coordinates_a_generation_that_it_has_given_up() {
    let mut idle = gives_up_before_it_is_asked();
    assert_eq!(event(&mut idle, session(1), 3, opened(1, &[0, 1])), []);
    assert_eq!((idle.missing(), idle.is_party()), (None, false));
    let said = event(&mut idle, session(1), 4, opened(1, &[1]));
    assert_eq!(granted(&said), Some(Grant { slot: 0, fencing: 401 }), "but the next one, with who waits");
}
