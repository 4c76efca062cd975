//! The life of one connection: proof, hello, and then frames both ways until it ends.
//!
//! ```text
//!  smaller number                     larger number
//!       |  proof (see `proof`)  <------>  |
//!       |  Hello                <------>  |  Hello
//!       |  Take n, or Refuse     ------>  |
//!       |  Data, Beat …         <------>  |  Data, Beat …
//!       |  Bye                   ------>  |  the other closes, and the leaver goes
//! ```
//!
//! Nothing here knows libp2p but for names: a session runs on any stream of bytes.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use libp2p::futures::io::{ReadHalf, WriteHalf};
use libp2p::futures::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use peerlock_base::PeerId;
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

use crate::address::Transport;
use crate::doorstep::Doorstep;
use crate::frame::{Decoder, Frame, Hello};
use crate::proof::{Role, prove};
use crate::table::{LinkGuard, Newcomer, Table, Work};
use crate::{Address, Config, Refusal, Why, log};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How much is gathered before it is written.
const BATCH: usize = 64 * 1024;

/// What all sessions of a peer share.
pub(crate) struct Shared {
    pub name: libp2p::PeerId,
    pub config: Config,
    pub table: Arc<Table>,
    pub doorstep: Arc<Doorstep>,
}

/// The other end of a connection, as libp2p has authenticated it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remote {
    pub peer: PeerId,
    pub name: libp2p::PeerId,
    pub address: Address,
    /// Which end *we* are.
    pub role: Role,
}

/// A link at work.
pub(crate) struct Session<S> {
    guard: LinkGuard,
    incoming: Incoming<S>,
    writer: WriteHalf<S>,
    shared: Arc<Shared>,
}

/// What the reader has seen since the last tick.
#[derive(Default)]
struct Pulse {
    heard: AtomicBool,
    lagging: AtomicBool,
}

struct Incoming<S> {
    reader: ReadHalf<S>,
    decoder: Decoder,
    chunk: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Session<S> {
    /// Everything up to the first message. The caller bounds the time.
    pub async fn open(mut stream: S, remote: Remote, shared: Arc<Shared>) -> Result<Self, Refusal> {
        // Nothing of an outsider is read beyond this line.
        let secret = shared.table.secret();
        let proved = prove(&mut stream, &secret, remote.role, shared.name, remote.name).await?;

        let (reader, mut writer) = stream.split();
        let mut incoming = Incoming { reader, decoder: Decoder::new(shared.config.max_message), chunk: vec![0; CHUNK] };
        let peer = remote.peer;
        let ours = match shared.table.greet(peer, remote.name) {
            Ok(hello) => hello,
            Err(refusal) => return Err(refuse(&mut writer, &mut incoming, refusal).await),
        };
        say(&mut writer, &Frame::Hello(ours)).await?;
        let hello = match incoming.next().await {
            Ok(Frame::Hello(hello)) => hello,
            Ok(Frame::Refuse(refusal)) => return Err(refusal),
            _ => return Err(Refusal::Broken),
        };
        let address = reachable(&hello, remote.address);
        let newcomer = Newcomer { peer, name: remote.name, hello, address, seen: remote.address.socket.ip(), proved };
        if shared.table.is_twin(&newcomer) {
            return Err(refuse(&mut writer, &mut incoming, Refusal::Twin).await);
        }
        let guard = if shared.table.decides(peer) {
            match shared.table.take(newcomer) {
                Ok(guard) => {
                    say(&mut writer, &Frame::Take(guard.number)).await?;
                    guard
                }
                Err(refusal) => return Err(refuse(&mut writer, &mut incoming, refusal).await),
            }
        } else {
            match incoming.next().await {
                Ok(Frame::Take(number)) => shared.table.follow(newcomer, number)?,
                Ok(Frame::Refuse(refusal)) => return Err(refusal),
                _ => return Err(Refusal::Broken),
            }
        };
        Ok(Self { guard, incoming, writer, shared })
    }

    /// Carries messages until the link is over.
    pub async fn run(self) {
        let Self { guard, mut incoming, mut writer, shared } = self;
        let pulse = Pulse::default();
        let why = tokio::select! {
            // What has come is read first, so that a goodbye is seen before the end of the connection.
            biased;
            why = read(&guard, &mut incoming, &pulse) => why,
            why = write(&guard, &mut writer, &shared.config) => why,
            why = listen_for_silence(&guard, &pulse, &shared.config) => why,
        };
        if why == Why::Malformed {
            log::malformed(guard.address);
        }
        guard.end(why);
    }
}

/// Where others reach a peer: what it says of itself, except that a peer that listens on every address of its machine
/// is found at the one that we see it at.
fn reachable(hello: &Hello, seen: Address) -> Address {
    let ip = if hello.listen.ip().is_unspecified() { seen.socket.ip() } else { hello.listen.ip() };
    let transport = if hello.quic { seen.transport } else { Transport::Tcp };
    Address { socket: SocketAddr::new(ip, hello.listen.port()), transport }
}

async fn say<W: AsyncWrite + Unpin>(writer: &mut W, frame: &Frame) -> Result<(), Refusal> {
    let mut buffer = Vec::new();
    frame.encode(&mut buffer);
    writer.write_all(&buffer).await.map_err(|_| Refusal::Broken)?;
    writer.flush().await.map_err(|_| Refusal::Broken)
}

/// Tells a member why not, and waits until it has gone away: closing first could overtake the reason.
async fn refuse<S>(writer: &mut WriteHalf<S>, incoming: &mut Incoming<S>, refusal: Refusal) -> Refusal
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if say(writer, &Frame::Refuse(refusal)).await.is_ok() {
        // Two that refuse each other need not wait.
        while !matches!(incoming.next().await, Err(_) | Ok(Frame::Refuse(_))) {}
    }
    refusal
}

