//! How two peers prove to each other that they know the cluster secret, before anything else they say is read.
//!
//! ```text
//! dialler                                        listener
//!    |  nonce d (32 bytes, fresh)          ------>  |
//!    |  <------          nonce l (32 bytes, fresh)  |
//!    |  HMAC("dialler" …)  (32 bytes)      ------>  |  closes if it is wrong
//!    |  <------          HMAC("listener" …)         |
//! ```
//!
//! Each HMAC-SHA256 is keyed with the secret and covers the role of its sender, both libp2p names and both nonces. That
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
//! The dialler goes first, so that somebody who merely scans addresses learns nothing that depends on the secret. All
//! messages have a fixed length and there is nothing to parse; the caller bounds the time.

use hmac::Mac as _;
use libp2p::PeerId;
use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::random::random;
use crate::{Refusal, Secret};

const NONCE: usize = 32;
const MAC: usize = 32;

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
    fn mac(&self, secret: &Secret, role: Role) -> [u8; MAC] {
        self.absorb(secret, role).finalize().into_bytes().into()
    }

    /// Compares in constant time.
    fn verify(&self, secret: &Secret, role: Role, mac: &[u8; MAC]) -> Result<(), Refusal> {
        self.absorb(secret, role).verify_slice(mac).map_err(|_| Refusal::Secret)
    }

    fn absorb(&self, secret: &Secret, role: Role) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = secret.mac();
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

/// Proves to `other` that we know the secret, and that it does.
pub(crate) async fn prove<S>(
    stream: &mut S,
    secret: &Secret,
    role: Role,
    me: PeerId,
    other: PeerId,
) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let nonce = random();
    match role {
        Role::Dialler => {
            say(stream, &nonce).await?;
            let listener_nonce = hear(stream).await?;
            let transcript = Transcript { dialler: me, listener: other, dialler_nonce: nonce, listener_nonce };
            say(stream, &transcript.mac(secret, Role::Dialler)).await?;
            // A listener that closes now did not like what it saw.
            let mac = hear(stream).await.map_err(|_| Refusal::Secret)?;
            transcript.verify(secret, Role::Listener, &mac)
        }
        Role::Listener => {
            let dialler_nonce = hear(stream).await?;
            say(stream, &nonce).await?;
            let transcript = Transcript { dialler: other, listener: me, dialler_nonce, listener_nonce: nonce };
            let mac = hear(stream).await?;
            transcript.verify(secret, Role::Dialler, &mac)?;
            say(stream, &transcript.mac(secret, Role::Listener)).await
        }
    }
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

    use libp2p::futures::executor::block_on;
    use peerlock_base::Rng;

    use super::*;
    use crate::Identity;

    fn secret(digit: &str) -> Secret {
        Secret::new(format!("{digit}{}", "0123456789abcdef".repeat(4)).as_bytes()).unwrap()
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
        let ours = secret("1");
        let one = transcript();
        let mac = one.mac(&ours, Role::Dialler);
        assert_eq!(one.verify(&ours, Role::Dialler, &mac), Ok(()));
        assert_eq!(one.verify(&ours, Role::Listener, &mac), Err(Refusal::Secret), "reflected");
        assert_eq!(one.verify(&secret("2"), Role::Dialler, &mac), Err(Refusal::Secret));
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
            assert_eq!(changed.verify(&ours, Role::Dialler, &mac), Err(Refusal::Secret), "{what}");
        }
        for bit in 0..MAC * 8 {
            let mut mac = mac;
            mac[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(one.verify(&ours, Role::Dialler, &mac), Err(Refusal::Secret), "bit {bit}");
        }
    }

    /// A stream that says what it was told to say and then closes.
    struct Recording<'a> {
        said: &'a [u8],
        heard: usize,
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
            self.heard += buf.len();
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
            let mut stream = Recording { said: &bytes, heard: 0 };
            let refused = block_on(prove(&mut stream, &ours, role, me, other)).unwrap_err();
            let expected = match (role, length) {
                (Role::Listener, 64..) | (Role::Dialler, 32..) => Refusal::Secret,
                _ => Refusal::Broken,
            };
            assert_eq!(refused, expected, "{role:?} {length}");
            assert!(stream.said.len() >= length.saturating_sub(NONCE + MAC));
            if role == Role::Listener {
                assert!(stream.heard <= NONCE, "a listener says only its nonce to a stranger");
            }
        }
    }
}
