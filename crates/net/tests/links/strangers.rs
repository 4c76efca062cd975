//! Whoever does not know the secret.

use libp2p::futures::{AsyncReadExt, AsyncWriteExt, StreamExt};
use peerlock_net::Refusal;
use tokio::net::TcpStream;
use tokio::test as tokio_test;

use super::rogue::{PROTOCOL, Rogue, say};
use super::*;

async fn stranger(config: Config) -> Net {
    Net::start(config, Identity::generate(), Secret::new(b"the secret of another cluster").unwrap()).await.unwrap()
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
        assert!(heard.len() <= 32, "a nonce at most, and nothing that depends on the secret");

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

/// Connections that prove nothing have few places and little time. A member who comes meanwhile gets in when they go.
#[tokio_test]
async fn strangers_are_few_and_do_not_stay() {
    let mut net = start(Config { max_strangers: 3, proof: Duration::from_millis(500), ..config() }).await;
    let mut idle = Vec::new();
    // One of them speaks libp2p and opens the stream, and then says nothing.
    let mut rogue = Rogue::anybody().await;
    let stream = rogue.connect(net.address()).await;
    for _ in 0..10 {
        idle.push(TcpStream::connect(net.address().socket).await.unwrap());
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Crowded) == Some(&8)).await;
    let member = start(config()).await;
    member.keep(net.address()).unwrap();
    assert_eq!(up(&mut net).await.0, member.me());
    until(&net, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&2)).await;
    until(&net, |metrics| metrics.refused.get(&Refusal::Timeout) == Some(&1)).await;
    drop((idle, stream));
}
