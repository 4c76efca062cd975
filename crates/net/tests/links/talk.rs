use std::collections::BTreeMap;

use bytes::Bytes;
use peerlock_net::{Config, Error, Event, Identity, Net, Refusal, Unreached, Unsent, Why};
use tokio::test as tokio_test;

use super::*;

const MESSAGES: u32 = 500;

#[tokio_test]
async fn three_peers_talk_in_order() {
    let mut nets = [start(config()).await, start(config()).await, start(config()).await];
    let addresses = nets.each_ref().map(|net| net.address());
    nets[1].dial(addresses[0]).unwrap();
    nets[2].dial(addresses[0]).unwrap();
    nets[2].dial(addresses[1]).unwrap();
    let [a, b, c] = &mut nets;
    let arrived =
        tokio::join!(greet_and_listen(a, &addresses), greet_and_listen(b, &addresses), greet_and_listen(c, &addresses));
    for (net, arrived) in nets.iter().zip([arrived.0, arrived.1, arrived.2]) {
        let others = nets.iter().map(Net::me).filter(|peer| *peer != net.me());
        assert_eq!(arrived, others.map(|peer| (peer, MESSAGES)).collect());
        let metrics = net.metrics();
        assert_eq!((metrics.up, metrics.received, metrics.dropped), (2, 2 * u64::from(MESSAGES), 0));
    }
}

