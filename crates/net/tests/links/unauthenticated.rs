//! Peers without the secret.

use peerlock_net::Refusal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::test as tokio_test;

use super::rogue::{Rogue, Spoil};
use super::*;

async fn unauthenticated(config: Config) -> Net {
    Net::start(config, Identity::generate(), Secret::generate()).await.unwrap()
}

#[tokio_test]
async fn another_secret_is_refused_both_ways() {
    let (mut ours, mut theirs) = (start(config()).await, unauthenticated(config()).await);
    theirs.dial(ours.address()).unwrap();
    assert_eq!(unreached(&mut theirs).await.1, Unreached::Refused(Refusal::Secret));
    until(&ours, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&1)).await;
    ours.dial(theirs.address()).unwrap();
    assert_eq!(unreached(&mut ours).await.1, Unreached::Refused(Refusal::Secret));
    for net in [&mut ours, &mut theirs] {
        assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
    }
}

/// It receives nothing that depends on the secret.
#[tokio_test]
async fn guessed_secret_gets_no_connection() {
    let mut net = start(config()).await;
    let mut rogue = Rogue::follower(&net).await;
    let guess = rogue.connect_by(net.address(), b"a guess at the secret").await;
    assert_eq!(guess.err().map(|error| error.kind()), Some(std::io::ErrorKind::PermissionDenied));
    until(&net, |metrics| metrics.refused.get(&Refusal::Secret) == Some(&1)).await;
    assert_eq!((net.metrics().ups, net.metrics().received, net.try_next()), (0, 0, None));
}

/// A recorded first message opens no connection later.
#[tokio_test]
async fn recorded_first_message_opens_no_connection() {
    let (mut a, b) = (start(config()).await, start(config()).await);
    let between = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    a.dial(between.local_addr().unwrap()).unwrap();
    let (mut from_a, _) = timeout(DEADLINE, between.accept()).await.unwrap().unwrap();
    let mut recorded = [0; 11 + 32 + 2 + 48];
    from_a.read_exact(&mut recorded).await.unwrap();
    for _ in 0..2 {
        let mut to_b = TcpStream::connect(b.address()).await.unwrap();
        to_b.write_all(&recorded).await.unwrap();
        let mut answer = [0; 13];
        to_b.read_exact(&mut answer).await.unwrap();
        assert!(answer[11..] != [0, 0], "the answer depends on the secret");
        to_b.write_all(&[&[0, 96][..], &[7; 96]].concat()).await.unwrap();
        timeout(DEADLINE, to_b.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
    }
    until(&b, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&2)).await;
    drop(from_a);
    assert_eq!(unreached(&mut a).await.1, Unreached::Refused(Refusal::Broken));
    assert_eq!((a.metrics().ups, b.metrics().ups), (0, 0));
}

#[tokio_test]
async fn noise_on_the_port_is_counted_and_does_no_harm() {
    let mut net = start(config()).await;
    let address = net.address();
    for seed in 0..20 {
        let tcp = TcpStream::connect(address).await.unwrap();
        let begins: &[u8] = match seed % 4 {
            0 => b"peerlock/5\n",
            1 => b"\x13/multistream/1.0.0\n",
            2 => b"GET / HTTP/1.1\r\n",
            _ => b"peerlock/3\n",
        };
        for chunk in [begins, &noise(seed, 4_000)].concat().chunks(100) {
            tcp.writable().await.unwrap();
            if tcp.try_write(chunk).is_err() {
                break;
            }
        }
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Version) == Some(&15)).await;
    until(&net, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&5)).await;
    let mut member = start(config()).await;
    member.dial(net.address()).unwrap();
    assert_eq!(up(&mut net).await.0, member.me());
    assert_eq!(up(&mut member).await.0, net.me());
}

#[tokio_test]
async fn other_version_is_reported() {
    let mut net = start(config()).await;
    let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    net.dial(other.local_addr().unwrap()).unwrap();
    let (tcp, _) = timeout(DEADLINE, other.accept()).await.unwrap().unwrap();
    tcp.writable().await.unwrap();
    tcp.try_write(b"peerlock/6\n and whatever that says").unwrap();
    assert_eq!(unreached(&mut net).await.1, Unreached::Refused(Refusal::Version));
}

#[tokio_test]
async fn version_mismatch_is_reported_on_both_sides() {
    let (mut old, new) = (start(config()).await, start(config()).await);
    let between = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    old.dial(between.local_addr().unwrap()).unwrap();
    let (mut from_old, _) = timeout(DEADLINE, between.accept()).await.unwrap().unwrap();
    let mut to_new = TcpStream::connect(new.address()).await.unwrap();
    let mut said = [0; 11 + 32 + 2 + 48];
    from_old.read_exact(&mut said).await.unwrap();
    said[..11].copy_from_slice(b"peerlock/3\n");
    to_new.write_all(&said).await.unwrap();
    let mut answer = [0; 11];
    to_new.read_exact(&mut answer).await.expect("a greeting");
    assert_eq!(&answer, b"peerlock/5\n");
    from_old.write_all(b"peerlock/6\n").await.unwrap();
    assert_eq!(unreached(&mut old).await.1, Unreached::Refused(Refusal::Version));
    until(&new, |metrics| metrics.refused.get(&Refusal::Version) == Some(&1)).await;
}

