use super::*;
use crate::Identity;

const ME: PeerId = PeerId::new(100);
const LARGER: PeerId = PeerId::new(200);
const SMALLER: PeerId = PeerId::new(50);

fn table(change: impl FnOnce(&mut Config)) -> Arc<Table> {
    let mut config = Config::new("127.0.0.1:0".parse().unwrap());
    change(&mut config);
    Arc::new(Table::new(ME, config, ours()))
}

fn secret(digits: &str) -> Secret {
    let lines = digits.chars().map(|digit| format!("{digit}{}", "0123456789abcdef".repeat(4)));
    Secret::new(lines.collect::<Vec<_>>().join("\n").as_bytes()).unwrap()
}

fn ours() -> Secret {
    secret("1")
}

fn newcomer(peer: PeerId) -> Newcomer {
    let hello = Hello { incarnation: 1, over: (0, 0), listen: "127.0.0.1:1".parse().unwrap() };
    let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
    let (name, found, proved) = (Identity::generate().name(), address.ip(), ours().preferred());
    Newcomer { peer, name, hello, address, found, proved, first: proved }
}

fn with_hello(newcomer: Newcomer, change: impl FnOnce(&mut Hello)) -> Newcomer {
    let mut hello = newcomer.hello;
    change(&mut hello);
    Newcomer { hello, ..newcomer }
}

fn refusal(guard: Result<LinkGuard, Refusal>) -> Option<Refusal> {
    guard.err()
}

/// `+` up, `-` down, otherwise the message.
fn events(table: &Table) -> Vec<String> {
    std::iter::from_fn(|| table.pop())
        .map(|event| match event {
            Event::Up { epoch, .. } => format!("+{}", epoch),
            Event::Down { epoch, why, .. } => format!("-{} {why:?}", epoch),
            Event::Message { epoch, bytes, .. } => format!("{} {}", epoch, String::from_utf8_lossy(&bytes)),
            Event::Unreached { why, .. } => why.to_string(),
        })
        .collect()
}

#[test]
fn decider_keeps_its_link_unless_the_other_side_lost_it() {
    let table = table(|_| ());
    let peer = newcomer(LARGER);
    let first = table.take(peer).unwrap();
    for (what, over) in [
        ("no link has ended", (0, 0)),
        ("an older link has ended", (table.incarnation, first.number - 1)),
        ("a link of an earlier process of ours has ended", (table.incarnation ^ 1, 99)),
    ] {
        let again = table.take(with_hello(peer, |hello| hello.over = over));
        assert_eq!(refusal(again), Some(Refusal::Duplicate), "{what}");
    }
    let second = table.take(with_hello(peer, |hello| hello.over = (table.incarnation, first.number))).unwrap();
    let third = table.take(with_hello(peer, |hello| hello.incarnation += 1)).unwrap();
    assert_eq!(events(&table), ["+1", "-1 Replaced", "+2", "-2 Replaced", "+3"]);
    drop((first, second));
    assert_eq!(events(&table), [""; 0], "they have ended before");
    third.end(Why::Silent);
    assert_eq!(events(&table), ["-3 Silent"]);
    assert_eq!(table.greet(LARGER, peer.name).unwrap().over, (table.incarnation, 3));
}

#[test]
fn follower_follows_but_never_back() {
    let table = table(|_| ());
    let peer = newcomer(SMALLER);
    assert!(!table.decides(SMALLER) && table.decides(LARGER));
    let first = table.follow(peer, 7).unwrap();
    assert_eq!(refusal(table.follow(peer, 6)), Some(Refusal::Duplicate), "overtaken");
    let second = table.follow(peer, 8).unwrap();
    let third = table.follow(with_hello(peer, |hello| hello.incarnation = 2), 1).unwrap();
    assert_eq!(events(&table), ["+1", "-1 Replaced", "+2", "-2 Replaced", "+3"]);
    drop((first, second, third));
    assert_eq!(events(&table), ["-3 Lost"]);
    assert_eq!(table.greet(SMALLER, peer.name).unwrap().over, (2, 1), "numbered by the other side");
}

#[test]
fn process_returning_after_its_successor_is_a_twin() {
    let table = table(|_| ());
    for peer in [newcomer(LARGER), newcomer(SMALLER)] {
        let process = |incarnation| with_hello(peer, |hello| hello.incarnation = incarnation);
        let link = |newcomer: Newcomer, number| match table.decides(newcomer.peer) {
            true => table.take(newcomer).unwrap(),
            false => table.follow(newcomer, number).unwrap(),
        };
        let first = link(process(1), 1);
        assert!(!table.is_twin(&process(1)) && !table.is_twin(&process(2)), "a restart is possible so far");
        let second = link(process(2), 1);
        assert!(table.is_twin(&process(1)), "the first process is back");
        assert!(!table.is_twin(&process(2)) && !table.is_twin(&process(3)));
        let over = (table.incarnation, second.number);
        let again = link(with_hello(process(2), |hello| hello.over = over), 2);
        assert!(table.is_twin(&process(1)));
        drop((first, second, again));
        assert!(!table.is_twin(&process(1)), "without the second, the first is admitted");
    }
}

