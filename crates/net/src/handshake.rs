//! The handshake of a connection: encryption, identities and the cluster secret, in three messages.
//!
//! ```text
//! dialler                                                      listener
//!    |  "peerlock/5\n", tag, psk e                         ------>  |
//!    |  <------            "peerlock/5\n", e, ee, s, es, voucher    |
//!    |  s, se, voucher                                     ------>  |
//! ```
//!
//! It is Noise, pattern XXpsk0, whose pre-shared key is derived from the cluster secret ([`Secret`]). Both ends derive
//! their keys from the secret and from fresh values, so neither can read or write a further message without the secret.
//!
//! The *tag* is an HMAC of the first Noise message under the secret. A listener verifies it before any operation on the
//! curve and before it creates a key, so an unauthenticated connection costs one hash. A recorded first message passes
//! this check; its sender cannot continue, since that requires the private part of `e`.
//!
//! During a rotation a peer has two secrets. A listener to which the tag's secret is unknown answers with an empty
//! message; the dialler sends another tag and first message under its other secret, or closes. So every wrong tag gets
//! the same answer, and a port scanner learns nothing that depends on the secret, nor the identity of the listener.
//!
//! A *voucher* is a peer's ed25519 key and its signature of the X25519 key `s` used on this connection. Noise proves
//! possession of `s`, so each end knows the other's identity.
//!
//! The greeting names the protocol version. A listener sends nothing before it has received one. It answers another
//! version's greeting with its own, so that the other side learns the reason, and anything else not at all.

use hmac::Mac as _;
use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::identity::{Identity, Name, VOUCHER};
use crate::secret::Key;
use crate::{Fingerprint, Refusal, Secret};

const GREETING: &[u8; 11] = b"peerlock/5\n";
const ANY_GREETING: &[u8] = b"peerlock/";
const PATTERN: &str = "Noise_XXpsk0_25519_ChaChaPoly_SHA256";
/// The signature has no other use.
const STATIC_KEY: &[u8] = b"peerlock key of a connection ";
/// One prefix for each use of the secret's HMAC.
const FIRST: &[u8] = b"peerlock/5 first message ";
const PRE_SHARED: &[u8] = b"peerlock/5 pre-shared key";

const LENGTH: usize = 2;
const TAG: usize = 32;
const KEY: usize = 32;
const SEAL: usize = 16;
const INITIAL: usize = KEY + SEAL;
const LONGEST: usize = KEY + (KEY + SEAL) + (VOUCHER + SEAL);
const UNKNOWN_SECRET: [u8; LENGTH] = [0; LENGTH];
const TRIES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Listener,
}

pub(crate) struct Agreed {
    pub keys: StatelessTransportState,
    pub name: Name,
    pub proved: Fingerprint,
}

pub(crate) async fn shake<R, W>(
    from: &mut R,
    to: &mut W,
    role: Role,
    identity: &Identity,
    secret: &Secret,
) -> Result<Agreed, Refusal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let (noise, theirs, proved) = match role {
        Role::Dialler => dial(from, to, identity, secret).await?,
        Role::Listener => listen(from, to, identity, secret).await?,
    };
    let key = noise.get_remote_static().ok_or(Refusal::Broken)?;
    let name = Name::vouched(&theirs, &[STATIC_KEY, key].concat()).ok_or(Refusal::Broken)?;
    Ok(Agreed { keys: noise.into_stateless_transport_mode().map_err(broken)?, name, proved })
}

type Shaken = (HandshakeState, Vec<u8>, Fingerprint);

async fn dial<R, W>(from: &mut R, to: &mut W, identity: &Identity, secret: &Secret) -> Result<Shaken, Refusal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let keys = StaticKey::generate(identity);
    to.write_all(GREETING).await.map_err(broken)?;
    // A listener answers an unknown tag. If the connection ends instead, the cause is another: no place, a timeout, or
    // the listener has stopped.
    let mut ended = Refusal::Broken;
    for (attempt, key) in secret.keys().take(TRIES).enumerate() {
        let psk = pre_shared(key);
        let mut noise = keys.noise(&psk).build_initiator().expect("nothing is missing");
        let first = next_message(&mut noise, &[])?;
        to.write_all(&[&tag(key, &first)[..], &framed(&first)].concat()).await.map_err(|_| ended)?;
        if attempt == 0 && read_greeting(from).await? != *GREETING {
            return Err(Refusal::Version);
        }
        let second = message(from, LONGEST).await.map_err(|_| ended)?;
        if second.is_empty() {
            ended = Refusal::Secret;
            continue;
        }
        let theirs = opened(&second, &mut noise)?;
        let third = next_message(&mut noise, &keys.voucher)?;
        to.write_all(&framed(&third)).await.map_err(broken)?;
        return Ok((noise, theirs, key.fingerprint()));
    }
    Err(Refusal::Secret)
}

