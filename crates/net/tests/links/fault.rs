//! Members that are silent, lag, break the format or connect twice.

use peerlock_net::{Refusal, Unsent};
use tokio::test as tokio_test;

use super::rogue::{Rogue, Stream, receive, say};
use super::*;

const DATA: u8 = 4;
const BEAT: u8 = 5;
const BYE: u8 = 6;
const ASK: u8 = 7;

#[tokio_test]
async fn a_killed_peer_is_down() {
    let ((mut a, peer, epoch), (b, ..)) = pair().await;
    drop(b);
    assert_eq!(down(&mut a).await, (peer, epoch, Why::Lost));
}

#[tokio_test]
async fn a_silent_peer_is_down() {
    let mut net = start(impatient()).await;
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (peer, epoch, address) = up(&mut net).await;
    assert_eq!(address, "10.0.0.7:7400".parse().unwrap(), "as stated in the hello");
    say(&mut stream, DATA, b"my last words").await;
    assert_eq!(message(&mut net).await.2, b"my last words");
    assert_eq!(receive(&mut stream).await.0, ASK, "it rests too long");
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Silent));
}

async fn receive_more(stream: &mut Stream) -> (u8, Vec<u8>) {
    loop {
        let frame = receive(stream).await;
        if frame.0 != ASK {
            return frame;
        }
    }
}

#[tokio_test]
async fn peer_not_answering_probes_is_down() {
    let mut net = start(restful()).await;
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (peer, epoch, _) = up(&mut net).await;
    net.send(peer, epoch, "are you there?".into()).unwrap();
    assert_eq!(receive_more(&mut stream).await.0, DATA);
    say(&mut stream, DATA, b"my last words").await;
    assert_eq!(message(&mut net).await.2, b"my last words");
    for _ in 0..restful().missed {
        assert_eq!(receive(&mut stream).await.0, ASK);
    }
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Silent));
}

#[tokio_test]
async fn probe_is_answered() {
    let mut net = start(restful()).await;
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (peer, epoch, _) = up(&mut net).await;
    for _ in 0..20 {
        say(&mut stream, ASK, b"").await;
        assert_eq!(receive_more(&mut stream).await.0, BEAT);
    }
    say(&mut stream, BYE, b"").await;
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Left));
}

#[tokio_test]
async fn idle_link_stays_up_while_answered() {
    let mut net = start(impatient()).await;
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (_, epoch, _) = up(&mut net).await;
    for _ in 0..4 {
        assert_eq!(receive(&mut stream).await.0, ASK);
        say(&mut stream, BEAT, b"").await;
    }
    say(&mut stream, DATA, b"still here").await;
    assert_eq!(message(&mut net).await.1, epoch);
    say(&mut stream, BYE, b"").await;
    assert_eq!(down(&mut net).await.2, Why::Left);
}

#[tokio_test]
async fn peer_that_does_not_read_loses_its_link() {
    let mut net = start(Config { outbox: 1 << 20, ..config() }).await;
    let mut rogue = Rogue::follower(&net).await;
    let stream = rogue.link(net.address()).await;
    let (peer, epoch, _) = up(&mut net).await;
    let mut queued = 0u64;
    let unsent = loop {
        assert!(queued < 20_000, "200 MB were queued for a peer that reads nothing");
        match net.send(peer, epoch, vec![0; 10_000].into()) {
            Ok(()) => queued += 1,
            Err(unsent) => break unsent,
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(unsent, Unsent::Slow);
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Slow));
    let metrics = net.metrics();
    let waiting = (queued - metrics.sent) * 10_000;
    assert!(waiting <= 1 << 20, "{waiting} bytes were queued");
    // In the other side's window and in kernel buffers.
    assert!(metrics.sent_bytes < 64 << 20, "{metrics:?}");
    drop(stream);
}

/// No message is lost, and memory is bounded.
#[tokio_test]
async fn lagging_application_slows_its_peer() {
    let inbox = 64 * 1024;
    let mut slow = start(Config { inbox, ..restful() }).await;
    let mut fast = start(Config { outbox: 64 << 20, ..restful() }).await;
    fast.dial(slow.address()).unwrap();
    let (to, epoch, _) = up(&mut fast).await;
    let count = 2_000u32;
    for number in 0..count {
        let mut bytes = vec![0; 4096];
        bytes[..4].copy_from_slice(&number.to_be_bytes());
        fast.send(to, epoch, bytes.into()).unwrap();
    }
    until(&slow, |metrics| metrics.received_bytes >= inbox as u64 - 4096).await;
    tokio::time::sleep(20 * restful().beat).await;
    let received = slow.metrics().received_bytes;
    assert!(received <= inbox as u64 + 4096, "{received} bytes wait for the application");
    up(&mut slow).await;
    for number in 0..count {
        assert_eq!(message(&mut slow).await.2[..4], number.to_be_bytes());
    }
    assert_eq!(slow.metrics().up, 1);
}

#[tokio_test]
async fn invalid_frame_ends_the_link() {
    let mut net = start(config()).await;
    for (what, bytes) in [
        ("longer than allowed", [&(config().max_message as u32 + 1).to_be_bytes()[..], &[DATA]].concat()),
        ("4 GiB", vec![0xff, 0xff, 0xff, 0xff, DATA]),
        ("no kind", vec![0, 0, 0, 0, 99]),
        ("a second hello", vec![0, 0, 0, 0, 1]),
        ("noise", noise(1, 5_000)),
    ] {
        let mut rogue = Rogue::follower(&net).await;
        let mut stream = rogue.link(net.address()).await;
        let (peer, epoch, _) = up(&mut net).await;
        say(&mut stream, DATA, b"good").await;
        assert_eq!(message(&mut net).await.2, b"good");
        stream.write_all(&bytes).await.unwrap();
        assert_eq!(down(&mut net).await, (peer, epoch, Why::Malformed), "{what}");
    }
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (peer, epoch, _) = up(&mut net).await;
    stream.write_all(&[0, 0, 0, 9, DATA, 1, 2]).await.unwrap();
    stream.close().await;
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Lost));
}

