//! How two peers prove to each other that they know the cluster secret, before anything else they say is read.
//!
//! ```text
//! dialler                                        listener
//!    |  nonce d (32 bytes, fresh)          ------>  |
//!    |  <------          nonce l (32 bytes, fresh)  |
//!    |  HMAC("dialler" …)  (32 bytes)      ------>  |
//!    |  <------          HMAC("listener" …)         |  or 32 zeros if it was wrong
//! ```
//!
//! Zeros ask for a second one: who is about to replace the secret has two ([`Secret`]), and tries the old one if the
//! other side does not know the new one yet. After two the listener closes; a dialler that has no other does. Both
//! sides have proved the same secret then, and the link counts as proved with that one.
//!
//! Each HMAC-SHA256 is keyed with a secret and covers the role of its sender, both libp2p names and both nonces. That
//! this proves what it should:
//!
//! - *Knowledge.* Only who knows the secret can compute either value.
//! - *Not replayed.* Each side checks a value that covers its own nonce, which is fresh for this connection.
//! - *Not relayed.* libp2p has authenticated the other's name (Noise on TCP, TLS on QUIC) before this stream exists,
//!   and both values cover both names. Somebody without the secret who sits between A and B has a connection as M with
//!   each of them: what A computes is for A and M, and B, who checks it for M and B, refuses it.
//! - *Not reflected.* The role is covered, so a listener cannot be made to compute the dialler's value, and a peer
//!   refuses connections with itself.
//! - *This connection.* The nonces belong to one stream of one connection, whose keys nobody else has. (libp2p does not
//!   show the handshake's hash, so the binding is by names and nonces. It fails only against somebody who holds the
//!   private keys of both peers.)
//!
//! The dialler goes first, and the answer to what is wrong is always the same, so that somebody who merely scans
//! addresses learns nothing that depends on the secret. All messages have a fixed length and there is nothing to parse;
//! the caller bounds the time.

use hmac::Mac as _;
use libp2p::PeerId;
use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::random::random;
use crate::secret::Key;
use crate::{Fingerprint, Refusal, Secret};

const NONCE: usize = 32;
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

/// What both values cover.
#[derive(Clone)]
struct Transcript {
    dialler: PeerId,
    listener: PeerId,
    dialler_nonce: [u8; NONCE],
    listener_nonce: [u8; NONCE],
}

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
            Role::Dialler => b"peerlock/1 dialler  ",
            Role::Listener => b"peerlock/1 listener ",
        });
        for name in [&self.dialler, &self.listener] {
            // A name says its own length (a multihash), so that no two pairs of names look the same.
            mac.update(&name.to_bytes());
        }
        mac.update(&self.dialler_nonce);
        mac.update(&self.listener_nonce);
        mac
    }
}

/// Proves to `other` that we know the secret, and that it does: with which one.
pub(crate) async fn prove<S>(
    stream: &mut S,
    secret: &Secret,
    role: Role,
    me: PeerId,
    other: PeerId,
) -> Result<Fingerprint, Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = random();
    match role {
        Role::Dialler => {
            say(stream, &nonce).await?;
            let listener_nonce = hear(stream).await?;
            let transcript = Transcript { dialler: me, listener: other, dialler_nonce: nonce, listener_nonce };
            for key in secret.keys().take(TRIES) {
                say(stream, &transcript.mac(key, Role::Dialler)).await?;
                // A listener that closes now did not like what it saw.
                let mac = hear(stream).await.map_err(|_| Refusal::Secret)?;
                if transcript.is_proved(key, Role::Listener, &mac) {
                    return Ok(key.fingerprint());
                }
                if mac != ANOTHER {
                    break;
                }
            }
        }
        Role::Listener => {
            let dialler_nonce = hear(stream).await?;
            say(stream, &nonce).await?;
            let transcript = Transcript { dialler: other, listener: me, dialler_nonce, listener_nonce: nonce };
            let mut mac = hear(stream).await?;
            for tries_left in (0..TRIES).rev() {
                if let Some(key) = secret.keys().find(|key| transcript.is_proved(key, Role::Dialler, &mac)) {
                    say(stream, &transcript.mac(key, Role::Listener)).await?;
                    return Ok(key.fingerprint());
                }
                if tries_left > 0 {
                    // Who has no other closes now, and that is what was wrong.
                    say(stream, &ANOTHER).await.map_err(|_| Refusal::Secret)?;
                    mac = hear(stream).await.map_err(|_| Refusal::Secret)?;
                }
            }
        }
    }
    Err(Refusal::Secret)
}

async fn say<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), Refusal> {
    stream.write_all(bytes).await.map_err(|_| Refusal::Broken)?;
    stream.flush().await.map_err(|_| Refusal::Broken)
}