#[test]
fn member_addresses_are_remembered_and_bounded() {
    let table = table(|config| config.max_peers = 2);
    let ip = |number: u8| IpAddr::from([10, 0, 0, number]);
    for number in [1, 2, 1, 3] {
        table.know(ip(number));
    }
    assert_eq!([1, 2, 3].map(|number| table.knows(ip(number))), [true, false, true]);
    let member = Newcomer { found: ip(9), ..newcomer(LARGER) };
    drop(table.take(member).unwrap());
    assert!(table.knows(ip(9)), "also after its link has ended");
}

#[test]
fn a_second_key_with_the_same_number_is_refused() {
    let table = table(|_| ());
    let (first, second) = (newcomer(LARGER), newcomer(LARGER));
    let guard = table.take(first).unwrap();
    assert_eq!(table.greet(LARGER, second.name), Err(Refusal::Collision));
    assert_eq!(refusal(table.take(second)), Some(Refusal::Collision));
    assert_eq!(table.greet(ME, second.name), Err(Refusal::Collision), "our own number");
    drop(guard);
    assert!(table.take(second).is_ok(), "without the first, the number is free");
}

#[test]
fn links_have_a_limit_and_leaving_takes_no_more() {
    let table = table(|config| config.max_peers = 1);
    let one = newcomer(LARGER);
    let guard = table.take(one).unwrap();
    assert_eq!(refusal(table.follow(newcomer(SMALLER), 1)), Some(Refusal::Crowded));
    assert!(table.greet(LARGER, one.name).is_ok(), "a linked peer may reconnect");
    table.leave();
    assert!(matches!(guard.work(), Work::Leave));
    drop(guard);
    assert_eq!(refusal(table.take(one)), Some(Refusal::Leaving));
}

#[test]
fn events_for_an_idle_application_are_bounded() {
    let table = table(|config| config.max_peers = 2);
    let peer = newcomer(LARGER);
    let refused = (0..100).filter(|_| table.take(peer).is_err()).count();
    assert!(table.lock().inbox.len() <= 10 && refused > 90, "{refused}");
    let address = "127.0.0.1:1".parse().unwrap();
    (0..10 * UNREACHED).for_each(|_| table.unreached(address, Refusal::Timeout.into()));
    assert!(table.lock().inbox.len() <= 10 + UNREACHED);
    assert_eq!(table.metrics().unreached, 10 * UNREACHED as u64);
    events(&table);
    assert!(table.take(peer).is_ok(), "once the events were read");
}

#[test]
fn nothing_of_an_epoch_comes_after_its_down() {
    let table = table(|_| ());
    let peer = newcomer(LARGER);
    let old = table.take(peer).unwrap();
    assert_eq!(old.deliver("a".into()), Ok(true));
    let new = table.take(with_hello(peer, |hello| hello.incarnation = 2)).unwrap();
    assert_eq!(old.deliver("b".into()), Ok(false));
    assert_eq!(new.deliver("c".into()), Ok(true));
    assert_eq!(table.send(LARGER, old.epoch, "d".into()), Err(Unsent::Down));
    assert!(matches!(old.work(), Work::Over));
    assert_eq!(events(&table), ["+1", "1 a", "-1 Replaced", "+2", "2 c"]);
}

#[test]
fn full_outbox_ends_the_link_and_counts_writes() {
    let table = table(|config| (config.outbox, config.max_message) = (3 * (OVERHEAD + 10), 20));
    let guard = table.take(newcomer(LARGER)).unwrap();
    let send = |length| table.send(LARGER, guard.epoch, vec![0; length].into());
    assert_eq!(send(21), Err(Unsent::TooLong));
    assert_eq!((send(10), send(10)), (Ok(()), Ok(())));
    let Work::Messages(messages, cost) = guard.work() else { panic!("there are two") };
    assert_eq!((messages.len(), send(10)), (2, Ok(())));
    guard.written(2, cost);
    assert_eq!((send(10), send(10)), (Ok(()), Ok(())));
    assert_eq!((send(10), send(10)), (Err(Unsent::Slow), Err(Unsent::Down)));
    assert_eq!(events(&table), ["+1", "-1 Slow"]);
    let metrics = table.metrics();
    assert_eq!((metrics.sent, metrics.sent_bytes, metrics.dropped), (2, 20, 6), "3 queued, 3 refused");
}

