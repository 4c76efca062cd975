//! Seeded fuzzing over real connections: a peer that sends nonsense loses its link, and other links are unaffected.

use peerlock_net::{Metrics, Refusal};
use peerlock_types::Rng;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::test as tokio_test;

use super::rogue::Rogue;
use super::*;

fn bytes(rng: &mut Rng, most: u64) -> Vec<u8> {
    (0..rng.below(most + 1)).map(|_| rng.bits() as u8).collect()
}

fn frame(rng: &mut Rng) -> Vec<u8> {
    let body = match rng.below(3) {
        0 => Vec::new(),
        1 => bytes(rng, 50),
        _ => bytes(rng, 2_000),
    };
    // Data is valid at any time.
    let kind = if rng.below(20) == 0 { rng.below(9) as u8 } else { 4 };
    let mut frame = [&(body.len() as u32).to_be_bytes()[..], &[kind], &body].concat();
    let place = rng.below(frame.len() as u64) as usize;
    match rng.below(80) {
        0 => frame[place] ^= 1 << rng.below(8),
        1 => frame.truncate(place),
        2 => frame.extend_from_within(place..),
        3 => frame = bytes(rng, 300),
        _ => {}
    }
    frame
}

/// Each link ends in a defined way, and the next peer's messages arrive.
#[tokio_test]
async fn fuzzed_frames_of_a_member_are_harmless() {
    let mut net = start(Config { max_message: 4_000, ..config() }).await;
    let mut friend = start(config()).await;
    friend.dial(net.address()).unwrap();
    let (to, epoch, _) = up(&mut friend).await;
    up(&mut net).await;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let mut rogue = Rogue::follower(&net).await;
        let mut stream = rogue.link(net.address()).await;
        let (peer, ..) = up(&mut net).await;
        for _ in 0..40 {
            if stream.write_all(&frame(&mut rng)).await.is_err() {
                break;
            }
        }
        stream.close().await;
        let why = loop {
            match next(&mut net).await {
                Event::Message { from, bytes, .. } if from == peer => assert!(bytes.len() <= 4_000, "seed {seed}"),
                Event::Down { peer: gone, why, .. } if gone == peer => break why,
                other => panic!("seed {seed}: {other:?}"),
            }
        };
        assert!(matches!(why, Why::Malformed | Why::Left | Why::Lost), "seed {seed}: {why}");
        friend.send(to, epoch, seed.to_be_bytes().to_vec().into()).unwrap();
        assert_eq!(message(&mut net).await.2, seed.to_be_bytes(), "other links are unaffected");
    }
    let Metrics { downs, received, .. } = net.metrics();
    assert!(downs.get(&Why::Malformed).is_some_and(|&malformed| malformed > 50), "malformed: {downs:?}");
    assert!(received > 1_000, "too few valid messages: {received}");
}

/// Random bytes instead of the handshake, behind a valid greeting.
#[tokio_test]
async fn fuzzed_handshakes_are_harmless() {
    let mut net = start(config()).await;
    const ROGUES: u64 = 60;
    for seed in 0..ROGUES {
        let mut rng = Rng::new(seed);
        let mut tcp = TcpStream::connect(net.address()).await.unwrap();
        let _ = tcp.write_all(&[&b"peerlock/5\n"[..], &bytes(&mut rng, 500)].concat()).await;
        let _ = tcp.shutdown().await;
        let mut arrived = Vec::new();
        let _ = timeout(DEADLINE, tcp.read_to_end(&mut arrived)).await.unwrap();
        assert!(arrived.is_empty() || arrived.starts_with(b"peerlock/5\n\0\0"), "seed {seed}: more than a refusal");
    }
    let refused = |metrics: &Metrics| {
        [Refusal::Secret, Refusal::Broken].iter().filter_map(|why| metrics.refused.get(why)).sum::<u64>()
    };
    until(&net, |metrics| refused(metrics) == ROGUES).await;
    assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
}
