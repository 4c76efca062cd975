//! Whoever does not know the secret.

use libp2p::futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use peerlock_net::Refusal;
use tokio::net::TcpStream;
use tokio::test as tokio_test;

use super::rogue::{PROTOCOL, Rogue, say};
use super::*;

async fn stranger(config: Config) -> Net {
    Net::start(config, Identity::generate(), Secret::generate()).await.unwrap()
}

async fn another_secret_is_refused_both_ways(transport: Transport) {
    let (mut ours, mut theirs) = (start(config()).await, stranger(config()).await);
    theirs.dial(at(&ours, transport)).unwrap();
    assert_eq!(unreached(&mut theirs).await.1, Unreached::Refused(Refusal::Secret));
    until(&ours, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&1)).await;
    ours.dial(at(&theirs, transport)).unwrap();
    assert_eq!(unreached(&mut ours).await.1, Unreached::Refused(Refusal::Secret));
    for net in [&mut ours, &mut theirs] {
        assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
    }
}

#[tokio_test]
async fn another_secret_is_refused_both_ways_by_every_transport() {
    for &transport in Transport::ALL {
        another_secret_is_refused_both_ways(transport).await;
    }
}

/// Good frames without the proof, and with one under another secret.
#[tokio_test]
async fn nothing_of_a_stranger_is_delivered() {
    let mut net = start(config()).await;
    for &transport in Transport::ALL {
        let mut rogue = Rogue::follower(&net).await;
        let (_, mut stream) = rogue.connect(at(&net, transport)).await;
        for _ in 0..20 {
            say(&mut stream, 4, b"let me in").await;
        }
        let mut heard = Vec::new();
        let _ = timeout(DEADLINE, stream.read_to_end(&mut heard)).await.unwrap();
        let no = heard.get(32..).unwrap_or_default();
        assert!(no.is_empty() || no == [0; 32], "a nonce, and no at most: nothing that depends on the secret");

        let mut rogue = Rogue::follower(&net).await;
        let (name, mut stream) = rogue.connect(at(&net, transport)).await;
        assert!(rogue.prove(&mut stream, name, b"a guess at the secret").await.is_err());
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&(2 * Transport::ALL.len() as u64))).await;
    assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
}

/// A stranger between two members who passes on every byte: each proves itself to the stranger, not to the other.
#[tokio_test]
async fn a_proof_cannot_be_relayed() {
    let (mut a, b) = (start(config()).await, start(config()).await);
    let mut between = Rogue::anybody().await;
    let mut incoming = between.control.accept(PROTOCOL).unwrap();
    a.dial(between.listen).unwrap();
    let (_, from_a) = timeout(DEADLINE, incoming.next()).await.unwrap().unwrap();
    let (_, to_b) = between.connect(b.address()).await;
    let (mut read_a, mut write_a) = from_a.split();
    let (mut read_b, mut write_b) = to_b.split();
    let relay = tokio::spawn(async move {
        let _ = tokio::join!(
            async {
                let _ = libp2p::futures::io::copy(&mut read_a, &mut write_b).await;
                write_b.close().await
            },
            async {
                let _ = libp2p::futures::io::copy(&mut read_b, &mut write_a).await;
                write_a.close().await
            },
        );
    });
    assert_eq!(unreached(&mut a).await.1, Unreached::Refused(Refusal::Secret));
    until(&b, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&1)).await;
    assert_eq!((a.metrics().ups, b.metrics().ups), (0, 0));
    relay.abort();
}

/// Bytes that are not even libp2p, by TCP and UDP, and connections that say nothing.
#[tokio_test]
async fn noise_on_the_port_is_counted_and_does_no_harm() {
    let mut net = start(config()).await;
    let address = net.address().socket;
    let udp = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    for seed in 0..20 {
        let noise = noise(seed, 4_000);
        udp.send_to(&noise[..1_200], address).await.unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        // It may be closed in the middle of it.
        for chunk in noise.chunks(100) {
            tcp.writable().await.unwrap();
            if tcp.try_write(chunk).is_err() {
                break;
            }
        }
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&20)).await;
    let mut member = start(config()).await;
    member.dial(net.address()).unwrap();
    assert_eq!(up(&mut net).await.0, member.me());
    assert_eq!(up(&mut member).await.0, net.me());
}

/// Connections that prove nothing have few places and little time: each gets one, and the oldest goes for it.
#[tokio_test]
async fn strangers_are_few_and_do_not_stay() {
    let net = start(Config { max_strangers: 3, proof: Duration::from_millis(500), ..config() }).await;
    // The first of them speaks libp2p and opens the stream, and then says nothing.
    let mut rogue = Rogue::anybody().await;
    let (_, mut stream) = rogue.connect(net.address()).await;
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.push(TcpStream::connect(net.address().socket).await.unwrap());
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Crowded) == Some(&8)).await;
    let mut heard = Vec::new();
    let _ = timeout(DEADLINE, stream.read_to_end(&mut heard)).await.expect("its place was needed");
    until(&net, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&3)).await;
    drop(idle);
}

/// However many say nothing, and from however many addresses: whoever belongs to the cluster comes in.
#[tokio_test]
async fn a_member_joins_however_many_strangers_say_nothing() {
    let mut net = start(Config { listen: "0.0.0.0:0".parse().unwrap(), ..config() }).await;
    let port = net.address().socket.port();
    let mut silent = Vec::new();
    for number in 0..500u32 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.{}:0", 2 + number % 250).parse().unwrap()).unwrap();
        silent.push(socket.connect(format!("127.0.0.1:{port}").parse().unwrap()).await.unwrap());
    }
    let most = config().max_strangers as u64;
    until(&net, |metrics| metrics.refused.get(&Refusal::Crowded) == Some(&(500 - most))).await;
    for _ in 0..3 {
        let mut member = start(config()).await;
        member.dial(format!("127.0.0.1:{port}").parse().unwrap()).unwrap();
        assert_eq!(up(&mut member).await.0, net.me(), "at its first attempt");
        assert_eq!(up(&mut net).await.0, member.me());
        drop(member);
        down(&mut net).await;
    }
    drop(silent);
}

/// The image of a machine was copied with its data folder. The second comes in, as one that was started again; the
/// first is told, and so is whoever watches the peer in between.
#[tokio_test]
async fn a_copied_identity_is_recognized() {
    for follows in [true, false] {
        let mut net = start(config()).await;
        let suits = |identity: &Identity| (identity.peer() > net.me()) == follows;
        let identity = std::iter::repeat_with(Identity::generate).find(suits).unwrap();
        let secret = || Secret::new(SECRET).unwrap();
        let mut first = Net::start(config(), identity.clone(), secret()).await.unwrap();
        first.keep(net.address()).unwrap();
        up(&mut first).await;
        up(&mut net).await;
        let mut second = Net::start(config(), identity.clone(), secret()).await.unwrap();
        second.keep(net.address()).unwrap();
        up(&mut second).await;
        assert_eq!(down(&mut net).await.2, Why::Replaced);
        up(&mut net).await;
        until(&net, |metrics| metrics.refused.get(&Refusal::Twin).is_some_and(|count| *count >= 2)).await;
        assert_eq!(net.metrics().ups, 2, "they do not push each other out any more");
        if follows {
            let is_told = |event| matches!(event, Event::Unreached { why: Unreached::Refused(Refusal::Twin), .. });
            let told = async { while !is_told(first.next().await) {} };
            timeout(DEADLINE, told).await.expect("the first is told");
        }
        assert_eq!(second.metrics().up, 1);
    }
}