async fn listen<R, W>(from: &mut R, to: &mut W, identity: &Identity, secret: &Secret) -> Result<Shaken, Refusal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let theirs = read_greeting(from).await?;
    if theirs != *GREETING {
        if theirs.starts_with(ANY_GREETING) {
            _ = to.write_all(GREETING).await;
        }
        return Err(Refusal::Version);
    }
    let mut greeting = &GREETING[..];
    // A connection that ends after an answer has no common secret.
    let mut ended = Refusal::Broken;
    for _ in 0..TRIES {
        let mut theirs = [0; TAG];
        from.read_exact(&mut theirs).await.map_err(|_| ended)?;
        let first = message(from, INITIAL).await.map_err(|_| ended)?;
        let Some(key) = secret.keys().find(|key| is_tagged(key, &first, &theirs)) else {
            ended = Refusal::Secret;
            to.write_all(&[greeting, &UNKNOWN_SECRET].concat()).await.map_err(|_| ended)?;
            greeting = &[];
            continue;
        };
        let (keys, psk) = (StaticKey::generate(identity), pre_shared(key));
        let mut noise = keys.noise(&psk).build_responder().expect("nothing is missing");
        opened(&first, &mut noise)?;
        let second = next_message(&mut noise, &keys.voucher)?;
        to.write_all(&[greeting, &framed(&second)].concat()).await.map_err(broken)?;
        let theirs = opened(&message(from, LONGEST).await?, &mut noise)?;
        return Ok((noise, theirs, key.fingerprint()));
    }
    Err(Refusal::Secret)
}

struct StaticKey {
    private: Vec<u8>,
    voucher: [u8; VOUCHER],
}

impl StaticKey {
    fn generate(identity: &Identity) -> Self {
        #[cfg(test)]
        tests::KEYS.set(tests::KEYS.get() + 1);
        let pair = builder().generate_keypair().expect("the operating system has a random source");
        Self { voucher: identity.vouch(&[STATIC_KEY, &pair.public].concat()), private: pair.private }
    }

    fn noise<'a>(&'a self, psk: &'a [u8; KEY]) -> Builder<'a> {
        let builder = builder().prologue(GREETING).and_then(|builder| builder.psk(0, psk));
        builder.and_then(|builder| builder.local_private_key(&self.private)).expect("each is set once")
    }
}

fn builder<'a>() -> Builder<'a> {
    Builder::new(PATTERN.parse().expect("it is a pattern of Noise"))
}

fn pre_shared(key: &Key) -> [u8; KEY] {
    key.mac().chain_update(PRE_SHARED).finalize().into_bytes().into()
}

fn tag(key: &Key, first: &[u8]) -> [u8; TAG] {
    key.mac().chain_update(FIRST).chain_update(first).finalize().into_bytes().into()
}

/// Compares in constant time.
fn is_tagged(key: &Key, first: &[u8], tag: &[u8; TAG]) -> bool {
    key.mac().chain_update(FIRST).chain_update(first).verify_slice(tag).is_ok()
}

fn broken<E>(_: E) -> Refusal {
    Refusal::Broken
}

async fn read_greeting<R: AsyncRead + Unpin>(from: &mut R) -> Result<[u8; GREETING.len()], Refusal> {
    let mut greeting = [0; GREETING.len()];
    from.read_exact(&mut greeting).await.map_err(broken)?;
    Ok(greeting)
}

fn next_message(noise: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, Refusal> {
    let mut message = vec![0; LONGEST];
    let length = noise.write_message(payload, &mut message).map_err(broken)?;
    message.truncate(length);
    Ok(message)
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes()[..], message].concat()
}

async fn message<R: AsyncRead + Unpin>(from: &mut R, longest: usize) -> Result<Vec<u8>, Refusal> {
    let length = usize::from(from.read_u16().await.map_err(broken)?);
    if length > longest {
        return Err(Refusal::Broken);
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message).await.map_err(broken)?;
    Ok(message)
}

