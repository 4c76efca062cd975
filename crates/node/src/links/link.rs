//! Reliable links: messages between two live processes arrive exactly once and in order, over successive connections.
//!
//! A lost token cannot be recovered without a new generation, so messages lost with a connection are retransmitted on
//! the next one:
//!
//! ```text
//!   A                                   B
//!   │ hello(A's life, B's up to 0)       │
//!   ├───────────────────────────────────►│      each starts a connection with the number of messages it has received
//!   │ data 1, data 2                     │
//!   ├───────────────────────────────────►│ 1 arrives
//!   │ ✂                                  │      the connection ends, 2 is lost
//!   │     hello(B's life, A's up to 1)   │
//!   │◄───────────────────────────────────┤
//!   │ data 2                             │
//!   ├───────────────────────────────────►│
//! ```
//!
//! **Lives.** A restarted process has lost its state, which a new *life* number shows. Messages that were transmitted
//! to the old process are lost, since it may have acted on them; others go to the new process. A link that exceeds its
//! buffer *breaks*: it starts a new life by itself. Lost messages are returned to the caller, which requests another
//! generation.

use std::collections::VecDeque;

use peerlock_registry::ClusterId;
use serde::{Deserialize, Serialize};

use crate::testing::mutation::{Mutation, makes};

/// A process, and how often it has broken this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Life {
    /// Unique among the processes of this peer.
    pub process: u64,
    /// Increases whenever the process restarts the link.
    pub part: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    Hello {
        life: Life,
        /// The receiver's life, and the number of messages received of it.
        has: Option<(Life, u64)>,
        /// A receiver of another cluster ignores the connection.
        cluster: Option<ClusterId>,
    },
    Data {
        /// Consecutive in each life, from 1.
        number: u64,
        /// The number of messages received.
        has: u64,
        #[serde(with = "crate::bytes")]
        body: Vec<u8>,
    },
    /// An acknowledgement, if there is no `Data` to carry it.
    Ack { has: u64 },
    Loose {
        #[serde(with = "crate::bytes")]
        body: Vec<u8>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    Nothing,
    Body(Vec<u8>),
    Hello,
    NewLife {
        /// Messages transmitted to the old life and not acknowledged.
        lost: Vec<Vec<u8>>,
        /// It is the same process, which broke the link.
        is_same: bool,
    },
    /// The other side has received fewer messages than it acknowledged. The link has started a new life: the connection
    /// must be closed.
    Forgotten {
        lost: Vec<Vec<u8>>,
    },
    /// A protocol violation: the connection must be closed.
    Unexpected(&'static str),
}

/// Unacknowledged messages and bytes: more than requests of all clients at once.
pub const MAX_RETAINED: usize = 40_000;
const MOST_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not connected, or the rest of this connection is ignored.
    Closed,
    Greeting,
    Open,
}

#[derive(Clone, Debug)]
pub struct Link {
    stage: Stage,
    mine: Life,
    theirs: Option<Life>,
    /// The last message accepted for sending …
    sent: u64,
    /// … and the last one transmitted.
    gone_out: u64,
    pub(crate) retained: VecDeque<Vec<u8>>,
    bytes: usize,
    has: u64,
    /// … and acknowledged.
    acked: u64,
}

impl Link {
    /// `number` is unique within the process.
    pub fn new(process: u64, number: u32) -> Self {
        // The lower half counts breaks.
        Self::of(Life { process, part: u64::from(number) << 32 })
    }

    fn of(mine: Life) -> Self {
        Self {
            stage: Stage::Closed,
            mine,
            theirs: None,
            sent: 0,
            gone_out: 0,
            retained: VecDeque::new(),
            bytes: 0,
            has: 0,
            acked: 0,
        }
    }

    /// Starts a connection with the returned hello.
    pub fn up(&mut self, cluster: Option<ClusterId>) -> Frame {
        self.stage = Stage::Greeting;
        Frame::Hello { life: self.mine, has: self.theirs.map(|theirs| (theirs, self.has)), cluster }
    }