async fn hear<S: AsyncRead + Unpin, const N: usize>(stream: &mut S) -> Result<[u8; N], Refusal> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await.map_err(|_| Refusal::Broken)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use libp2p::futures::TryStreamExt as _;
    use libp2p::futures::channel::mpsc;
    use libp2p::futures::executor::block_on;
    use libp2p::futures::stream::IntoAsyncRead;
    use peerlock_base::Rng;

    use super::*;
    use crate::Identity;

    fn digits(digit: &str) -> String {
        format!("{digit}{}", "0123456789abcdef".repeat(4))
    }

    fn secret(digit: &str) -> Secret {
        Secret::new(digits(digit).as_bytes()).unwrap()
    }

    fn key(digit: &str) -> Key {
        secret(digit).keys().next().unwrap().clone()
    }

    fn transcript() -> Transcript {
        Transcript {
            dialler: Identity::generate().name(),
            listener: Identity::generate().name(),
            dialler_nonce: random(),
            listener_nonce: random(),
        }
    }

    #[test]
    fn a_proof_is_for_one_role_two_names_two_nonces_and_one_secret() {
        let ours = key("1");
        let one = transcript();
        let mac = one.mac(&ours, Role::Dialler);
        assert!(one.is_proved(&ours, Role::Dialler, &mac));
        assert!(!one.is_proved(&ours, Role::Listener, &mac), "reflected");
        assert!(!one.is_proved(&key("2"), Role::Dialler, &mac));
        let other = transcript();
        for (what, changed) in [
            ("relayed: another dialler", Transcript { dialler: other.dialler, ..one.clone() }),
            ("relayed: another listener", Transcript { listener: other.listener, ..one.clone() }),
            ("names swapped", Transcript { dialler: one.listener, listener: one.dialler, ..one.clone() }),
            ("replayed to a fresh dialler", Transcript { dialler_nonce: other.dialler_nonce, ..one.clone() }),
            ("replayed to a fresh listener", Transcript { listener_nonce: other.listener_nonce, ..one.clone() }),
            (
                "nonces swapped",
                Transcript { dialler_nonce: one.listener_nonce, listener_nonce: one.dialler_nonce, ..one.clone() },
            ),
        ] {
            assert!(!changed.is_proved(&ours, Role::Dialler, &mac), "{what}");
        }
        for bit in 0..MAC * 8 {
            let mut mac = mac;
            mac[bit / 8] ^= 1 << (bit % 8);
            assert!(!one.is_proved(&ours, Role::Dialler, &mac), "bit {bit}");
        }
    }

    /// A stream that says what it was told to say and then closes.
    struct Recording<'a> {
        said: &'a [u8],
        heard: Vec<u8>,
    }

    impl AsyncRead for Recording<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
            let n = buf.len().min(self.said.len());
            let (now, later) = self.said.split_at(n);
            buf[..n].copy_from_slice(now);
            self.said = later;
            Poll::Ready(Ok(n))
        }
    }

    impl AsyncWrite for Recording<'_> {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            self.heard.extend(buf);
            Poll::Ready(Ok(buf.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// Any bytes of any length: refused, at most as many are taken as a proof has, and a listener gives nothing away.
    #[test]
    fn no_made_up_bytes_are_a_proof() {
        let ours = secret("1");
        let (me, other) = (Identity::generate().name(), Identity::generate().name());
        let mut rng = Rng::new(7);
        for round in 0..2_000 {
            let role = if round % 2 == 0 { Role::Dialler } else { Role::Listener };
            let length = rng.below(200) as usize;
            let bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
            let mut stream = Recording { said: &bytes, heard: Vec::new() };
            let refused = block_on(prove(&mut stream, &ours, role, me, other)).unwrap_err();
            let expected = match (role, length) {
                (Role::Listener, 64..) | (Role::Dialler, 32..) => Refusal::Secret,
                _ => Refusal::Broken,
            };
            assert_eq!(refused, expected, "{role:?} {length}");
            assert!(stream.said.len() >= length.saturating_sub(NONCE + TRIES * MAC));
            if role == Role::Listener {
                assert!(stream.heard.len() <= NONCE + MAC, "a listener says only its nonce and no to a stranger");
                assert!(
                    stream.heard.iter().skip(NONCE).all(|byte| *byte == 0),
                    "and nothing that depends on the secret"
                );
            }
        }
    }

    /// One end of a stream between two.
    struct End {
        says: mpsc::UnboundedSender<io::Result<Vec<u8>>>,
        hears: IntoAsyncRead<mpsc::UnboundedReceiver<io::Result<Vec<u8>>>>,
    }

    impl AsyncRead for End {
        fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.hears).poll_read(cx, buf)
        }
    }

    impl AsyncWrite for End {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            let said = self.says.unbounded_send(Ok(buf.to_vec()));
            Poll::Ready(said.map(|()| buf.len()).map_err(io::Error::other))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// What a dialler and a listener with these secrets make of each other.
    fn meet(dialler: &Secret, listener: &Secret) -> (Result<Fingerprint, Refusal>, Result<Fingerprint, Refusal>) {
        let (a, b) = (Identity::generate().name(), Identity::generate().name());
        let ((to_b, from_a), (to_a, from_b)) = (mpsc::unbounded(), mpsc::unbounded());
        let dial = async {
            let mut end = End { says: to_b, hears: from_b.into_async_read() };
            prove(&mut end, dialler, Role::Dialler, a, b).await
        };
        let listen = async {
            let mut end = End { says: to_a, hears: from_a.into_async_read() };
            prove(&mut end, listener, Role::Listener, b, a).await
        };
        block_on(async { libp2p::futures::join!(dial, listen) })
    }

    /// Whoever has one in common with the other is its member, and both know with which; whoever has none is none.
    #[test]
    fn two_secrets_count_while_both_are_there_and_one_when_the_other_is_gone() {
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
            assert_eq!(meet(dialler, listener), (met, met));
        }
    }
}
