//! The life of one connection: proof, hello, and then frames both ways until it ends.
//!
//! ```text
//!  smaller number                     larger number
//!       |  proof (see `proof`)  <------>  |
//!       |  Hello                <------>  |  Hello
//!       |  Take n, or Refuse     ------>  |
//!       |  Data                 <------>  |  Data
//!       |  Ask                   ------>  |
//!       |                       <------   |  Beat
//!       |  Bye                   ------>  |  the other closes, and the leaver goes
//! ```
//!
//! *Who hears nothing asks whether the other is there*: at every beat as long as either has said something not long
//! ago, until the other is heard, or has been silent for too many of them; and otherwise after a long rest. So a peer
//! with a thousand links pays for those that are in use.
//!
//! *Whatever comes is heard*, also of a frame that is not whole yet: on a slow line a long one is under way for longer
//! than anybody may be silent. And whoever hears much says at every beat that it does, because the other's question
//! would stand in line behind all of that.
//!
//! A session runs on any [`Channel`], whatever carries its bytes.

use std::collections::VecDeque;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::{Interval, MissedTickBehavior, interval_at, sleep, timeout};

use crate::channel::{Channel, Reader, Writer};
use crate::doorstep::Doorstep;
use crate::frame::{Decoder, Frame, Hello};
use crate::log::Log;
use crate::proof::{Role, prove};
use crate::table::{LinkGuard, Newcomer, Table, Work};
use crate::{Config, Identity, Refusal, Why, log};

/// How much is gathered before it is written.
const BATCH: usize = 64 * 1024;
/// Who hears more than this between two beats says that it does. Our choice: more than a few questions and answers, and
/// so little that a line on which it takes a beat is of no use.
const MUCH: usize = 1024;

/// What all sessions of a peer share.
pub(crate) struct Shared {
    pub identity: Identity,
    pub config: Config,
    pub table: Arc<Table>,
    pub doorstep: Doorstep,
    pub log: Log,
}

/// A link at work.
pub(crate) struct Session<R, W> {
    guard: LinkGuard,
    /// The other is still to be told that this is the link.
    take: Option<Frame>,
    incoming: Incoming<R>,
    writer: Writer<W>,
    shared: Arc<Shared>,
}

/// What reader, writer and listener tell each other of.
#[derive(Default)]
struct Pulse {
    /// How many bytes were heard since the listener last looked.
    heard: Arc<AtomicUsize>,
    /// Something was said by either of us since then.
    said: AtomicBool,
    stirred: Notify,
    /// Our application lags, so that nothing is read.
    lagging: AtomicBool,
    /// The other is to be asked, or to be told, that it or we are there.
    asks: AtomicBool,
    owes: AtomicBool,
}

impl Pulse {
    /// Of a link on which so much is heard.
    fn new(heard: Arc<AtomicUsize>) -> Self {
        Self { heard, ..Self::default() }
    }

    fn say(&self) {
        self.said.store(true, Ordering::Relaxed);
        self.stirred.notify_one();
    }
}

