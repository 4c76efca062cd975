//! Replacing the secret while peers are linked.

use peerlock_net::{Fingerprint, Refusal};
use tokio::test as tokio_test;

use super::rogue::{Rogue, receive, say};
use super::*;

const NEW: &[u8] = b"f00dfeed0123456789abcdef00112233445566778899aabbccddeeff01234567";

fn new() -> Secret {
    Secret::new(NEW).unwrap()
}

fn both() -> Secret {
    Secret::new(&[NEW, SECRET].join(&b'\n')).unwrap()
}

fn which(secret: &Secret) -> Fingerprint {
    secret.fingerprints()[0]
}

async fn linked_by(nets: &mut [Net], secret: &Secret) {
    let numbers: Vec<_> = nets.iter().map(Net::me).collect();
    for net in nets {
        let met = async {
            let me = net.me();
            let is_linked = |net: &Net| {
                let proved = net.keyring().proved();
                numbers.iter().filter(|number| **number != me).all(|number| proved.get(number) == Some(&which(secret)))
            };
            while !is_linked(net) {
                let _ = timeout(Duration::from_millis(5), net.next()).await;
            }
        };
        timeout(DEADLINE, met).await.unwrap_or_else(|_| panic!("{:?}", net.keyring().proved()));
    }
}

/// First both secrets, then the new one alone.
#[tokio_test]
async fn rotation_keeps_all_members_linked() {
    let mut nets = [start(config()).await, start(config()).await, start(config()).await];
    let addresses = nets.each_ref().map(|net| net.address());
    for (number, net) in nets.iter().enumerate() {
        for address in &addresses[..number] {
            net.maintain(*address).unwrap();
        }
    }
    linked_by(&mut nets, &secret()).await;
    for number in 0..nets.len() {
        nets[number].keyring().replace(both());
        let with_new = number + 1;
        if with_new > 1 {
            linked_by(&mut nets[..with_new], &new()).await;
        }
        // A peer with only the old secret is still a member.
        for net in &nets {
            until(net, |metrics| metrics.up == 2).await;
        }
    }
    linked_by(&mut nets, &new()).await;
    let ups = nets.each_ref().map(|net| net.metrics().ups);
    for net in &nets {
        net.keyring().replace(new());
    }
    // No link has to be proved again.
    assert_eq!(nets.each_ref().map(|net| net.metrics().ups), ups);
    linked_by(&mut nets, &new()).await;
}

/// It stays a member until the old secret is dropped.
#[tokio_test]
async fn peer_with_dropped_secret_is_refused_until_updated() {
    let mut ours = Net::start(config(), Identity::generate(), both()).await.unwrap();
    let mut late = start(config()).await;
    late.maintain(ours.address()).unwrap();
    assert_eq!(up(&mut ours).await.0, late.me());
    up(&mut late).await;
    assert_eq!(ours.keyring().proved()[&late.me()], which(&secret()));
    ours.keyring().replace(new());
    assert_eq!(down(&mut ours).await.2, Why::Secret);
    assert_eq!(down(&mut late).await.0, ours.me());
    assert_eq!(unreached(&mut late).await.1, Unreached::Refused(Refusal::Secret));
    until(&ours, |metrics| metrics.refused.get(&Refusal::Secret).is_some_and(|count| *count >= 2)).await;
    assert_eq!(ours.metrics().up, 0);
    late.keyring().replace(new());
    assert_eq!(up(&mut ours).await.0, late.me());
    assert_eq!(ours.keyring().proved()[&late.me()], which(&new()));
}

/// Its hello follows after the old secret was dropped.
#[tokio_test]
async fn proof_of_a_secret_dropped_meanwhile_is_refused() {
    let mut net = Net::start(config(), Identity::generate(), both()).await.unwrap();
    let mut rogue = Rogue::follower(&net).await;
    let mut stream = rogue.connect(net.address()).await;
    net.keyring().replace(new());
    let hello = [&[0; 24][..], &[0; 10], &[0xff, 0xff, 10, 0, 0, 7], &7400u16.to_be_bytes()].concat();
    say(&mut stream, 1, &hello).await;
    say(&mut stream, 4, b"let me in").await;
    assert_eq!(receive(&mut stream).await.0, 1, "the peer sends its hello");
    assert_eq!(receive(&mut stream).await.0, 3, "and refuses");
    drop(stream);
    until(&net, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&1)).await;
    assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
    assert!(rogue.connect_by(net.address(), SECRET).await.is_err(), "the old secret is unknown");
}