#[test]
fn full_inbox_blocks_only_its_own_peer() {
    let table = table(|config| config.inbox = 2 * OVERHEAD);
    let (one, other) = (table.take(newcomer(LARGER)).unwrap(), table.follow(newcomer(SMALLER), 1).unwrap());
    assert_eq!((one.deliver("a".into()), one.deliver("b".into())), (Ok(true), Ok(true)));
    assert_eq!(one.deliver("c".into()), Err("c".into()));
    assert_eq!(other.deliver("d".into()), Ok(true));
    assert_eq!(events(&table), ["+1", "+2", "1 a", "1 b", "2 d"]);
    assert_eq!(one.deliver("c".into()), Ok(true));
}

/// A peer that reconnects must not get a new inbox each time.
#[tokio::test]
async fn inbox_counts_messages_of_ended_links() {
    let table = table(|config| config.inbox = 2 * OVERHEAD);
    let first = newcomer(LARGER);
    let old = table.take(first).unwrap();
    assert_eq!((old.deliver("a".into()), old.deliver("b".into())), (Ok(true), Ok(true)));
    let new = table.take(with_hello(first, |hello| hello.incarnation = 2)).unwrap();
    assert_eq!(new.deliver("c".into()), Err("c".into()), "it is full of earlier messages");
    drop((old, new));
    assert_eq!(table.take(first).unwrap().deliver("c".into()), Err("c".into()), "also after a disconnection");
    let last = table.take(with_hello(first, |hello| hello.incarnation = 4)).unwrap();
    let notified: Vec<String> = events(&table).into_iter().filter(|event| !event.contains(['+', '-'])).collect();
    assert_eq!(notified, ["1 a", "1 b"]);
    tokio::time::timeout(Duration::from_secs(60), last.wait_for_room())
        .await
        .expect("a waiting reader is notified of room");
    assert_eq!(last.deliver("c".into()), Ok(true));
    events(&table);
    assert!(table.lock().inbox_costs.is_empty(), "no entry without messages");
}

#[test]
fn dropped_secret_is_refused() {
    let table = table(|_| {});
    let [first, second] = ["1", "2"].map(|digit| secret(digit).preferred());
    let proves = |peer, digit: &str| Newcomer { proved: secret(digit).preferred(), ..newcomer(peer) };
    let _old = table.take(proves(LARGER, "1")).unwrap();
    assert_eq!(refusal(table.take(proves(SMALLER, "2"))), Some(Refusal::Secret));
    table.replace_secret(secret("21"));
    assert_eq!(events(&table), ["+1", "-1 Secret"], "it has to prove the new one");
    for refused in [refusal(table.take(proves(LARGER, "1"))), refusal(table.follow(proves(SMALLER, "1"), 9))] {
        assert_eq!(refused, Some(Refusal::Broken), "the proof started before the replacement");
    }
    assert_eq!(newcomer(LARGER).first, first);
    let _still_old = table.take(Newcomer { first: second, ..proves(LARGER, "1") }).unwrap();
    let new = table.follow(proves(SMALLER, "2"), 9).unwrap();
    table.replace_secret(secret("21"));
    assert_eq!(events(&table), ["+2", "+3"], "a member with the old secret is not asked twice");
    table.replace_secret(secret("2"));
    assert_eq!(events(&table), ["-2 Secret"]);
    assert!(!new.is_over());
    for refused in [refusal(table.take(proves(LARGER, "1"))), refusal(table.follow(proves(LARGER, "1"), 10))] {
        assert_eq!(refused, Some(Refusal::Secret));
    }
    assert_eq!(table.metrics().downs[&Why::Secret], 2);
}

#[test]
fn delayed_message_goes_with_the_next_or_a_flush() {
    let table = table(|_| ());
    let (one, other) = (table.take(newcomer(LARGER)).unwrap(), table.follow(newcomer(SMALLER), 1).unwrap());
    let is_woken = |link: &LinkGuard| {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(link.wait_for_work()).poll(&mut context).is_ready()
    };
    let to_write = |link: &LinkGuard| match link.work() {
        Work::Messages(messages, _) => messages.iter().map(|bytes| String::from_utf8_lossy(bytes).into()).collect(),
        _ => Vec::<String>::new(),
    };
    table.send_soon(LARGER, one.epoch, "a".into()).unwrap();
    table.send_soon(SMALLER, other.epoch, "b".into()).unwrap();
    assert!(!is_woken(&one) && !is_woken(&other), "it waits");
    table.send(LARGER, one.epoch, "c".into()).unwrap();
    assert!(is_woken(&one) && !is_woken(&other));
    assert_eq!(to_write(&one), ["a", "c"]);
    table.flush();
    assert!(!is_woken(&one), "it was sent with the other");
    assert!(is_woken(&other));
    assert_eq!(to_write(&other), ["b"]);
    table.flush();
    assert!(!is_woken(&other), "nothing is delayed");
    assert_eq!(table.send_soon(LARGER, other.epoch, "d".into()), Err(Unsent::Down));
}