struct Incoming<R> {
    reader: Reader<R>,
    decoder: Decoder,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<R, W> {
    /// Everything up to the first message, on a connection with somebody who is here. The caller bounds the time.
    pub async fn open(
        mut channel: Channel<R, W>,
        role: Role,
        seen: SocketAddr,
        shared: Arc<Shared>,
    ) -> Result<Self, Refusal> {
        // Nothing of an outsider is read beyond this line.
        let secret = shared.table.secret();
        let proved = prove(&mut channel, &secret, role).await?;

        let Channel { reader, mut writer, name, .. } = channel;
        let mut incoming = Incoming { reader, decoder: Decoder::new(shared.config.max_message) };
        let peer = name.number();
        let ours = match shared.table.greet(peer, name) {
            Ok(hello) => hello,
            Err(refusal) => return Err(refuse(&mut writer, &mut incoming, refusal).await),
        };
        say(&mut writer, &Frame::Hello(ours)).await?;
        let hello = match incoming.next().await {
            Ok(Frame::Hello(hello)) => hello,
            Ok(Frame::Refuse(refusal)) => return Err(refusal),
            _ => return Err(Refusal::Broken),
        };
        let address = reachable(&hello, seen);
        let first = secret.preferred();
        let newcomer = Newcomer { peer, name, hello, address, seen: seen.ip(), proved, first };
        if shared.table.is_twin(&newcomer) {
            return Err(refuse(&mut writer, &mut incoming, Refusal::Twin).await);
        }
        // Whoever has a place is linked: nothing is waited for, and nothing can fail, between that and `run`, for what
        // is told of the place's end is told by that.
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

    /// Carries messages until the link is over.
    pub async fn run(self) {
        let Self { guard, take, mut incoming, mut writer, shared } = self;
        let pulse = Pulse::new(incoming.reader.came());
        let why = tokio::select! {
            // What has come is read first, so that a goodbye is seen before the end of the connection.
            biased;
            why = read(&guard, &mut incoming, &pulse) => why,
            why = write(&guard, take, &mut writer, &pulse, &shared.config) => why,
            why = listen_for_silence(&guard, &pulse, &shared.config) => why,
        };
        if why == Why::Malformed {
            log::malformed(guard.address);
        }
        let (last_words, cost) = guard.last_words();
        if !last_words.is_empty() && !writer.is_torn() {
            let count = last_words.len();
            let said = timeout(shared.config.goodbye, part(&mut writer, &mut incoming, last_words)).await;
            if said.is_ok() {
                guard.written(count, cost);
            }
        }
        guard.end(why);
    }
}

/// Says what was still to be said, and waits until the other has gone away: closing first could overtake it.
async fn part<R, W>(writer: &mut Writer<W>, incoming: &mut Incoming<R>, last_words: VecDeque<Bytes>)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if write_all(writer, last_words, &mut Vec::new()).await.is_ok() && writer.finish().await.is_ok() {
        while incoming.reader.next().await.is_ok() {}
    }
}

/// Where others reach a peer: what it says of itself, except that a peer that listens on every address of its machine
/// is found at the one that we see it at.
fn reachable(hello: &Hello, seen: SocketAddr) -> SocketAddr {
    let ip = if hello.listen.ip().is_unspecified() { seen.ip() } else { hello.listen.ip() };
    SocketAddr::new(ip, hello.listen.port())
}

async fn say<W: AsyncWrite + Unpin>(writer: &mut Writer<W>, frame: &Frame) -> Result<(), Refusal> {
    let mut buffer = Vec::new();
    frame.encode(&mut buffer);
    writer.write(&buffer).await.map_err(|_| Refusal::Broken)
}

/// Tells a member why not, and waits until it has gone away: closing first could overtake the reason.
async fn refuse<R, W>(writer: &mut Writer<W>, incoming: &mut Incoming<R>, refusal: Refusal) -> Refusal
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    if say(writer, &Frame::Refuse(refusal)).await.is_ok() {
        // Two that refuse each other need not wait.
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
                Ok(said) => self.decoder.push(said),
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
                pulse.say();
                if !deliver(guard, bytes, pulse).await {
                    // Whoever ended it has said why.
                    return Why::Lost;
                }
            }
            Frame::Ask => {
                pulse.owes.store(true, Ordering::Relaxed);
                guard.stir();
            }
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

/// Hands a message on as soon as there is room for it. False if the link is over.
async fn deliver(guard: &LinkGuard, mut bytes: Bytes, pulse: &Pulse) -> bool {
    loop {
        match guard.deliver(bytes) {
            Ok(is_up) => return is_up,
            Err(back) => bytes = back,
        }
        // Our application lags. That is no silence of the peer's; and unread bytes slow it down.
        pulse.lagging.store(true, Ordering::Relaxed);
        guard.room().await;
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
        && say(writer, &frame).await.is_err()
    {
        return pending().await;
    }
    loop {
        let written = match guard.work() {
            Work::Messages(messages, cost) => {
                // Before it is written: a peer that does not read is noticed, too.
                pulse.say();
                pulse.owes.store(false, Ordering::Relaxed);
                let count = messages.len();
                let written = write_all(writer, messages, &mut buffer).await;
                guard.written(count, cost);
                written
            }
            Work::Nothing if pulse.owes.swap(false, Ordering::Relaxed) => say(writer, &Frame::Beat).await,
            Work::Nothing if pulse.asks.swap(false, Ordering::Relaxed) => say(writer, &Frame::Ask).await,
            Work::Nothing => {
                guard.worked().await;
                continue;
            }
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

/// Writes a batch, in one piece if it is not large.
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

/// Returns when the other side was asked too often in a row and said nothing; or soon after somebody else has ended the
/// link, for a writer whose peer does not read does not notice that.
///
/// It counts ticks, not time: if this whole process was frozen, the tick after it comes together with what has piled up
/// meanwhile, and nobody is suspected.
async fn listen_for_silence(guard: &LinkGuard, pulse: &Pulse, config: &Config) -> Why {
    // A new link is in use.
    let mut rested = 0;
    loop {
        if let Some(why) = listen_in_use(guard, pulse, config, rested).await {
            return why;
        }
        pulse.heard.store(0, Ordering::Relaxed);
        // Who was heard meanwhile is there; who was not is asked at the next beat.
        _ = timeout(config.rest, used(pulse)).await;
        rested = config.rest_beats();
    }
}

/// Returns when something is said.
async fn used(pulse: &Pulse) {
    // What the listener was told of while it did not rest is old.
    while !pulse.said.load(Ordering::Relaxed) {
        pulse.stirred.notified().await;
    }
}

/// Returns when nothing was said for a long rest, of which so many beats have passed, and the other side is there; or
/// with the reason why the link is over.
async fn listen_in_use(guard: &LinkGuard, pulse: &Pulse, config: &Config, mut rested: u32) -> Option<Why> {
    let mut beat = ticks(config);
    let mut missed = 0;
    loop {
        beat.tick().await;
        if guard.is_over() {
            return Some(Why::Lost);
        }
        rested = if pulse.said.swap(false, Ordering::Relaxed) { 0 } else { rested.saturating_add(1) };
        let heard = pulse.heard.swap(0, Ordering::Relaxed);
        if pulse.lagging.load(Ordering::Relaxed) {
            // We do not read, so we do not see that we are asked.
            pulse.owes.store(true, Ordering::Relaxed);
            guard.stir();
            (missed, rested) = (0, 0);
        } else if heard > 0 {
            missed = 0;
            if heard > MUCH {
                pulse.owes.store(true, Ordering::Relaxed);
                guard.stir();
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
    guard.stir();
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

    use peerlock_base::PeerId;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};

    use super::*;
    use crate::{Event, Secret};

    #[test]
    fn a_peer_is_reached_where_it_says_or_else_where_it_is_seen() {
        for (listen, seen, expected) in [
            ("10.0.0.7:7400", "192.0.2.1:50000", "10.0.0.7:7400"),
            ("0.0.0.0:7400", "192.0.2.1:50000", "192.0.2.1:7400"),
            ("[::]:7400", "[2001:db8::1]:50000", "[2001:db8::1]:7400"),
        ] {
            let hello = Hello { incarnation: 0, over: (0, 0), listen: listen.parse().unwrap() };
            assert_eq!(reachable(&hello, seen.parse().unwrap()).to_string(), expected, "{listen} {seen}");
        }
    }

    /// A link that is listened to, by the times that there are if nobody says otherwise. They pass at once here.
    struct Listener {
        guard: LinkGuard,
        pulse: Pulse,
        config: Config,
    }

    /// For so many seconds the other end answers what it is asked, or does not; something is said first, or is not.
    struct While(u64, Other, Said);

    #[derive(Clone, Copy, PartialEq)]
    enum Other {
        Answers,
        IsGone,
    }

    #[derive(Clone, Copy, PartialEq)]
    enum Said {
        Something,
        Nothing,
    }

    impl Listener {
        fn new() -> Self {
            let config = Config::new("127.0.0.1:0".parse().unwrap());
            let (address, proved) = ("127.0.0.1:1".parse::<SocketAddr>().unwrap(), secret().preferred());
            let hello = Hello { incarnation: 1, over: (0, 0), listen: address };
            let (peer, name, seen) = (PeerId::new(2), Identity::generate().name(), address.ip());
            let table = Arc::new(Table::new(PeerId::new(1), config.clone(), secret()));
            let guard = table.take(Newcomer { peer, name, hello, address, seen, proved, first: proved }).unwrap();
            Self { guard, pulse: Pulse::default(), config }
        }

        /// How often the other is asked in each of these times; and why the link is over, if it is.
        async fn asked(self, times: &[While]) -> (Vec<u32>, Option<Why>) {
            let counts = RefCell::new(Vec::new());
            let count = async {
                for While(seconds, other, said) in times {
                    if *said == Said::Something {
                        self.pulse.say();
                    }
                    counts.borrow_mut().push(0);
                    for _ in 0..seconds * 10 {
                        sleep(Duration::from_millis(100)).await;
                        if self.pulse.asks.swap(false, Ordering::Relaxed) {
                            *counts.borrow_mut().last_mut().unwrap() += 1;
                            self.pulse.heard.fetch_add(usize::from(*other == Other::Answers), Ordering::Relaxed);
                        }
                    }
                }
            };
            let why = tokio::select! {
                why = listen_for_silence(&self.guard, &self.pulse, &self.config) => Some(why),
                () = count => None,
            };
            (counts.into_inner(), why)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_rests_twenty_seconds_after_the_last_message_and_the_next_one_wakes_it() {
        let quiet = |seconds| While(seconds, Other::Answers, Said::Nothing);
        let used = || While(20, Other::Answers, Said::Something);
        let times = [quiet(20), quiet(200), used(), quiet(200), used(), used(), used(), quiet(200)];
        let (asked, why) = Listener::new().asked(&times).await;
        assert_eq!(why, None);
        for (asked, While(seconds, ..)) in asked.iter().zip(&times) {
            // Who has answered is asked again at the next beat but one; or after a rest of twenty beats.
            assert!((8..=11).contains(asked), "{asked} times in {seconds} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_gone_while_its_link_rests_is_missed_soon_after_the_next_message_and_without_one_after_a_rest() {
        for (seconds, said, is_missed) in [
            (4, Said::Something, false),
            (7, Said::Something, true),
            (10, Said::Nothing, false),
            (46, Said::Nothing, true),
        ] {
            let gone = While(seconds, Other::IsGone, said);
            let (_, why) = Listener::new().asked(&[While(70, Other::Answers, Said::Nothing), gone]).await;
            assert_eq!(why, is_missed.then_some(Why::Silent), "after {seconds} s");
        }
    }

    fn secret() -> Secret {
        Secret::new("0123456789abcdef".repeat(4).as_bytes()).unwrap()
    }

    /// Two peers, the first of which decides, and what their sessions share.
    fn two() -> [Arc<Shared>; 2] {
        let mut identities = [Identity::generate(), Identity::generate()];
        identities.sort_by_key(Identity::peer);
        identities.map(|identity| {
            let config = Config::new("127.0.0.1:0".parse().unwrap());
            let table = Arc::new(Table::new(identity.peer(), config.clone(), secret()));
            let doorstep = Doorstep::new(Arc::clone(&table), 1);
            Arc::new(Shared { identity, config, table, doorstep, log: Log::default() })
        })
    }

    type Pipe = Channel<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    async fn channel(end: DuplexStream, role: Role, shared: &Shared) -> Pipe {
        let (from, to) = split(end);
        Channel::open(from, to, role, &shared.identity).await.unwrap()
    }

    async fn open(
        end: DuplexStream,
        role: Role,
        shared: &Arc<Shared>,
    ) -> Result<Session<ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>, Refusal> {
        let channel = channel(end, role, shared).await;
        Session::open(channel, role, "127.0.0.1:1".parse().unwrap(), Arc::clone(shared)).await
    }

    /// Both ends of a line that carries so many bytes a second, each way.
    fn line(speed: usize) -> (DuplexStream, DuplexStream) {
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

    /// What is told of a link next.
    async fn next(shared: &Shared) -> Event {
        loop {
            if let Some(event) = shared.table.pop() {
                return event;
            }
            shared.table.news.notified().await;
        }
    }

    /// A long message is under way for ten seconds here, and many that are not so long for as much together: neither
    /// end has fallen silent, though no frame is whole on the one side, and no question comes through on the other.
    #[tokio::test(start_paused = true)]
    async fn a_slow_line_is_not_silence() {
        let [us, them] = two();
        let (near, far) = line(100 * 1024);
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

    /// Who has a place is linked, and its end is told as a link's, also if it is gone in the same moment: whoever was
    /// told meanwhile that there is a link already waits for that.
    #[tokio::test]
    async fn a_connection_that_has_a_place_is_a_link_to_its_end() {
        let [us, them] = two();
        let (near, far) = duplex(4096);
        let goes = async {
            let mut channel = channel(far, Role::Listener, &them).await;
            prove(&mut channel, &secret(), Role::Listener).await.unwrap();
            let Channel { reader, mut writer, .. } = channel;
            let mut incoming = Incoming { reader, decoder: Decoder::new(1000) };
            assert!(matches!(incoming.next().await, Ok(Frame::Hello(_))));
            let hello = Hello { incarnation: 1, over: (0, 0), listen: "127.0.0.1:1".parse().unwrap() };
            say(&mut writer, &Frame::Hello(hello)).await.unwrap();
        };
        let (session, ()) = tokio::join!(open(near, Role::Dialler, &us), goes);
        let session = session.expect("it has a place");
        assert!(matches!(us.table.pop(), Some(Event::Up { .. })));
        session.run().await;
        assert!(matches!(us.table.pop(), Some(Event::Down { why: Why::Lost, .. })));
    }
}
