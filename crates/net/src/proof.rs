//! Mutual proof of the cluster secret, before anything else on a connection is interpreted.
//!
//! ```text
//! dialler                                        listener
//!    |  HMAC("dialler", hash)  (32 bytes)   ------>  |
//!    |  <------            HMAC("listener", hash)    |  or 32 zeros if it was wrong
//! ```
//!
//! Zeros request a second proof: a peer in a secret rotation has two secrets ([`Secret`]) and tries the old one if the
//! other side does not know the new one. The listener closes after two; a dialler closes when it has no other secret.
//! Both sides have then proved the same secret, which is recorded for the link.
//!
//! Each HMAC-SHA256 is keyed with a secret and covers its sender's role and the hash of the connection's handshake
//! ([`channel`](crate::channel)), which covers the fresh keys and the identities of both ends. Why this is sufficient:
//!
//! - *Knowledge.* Computing either value requires the secret.
//! - *No replay.* Each side contributes a fresh part to the hash.
//! - *No relaying.* A man in the middle without the secret has one connection with A and one with B. Their hashes
//!   differ, so B refuses the value that A computed.
//! - *No reflection.* The role is covered, so a listener never computes the dialler's value; and a peer refuses
//!   connections with itself.
//! - *Binding.* Only the two ends of the handshake can read and write the messages that follow.
//!
//! The dialler proves itself first, and every wrong value gets the same answer, so that a port scanner learns nothing
//! that depends on the secret. Each value is one message of fixed length, so there is nothing to parse. The caller
//! bounds the time.

use hmac::Mac as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::Channel;
use crate::secret::Key;
use crate::{Fingerprint, Refusal, Secret};

const MAC: usize = 32;
/// How many secrets a dialler may try: the new and the old one.
const TRIES: usize = 2;
/// A listener's answer to a wrong proof. As a proof it has a probability of 2⁻²⁵⁶.
const ANOTHER: [u8; MAC] = [0; MAC];

/// A peer's end of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Listener,
}

/// The hash of the handshake, which both values cover.
#[derive(Clone, Copy)]
struct Transcript([u8; 32]);

impl Transcript {
    fn mac(&self, key: &Key, role: Role) -> [u8; MAC] {
        self.absorb(key, role).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn is_proved(&self, key: &Key, role: Role, mac: &[u8; MAC]) -> bool {
        self.absorb(key, role).verify_slice(mac).is_ok()
    }

    fn absorb(&self, key: &Key, role: Role) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = key.mac();
        mac.update(match role {
            Role::Dialler => b"peerlock/3 dialler  ",
            Role::Listener => b"peerlock/3 listener ",
        });
        mac.update(&self.0);
        mac
    }
}

/// Proves the secret to the other end and verifies the other end's proof. Returns the secret that both proved.
pub(crate) async fn prove<R, W>(
    channel: &mut Channel<R, W>,
    secret: &Secret,
    role: Role,
) -> Result<Fingerprint, Refusal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let transcript = Transcript(channel.hash);
    match role {
        Role::Dialler => {
            // A listener answers a wrong proof. If the connection ends instead, the cause is another: no place, a
            // timeout, or the listener has stopped.
            let mut ended = Refusal::Broken;
            for key in secret.keys().take(TRIES) {
                say(channel, &transcript.mac(key, Role::Dialler)).await.map_err(|_| ended)?;
                let mac = receive(channel).await.map_err(|_| ended)?;
                if transcript.is_proved(key, Role::Listener, &mac) {
                    return Ok(key.fingerprint());
                }
                if mac != ANOTHER {
                    break;
                }
                ended = Refusal::Secret;
            }
        }
        Role::Listener => {
            let mut mac = receive(channel).await?;
            for tries_left in (0..TRIES).rev() {
                if let Some(key) = secret.keys().find(|key| transcript.is_proved(key, Role::Dialler, &mac)) {
                    say(channel, &transcript.mac(key, Role::Listener)).await?;
                    return Ok(key.fingerprint());
                }
                if tries_left > 0 {
                    // A dialler without another secret closes now, which means that the secrets differ.
                    say(channel, &ANOTHER).await.map_err(|_| Refusal::Secret)?;
                    mac = receive(channel).await.map_err(|_| Refusal::Secret)?;
                }
            }
        }
    }
    Err(Refusal::Secret)
}

async fn say<R, W: AsyncWrite + Unpin>(channel: &mut Channel<R, W>, mac: &[u8; MAC]) -> Result<(), Refusal> {
    channel.writer.write(mac).await.map_err(|_| Refusal::Broken)
}