    pub fn down(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Returns whether both sides have sent a hello.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub fn awaits_ack(&self) -> bool {
        !self.retained.is_empty()
    }

    /// Returns the frame to transmit now, if the link is open. If the buffer is full, all messages are dropped, and the
    /// connection must be closed.
    pub fn send(&mut self, body: Vec<u8>) -> Result<Option<Frame>, Vec<Vec<u8>>> {
        if self.retained.len() >= MAX_RETAINED || self.bytes + body.len() > MOST_BYTES {
            return Err(self.restart().into_iter().chain([body]).collect());
        }
        self.sent += 1;
        self.bytes += body.len();
        let frame = (self.stage == Stage::Open).then(|| self.data(self.sent, body.clone()));
        self.retained.push_back(body);
        if frame.is_some() {
            (self.acked, self.gone_out) = (self.has, self.sent);
        }
        Ok(frame)
    }

    pub fn restart(&mut self) -> Vec<Vec<u8>> {
        let lost = self.retained.drain(..).collect();
        let mine = Life { part: self.mine.part + 1, ..self.mine };
        *self = Self { theirs: self.theirs, ..Self::of(mine) };
        lost
    }

    pub fn loose(&self, body: Vec<u8>) -> Option<Frame> {
        (self.stage == Stage::Open).then_some(Frame::Loose { body })
    }

    fn take_unsent(&mut self) -> Vec<Vec<u8>> {
        let confirmed = self.sent - self.retained.len() as u64;
        let unsent: Vec<_> = self.retained.drain((self.gone_out.max(confirmed) - confirmed) as usize..).collect();
        self.bytes -= unsent.iter().map(Vec::len).sum::<usize>();
        self.sent -= unsent.len() as u64;
        unsent
    }

    pub fn ack(&mut self) -> Option<Frame> {
        if self.stage != Stage::Open || self.acked == self.has {
            return None;
        }
        self.acked = self.has;
        Some(Frame::Ack { has: self.has })
    }

    pub fn unacknowledged(&self) -> u64 {
        self.has - self.acked
    }

    /// Retransmissions are appended to `out`.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Vec<Frame>) -> Received {
        match (self.stage, frame) {
            (Stage::Closed, _) => Received::Nothing,
            (Stage::Greeting, Frame::Hello { life, has, .. }) => self.on_hello(life, has, out),
            (Stage::Greeting, _) => self.close("a message before a hello"),
            (Stage::Open, Frame::Hello { .. }) => self.close("a second hello"),
            (Stage::Open, Frame::Loose { body }) => Received::Body(body),
            (Stage::Open, Frame::Ack { has }) => match self.confirm(has) {
                true => Received::Nothing,
                false => self.close("an acknowledgement of messages that were never sent"),
            },
            (Stage::Open, Frame::Data { number, has, body }) => {
                if !self.confirm(has) {
                    return self.close("an acknowledgement of messages that were never sent");
                }
                if number != self.has + 1 {
                    return self.close("a message is missing");
                }
                self.has = number;
                Received::Body(body)
            }
        }
    }

    fn on_hello(&mut self, life: Life, has: Option<(Life, u64)>, out: &mut Vec<Frame>) -> Received {
        let received = if let Some(theirs) = self.theirs.filter(|theirs| *theirs != life) {
            let unsent = self.take_unsent();
            let lost = self.retained.drain(..).collect();
            *self = Self::of(self.mine);
            (self.sent, self.bytes) = (unsent.len() as u64, unsent.iter().map(Vec::len).sum());
            self.retained = unsent.into();
            Received::NewLife { lost, is_same: theirs.process == life.process }
        } else {
            Received::Hello
        };
        self.theirs = Some(life);
        // It would wait for messages that we have discarded, on every connection.
        let confirmed = self.sent - self.retained.len() as u64;
        if has.is_some_and(|(mine, has)| mine == self.mine && has < confirmed) {
            return Received::Forgotten { lost: self.restart() };
        }
        if let Some((mine, has)) = has
            && mine == self.mine
            && !self.confirm(has)
        {
            return self.close("an acknowledgement of messages that were never sent");
        }
        self.stage = Stage::Open;
        self.acked = self.has; // The hello has acknowledged them.
        self.gone_out = self.sent;
        let first = self.sent - self.retained.len() as u64 + 1;
        let again = self.retained.len().saturating_sub(usize::from(makes(Mutation::Resend)));
        out.extend((first..).zip(&self.retained).take(again).map(|(number, body)| self.data(number, body.clone())));
        received
    }

