//! The life of one link: handshake, hello, then frames both ways until it ends.
//!
//! ```text
//!  smaller number                     larger number
//!       |  see `handshake`      <------>  |
//!       |  Hello                <------>  |  Hello
//!       |  Take n, or Refuse     ------>  |
//!       |  Data                 <------>  |  Data
//!       |  Ask                   ------>  |
//!       |                       <------   |  Beat
//!       |  Bye                   ------>  |  the other closes, and the leaver goes
//! ```
//!
//! *Failure detection.* A side that receives nothing probes the other: at every beat if either has sent data recently,
//! until too many probes stay unanswered; otherwise after a long rest. So a peer with a thousand links pays only for
//! those in use.
//!
//! *Every byte counts as life*, also of an incomplete frame: on a slow network a long frame takes longer than the
//! allowed silence. A side that receives much data sends a `Beat` at every beat, because the other side's probe would
//! queue behind that data.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep, timeout};

use crate::admission::Admission;
use crate::channel::{Channel, Reader, Writer};
use crate::frame::{Decoder, Frame, Hello};
use crate::log::Log;
use crate::table::{LinkGuard, Newcomer, Table, Work};
use crate::{Config, Fingerprint, Identity, Refusal, Why, log};

const BATCH: usize = 64 * 1024;
/// A side that receives more than this between two beats sends a `Beat`: more than a few probes and answers, and so
/// little that a network on which it takes a beat is useless.
const MUCH: usize = 1024;

pub(crate) struct Shared {
    pub identity: Identity,
    pub config: Config,
    pub table: Arc<Table>,
    pub admission: Admission,
    pub log: Log,
}

pub(crate) struct RunningLink<R, W> {
    guard: LinkGuard,
    take: Option<Frame>,
    incoming: Incoming<R>,
    writer: Writer<W>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Pulse {
    /// Bytes received since the detector's last beat.
    received: Arc<AtomicUsize>,
    has_data: AtomicBool,
    changed: Notify,
    /// The local application lags, so nothing is read.
    lagging: AtomicBool,
    /// An `Ask`, or a `Beat`, is to be sent.
    asks: AtomicBool,
    owes: AtomicBool,
}

impl Pulse {
    fn new(received: Arc<AtomicUsize>) -> Self {
        Self { received, ..Self::default() }
    }

