//! An encrypted connection between two peers that identify each other by their keys: Noise, pattern XX.
//!
//! ```text
//! dialler                                               listener
//!    |  "peerlock/3\n", e                           ------>  |
//!    |  <------     "peerlock/3\n", e, ee, s, es, voucher    |
//!    |  s, se, voucher                              ------>  |
//! ```
//!
//! A *voucher* is a peer's ed25519 key and its signature of the X25519 key `s` used on this connection. Noise proves
//! possession of `s`, so each end knows the other's identity, and no third party can read or change the messages that
//! follow. Any program can create an identity: `proof` verifies membership, using the hash of this handshake, which is
//! common to both ends and unique to the connection.
//!
//! The greeting names the protocol version. A listener sends nothing before it has received one. It answers another
//! version's greeting with its own, so that the other side learns the reason, and anything else not at all. It creates
//! keys and signs only after the first Noise message: a bare connection costs nothing.
//!
//! After the greeting come Noise messages of at most 65,535 bytes (Noise, section 3), each preceded by its length (two
//! bytes, big endian). At most one of them is buffered, besides the last read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use snow::{Builder, HandshakeState, StatelessTransportState};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::Refusal;
use crate::identity::{Identity, Name, VOUCHER};
use crate::proof::Role;

const GREETING: &[u8; 11] = b"peerlock/3\n";
/// Common prefix of the greetings of all versions.
const ANY_GREETING: &[u8] = b"peerlock/";
const PATTERN: &str = "Noise_XX_25519_ChaChaPoly_SHA256";
/// Prefix of the signed text, so that the signature has no other use.
const STATIC_KEY: &[u8] = b"peerlock key of a connection ";

/// Bytes of a message's length on the wire.
const LENGTH: usize = 2;
/// The longest message, and its overhead over the plaintext.
const LONGEST: usize = 65_535;
const TAG: usize = 16;
const KEY: usize = 32;
/// The longest handshake message: the listener's.
const HANDSHAKE: usize = KEY + (KEY + TAG) + (VOUCHER + TAG);
/// Read size, unless a message is longer: hundreds of usual messages.
const CHUNK: usize = 16 * 1024;

/// Both directions of an encrypted connection.
pub(crate) struct Channel<R, W> {
    pub reader: Reader<R>,
    pub writer: Writer<W>,
    /// The identity of the other end.
    pub name: Name,
    /// The handshake hash: common to the two ends, unique to the connection.
    pub hash: [u8; 32],
}

/// The receiving direction.
pub(crate) struct Reader<R> {
    from: R,
    keys: Arc<StatelessTransportState>,
    /// Messages decrypted so far.
    opened: u64,
    sealed: Vec<u8>,
    /// The part of `sealed` that has been decrypted.
    taken: usize,
    filled: usize,
    plain: Vec<u8>,
    /// Bytes received; readable while a message is incomplete.
    came: Arc<AtomicUsize>,
}