impl<S: AsyncRead + AsyncWrite + Unpin> Incoming<S> {
    async fn next(&mut self) -> Result<Frame, Why> {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(Why::Malformed),
            }
            match self.reader.read(&mut self.chunk).await {
                Ok(0) | Err(_) => return Err(Why::Lost),
                Ok(n) => self.decoder.push(&self.chunk[..n]),
            }
        }
    }
}

async fn read<S: AsyncRead + AsyncWrite + Unpin>(guard: &LinkGuard, incoming: &mut Incoming<S>, pulse: &Pulse) -> Why {
    loop {
        let frame = match incoming.next().await {
            Ok(frame) => frame,
            Err(why) => return why,
        };
        pulse.heard.store(true, Ordering::Relaxed);
        match frame {
            Frame::Data(mut bytes) => loop {
                match guard.deliver(bytes) {
                    Ok(true) => break,
                    // Whoever ended it has said why.
                    Ok(false) => return Why::Lost,
                    Err(back) => bytes = back,
                }
                // Our application lags. That is no silence of the peer's; and unread bytes slow it down.
                pulse.lagging.store(true, Ordering::Relaxed);
                guard.room().await;
                pulse.lagging.store(false, Ordering::Relaxed);
            },
            Frame::Beat => {}
            Frame::Bye => return Why::Left,
            // We have decided for this connection before the other side had seen who we are.
            Frame::Refuse(refusal) => {
                log::refused_later(guard.address, refusal);
                return Why::Lost;
            }
            Frame::Hello(_) | Frame::Take(_) => return Why::Malformed,
        }
    }
}

async fn write<W: AsyncWrite + Unpin>(guard: &LinkGuard, writer: &mut W, config: &Config) -> Why {
    let mut beat = ticks(config);
    let mut quiet = true;
    let mut buffer = Vec::new();
    loop {
        let written = match guard.work() {
            Work::Messages(messages, cost) => {
                quiet = false;
                let count = messages.len();
                let written = write_all(writer, messages, &mut buffer).await;
                guard.written(count, cost);
                written
            }
            Work::Nothing => tokio::select! {
                () = guard.worked() => continue,
                _ = beat.tick() => {
                    if !std::mem::replace(&mut quiet, true) {
                        continue;
                    }
                    say(writer, &Frame::Beat).await
                }
            },
            Work::Leave => {
                let said = say(writer, &Frame::Bye).await;
                if said.is_ok() {
                    // The other side closes when it has read it. Closing first could overtake it.
                    sleep(config.goodbye).await;
                }
                return Why::Left;
            }
            Work::Over => return Why::Lost,
        };
        if written.is_err() {
            // What has come before the end is still to be read, and the reader will meet the end.
            return pending().await;
        }
    }
}

/// Writes a batch and flushes once.
async fn write_all<W>(writer: &mut W, messages: VecDeque<Bytes>, buffer: &mut Vec<u8>) -> Result<(), Refusal>
where
    W: AsyncWrite + Unpin,
{
    buffer.clear();
    for bytes in messages {
        Frame::Data(bytes).encode(buffer);
        if buffer.len() >= BATCH {
            writer.write_all(buffer).await.map_err(|_| Refusal::Broken)?;
            buffer.clear();
            buffer.shrink_to(BATCH);
        }
    }
    writer.write_all(buffer).await.map_err(|_| Refusal::Broken)?;
    writer.flush().await.map_err(|_| Refusal::Broken)
}

/// Returns when too many heartbeats in a row are missing; or soon after somebody else has ended the link, for a writer
/// whose peer does not read, and a reader whose peer says nothing, do not notice that.
///
/// It counts ticks, not time: if this whole process was frozen, the tick after it comes together with what has piled up
/// meanwhile, and nobody is suspected.
async fn listen_for_silence(guard: &LinkGuard, pulse: &Pulse, config: &Config) -> Why {
    let mut beat = ticks(config);
    let mut missed = 0;
    loop {
        beat.tick().await;
        let heard = pulse.heard.swap(false, Ordering::Relaxed);
        missed = if heard || pulse.lagging.load(Ordering::Relaxed) { 0 } else { missed + 1 };
        // The first tick comes before a first beat can.
        if missed > config.missed {
            return Why::Silent;
        }
        if guard.is_over() {
            return Why::Lost;
        }
    }
}

fn ticks(config: &Config) -> Interval {
    let mut ticks = interval(config.beat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_reached_where_it_says_or_else_where_it_is_seen() {
        for (listen, quic, seen, expected) in [
            ("10.0.0.7:7400", false, "192.0.2.1:50000", "10.0.0.7:7400"),
            ("0.0.0.0:7400", false, "192.0.2.1:50000", "192.0.2.1:7400"),
            ("0.0.0.0:7400", true, "192.0.2.1:50000", "192.0.2.1:7400"),
            ("0.0.0.0:7400", true, "quic://192.0.2.1:50000", "quic://192.0.2.1:7400"),
            ("0.0.0.0:7400", false, "quic://192.0.2.1:50000", "192.0.2.1:7400"),
            ("[::]:7400", true, "quic://[2001:db8::1]:50000", "quic://[2001:db8::1]:7400"),
        ] {
            let hello = Hello { incarnation: 0, over: (0, 0), listen: listen.parse().unwrap(), quic };
            assert_eq!(reachable(&hello, seen.parse().unwrap()).to_string(), expected, "{listen} {seen}");
        }
    }
}