/// Refused while the first is good, taken if the peer has lost it or restarted.
#[tokio_test]
async fn only_one_of_two_connections_is_the_link() {
    let mut net = start(config()).await;
    let address = net.address();
    let mut rogue = Rogue::follower(&net).await;
    let (mut first, kind, taken, incarnation) = rogue.join(address, 1, (0, 0)).await;
    assert_eq!(kind, 2);
    let number = u64::from_be_bytes(taken.try_into().unwrap());
    let (peer, epoch, _) = up(&mut net).await;

    let (_, kind, refusal, _) = rogue.join(address, 1, (0, 0)).await;
    assert_eq!((kind, &refusal[..]), (3, &[2][..]), "a duplicate");
    until(&net, |metrics| metrics.refused.get(&Refusal::Duplicate) == Some(&1)).await;

    let (mut second, kind, _, _) = rogue.join(address, 1, (incarnation, number)).await;
    assert_eq!(kind, 2);
    let _ = first.write_all(&[0, 0, 0, 1, DATA, 1]).await;
    say(&mut second, DATA, &[2]).await;
    assert_eq!(down(&mut net).await, (peer, epoch, Why::Replaced));
    let (_, later, _) = up(&mut net).await;
    assert!(later > epoch);
    assert_eq!(message(&mut net).await, (peer, later, vec![2]));

    let (_third, kind, _, _) = rogue.join(address, 2, (0, 0)).await;
    assert_eq!(kind, 2);
    assert_eq!(down(&mut net).await, (peer, later, Why::Replaced));
    assert!(up(&mut net).await.1 > later);
}

#[tokio_test]
async fn peer_hung_up_on_may_reconnect() {
    let (mut a, mut b) = (start(config()).await, start(config()).await);
    b.maintain(a.address()).unwrap();
    let (peer, epoch, _) = up(&mut a).await;
    let (_, epoch_b, _) = up(&mut b).await;
    b.send(a.me(), epoch_b, "nonsense".into()).unwrap();
    assert_eq!(message(&mut a).await.2, b"nonsense");
    a.hang_up(peer, epoch, Why::HungUp);
    assert_eq!(a.send(peer, epoch, "more".into()), Err(Unsent::Down));
    assert_eq!(down(&mut a).await, (peer, epoch, Why::HungUp));
    assert_eq!(down(&mut b).await, (a.me(), epoch_b, Why::Lost));
    let (again, later, _) = up(&mut a).await;
    assert!(again == peer && later > epoch);
    let (_, later_b, _) = up(&mut b).await;
    a.hang_up(peer, epoch, Why::HungUp);
    b.send(a.me(), later_b, "sense".into()).unwrap();
    assert_eq!(message(&mut a).await, (peer, later, b"sense".to_vec()), "the hang-up of an ended link has no effect");
    assert_eq!(a.metrics().downs.get(&Why::HungUp), Some(&1));
}

/// They may contain the reason, as when two clusters meet.
#[tokio_test]
async fn messages_before_hang_up_arrive() {
    let ((mut a, peer, epoch), (mut b, to, epoch_b)) = pair().await;
    for number in 0..3 {
        a.send(peer, epoch, vec![number; 1000].into()).unwrap();
    }
    b.send(to, epoch_b, "we are".into()).unwrap();
    b.send_soon(to, epoch_b, "another cluster".into()).unwrap();
    b.hang_up(to, epoch_b, Why::Unneeded);
    assert_eq!(b.send(to, epoch_b, "more".into()), Err(Unsent::Down));
    assert_eq!(down(&mut b).await, (to, epoch_b, Why::Unneeded));
    for said in ["we are", "another cluster"] {
        assert_eq!(message(&mut a).await, (peer, epoch, said.into()));
    }
    assert_eq!(down(&mut a).await, (peer, epoch, Why::Lost));
    until(&b, |metrics| (metrics.sent, metrics.dropped) == (2, 1)).await;
}

/// It keeps neither the link nor the connection.
#[tokio_test]
async fn hang_up_closes_connection_of_nonreading_peer() {
    let mut net = start(Config { missed: 1000, ..impatient() }).await;
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.link(net.address()).await;
    let (peer, epoch, _) = up(&mut net).await;
    for _ in 0..100 {
        net.send(peer, epoch, vec![0; 60_000].into()).unwrap();
    }
    // If the link came up slowly, probes come first.
    let mut first = receive(&mut stream).await;
    while first.0 == ASK {
        first = receive(&mut stream).await;
    }
    assert_eq!(first.1.len(), 60_000, "the first message was written partially");
    net.hang_up(peer, epoch, Why::HungUp);
    assert_eq!(down(&mut net).await, (peer, epoch, Why::HungUp));
    let closed = async {
        while stream.write_all(&[0, 0, 0, 0, BEAT]).await.is_ok() {
            tokio::time::sleep(impatient().beat / 4).await;
        }
    };
    timeout(DEADLINE, closed).await.expect("the connection is closed");
}