    fn note_data(&self) {
        self.has_data.store(true, Ordering::Relaxed);
        self.changed.notify_one();
    }
}

struct Incoming<R> {
    reader: Reader<R>,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> RunningLink<R, W> {
    /// Exchanges hellos. `first` was the preferred secret before the handshake. The caller bounds the time.
    pub async fn open(
        channel: Channel<R, W>,
        first: Fingerprint,
        found: SocketAddr,
        shared: Arc<Shared>,
    ) -> Result<Self, Refusal> {
        let Channel { reader, mut writer, name, proved } = channel;
        let mut incoming = Incoming { reader, decoder: Decoder::new(shared.config.max_message) };
        let peer = name.number();
        let ours = match shared.table.greet(peer, name) {
            Ok(hello) => hello,
            Err(refusal) => return Err(refuse(&mut writer, &mut incoming, refusal).await),
        };
        send(&mut writer, &Frame::Hello(ours)).await?;
        let hello = match incoming.next().await {
            Ok(Frame::Hello(hello)) => hello,
            Ok(Frame::Refuse(refusal)) => return Err(refusal),
            _ => return Err(Refusal::Broken),
        };
        let address = reachable(&hello, found);
        let newcomer = Newcomer { peer, name, hello, address, found: found.ip(), proved, first };
        if shared.table.is_twin(&newcomer) {
            return Err(refuse(&mut writer, &mut incoming, Refusal::Twin).await);
        }
        // From here to `run` nothing waits or fails: a connection with an entry in the table is a link, and ends as
        // one.
        let (guard, take) = if shared.table.decides(peer) {
            match shared.table.take(newcomer) {
                Ok(guard) => {
                    let take = Frame::Take(guard.number);
                    (guard, Some(take))
                }
                Err(refusal) => return Err(refuse(&mut writer, &mut incoming, refusal).await),
            }
        } else {
            match incoming.next().await {
                Ok(Frame::Take(number)) => (shared.table.follow(newcomer, number)?, None),
                Ok(Frame::Refuse(refusal)) => return Err(refusal),
                _ => return Err(Refusal::Broken),
            }
        };
        Ok(Self { guard, take, incoming, writer, shared })
    }

    pub async fn run(self) {
        let Self { guard, take, mut incoming, mut writer, shared } = self;
        let pulse = Pulse::new(incoming.reader.received());
        let why = tokio::select! {
            // Reads first, so that a goodbye is seen before the end of the connection.
            biased;
            why = read(&guard, &mut incoming, &pulse) => why,
            why = write(&guard, take, &mut writer, &pulse, &shared.config) => why,
            why = detect_silence(&guard, &pulse, &shared.config) => why,
        };
        if why == Why::Malformed {
            log::malformed(guard.address);
        }
        let (queued, cost) = guard.queued();
        if !queued.is_empty() && !writer.is_torn() {
            let count = queued.len();
            let sent = timeout(shared.config.goodbye, part(&mut writer, &mut incoming, queued)).await;
            if sent.is_ok() {
                guard.written(count, cost);
            }
        }
        guard.end(why);
    }
}

/// Writes the remaining messages and waits for the other side to close: closing first could overtake them.
async fn part<R, W>(writer: &mut Writer<W>, incoming: &mut Incoming<R>, queued: VecDeque<Bytes>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if write_all(writer, queued, &mut Vec::new()).await.is_ok() && writer.finish().await.is_ok() {
        while incoming.reader.next().await.is_ok() {}
    }
}

fn reachable(hello: &Hello, found: SocketAddr) -> SocketAddr {
    let ip = if hello.listen.ip().is_unspecified() { found.ip() } else { hello.listen.ip() };
    SocketAddr::new(ip, hello.listen.port())
}

async fn send<W: AsyncWrite + Unpin>(writer: &mut Writer<W>, frame: &Frame) -> Result<(), Refusal> {
    let mut buffer = Vec::new();
    frame.encode(&mut buffer);
    writer.write(&buffer).await.map_err(|_| Refusal::Broken)
}

/// Sends a refusal and waits for the other side to close: closing first could overtake the reason.
async fn refuse<R, W>(writer: &mut Writer<W>, incoming: &mut Incoming<R>, refusal: Refusal) -> Refusal
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if send(writer, &Frame::Refuse(refusal)).await.is_ok() {
        // Two peers that refuse each other need not wait.
        while !matches!(incoming.next().await, Err(_) | Ok(Frame::Refuse(_))) {}
    }
    refusal
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    async fn next(&mut self) -> Result<Frame, Why> {
        loop {
            match self.decoder.next() {
                Ok(Some(frame)) => return Ok(frame),
                Ok(None) => {}
                Err(_) => return Err(Why::Malformed),
            }
            match self.reader.next().await {
                Ok(bytes) => self.decoder.push(bytes),
                Err(_) => return Err(Why::Lost),
            }
        }
    }
}

async fn read<R: AsyncRead + Unpin>(guard: &LinkGuard, incoming: &mut Incoming<R>, pulse: &Pulse) -> Why {
    loop {
        let frame = match incoming.next().await {
            Ok(frame) => frame,
            Err(why) => return why,
        };
        match frame {
            Frame::Data(bytes) => {
                pulse.note_data();
                if !deliver(guard, bytes, pulse).await {
                    return Why::Lost;
                }
            }
            Frame::Ask => {
                pulse.owes.store(true, Ordering::Relaxed);
                guard.wake_writer();
            }
            Frame::Beat => {}
            Frame::Bye => return Why::Left,
            // This side decided before the other side had identified it.
            Frame::Refuse(refusal) => {
                log::refused_later(guard.address, refusal);
                return Why::Lost;
            }
            Frame::Hello(_) | Frame::Take(_) => return Why::Malformed,
        }
    }
}

async fn deliver(guard: &LinkGuard, mut bytes: Bytes, pulse: &Pulse) -> bool {
    loop {
        match guard.deliver(bytes) {
            Ok(is_up) => return is_up,
            Err(back) => bytes = back,
        }
        // Not a silence of the peer. Unread bytes slow the peer down.
        pulse.lagging.store(true, Ordering::Relaxed);
        guard.wait_for_room().await;
        pulse.lagging.store(false, Ordering::Relaxed);
    }
}

async fn write<W: AsyncWrite + Unpin>(
    guard: &LinkGuard,
    first: Option<Frame>,
    writer: &mut Writer<W>,
    pulse: &Pulse,
    config: &Config,
) -> Why {
    let mut buffer = Vec::new();
    if let Some(frame) = first
        && send(writer, &frame).await.is_err()
    {
        return pending().await;
    }
    loop {
        let written = match guard.work() {
            Work::Messages(messages, cost) => {
                // Before writing, so that a peer that does not read is detected.
                pulse.note_data();
                pulse.owes.store(false, Ordering::Relaxed);
                let count = messages.len();
                let written = write_all(writer, messages, &mut buffer).await;
                guard.written(count, cost);
                written
            }
            Work::Nothing if pulse.owes.swap(false, Ordering::Relaxed) => send(writer, &Frame::Beat).await,
            Work::Nothing if pulse.asks.swap(false, Ordering::Relaxed) => send(writer, &Frame::Ask).await,
            Work::Nothing => {
                guard.wait_for_work().await;
                continue;
            }
            Work::Leave => {
                let sent = send(writer, &Frame::Bye).await;
                if sent.is_ok() {
                    // Closing first could overtake the goodbye.
                    sleep(config.goodbye).await;
                }
                return Why::Left;
            }
            Work::Over => return Why::Lost,
        };
        if written.is_err() {
            // The reader still has to read what arrived before the end, and ends the link.
            return pending().await;
        }
    }
}

async fn write_all<W>(writer: &mut Writer<W>, messages: VecDeque<Bytes>, buffer: &mut Vec<u8>) -> Result<(), Refusal>
where
    W: AsyncWrite + Unpin,
{
    buffer.clear();
    for bytes in messages {
        Frame::Data(bytes).encode(buffer);
        if buffer.len() >= BATCH {
            writer.write(buffer).await.map_err(|_| Refusal::Broken)?;
            buffer.clear();
            buffer.shrink_to(BATCH);
        }
    }
    writer.write(buffer).await.map_err(|_| Refusal::Broken)
}

/// Returns when too many probes in a row were unanswered; or soon after the link was ended elsewhere, since a writer
/// whose peer does not read cannot notice that.
///
/// It counts ticks rather than time: if this process was frozen, the next tick comes together with the bytes that
/// arrived meanwhile.
async fn detect_silence(guard: &LinkGuard, pulse: &Pulse, config: &Config) -> Why {
    let mut rested = 0;
    loop {
        if let Some(why) = detect_silence_in_use(guard, pulse, config, rested).await {
            return why;
        }
        pulse.received.store(0, Ordering::Relaxed);
        // Bytes that arrive meanwhile count as an answer.
        _ = timeout(config.rest, used(pulse)).await;
        rested = config.rest_beats();
    }
}

async fn used(pulse: &Pulse) {
    // Notifications from before the rest are stale.
    while !pulse.has_data.load(Ordering::Relaxed) {
        pulse.changed.notified().await;
    }
}

/// Returns `None` when no data was sent for a long rest, of which `rested` beats have passed; or the reason why the
/// link has ended.
async fn detect_silence_in_use(guard: &LinkGuard, pulse: &Pulse, config: &Config, mut rested: u32) -> Option<Why> {
    let mut beat = ticks(config);
    let mut missed = 0;
    loop {
        beat.tick().await;
        if guard.is_over() {
            return Some(Why::Lost);
        }
        rested = if pulse.has_data.swap(false, Ordering::Relaxed) { 0 } else { rested.saturating_add(1) };
        let received = pulse.received.swap(0, Ordering::Relaxed);
        if pulse.lagging.load(Ordering::Relaxed) {
            // Nothing is read, so a probe would go unnoticed.
            pulse.owes.store(true, Ordering::Relaxed);
            guard.wake_writer();
            (missed, rested) = (0, 0);
        } else if received > 0 {
            missed = 0;
            if received > MUCH {
                pulse.owes.store(true, Ordering::Relaxed);
                guard.wake_writer();
            }
            if rested > config.rest_beats() {
                return None;
            }
        } else {
            missed += 1;
            if missed > config.missed {
                return Some(Why::Silent);
            }
            ask(guard, pulse);
        }
    }
}

fn ask(guard: &LinkGuard, pulse: &Pulse) {
    pulse.asks.store(true, Ordering::Relaxed);
    guard.wake_writer();
}

fn ticks(config: &Config) -> Interval {
    let mut ticks = interval_at(tokio::time::Instant::now() + config.beat, config.beat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use peerlock_types::PeerId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};

    use super::*;
    use crate::handshake::Role;
    use crate::{Event, Secret};

    #[test]
    fn peer_address_is_stated_or_observed() {
        for (listen, found, expected) in [
            ("10.0.0.7:7400", "192.0.2.1:50000", "10.0.0.7:7400"),
            ("0.0.0.0:7400", "192.0.2.1:50000", "192.0.2.1:7400"),
            ("[::]:7400", "[2001:db8::1]:50000", "[2001:db8::1]:7400"),
        ] {
            let hello = Hello { incarnation: 0, over: (0, 0), listen: listen.parse().unwrap() };
            assert_eq!(reachable(&hello, found.parse().unwrap()).to_string(), expected, "{listen} {found}");
        }
    }

    struct Listener {
        guard: LinkGuard,
        pulse: Pulse,
        config: Config,
    }

    /// Seconds in which the other end answers probes or does not, and whether data is sent first.
    struct While(u64, Other, Data);

    #[derive(Clone, Copy, PartialEq)]
    enum Other {
        Answers,
        IsGone,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Data {
        Sent,
        None,
    }

    impl Listener {
        fn new() -> Self {
            let config = Config::new("127.0.0.1:0".parse().unwrap());
            let (address, proved) = ("127.0.0.1:1".parse::<SocketAddr>().unwrap(), secret().preferred());
            let hello = Hello { incarnation: 1, over: (0, 0), listen: address };
            let (peer, name, found) = (PeerId::new(2), Identity::generate().name(), address.ip());
            let table = Arc::new(Table::new(PeerId::new(1), config.clone(), secret()));
            let guard = table.take(Newcomer { peer, name, hello, address, found, proved, first: proved }).unwrap();
            Self { guard, pulse: Pulse::default(), config }
        }

        /// Returns the number of probes in each period, and why the link has ended.
        async fn asked(self, times: &[While]) -> (Vec<u32>, Option<Why>) {
            let counts = RefCell::new(Vec::new());
            let count = async {
                for While(seconds, other, data) in times {
                    if *data == Data::Sent {
                        self.pulse.note_data();
                    }
                    counts.borrow_mut().push(0);
                    for _ in 0..seconds * 10 {
                        sleep(Duration::from_millis(100)).await;
                        if self.pulse.asks.swap(false, Ordering::Relaxed) {
                            *counts.borrow_mut().last_mut().unwrap() += 1;
                            self.pulse.received.fetch_add(usize::from(*other == Other::Answers), Ordering::Relaxed);
                        }
                    }
                }
            };
            let why = tokio::select! {
                why = detect_silence(&self.guard, &self.pulse, &self.config) => Some(why),
                () = count => None,
            };
            (counts.into_inner(), why)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_link_rests_until_the_next_message() {
        let quiet = |seconds| While(seconds, Other::Answers, Data::None);
        let used = || While(20, Other::Answers, Data::Sent);
        let times = [quiet(20), quiet(200), used(), quiet(200), used(), used(), used(), quiet(200)];
        let (asked, why) = Listener::new().asked(&times).await;
        assert_eq!(why, None);
        for (asked, While(seconds, ..)) in asked.iter().zip(&times) {
            assert!((8..=11).contains(asked), "{asked} times in {seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn dead_peer_on_idle_link_is_detected() {
        for (seconds, data, is_missed) in
            [(4, Data::Sent, false), (7, Data::Sent, true), (10, Data::None, false), (46, Data::None, true)]
        {
            let gone = While(seconds, Other::IsGone, data);
            let (_, why) = Listener::new().asked(&[While(70, Other::Answers, Data::None), gone]).await;
            assert_eq!(why, is_missed.then_some(Why::Silent), "after {seconds} s");
        }
    }

    fn secret() -> Secret {
        Secret::new("0123456789abcdef".repeat(4).as_bytes()).unwrap()
    }

    fn two() -> [Arc<Shared>; 2] {
        let mut identities = [Identity::generate(), Identity::generate()];
        identities.sort_by_key(Identity::peer);
        identities.map(|identity| {
            let config = Config::new("127.0.0.1:0".parse().unwrap());
            let table = Arc::new(Table::new(identity.peer(), config.clone(), secret()));
            let admission = Admission::new(Arc::clone(&table), 1);
            Arc::new(Shared { identity, config, table, admission, log: Log::default() })
        })
    }

    type Pipe = Channel<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    async fn channel(end: DuplexStream, role: Role, shared: &Shared) -> Pipe {
        let (from, to) = split(end);
        Channel::open(from, to, role, &shared.identity, &secret()).await.unwrap()
    }

    async fn open(
        end: DuplexStream,
        role: Role,
        shared: &Arc<Shared>,
    ) -> Result<RunningLink<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>, Refusal> {
        let channel = channel(end, role, shared).await;
        RunningLink::open(channel, secret().preferred(), "127.0.0.1:1".parse().unwrap(), Arc::clone(shared)).await
    }

    /// A pipe that carries this many bytes a second, each way.
    fn slow_pipe(speed: usize) -> (DuplexStream, DuplexStream) {
        let ((near, one), (far, other)) = (duplex(64 * 1024), duplex(64 * 1024));
        let ((from, to), (back, forth)) = (split(one), split(other));
        for (mut from, mut to) in [(from, forth), (back, to)] {
            tokio::spawn(async move {
                let mut piece = vec![0; speed / 20];
                while let Ok(length @ 1..) = from.read(&mut piece).await {
                    sleep(Duration::from_millis(50)).await;
                    if to.write_all(&piece[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
        (near, far)
    }

    async fn next(shared: &Shared) -> Event {
        loop {
            if let Some(event) = shared.table.pop() {
                return event;
            }
            shared.table.changed.notified().await;
        }
    }

    /// One side has no complete frame for ten seconds, and the other's probes are delayed.
    #[tokio::test(start_paused = true)]
    async fn slow_network_is_not_silence() {
        let [us, them] = two();
        let (near, far) = slow_pipe(100 * 1024);
        for (end, role, shared) in [(near, Role::Dialler, &us), (far, Role::Listener, &them)] {
            let shared = Arc::clone(shared);
            tokio::spawn(async move { open(end, role, &shared).await.expect("a link").run().await });
        }
        let Event::Up { peer, epoch, .. } = next(&us).await else { panic!("it is not up") };
        assert!(matches!(next(&them).await, Event::Up { .. }));
        let lengths = [vec![us.config.max_message], vec![64 * 1024; 16]].concat();
        lengths.iter().for_each(|length| us.table.send(peer, epoch, vec![7; *length].into()).unwrap());
        for length in lengths {
            let event = next(&them).await;
            assert!(matches!(&event, Event::Message { bytes, .. } if bytes.len() == length), "{event:?}");
        }
        assert!(us.table.pop().is_none() && them.table.pop().is_none());
    }

    /// The application may have seen its `Up`.
    #[tokio::test]
    async fn admitted_connection_is_a_link_until_its_end() {
        let [us, them] = two();
        let (near, far) = duplex(4096);
        let goes = async {
            let Channel { reader, mut writer, .. } = channel(far, Role::Listener, &them).await;
            let mut incoming = Incoming { reader, decoder: Decoder::new(1000) };
            assert!(matches!(incoming.next().await, Ok(Frame::Hello(_))));
            let hello = Hello { incarnation: 1, over: (0, 0), listen: "127.0.0.1:1".parse().unwrap() };
            send(&mut writer, &Frame::Hello(hello)).await.unwrap();
        };
        let (link, ()) = tokio::join!(open(near, Role::Dialler, &us), goes);
        let link = link.expect("it has a place");
        assert!(matches!(us.table.pop(), Some(Event::Up { .. })));
        link.run().await;
        assert!(matches!(us.table.pop(), Some(Event::Down { why: Why::Lost, .. })));
    }
}