async fn receive<R: AsyncRead + Unpin, W>(channel: &mut Channel<R, W>) -> Result<[u8; MAC], Refusal> {
    channel.reader.next().await.ok().and_then(|said| said.try_into().ok()).ok_or(Refusal::Broken)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peerlock_types::Rng;
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
    use tokio::time::timeout;

    use super::*;
    use crate::Identity;
    use crate::random::random;

    type Pipe = Channel<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    fn digits(digit: &str) -> String {
        format!("{digit}{}", "0123456789abcdef".repeat(4))
    }

    fn secret(digit: &str) -> Secret {
        Secret::new(digits(digit).as_bytes()).unwrap()
    }

    fn key(digit: &str) -> Key {
        secret(digit).keys().next().unwrap().clone()
    }

    /// Returns the dialler's and the listener's end of a connection.
    async fn connected() -> (Pipe, Pipe) {
        let (near, far) = duplex(4096);
        let ((from, to), (back, forth)) = (split(near), split(far));
        let (a, b) = (Identity::generate(), Identity::generate());
        let dial = Channel::open(from, to, Role::Dialler, &a);
        let listen = Channel::open(back, forth, Role::Listener, &b);
        let (near, far) = tokio::join!(dial, listen);
        (near.unwrap(), far.unwrap())
    }

    #[test]
    fn proof_is_bound_to_role_connection_and_secret() {
        let ours = key("1");
        let one = Transcript(random());
        let mac = one.mac(&ours, Role::Dialler);
        assert!(one.is_proved(&ours, Role::Dialler, &mac));
        assert!(!one.is_proved(&ours, Role::Listener, &mac), "reflected");
        assert!(!one.is_proved(&key("2"), Role::Dialler, &mac));
        assert!(!Transcript(random()).is_proved(&ours, Role::Dialler, &mac), "relayed or replayed");
        for bit in 0..MAC * 8 {
            let (mut mac, mut changed) = (mac, one);
            mac[bit / 8] ^= 1 << (bit % 8);
            assert!(!one.is_proved(&ours, Role::Dialler, &mac), "bit {bit}");
            changed.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!changed.is_proved(&ours, Role::Dialler, &one.mac(&ours, Role::Dialler)), "bit {bit} of the hash");
        }
    }

    /// Any messages of any length are refused, and a listener reveals nothing.
    #[tokio::test(start_paused = true)]
    async fn random_messages_are_no_proof() {
        let ours = secret("1");
        let mut rng = Rng::new(7);
        for round in 0..300 {
            let role = if round % 2 == 0 { Role::Dialler } else { Role::Listener };
            let (near, far) = connected().await;
            let (mut us, mut them) = if role == Role::Dialler { (near, far) } else { (far, near) };
            let lengths: Vec<_> =
                (0..rng.below(4)).map(|_| if rng.below(3) == 0 { 1 + rng.below(200) as usize } else { MAC }).collect();
            for length in &lengths {
                let bytes: Vec<u8> = (0..*length).map(|_| rng.bits() as u8).collect();
                them.writer.write(&bytes).await.unwrap();
            }
            let proved = timeout(Duration::from_secs(1), prove(&mut us, &ours, role)).await;
            let expected = match (role, &lengths[..]) {
                (_, []) | (Role::Listener, [MAC]) => None,
                (_, [MAC, ..]) => Some(Err(Refusal::Secret)),
                _ => Some(Err(Refusal::Broken)),
            };
            assert_eq!(proved.ok(), expected, "{role:?} {lengths:?}");
            drop(us);
            while let Ok(said) = them.reader.next().await {
                let nothing = role == Role::Dialler || said == ANOTHER;
                assert!(nothing, "a listener says no, and nothing that depends on the secret: {said:?}");
            }
        }
    }

    /// Returns the results of a dialler and a listener with these secrets.
    async fn meet(dialler: &Secret, listener: &Secret) -> (Result<Fingerprint, Refusal>, Result<Fingerprint, Refusal>) {
        let (mut near, mut far) = connected().await;
        // Each side closes when it has finished.
        let dial = async move { prove(&mut near, dialler, Role::Dialler).await };
        let listen = async move { prove(&mut far, listener, Role::Listener).await };
        tokio::join!(dial, listen)
    }

    /// A listener without a place or time, or that restarts, closes whatever the secrets are.
    #[tokio::test]
    async fn early_close_is_not_a_secret_mismatch() {
        let both = Secret::new(format!("{}\n{}", digits("2"), digits("1")).as_bytes()).unwrap();
        for (answers, expected) in [(0, Refusal::Broken), (1, Refusal::Secret)] {
            let (mut near, mut far) = connected().await;
            let listen = async move {
                receive(&mut far).await.unwrap();
                for _ in 0..answers {
                    say(&mut far, &ANOTHER).await.unwrap();
                    receive(&mut far).await.unwrap();
                }
            };
            let (proved, ()) = tokio::join!(prove(&mut near, &both, Role::Dialler), listen);
            assert_eq!(proved, Err(expected), "after {answers} answers");
        }
    }

    /// Peers with a common secret accept each other and agree on it; others are refused.
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