/// Checks the order of numbered messages. Returns how many arrived.
async fn greet_and_listen(net: &mut Net, addresses: &[SocketAddr]) -> BTreeMap<PeerId, u32> {
    let (mut epochs, mut arrived) = (BTreeMap::new(), BTreeMap::new());
    while arrived.values().sum::<u32>() < 2 * MESSAGES {
        match next(net).await {
            Event::Up { peer, epoch, address } => {
                assert!(addresses.contains(&address), "no peer listens on {address}");
                assert_eq!(epochs.insert(peer, epoch), None);
                for number in 0..MESSAGES {
                    net.send(peer, epoch, Bytes::copy_from_slice(&number.to_be_bytes())).unwrap();
                }
            }
            Event::Message { from, epoch, bytes } => {
                let count = arrived.entry(from).or_insert(0);
                assert_eq!((epochs[&from], &bytes[..]), (epoch, &count.to_be_bytes()[..]), "from {from}");
                *count += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    arrived
}

/// There is one link, and it never flaps.
#[tokio_test(flavor = "multi_thread", worker_threads = 2)]
async fn peers_that_dial_each_other_at_once_have_one_link() {
    for round in 0..8 {
        let (mut a, mut b) = (start(config()).await, start(config()).await);
        a.maintain(b.address()).unwrap();
        b.maintain(a.address()).unwrap();
        let (peer_a, epoch_a, _) = up(&mut a).await;
        let (peer_b, epoch_b, _) = up(&mut b).await;
        assert_eq!((peer_a, peer_b), (b.me(), a.me()));
        let settled = |net: &Net| {
            let metrics = net.metrics();
            metrics.dials == 1 + metrics.redials && metrics.refused.values().sum::<u64>() >= 1
        };
        timeout(DEADLINE, async {
            while !(settled(&a) && settled(&b)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap_or_else(|_| panic!("{:?}\n{:?}", a.metrics(), b.metrics()));
        a.send(peer_a, epoch_a, "from a".into()).unwrap();
        b.send(peer_b, epoch_b, "from b".into()).unwrap();
        assert_eq!(message(&mut a).await, (peer_a, epoch_a, b"from b".to_vec()), "round {round}");
        assert_eq!(message(&mut b).await, (peer_b, epoch_b, b"from a".to_vec()), "round {round}");
        assert_eq!((a.metrics().ups, b.metrics().ups), (1, 1), "round {round}");
    }
}

#[tokio_test]
async fn goodbye_comes_after_everything_else() {
    let ((mut a, _, _), (b, to, epoch)) = pair().await;
    for number in 0..100u8 {
        b.send(to, epoch, vec![number; 1000].into()).unwrap();
    }
    timeout(DEADLINE, b.shutdown()).await.unwrap();
    for number in 0..100 {
        assert_eq!(message(&mut a).await.2, vec![number; 1000]);
    }
    assert_eq!(down(&mut a).await.2, Why::Left);
    assert_eq!(a.metrics().downs[&Why::Left], 1);
}

#[tokio_test]
async fn both_may_leave_at_once() {
    let ((a, ..), (b, ..)) = pair().await;
    timeout(DEADLINE, async { tokio::join!(a.shutdown(), b.shutdown()) }).await.unwrap();
}

#[tokio_test]
async fn a_message_may_be_empty_or_as_long_as_the_limit_but_no_longer() {
    let ((mut a, ..), (b, to, epoch)) = pair().await;
    let longest = config().max_message;
    for length in [0, 1, longest] {
        b.send(to, epoch, vec![7; length].into()).unwrap();
        assert_eq!(message(&mut a).await.2, vec![7; length]);
    }
    assert_eq!(b.send(to, epoch, vec![7; longest + 1].into()), Err(Unsent::TooLong));
    b.send(to, epoch, "still up".into()).unwrap();
    assert_eq!(message(&mut a).await.2, b"still up");
}

#[tokio_test]
async fn after_a_crash_the_epoch_rises_and_nothing_old_travels() {
    let identity = Identity::generate();
    let mut a = start(config()).await;
    let mut b = Net::start(config(), identity.clone(), secret()).await.unwrap();
    let address = b.address();
    a.maintain(address).unwrap();
    let (peer, first, _) = up(&mut a).await;
    up(&mut b).await;
    a.send(peer, first, "one".into()).unwrap();
    assert_eq!(message(&mut b).await.2, b"one");
    drop(b);
    assert_eq!(down(&mut a).await, (peer, first, Why::Lost));
    assert_eq!(a.send(peer, first, "into the void".into()), Err(Unsent::Down));

    let again = Config { listen: address, ..config() };
    let mut b = loop {
        match Net::start(again.clone(), identity.clone(), secret()).await {
            Ok(net) => break net,
            // The sockets close with their tasks, shortly after.
            Err(Error::Listen { .. }) => tokio::time::sleep(Duration::from_millis(10)).await,
            Err(error) => panic!("{error}"),
        }
    };
    let second = loop {
        match next(&mut a).await {
            Event::Up { peer: back, epoch, .. } => {
                assert_eq!(back, peer);
                break epoch;
            }
            Event::Unreached { address: where_, .. } => assert_eq!(where_, address),
            other => panic!("{other:?}"),
        }
    };
    assert!(second > first);
    assert_eq!(a.send(peer, first, "old".into()), Err(Unsent::Down));
    a.send(peer, second, "two".into()).unwrap();
    let (_, epoch, _) = up(&mut b).await;
    assert_eq!(message(&mut b).await, (a.me(), epoch, b"two".to_vec()));
    assert!(a.metrics().redials > 0);
}

#[tokio_test]
async fn dead_address_is_reported() {
    let mut a = start(config()).await;
    let own = a.address();
    a.maintain(own).unwrap();
    assert_eq!(unreached(&mut a).await, (own, Unreached::Refused(Refusal::Myself)));

    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    a.dial(free).unwrap();
    let (address, why) = unreached(&mut a).await;
    assert_eq!(address, free);
    assert!(matches!(&why, Unreached::Connection(text) if text.to_lowercase().contains("refused")), "{why}");
    assert_eq!((a.metrics().dials, a.metrics().redials), (2, 0), "neither is redialled");
}

#[tokio_test]
async fn a_port_that_is_taken_is_named() {
    let a = start(config()).await;
    let address = a.address();
    let error = Net::start(Config { listen: address, ..config() }, Identity::generate(), secret()).await.err().unwrap();
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    drop(a);
}

#[tokio_test]
async fn advertised_address_reaches_other_peers() {
    let mut a = start(config()).await;
    for (advertise, expected) in [("192.0.2.9:7400", "192.0.2.9:7400"), ("192.0.2.9:0", "192.0.2.9:{port}")] {
        let mut b = start(Config { advertise: Some(advertise.parse().unwrap()), ..config() }).await;
        let expected = expected.replace("{port}", &b.address().port().to_string());
        assert_eq!(b.advertised().to_string(), expected);
        b.dial(a.address()).unwrap();
        let (peer, epoch, address) = up(&mut a).await;
        assert_eq!(address.to_string(), expected);
        assert_eq!(a.peers().get(&peer), Some(&(epoch, address)));
        assert_eq!(up(&mut b).await.2, a.address(), "the listening address without another");
        drop(b);
        down(&mut a).await;
    }
}