fn opened(message: &[u8], noise: &mut HandshakeState) -> Result<Vec<u8>, Refusal> {
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload).map_err(broken)?;
    payload.truncate(length);
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::time::Duration;

    use peerlock_types::Rng;
    use tokio::io::{duplex, split};
    use tokio::time::timeout;

    use super::*;

    thread_local! {
        pub(super) static KEYS: Cell<u32> = const { Cell::new(0) };
    }

    fn digits(digit: &str) -> String {
        format!("{digit}{}", "0123456789abcdef".repeat(4))
    }

    fn secret(digit: &str) -> Secret {
        Secret::new(digits(digit).as_bytes()).unwrap()
    }

    fn key(digit: &str) -> Key {
        secret(digit).keys().next().unwrap().clone()
    }

    #[test]
    fn tag_covers_message_and_secret() {
        let (ours, first) = (key("1"), [7; INITIAL]);
        let right = tag(&ours, &first);
        assert!(is_tagged(&ours, &first, &right));
        assert!(!is_tagged(&key("2"), &first, &right));
        for bit in 0..TAG * 8 {
            let mut wrong = right;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_tagged(&ours, &first, &wrong), "bit {bit} of the tag");
        }
        for bit in 0..INITIAL * 8 {
            let mut changed = first;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_tagged(&ours, &changed, &right), "bit {bit} of the message");
        }
    }

    async fn listened_to(said: &[u8]) -> (Option<Refusal>, Vec<u8>, u32) {
        let (near, mut far) = duplex(1000);
        let (mut from, mut to) = split(near);
        far.write_all(said).await.unwrap();
        far.shutdown().await.unwrap();
        KEYS.set(0);
        let identity = Identity::generate();
        let shaken = shake(&mut from, &mut to, Role::Listener, &identity, &secret("1")).await.err();
        drop((from, to));
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        (shaken, received, KEYS.get())
    }

    async fn dialled(secret: Secret) -> Vec<u8> {
        let (near, mut far) = duplex(1000);
        let (mut from, mut to) = split(near);
        let mut first = vec![0; GREETING.len() + TAG + LENGTH + INITIAL];
        let identity = Identity::generate();
        tokio::select! {
            _ = shake(&mut from, &mut to, Role::Dialler, &identity, &secret) => panic!("it waits for an answer"),
            read = far.read_exact(&mut first) => { read.unwrap(); }
        }
        first
    }

    #[tokio::test]
    async fn other_greeting_is_another_version() {
        let (near, mut far) = duplex(1000);
        let (mut from, mut to) = split(near);
        far.write_all(b"peerlock/4\n").await.unwrap();
        let shaken = shake(&mut from, &mut to, Role::Dialler, &Identity::generate(), &secret("1")).await;
        assert_eq!(shaken.err(), Some(Refusal::Version));
        for said in [&b"peerlock/6\n"[..], b"peerlock/10\n and more"] {
            assert_eq!(listened_to(said).await, (Some(Refusal::Version), GREETING.to_vec(), 0));
        }
        assert_eq!(listened_to(b"GET / HTTP/1.1\r\n").await, (Some(Refusal::Version), Vec::new(), 0));
        assert_eq!(listened_to(b"").await, (Some(Refusal::Broken), Vec::new(), 0));
    }

    /// The answer depends on neither the secret nor the identity.
    #[tokio::test]
    async fn wrong_tag_costs_no_keys() {
        let refused = [GREETING, &UNKNOWN_SECRET[..]].concat();
        let valid = dialled(secret("2")).await;
        assert_eq!(listened_to(&valid).await, (Some(Refusal::Secret), refused.clone(), 0));
        let mut changed = dialled(secret("1")).await;
        *changed.last_mut().unwrap() ^= 1;
        assert_eq!(listened_to(&changed).await, (Some(Refusal::Secret), refused, 0));
        for length in GREETING.len()..changed.len() {
            let (shaken, received, keys) = listened_to(&changed[..length]).await;
            assert_eq!((shaken, received.len(), keys), (Some(Refusal::Broken), 0, 0), "{length} bytes");
        }
    }

    #[tokio::test]
    async fn replayed_first_message_is_no_proof() {
        let recorded = dialled(secret("1")).await;
        for further in [&b""[..], &[0, 0], &framed(&[7; LONGEST])] {
            let (shaken, received, keys) = listened_to(&[&recorded[..], further].concat()).await;
            assert_eq!((shaken, received.len(), keys), (Some(Refusal::Broken), GREETING.len() + LENGTH + LONGEST, 1));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn random_messages_are_no_proof() {
        let (ours, mut rng) = (secret("1"), Rng::new(7));
        for round in 0..300 {
            let role = if round % 2 == 0 { Role::Dialler } else { Role::Listener };
            let (near, mut far) = duplex(4096);
            let (mut from, mut to) = split(near);
            far.write_all(GREETING).await.unwrap();
            for _ in 0..rng.below(4) {
                let length = if rng.below(3) == 0 { rng.below(300) as usize } else { TAG + LENGTH + INITIAL };
                let bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
                far.write_all(&bytes).await.unwrap();
            }
            let identity = Identity::generate();
            let shaken = shake(&mut from, &mut to, role, &identity, &ours);
            let refusal = timeout(Duration::from_secs(1), shaken).await.ok().and_then(Result::err);
            assert!(matches!(refusal, None | Some(Refusal::Secret | Refusal::Broken)), "{role:?} {refusal:?}");
        }
    }

    async fn meet(dialler: &Secret, listener: &Secret) -> (Result<Fingerprint, Refusal>, Result<Fingerprint, Refusal>) {
        let (near, far) = duplex(4096);
        let (a, b) = (Identity::generate(), Identity::generate());
        let dial = async {
            let (mut from, mut to) = split(near);
            shake(&mut from, &mut to, Role::Dialler, &a, dialler).await
        };
        let listen = async {
            let (mut from, mut to) = split(far);
            shake(&mut from, &mut to, Role::Listener, &b, listener).await
        };
        let (near, far) = tokio::join!(dial, listen);
        if let (Ok(near), Ok(far)) = (&near, &far) {
            assert!(near.name == b.name() && far.name == a.name(), "each knows the other");
        }
        (near.map(|agreed| agreed.proved), far.map(|agreed| agreed.proved))
    }

    /// A listener without a place, or that restarts, closes whatever the secrets are.
    #[tokio::test]
    async fn early_close_is_not_a_secret_mismatch() {
        let both = Secret::new(format!("{}\n{}", digits("2"), digits("1")).as_bytes()).unwrap();
        for (answers, expected) in [(0, Refusal::Broken), (1, Refusal::Secret)] {
            let (near, mut far) = duplex(4096);
            let (mut from, mut to) = split(near);
            let listen = async move {
                let mut first = [0; GREETING.len() + TAG + LENGTH + INITIAL];
                far.read_exact(&mut first).await.unwrap();
                far.write_all(GREETING).await.unwrap();
                for _ in 0..answers {
                    far.write_all(&UNKNOWN_SECRET).await.unwrap();
                    far.read_exact(&mut first[GREETING.len()..]).await.unwrap();
                }
            };
            let identity = Identity::generate();
            let (shaken, ()) = tokio::join!(shake(&mut from, &mut to, Role::Dialler, &identity, &both), listen);
            assert_eq!(shaken.err(), Some(expected), "after {answers} answers");
        }
    }

    #[tokio::test]
    async fn rotation_accepts_both_secrets_then_one() {
        let (old, new) = (secret("1"), secret("2"));
        let both = Secret::new(format!("{}\n{}", digits("2"), digits("1")).as_bytes()).unwrap();
        let back = Secret::new(format!("{}\n{}", digits("1"), digits("2")).as_bytes()).unwrap();
        let other = Secret::new(format!("{}\n{}", digits("3"), digits("4")).as_bytes()).unwrap();
        let [is_old, is_new] = [&old, &new].map(Secret::preferred);
        for (dialler, listener, met) in [
            (&old, &old, Ok(is_old)),
            (&both, &old, Ok(is_old)),
            (&old, &both, Ok(is_old)),
            (&both, &both, Ok(is_new)),
            (&back, &both, Ok(is_old)),
            (&both, &new, Ok(is_new)),
            (&new, &both, Ok(is_new)),
            (&back, &new, Ok(is_new)),
            (&old, &new, Err(Refusal::Secret)),
            (&new, &old, Err(Refusal::Secret)),
            (&other, &both, Err(Refusal::Secret)),
            (&both, &other, Err(Refusal::Secret)),
        ] {
            assert_eq!(meet(dialler, listener).await, (met, met));
        }
    }
}