/// The sending direction.
pub(crate) struct Writer<W> {
    to: W,
    keys: Arc<StatelessTransportState>,
    /// Messages encrypted so far.
    sealed: u64,
    buffer: Vec<u8>,
    /// The last message was written partially, so nothing can follow it.
    is_torn: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Channel<R, W> {
    /// Performs the handshake, which identifies the other end. The caller bounds the time.
    pub async fn open(from: R, to: W, role: Role, identity: &Identity) -> Result<Self, Refusal> {
        let (mut from, mut to) = (from, to);
        let (noise, theirs) = match role {
            Role::Dialler => {
                let (builder, private, voucher) = keys(identity);
                let builder = builder.local_private_key(&private).expect("it is said once");
                let mut noise = builder.build_initiator().expect("nothing is missing");
                to.write_all(GREETING).await.map_err(broken)?;
                say(&mut to, &mut noise, &[]).await?;
                greeted(&mut from).await?;
                let theirs = receive(&mut from, &mut noise).await?;
                say(&mut to, &mut noise, &voucher).await?;
                (noise, theirs)
            }
            Role::Listener => {
                let greeted = greeted(&mut from).await;
                if greeted == Err(Greeted::Otherwise) {
                    // Best effort: the other side may have closed.
                    _ = to.write_all(GREETING).await;
                }
                greeted?;
                let first = message(&mut from, KEY).await?;
                let (builder, private, voucher) = keys(identity);
                let builder = builder.local_private_key(&private).expect("it is said once");
                let mut noise = builder.build_responder().expect("nothing is missing");
                open_message(&first, &mut noise)?;
                to.write_all(GREETING).await.map_err(broken)?;
                say(&mut to, &mut noise, &voucher).await?;
                let theirs = receive(&mut from, &mut noise).await?;
                (noise, theirs)
            }
        };
        let key = noise.get_remote_static().ok_or(Refusal::Broken)?;
        let name = Name::vouched(&theirs, &[STATIC_KEY, key].concat()).ok_or(Refusal::Broken)?;
        let hash = noise.get_handshake_hash().try_into().map_err(|_| Refusal::Broken)?;
        let keys = Arc::new(noise.into_stateless_transport_mode().map_err(|_| Refusal::Broken)?);
        Ok(Self { reader: Reader::new(from, Arc::clone(&keys)), writer: Writer::new(to, keys), name, hash })
    }
}

fn broken<E>(_: E) -> Refusal {
    Refusal::Broken
}

fn not_sealed(_: snow::Error) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Why a greeting was not accepted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Greeted {
    /// The connection ended before it.
    Not,
    /// Another version of peerlock.
    Otherwise,
    /// Not peerlock.
    Strangely,
}

impl From<Greeted> for Refusal {
    fn from(greeted: Greeted) -> Self {
        match greeted {
            Greeted::Not => Self::Broken,
            Greeted::Otherwise | Greeted::Strangely => Self::Version,
        }
    }
}

async fn greeted<R: AsyncRead + Unpin>(from: &mut R) -> Result<(), Greeted> {
    let mut greeting = [0; GREETING.len()];
    from.read_exact(&mut greeting).await.map_err(|_| Greeted::Not)?;
    match &greeting {
        GREETING => Ok(()),
        other if other.starts_with(ANY_GREETING) => Err(Greeted::Otherwise),
        _ => Err(Greeted::Strangely),
    }
}

/// Returns a builder, the private key for this connection, and its voucher.
fn keys(identity: &Identity) -> (Builder<'static>, Vec<u8>, [u8; VOUCHER]) {
    #[cfg(test)]
    tests::KEYS.set(tests::KEYS.get() + 1);
    let builder = Builder::new(PATTERN.parse().expect("it is a pattern of Noise"));
    let ours = builder.generate_keypair().expect("the operating system has a random source");
    let voucher = identity.vouch(&[STATIC_KEY, &ours.public].concat());
    (builder.prologue(GREETING).expect("it is said once"), ours.private, voucher)
}

async fn say<W: AsyncWrite + Unpin>(to: &mut W, noise: &mut HandshakeState, payload: &[u8]) -> Result<(), Refusal> {
    let mut message = [0; LENGTH + HANDSHAKE];
    let length = noise.write_message(payload, &mut message[LENGTH..]).map_err(broken)?;
    message[..LENGTH].copy_from_slice(&(length as u16).to_be_bytes());
    to.write_all(&message[..LENGTH + length]).await.map_err(broken)
}

async fn receive<R: AsyncRead + Unpin>(from: &mut R, noise: &mut HandshakeState) -> Result<Vec<u8>, Refusal> {
    open_message(&message(from, HANDSHAKE).await?, noise)
}

/// Reads a handshake message of at most this length.
async fn message<R: AsyncRead + Unpin>(from: &mut R, longest: usize) -> Result<Vec<u8>, Refusal> {
    let length = usize::from(from.read_u16().await.map_err(broken)?);
    if length > longest {
        return Err(Refusal::Broken);
    }
    let mut message = vec![0; length];
    from.read_exact(&mut message).await.map_err(broken)?;
    Ok(message)
}

fn open_message(message: &[u8], noise: &mut HandshakeState) -> Result<Vec<u8>, Refusal> {
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload).map_err(broken)?;
    payload.truncate(length);
    Ok(payload)
}

impl<R: AsyncRead + Unpin> Reader<R> {
    fn new(from: R, keys: Arc<StatelessTransportState>) -> Self {
        let came = Arc::default();
        Self { from, keys, opened: 0, sealed: Vec::new(), taken: 0, filled: 0, plain: Vec::new(), came }
    }