    /// Drops the first `has` messages. Returns false if fewer were sent.
    fn confirm(&mut self, has: u64) -> bool {
        if has > self.sent {
            return false;
        }
        while self.sent - (self.retained.len() as u64) < has + u64::from(makes(Mutation::Ack))
            && let Some(body) = self.retained.pop_front()
        {
            self.bytes -= body.len();
        }
        true
    }

    fn data(&self, number: u64, body: Vec<u8>) -> Frame {
        Frame::Data { number, has: self.has, body }
    }

    fn close(&mut self, why: &'static str) -> Received {
        self.stage = Stage::Closed;
        Received::Unexpected(why)
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Rng;

    use super::*;

    struct End {
        link: Link,
        wire: VecDeque<Frame>,
        said: u64,
        received: Vec<u64>,
    }

    impl End {
        fn new(process: u64) -> Self {
            Self { link: Link::new(process, 0), wire: VecDeque::new(), said: 0, received: Vec::new() }
        }

        fn say(&mut self) {
            self.said += 1;
            let frame = self.link.send(self.said.to_be_bytes().to_vec()).expect("there is room");
            self.wire.extend(frame);
        }
    }

    struct Pair {
        ends: [End; 2],
        up: bool,
    }

    impl Pair {
        fn new() -> Self {
            Self { ends: [End::new(1), End::new(2)], up: false }
        }

        fn up(&mut self) {
            self.up = true;
            for end in &mut self.ends {
                let hello = end.link.up(None);
                end.wire.push_back(hello);
            }
        }

        fn cut(&mut self) {
            self.up = false;
            for end in &mut self.ends {
                end.link.down();
                end.wire.clear();
            }
        }

        fn deliver(&mut self, from: usize) -> Option<Received> {
            let frame = self.ends[from].wire.pop_front()?;
            let to = &mut self.ends[1 - from];
            let mut out = Vec::new();
            let received = to.link.on_frame(frame, &mut out);
            to.wire.extend(out);
            if let Received::Body(body) = &received {
                to.received.push(u64::from_be_bytes(body.as_slice().try_into().unwrap()));
            }
            Some(received)
        }

        fn finish(&mut self) {
            if !self.up {
                self.up();
            }
            while self.deliver(0).is_some() || self.deliver(1).is_some() {}
            for end in &mut self.ends {
                end.wire.extend(end.link.ack());
            }
            while self.deliver(0).is_some() || self.deliver(1).is_some() {}
        }

        fn check(&self) {
            for (from, to) in [(0, 1), (1, 0)] {
                assert_eq!(self.ends[to].received, (1..=self.ends[from].said).collect::<Vec<_>>(), "{from} to {to}");
                assert_eq!(self.ends[from].link.retained.len(), 0);
            }
        }
    }

    #[test]
    fn messages_survive_cuts_at_every_pair_of_points() {
        const STEPS: usize = 40;
        for first in 0..STEPS {
            for second in first..STEPS {
                let mut pair = Pair::new();
                for step in 0..STEPS {
                    if step == first || step == second {
                        pair.cut();
                    }
                    match step % 5 {
                        0 if !pair.up => pair.up(),
                        0 | 1 => pair.ends[step % 2].say(),
                        2 => pair.ends[1].say(),
                        3 => _ = pair.deliver(step % 2),
                        _ => _ = (pair.deliver(0), pair.deliver(1)),
                    }
                }
                pair.finish();
                pair.check();
            }
        }
    }

    #[test]
    fn messages_survive_random_cuts() {
        for seed in 0..300 {
            let mut rng = Rng::new(seed);
            let mut pair = Pair::new();
            for _ in 0..400 {
                let end = rng.below(2) as usize;
                match rng.below(12) {
                    0 => pair.cut(),
                    1 if !pair.up => pair.up(),
                    2..=5 => pair.ends[end].say(),
                    6 => {
                        let ack = pair.ends[end].link.ack();
                        pair.ends[end].wire.extend(ack);
                    }
                    _ => {
                        let received = pair.deliver(end);
                        assert!(
                            !matches!(received, Some(Received::Unexpected(_) | Received::NewLife { .. })),
                            "seed {seed}: {received:?}"
                        );
                    }
                }
            }
            pair.finish();
            pair.check();
        }
    }

    #[test]
    fn new_life_receives_only_untransmitted_messages() {
        let mut pair = Pair::new();
        pair.up();
        pair.ends[0].say();
        pair.finish();
        pair.ends[0].say();
        pair.cut();
        pair.ends[0].say();
        pair.ends[1] = End::new(3);
        pair.up();
        _ = pair.deliver(0);
        let Some(Received::NewLife { lost, is_same: false }) = pair.deliver(1) else { panic!("it is another process") };
        assert_eq!(lost, [2u64.to_be_bytes()]);
        pair.ends[0].say();
        pair.ends[1].say();
        pair.finish();
        assert_eq!((&pair.ends[0].received[..], &pair.ends[1].received[..]), (&[1][..], &[3, 4][..]));
    }

    #[test]
    fn full_link_breaks_and_restarts() {
        let mut pair = Pair::new();
        pair.up();
        pair.finish();
        pair.ends[1].say();
        pair.finish();
        pair.cut();
        (0..MAX_RETAINED).for_each(|_| pair.ends[0].say());
        let Err(lost) = pair.ends[0].link.send(vec![0]) else { panic!("no more fits") };
        assert_eq!(lost.len(), MAX_RETAINED + 1);
        pair.ends[0].say();
        pair.ends[1].say();
        pair.up();
        _ = pair.deliver(1);
        assert_eq!(
            pair.deliver(0),
            Some(Received::NewLife { lost: Vec::new(), is_same: true }),
            "the other side receives the new life"
        );
        pair.ends[1].say();
        pair.finish();
        assert_eq!(pair.ends[1].received, [MAX_RETAINED as u64 + 1]);
        assert_eq!(pair.ends[0].received, [1, 2, 3]);
    }

    #[test]
    fn peer_that_lost_acknowledged_messages_gets_a_new_life() {
        let (theirs, mut out) = (Life { process: 2, part: 0 }, Vec::new());
        let mut link = Link::new(1, 0);
        let hello = |has| Frame::Hello { life: theirs, has, cluster: None };
        let Frame::Hello { life: mine, .. } = link.up(None) else { panic!("it begins with a hello") };
        assert_eq!(link.on_frame(hello(None), &mut out), Received::Hello);
        link.send(vec![1]).expect("there is room");
        link.on_frame(Frame::Ack { has: 1 }, &mut out);
        link.send(vec![2]).expect("there is room");
        link.down();
        link.up(None);
        let received = link.on_frame(hello(Some((mine, 0))), &mut out);
        assert_eq!((received, &out[..]), (Received::Forgotten { lost: vec![vec![2]] }, &[][..]));
        let Frame::Hello { life, .. } = link.up(None) else { panic!("it begins with a hello") };
        assert!(life > mine, "another life");
        link.on_frame(hello(Some((mine, 0))), &mut out);
        let next = link.send(vec![3]).expect("there is room");
        assert_eq!(next, Some(Frame::Data { number: 1, has: 0, body: vec![3] }));
    }

    #[test]
    fn protocol_violation_closes_the_connection() {
        let hello = Frame::Hello { life: Life { process: 2, part: 0 }, has: None, cluster: None };
        let data = |number, has| Frame::Data { number, has, body: vec![] };
        for frames in [
            vec![data(1, 0)],
            vec![Frame::Ack { has: 0 }],
            vec![hello.clone(), hello.clone()],
            vec![hello.clone(), data(2, 0)],
            vec![hello.clone(), data(1, 0), data(1, 0)],
            vec![hello.clone(), data(1, 1)],
            vec![hello.clone(), Frame::Ack { has: 1 }],
            vec![Frame::Hello {
                life: Life { process: 2, part: 0 },
                has: Some((Life { process: 1, part: 0 }, 1)),
                cluster: None,
            }],
        ] {
            let mut link = Link::new(1, 0);
            link.up(None);
            let received: Vec<Received> =
                frames.iter().map(|frame| link.on_frame(frame.clone(), &mut Vec::new())).collect();
            assert!(matches!(received.last(), Some(Received::Unexpected(_))), "{frames:?}: {received:?}");
            assert_eq!(
                link.on_frame(data(2, 0), &mut Vec::new()),
                Received::Nothing,
                "the rest of the connection is ignored"
            );
        }
    }
}