#[tokio_test]
async fn a_key_is_vouched_for_on_each_connection() {
    let net = start(config()).await;
    for spoil in [Spoil::Key, Spoil::Signature, Spoil::Connection, Spoil::Length] {
        let mut rogue = Rogue::follower(&net).await;
        rogue.spoil = Some(spoil);
        let mut stream = rogue.connect(net.address()).await;
        let arrived = timeout(DEADLINE, stream.read_to_end()).await.unwrap();
        assert!(arrived.is_empty(), "{spoil:?}");
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Broken) == Some(&4)).await;
    assert_eq!(net.metrics().ups, 0);
}

/// Each gets a place, at the expense of the oldest.
#[tokio_test]
async fn unproved_connections_are_few_and_short() {
    let net = start(Config { max_unauthenticated: 3, handshake: Duration::from_millis(500), ..config() }).await;
    let mut rogue = Rogue::anybody().await;
    let mut stream = rogue.connect(net.address()).await;
    let mut idle = Vec::new();
    for _ in 0..10 {
        idle.push(TcpStream::connect(net.address()).await.unwrap());
    }
    until(&net, |metrics| metrics.refused.get(&Refusal::Crowded) == Some(&8)).await;
    timeout(DEADLINE, stream.read_to_end()).await.expect("its place was needed");
    until(&net, |metrics| metrics.refused.get(&Refusal::Timeout) == Some(&3)).await;
    drop(idle);
}

#[tokio_test]
async fn member_joins_despite_silent_connections() {
    let mut net = start(Config { listen: "0.0.0.0:0".parse().unwrap(), ..config() }).await;
    let port = net.address().port();
    let mut silent = Vec::new();
    for number in 0..500u32 {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("127.0.0.{}:0", 2 + number % 250).parse().unwrap()).unwrap();
        silent.push(socket.connect(format!("127.0.0.1:{port}").parse().unwrap()).await.unwrap());
    }
    let most = config().max_unauthenticated as u64;
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

#[tokio_test]
async fn member_beyond_the_limit_is_refused_with_reason() {
    let mut net = start(Config { max_peers: 2, ..config() }).await;
    let mut members = Vec::new();
    for _ in 0..2 {
        let mut member = start(config()).await;
        member.dial(net.address()).unwrap();
        up(&mut member).await;
        up(&mut net).await;
        members.push(member);
    }
    let mut another = start(config()).await;
    another.dial(net.address()).unwrap();
    assert_eq!(unreached(&mut another).await.1, Unreached::Refused(Refusal::Crowded));
    net.dial(another.address()).unwrap();
    assert_eq!(unreached(&mut net).await.1, Unreached::Refused(Refusal::Crowded));
    assert_eq!((net.metrics().up, net.metrics().ups), (2, 2));
    drop(members.pop());
    down(&mut net).await;
    another.dial(net.address()).unwrap();
    assert_eq!(up(&mut another).await.0, net.me(), "there is room again");
}

/// In a child process with few file descriptors.
#[test]
fn connection_without_descriptor_is_counted_and_waits() {
    const IS_CHILD: &str = "PEERLOCK_TEST_FEW_FILES";
    if std::env::var_os(IS_CHILD).is_none() {
        let mut child = std::process::Command::new("sh");
        child.args(["-c", "ulimit -n 40; exec \"$@\"", "sh"]).arg(std::env::current_exe().unwrap());
        let this = "unauthenticated::connection_without_descriptor_is_counted_and_waits";
        let output = child.args([this, "--exact", "--nocapture"]).env(IS_CHILD, "").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (mut net, member) = (start(config()).await, start(config()).await);
        let mut files = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            files.push(file);
        }
        files.pop();
        member.maintain(net.address()).unwrap();
        until(&net, |metrics| metrics.not_accepted > 0).await;
        assert_eq!(net.metrics().ups, 0);
        drop(files);
        assert_eq!(up(&mut net).await.0, member.me());
    });
}

/// The second process is admitted as a restarted one; the first is refused, and the peer in between logs it.
#[tokio_test]
async fn a_copied_identity_is_recognized() {
    for follows in [true, false] {
        let mut net = start(config()).await;
        let suits = |identity: &Identity| (identity.peer() > net.me()) == follows;
        let identity = std::iter::repeat_with(Identity::generate).find(suits).unwrap();
        let secret = || Secret::new(SECRET).unwrap();
        let mut first = Net::start(config(), identity.clone(), secret()).await.unwrap();
        first.maintain(net.address()).unwrap();
        up(&mut first).await;
        up(&mut net).await;
        let mut second = Net::start(config(), identity.clone(), secret()).await.unwrap();
        second.maintain(net.address()).unwrap();
        up(&mut second).await;
        assert_eq!(down(&mut net).await.2, Why::Replaced);
        up(&mut net).await;
        until(&net, |metrics| metrics.refused.get(&Refusal::Twin).is_some_and(|count| *count >= 2)).await;
        assert_eq!(net.metrics().ups, 2, "the two do not replace each other again");
        if follows {
            let is_notified = |event| matches!(event, Event::Unreached { why: Unreached::Refused(Refusal::Twin), .. });
            let notified = async { while !is_notified(first.next().await) {} };
            timeout(DEADLINE, notified).await.expect("the first is notified");
        }
        assert_eq!(second.metrics().up, 1);
    }
}
