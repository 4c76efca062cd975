//! An encrypted connection between two members.
//!
//! It carries Noise messages of at most 65,535 bytes (Noise, section 3), each preceded by its length (two bytes, big
//! endian). At most one of them is buffered, besides the last read.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use snow::StatelessTransportState;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::handshake::{Role, shake};
use crate::identity::{Identity, Name};
use crate::{Fingerprint, Refusal, Secret};

const LENGTH: usize = 2;
/// The longest message, and its overhead over the plaintext.
const LONGEST: usize = 65_535;
const TAG: usize = 16;
const CHUNK: usize = 16 * 1024;

pub(crate) struct Channel<R, W> {
    pub reader: Reader<R>,
    pub writer: Writer<W>,
    pub name: Name,
    pub proved: Fingerprint,
}

pub(crate) struct Reader<R> {
    from: R,
    keys: Arc<StatelessTransportState>,
    opened: u64,
    sealed: Vec<u8>,
    /// The part of `sealed` that is decrypted.
    taken: usize,
    filled: usize,
    plain: Vec<u8>,
    received: Arc<AtomicUsize>,
}

pub(crate) struct Writer<W> {
    to: W,
    keys: Arc<StatelessTransportState>,
    sealed: u64,
    buffer: Vec<u8>,
    /// A message was written partially, so nothing can follow it.
    is_torn: bool,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Channel<R, W> {
    /// Performs the handshake. The caller bounds the time.
    pub async fn open(
        mut from: R,
        mut to: W,
        role: Role,
        identity: &Identity,
        secret: &Secret,
    ) -> Result<Self, Refusal> {
        let agreed = shake(&mut from, &mut to, role, identity, secret).await?;
        let keys = Arc::new(agreed.keys);
        let (reader, writer) = (Reader::new(from, Arc::clone(&keys)), Writer::new(to, keys));
        Ok(Self { reader, writer, name: agreed.name, proved: agreed.proved })
    }
}

fn not_sealed(_: snow::Error) -> io::Error {
    io::ErrorKind::InvalidData.into()
}

impl<R: AsyncRead + Unpin> Reader<R> {
    fn new(from: R, keys: Arc<StatelessTransportState>) -> Self {
        let received = Arc::default();
        Self { from, keys, opened: 0, sealed: Vec::new(), taken: 0, filled: 0, plain: Vec::new(), received }
    }

    pub fn received(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.received)
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

    async fn fill(&mut self, wanted: usize) -> io::Result<()> {
        self.sealed.copy_within(self.taken..self.filled, 0);
        self.filled -= self.taken;
        self.taken = 0;
        if self.filled == 0 && self.sealed.len() > CHUNK {
            (self.sealed, self.plain) = (Vec::new(), Vec::new());
        }
        if self.sealed.len() < wanted {
            self.sealed.resize(wanted.max(CHUNK), 0);
        }
        match self.from.read(&mut self.sealed[self.filled..]).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            more => {
                self.filled += more;
                self.received.fetch_add(more, Ordering::Relaxed);
                Ok(())
            }
        }
    }
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    fn new(to: W, keys: Arc<StatelessTransportState>) -> Self {
        Self { to, keys, sealed: 0, buffer: Vec::new(), is_torn: false }
    }

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

    pub fn is_torn(&self) -> bool {
        self.is_torn
    }

    pub async fn finish(&mut self) -> io::Result<()> {
        self.to.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Rng;
    use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};

    use super::*;

    type Pipe = Channel<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    async fn connected(room: usize) -> (Pipe, Pipe) {
        let (near, far) = duplex(room);
        let ((from, to), (back, forth)) = (split(near), split(far));
        let (a, b) = (Identity::generate(), Identity::generate());
        let secret = Secret::generate();
        let dial = Channel::open(from, to, Role::Dialler, &a, &secret);
        let listen = Channel::open(back, forth, Role::Listener, &b, &secret);
        let (near, far) = tokio::join!(dial, listen);
        let (near, far) = (near.unwrap(), far.unwrap());
        assert!(near.name == b.name() && far.name == a.name() && near.proved == far.proved);
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
            let (written, received) =
                tokio::join!(near.writer.write(b"short"), async { far.reader.next().await.unwrap().to_vec() });
            assert!(written.is_ok() && received == b"short");
            assert!(far.reader.sealed.capacity() <= CHUNK && near.writer.buffer.capacity() <= CHUNK);
        }
    }

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
}
