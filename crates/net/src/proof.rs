//! How two peers prove to each other that they know the cluster secret, before anything else they say is read.
//!
//! ```text
//! dialler                                        listener
//!    |  HMAC("dialler", hash)  (32 bytes)   ------>  |
//!    |  <------            HMAC("listener", hash)    |  or 32 zeros if it was wrong
//! ```
//!
//! Zeros ask for a second one: who is about to replace the secret has two ([`Secret`]), and tries the old one if the
//! other side does not know the new one yet. After two the listener closes; a dialler that has no other does. Both
//! sides have proved the same secret then, and the link counts as proved with that one.
//!
//! Each HMAC-SHA256 is keyed with a secret and covers the role of its sender and the hash of the connection's handshake
//! ([`channel`](crate::channel)), which covers everything that was said in it: fresh keys of both ends, and who they
//! are. That this proves what it should:
//!
//! - *Knowledge.* Only who knows the secret can compute either value.
//! - *Not replayed.* Each side had a part in the hash that is fresh for this connection.
//! - *Not relayed.* Somebody without the secret who sits between A and B has a connection with each of them, and these
//!   have different hashes: what A computes for the one is refused by B, who checks it for the other.
//! - *Not reflected.* The role is covered, so a listener cannot be made to compute the dialler's value; and a peer
//!   refuses connections with itself.
//! - *This connection.* What follows can be read and said only by the two whose handshake it was.
//!
//! The dialler goes first, and the answer to what is wrong is always the same, so that somebody who merely scans
//! addresses learns nothing that depends on the secret. Each value is a message of its own, of a fixed length, and
//! there is nothing to parse; the caller bounds the time.

use hmac::Mac as _;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::channel::Channel;
use crate::secret::Key;
use crate::{Fingerprint, Refusal, Secret};

const MAC: usize = 32;
/// How many secrets a dialler may try: the new one and the one before it.
const TRIES: usize = 2;
/// A listener's answer to what proves nothing to it. As a proof it comes about once in 2²⁵⁶ times.
const ANOTHER: [u8; MAC] = [0; MAC];

/// Which end of the connection a peer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Dialler,
    Listener,
}

/// What both values cover: the hash of the handshake.
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

/// Proves to the other end that we know the secret, and that it does: with which one.
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
            // Whoever does not like the first proof says so. If the connection ends instead, something else is wrong:
            // it had no place for us, or no time, or is gone.
            let mut ended = Refusal::Broken;
            for key in secret.keys().take(TRIES) {
                say(channel, &transcript.mac(key, Role::Dialler)).await.map_err(|_| ended)?;
                let mac = hear(channel).await.map_err(|_| ended)?;
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
            let mut mac = hear(channel).await?;
            for tries_left in (0..TRIES).rev() {
                if let Some(key) = secret.keys().find(|key| transcript.is_proved(key, Role::Dialler, &mac)) {
                    say(channel, &transcript.mac(key, Role::Listener)).await?;
                    return Ok(key.fingerprint());
                }
                if tries_left > 0 {
                    // Who has no other closes now, and that is what was wrong.
                    say(channel, &ANOTHER).await.map_err(|_| Refusal::Secret)?;
                    mac = hear(channel).await.map_err(|_| Refusal::Secret)?;
                }
            }
        }
    }
    Err(Refusal::Secret)
}

async fn say<R, W: AsyncWrite + Unpin>(channel: &mut Channel<R, W>, mac: &[u8; MAC]) -> Result<(), Refusal> {
    channel.writer.write(mac).await.map_err(|_| Refusal::Broken)
}

async fn hear<R: AsyncRead + Unpin, W>(channel: &mut Channel<R, W>) -> Result<[u8; MAC], Refusal> {
    channel.reader.next().await.ok().and_then(|said| said.try_into().ok()).ok_or(Refusal::Broken)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peerlock_base::Rng;
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

    /// Both ends of a connection: the dialler's and the listener's.
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
    fn a_proof_is_for_one_role_one_connection_and_one_secret() {
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

    /// Any messages of any length: refused, and a listener gives nothing away.
    #[tokio::test(start_paused = true)]
    async fn no_made_up_messages_are_a_proof() {
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

    /// What a dialler and a listener with these secrets make of each other.
    async fn meet(dialler: &Secret, listener: &Secret) -> (Result<Fingerprint, Refusal>, Result<Fingerprint, Refusal>) {
        let (mut near, mut far) = connected().await;
        // Whoever is done closes.
        let dial = async move { prove(&mut near, dialler, Role::Dialler).await };
        let listen = async move { prove(&mut far, listener, Role::Listener).await };
        tokio::join!(dial, listen)
    }

    /// A listener that has no place for us, no time, or is started again closes, whatever the secrets are.
    #[tokio::test]
    async fn a_connection_that_ends_says_nothing_of_the_secret_before_the_listener_has() {
        let both = Secret::new(format!("{}\n{}", digits("2"), digits("1")).as_bytes()).unwrap();
        for (answers, expected) in [(0, Refusal::Broken), (1, Refusal::Secret)] {
            let (mut near, mut far) = connected().await;
            let listen = async move {
                hear(&mut far).await.unwrap();
                for _ in 0..answers {
                    say(&mut far, &ANOTHER).await.unwrap();
                    hear(&mut far).await.unwrap();
                }
            };
            let (proved, ()) = tokio::join!(prove(&mut near, &both, Role::Dialler), listen);
            assert_eq!(proved, Err(expected), "after {answers} answers");
        }
    }

    /// Whoever has one in common with the other is its member, and both know with which; whoever has none is none.
    #[tokio::test]
    async fn two_secrets_count_while_both_are_there_and_one_when_the_other_is_gone() {
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