    /// Returns the counter of received bytes, which includes incomplete messages; its reader resets it.
    pub fn came(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.came)
    }

    /// Returns the plaintext of the next message.
    ///
    /// # Errors
    /// The connection has ended: closed, broken, or it received bytes that the other end did not encrypt.
    pub async fn next(&mut self) -> io::Result<&[u8]> {
        let length = loop {
            let wanted = match self.sealed[self.taken..self.filled].split_first_chunk::<LENGTH>() {
                Some((length, rest)) => {
                    let length = usize::from(u16::from_be_bytes(*length));
                    if rest.len() >= length {
                        break length;
                    }
                    LENGTH + length
                }
                None => LENGTH,
            };
            self.fill(wanted).await?;
        };
        let sealed = &self.sealed[self.taken + LENGTH..][..length];
        self.plain.resize(length, 0);
        let said = self.keys.read_message(self.opened, sealed, &mut self.plain).map_err(not_sealed)?;
        self.taken += LENGTH + length;
        self.opened += 1;
        Ok(&self.plain[..said])
    }

    /// Reads available bytes, with room for a message of at least this length.
    async fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.sealed.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.filled == 0 && self.sealed.len() > CHUNK {
            // Release the memory of a long message.
            (self.sealed, self.plain) = (Vec::new(), Vec::new());
        }
        if self.sealed.len() < wanted {
            self.sealed.resize(wanted.max(CHUNK), 0);
        }
        match self.from.read(&mut self.sealed[self.filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            more => {
                self.filled += more;
                self.came.fetch_add(more, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    fn new(to: W, keys: Arc<StatelessTransportState>) -> Self {
        Self { to, keys, sealed: 0, buffer: Vec::new(), is_torn: false }
    }

    /// Encrypts and writes this, in as many messages as needed.
    pub async fn write(&mut self, plain: &[u8]) -> io::Result<()> {
        for piece in plain.chunks(LONGEST - TAG) {
            let length = piece.len() + TAG;
            self.buffer.resize(LENGTH + length, 0);
            self.buffer[..LENGTH].copy_from_slice(&(length as u16).to_be_bytes());
            self.keys.write_message(self.sealed, piece, &mut self.buffer[LENGTH..]).map_err(not_sealed)?;
            self.sealed += 1;
            self.is_torn = true;
            self.to.write_all(&self.buffer).await?;
            self.is_torn = false;
        }
        self.buffer.shrink_to(CHUNK);
        Ok(())
    }

    /// Returns whether a write was cancelled in the middle of a message.
    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    /// Closes the sending direction.
    pub async fn finish(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use peerlock_types::Rng;
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

    use super::*;

    type Pipe = Channel<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    thread_local! {
        /// How often keys were created.
        pub(super) static KEYS: Cell<u32> = const { Cell::new(0) };
    }

    /// Returns both ends of a connection over a pipe of this capacity.
    async fn connected(room: usize) -> (Pipe, Pipe) {
        let (near, far) = duplex(room);
        let ((from, to), (back, forth)) = (split(near), split(far));
        let (a, b) = (Identity::generate(), Identity::generate());
        let dial = Channel::open(from, to, Role::Dialler, &a);
        let listen = Channel::open(back, forth, Role::Listener, &b);
        let (near, far) = tokio::join!(dial, listen);
        let (near, far) = (near.unwrap(), far.unwrap());
        assert!(near.name == b.name() && far.name == a.name() && near.hash == far.hash);
        (near, far)
    }

    #[tokio::test]
    async fn messages_arrive_whole_and_in_order() {
        let mut rng = Rng::new(3);
        for room in [1, 7, 1000, 1 << 20] {
            let (mut near, mut far) = connected(room).await;
            let lengths: &[usize] = if room < 100 { &[1, 2, 500] } else { &[1, 65_519, 65_520, 200_000, 16_384, 3] };
            for &length in lengths {
                let said: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
                let receive = async {
                    let mut received = Vec::new();
                    while received.len() < length {
                        received.extend_from_slice(far.reader.next().await.unwrap());
                    }
                    received
                };
                let (written, received) = tokio::join!(near.writer.write(&said), receive);
                assert!(written.is_ok() && received == said, "{length} bytes through {room}");
            }
            // Waiting for the next message releases the memory of a long one.
            let (written, received) =
                tokio::join!(near.writer.write(b"short"), async { far.reader.next().await.unwrap().to_vec() });
            assert!(written.is_ok() && received == b"short");
            assert!(far.reader.sealed.capacity() <= CHUNK && near.writer.buffer.capacity() <= CHUNK);
        }
    }

    /// Returns the encrypted messages, with the receiving end.
    async fn sealed(messages: &[&[u8]]) -> (Vec<Vec<u8>>, Pipe, WriteHalf<DuplexStream>) {
        let (near, far) = connected(1 << 16).await;
        let mut wire = Vec::new();
        let mut writer = Writer::new(Vec::new(), near.writer.keys);
        for message in messages {
            writer.to.clear();
            writer.write(message).await.unwrap();
            wire.push(writer.to.clone());
        }
        (wire, far, near.writer.to)
    }

    /// Returns the messages decrypted until the end.
    async fn received(mut far: Pipe, mut wire: WriteHalf<DuplexStream>, bytes: &[Vec<u8>]) -> Vec<Vec<u8>> {
        wire.write_all(&bytes.concat()).await.unwrap();
        wire.shutdown().await.unwrap();
        let mut received = Vec::new();
        while let Ok(said) = far.reader.next().await {
            received.push(said.to_vec());
        }
        received
    }

    #[tokio::test]
    async fn tampering_ends_the_connection() {
        let said: [&[u8]; 3] = [b"one", b"two", b"three"];
        let (wire, far, to) = sealed(&said).await;
        assert_eq!(received(far, to, &wire).await, said);
        for bit in 0..wire[1].len() * 8 {
            let (mut wire, far, to) = sealed(&said).await;
            wire[1][bit / 8] ^= 1 << (bit % 8);
            assert_eq!(received(far, to, &wire).await, said[..1], "bit {bit}");
        }
        for order in [[0, 0, 1], [1, 0, 2], [0, 2, 1]] {
            let (wire, far, to) = sealed(&said).await;
            let right = order.iter().enumerate().take_while(|(place, number)| place == *number).count();
            assert_eq!(received(far, to, &order.map(|number| wire[number].clone())).await, said[..right], "{order:?}");
        }
    }

    /// Returns a listener's result, its reply and the number of keys created, for a client that sends this and closes.
    async fn listened_to(said: &[u8]) -> (Option<Refusal>, Vec<u8>, u32) {
        let (near, mut far) = duplex(1000);
        let (from, to) = split(near);
        far.write_all(said).await.unwrap();
        far.shutdown().await.unwrap();
        KEYS.set(0);
        let opened = Channel::open(from, to, Role::Listener, &Identity::generate()).await.err();
        let mut received = Vec::new();
        far.read_to_end(&mut received).await.unwrap();
        (opened, received, KEYS.get())
    }

    #[tokio::test]
    async fn other_greeting_is_another_version() {
        let (near, mut far) = duplex(1000);
        let (from, to) = split(near);
        far.write_all(b"peerlock/2\n").await.unwrap();
        let opened = Channel::open(from, to, Role::Dialler, &Identity::generate()).await;
        assert_eq!(opened.err(), Some(Refusal::Version));
        // A dialler of another version gets this version's greeting; other protocols get no reply.
        for said in [&b"peerlock/4\n"[..], b"peerlock/10\n and more"] {
            assert_eq!(listened_to(said).await, (Some(Refusal::Version), GREETING.to_vec(), 0));
        }
        assert_eq!(listened_to(b"GET / HTTP/1.1\r\n").await, (Some(Refusal::Version), Vec::new(), 0));
        assert_eq!(listened_to(b"").await, (Some(Refusal::Broken), Vec::new(), 0));
    }

    /// Keys and a signature are the most expensive part of an unauthenticated connection.
    #[tokio::test]
    async fn listener_creates_keys_after_the_first_message() {
        let long = [&GREETING[..], &[0, KEY as u8 + 1], &[7; KEY + 1]].concat();
        for said in [&GREETING[..], &long[..GREETING.len() + LENGTH + KEY - 1], &long] {
            assert_eq!(listened_to(said).await, (Some(Refusal::Broken), Vec::new(), 0), "{said:?}");
        }
        let first = [&GREETING[..], &[0, KEY as u8], &[7; KEY]].concat();
        let (opened, received, keys) = listened_to(&first).await;
        assert_eq!((opened, received.len(), keys), (Some(Refusal::Broken), GREETING.len() + LENGTH + HANDSHAKE, 1));
    }
}
