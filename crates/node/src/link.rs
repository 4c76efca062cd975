//! Messages that arrive exactly once and in order between two living processes, over connections that come and go.
//!
//! A token that is lost is lost for good, so what the transport loses with a connection is retransmitted on the next
//! one:
//!
//! ```text
//!   A                                   B
//!   │ hello(A's life, B's up to 0)       │
//!   ├───────────────────────────────────►│      each begins a connection with how much it has of the other
//!   │ data 1, data 2                     │
//!   ├───────────────────────────────────►│ 1 arrives
//!   │ ✂                                  │      the connection ends, and 2 with it
//!   │     hello(B's life, A's up to 1)   │
//!   │◄───────────────────────────────────┤
//!   │ data 2                             │
//!   ├───────────────────────────────────►│
//! ```
//!
//! **Lives.** A process that restarts has nothing of what it was sent before. It says so by a new number of its life.
//! What has gone out to the old one is lost, since nobody knows whether it was acted on; what never went out goes to
//! the new one, which may be meant by it. A link that has more to keep than it may *breaks*: it begins a new life by
//! itself. Whatever is lost is handed back, for the peer above to make good.
//!
//! Pure: frames in, frames out.

use std::collections::VecDeque;

use peerlock_registry::ClusterId;
use serde::{Deserialize, Serialize};

use crate::mutation::{Mutation, makes};

/// Which process, and how often it has broken this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Life {
    /// A number that no other process of this peer has had.
    pub process: u64,
    /// Goes up whenever it begins anew with the same peer.
    pub part: u64,
}

/// What goes over the transport.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Frame {
    /// The first on every connection.
    Hello {
        /// The sender's life.
        life: Life,
        /// Which life of the receiver it knows, and how many messages of that life it has.
        has: Option<(Life, u64)>,
        /// The cluster that the sender belongs to, if it knows one: who belongs to another does not listen.
        cluster: Option<ClusterId>,
    },
    /// A message that must arrive.
    Data {
        /// Counted from 1 in each life.
        number: u64,
        /// How many of the receiver's messages the sender has.
        has: u64,
        /// The encoded message, as the node handed it over.
        #[serde(with = "crate::bytes")]
        body: Vec<u8>,
    },
    /// How many of the receiver's messages the sender has, when there is nothing else to say.
    Ack {
        /// The number of the last one, counted as in `Data`.
        has: u64,
    },
    /// A message that may get lost.
    Loose {
        /// The encoded message, as the node handed it over.
        #[serde(with = "crate::bytes")]
        body: Vec<u8>,
    },
}

/// What a frame means to the peer above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Received {
    /// Nothing that concerns it: a confirmation, or a message that has come before.
    Nothing,
    /// A message, which comes once and in order if it had to arrive.
    Body(Vec<u8>),
    /// The other side is the one that we know, or nobody was known yet: all is well.
    Hello,
    /// The other side is a new process, or has broken the link: whatever the old one knew is lost.
    NewLife {
        /// What was sent to the old one and never confirmed.
        lost: Vec<Vec<u8>>,
        /// It is the same process, which has broken the link.
        is_same: bool,
    },
    /// The other side does not have any more what it has confirmed. We have begun a new life, and the connection must
    /// be closed: on the next one both count from the beginning.
    Forgotten {
        /// What was never confirmed.
        lost: Vec<Vec<u8>>,
    },
    /// It makes no sense: the connection must be closed, and a new one will do.
    Unexpected(&'static str),
}

/// There was more to keep than a link may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// What was never confirmed.
    pub lost: Vec<Vec<u8>>,
}

/// At most this many messages, and this many bytes, are kept for a peer that does not confirm them: more than one that
/// asks for each of its clients at once.
pub const MAX_RETAINED: usize = 40_000;
const MOST_BYTES: usize = 8 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not connected, or nothing more is believed on this connection.
    Closed,
    /// We have said hello.
    Greeting,
    Open,
}

/// One end of the way between two peers.
#[derive(Clone, Debug)]
pub struct Link {
    stage: Stage,
    /// Our life, as the other side shall know it.
    mine: Life,
    theirs: Option<Life>,
    /// The number of the last message that we were given to send …
    sent: u64,
    /// … and of the last that has gone out.
    gone_out: u64,
    /// Those not confirmed: the last of them has the number `sent`.
    retained: VecDeque<Vec<u8>>,
    bytes: usize,
    /// How many of their messages we have.
    has: u64,
    /// How many of them they know that we have.
    acked: u64,
}

impl Link {
    /// A link of this process to a peer that we do not know. No two links of a process have the same number.
    pub fn new(process: u64, number: u32) -> Self {
        // With room for links that break.
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

    /// A connection begins: what to say first.
    pub fn up(&mut self, cluster: Option<ClusterId>) -> Frame {
        self.stage = Stage::Greeting;
        Frame::Hello { life: self.mine, has: self.theirs.map(|theirs| (theirs, self.has)), cluster }
    }

    /// The connection has ended.
    pub fn down(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Whether both have said hello, so that messages go out at once.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether there are messages that have not been confirmed.
    pub fn keeps(&self) -> bool {
        !self.retained.is_empty()
    }

    /// How many messages have not been confirmed.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.retained.len()
    }

    /// Sends a message that must arrive: what goes out now, if anything can.
    ///
    /// # Errors
    /// If too much is unconfirmed, this message included: then all of it is dropped, and the connection must be closed.
    pub fn send(&mut self, body: Vec<u8>) -> Result<Option<Frame>, Broken> {
        if self.retained.len() >= MAX_RETAINED || self.bytes + body.len() > MOST_BYTES {
            let lost = self.restart().into_iter().chain([body]).collect();
            return Err(Broken { lost });
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

    /// Drops everything, and goes on as another life.
    pub fn restart(&mut self) -> Vec<Vec<u8>> {
        let lost = self.retained.drain(..).collect();
        let mine = Life { part: self.mine.part + 1, ..self.mine };
        *self = Self { theirs: self.theirs, ..Self::of(mine) };
        lost
    }

    /// A message that may get lost: it does so here if nothing can go out.
    pub fn loose(&self, body: Vec<u8>) -> Option<Frame> {
        (self.stage == Stage::Open).then_some(Frame::Loose { body })
    }

    /// Takes out what has never gone out, so that nobody can have seen it.
    fn take_unsent(&mut self) -> Vec<Vec<u8>> {
        let confirmed = self.sent - self.retained.len() as u64;
        let unsent: Vec<_> = self.retained.drain((self.gone_out.max(confirmed) - confirmed) as usize..).collect();
        self.bytes -= unsent.iter().map(Vec::len).sum::<usize>();
        self.sent -= unsent.len() as u64;
        unsent
    }

    /// What the other side does not know yet of what we have.
    pub fn ack(&mut self) -> Option<Frame> {
        if self.stage != Stage::Open || self.acked == self.has {
            return None;
        }
        self.acked = self.has;
        Some(Frame::Ack { has: self.has })
    }

    /// How many messages the other side does not know of that we have.
    pub fn unacknowledged(&self) -> u64 {
        self.has - self.acked
    }

    /// A frame arrived; what has to be retransmitted goes to `out`.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Vec<Frame>) -> Received {
        match (self.stage, frame) {
            (Stage::Closed, _) => Received::Nothing,
            (Stage::Greeting, Frame::Hello { life, has, .. }) => self.on_hello(life, has, out),
            (Stage::Greeting, _) => self.close("a message before a hello"),
            (Stage::Open, Frame::Hello { .. }) => self.close("a second hello"),
            (Stage::Open, Frame::Loose { body }) => Received::Body(body),
            (Stage::Open, Frame::Ack { has }) => match self.confirm(has) {
                true => Received::Nothing,
                false => self.close("thanks for messages that were never sent"),
            },
            (Stage::Open, Frame::Data { number, has, body }) => {
                if !self.confirm(has) {
                    return self.close("thanks for messages that were never sent");
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
        let last_received = if let Some(theirs) = self.theirs.filter(|theirs| *theirs != life) {
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
        // Else it would wait for messages that are not here any more, on every connection.
        let confirmed = self.sent - self.retained.len() as u64;
        if has.is_some_and(|(mine, has)| mine == self.mine && has < confirmed) {
            return Received::Forgotten { lost: self.restart() };
        }
        if let Some((mine, has)) = has
            && mine == self.mine
            && !self.confirm(has)
        {
            return self.close("thanks for messages that were never sent");
        }
        self.stage = Stage::Open;
        self.acked = self.has; // Our own hello has said so, or there was nothing to say.
        self.gone_out = self.sent;
        let first = self.sent - self.retained.len() as u64 + 1;
        let again = self.retained.len().saturating_sub(usize::from(makes(Mutation::Resend)));
        out.extend((first..).zip(&self.retained).take(again).map(|(number, body)| self.data(number, body.clone())));
        last_received
    }

    /// The other side has the first `has` of our messages. False if there are fewer.
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

    /// One end, what is under way from it, and what has arrived at it.
    struct End {
        link: Link,
        wire: VecDeque<Frame>,
        said: u64,
        last_received: Vec<u64>,
    }

    impl End {
        fn new(process: u64) -> Self {
            Self { link: Link::new(process, 0), wire: VecDeque::new(), said: 0, last_received: Vec::new() }
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

        /// The connection ends, and all that is under way is lost.
        fn cut(&mut self) {
            self.up = false;
            for end in &mut self.ends {
                end.link.down();
                end.wire.clear();
            }
        }

        /// One frame of end `from` arrives.
        fn deliver(&mut self, from: usize) -> Option<Received> {
            let frame = self.ends[from].wire.pop_front()?;
            let to = &mut self.ends[1 - from];
            let mut out = Vec::new();
            let last_received = to.link.on_frame(frame, &mut out);
            to.wire.extend(out);
            if let Received::Body(body) = &last_received {
                to.last_received.push(u64::from_be_bytes(body.as_slice().try_into().unwrap()));
            }
            Some(last_received)
        }

        /// A last connection on which everything arrives.
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
                assert_eq!(
                    self.ends[to].last_received,
                    (1..=self.ends[from].said).collect::<Vec<_>>(),
                    "{from} to {to}"
                );
                assert_eq!(self.ends[from].link.retained(), 0);
            }
        }
    }

    #[test]
    fn with_cuts_at_every_pair_of_points_everything_arrives_once_and_in_order() {
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
    fn with_cuts_at_random_everything_arrives_once_and_in_order() {
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
                        let last_received = pair.deliver(end);
                        assert!(
                            !matches!(last_received, Some(Received::Unexpected(_) | Received::NewLife { .. })),
                            "seed {seed}: {last_received:?}"
                        );
                    }
                }
            }
            pair.finish();
            pair.check();
        }
    }

    #[test]
    fn what_went_out_to_a_process_that_has_ended_is_handed_back_and_the_rest_goes_to_the_next_one() {
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
        assert_eq!((&pair.ends[0].last_received[..], &pair.ends[1].last_received[..]), (&[1][..], &[3, 4][..]));
    }

    #[test]
    fn a_link_that_keeps_too_much_breaks_and_begins_anew() {
        let mut pair = Pair::new();
        pair.up();
        pair.finish();
        pair.ends[1].say();
        pair.finish();
        pair.cut();
        (0..MAX_RETAINED).for_each(|_| pair.ends[0].say());
        let Err(Broken { lost }) = pair.ends[0].link.send(vec![0]) else { panic!("no more fits") };
        assert_eq!(lost.len(), MAX_RETAINED + 1);
        pair.ends[0].say();
        pair.ends[1].say();
        pair.up();
        _ = pair.deliver(1);
        assert_eq!(
            pair.deliver(0),
            Some(Received::NewLife { lost: Vec::new(), is_same: true }),
            "the other side is told"
        );
        pair.ends[1].say();
        pair.finish();
        assert_eq!(pair.ends[1].last_received, [MAX_RETAINED as u64 + 1]);
        assert_eq!(pair.ends[0].last_received, [1, 2, 3]);
    }

    /// Once it was told what came after that again and again, and closed every connection for what was missing.
    #[test]
    fn who_has_forgotten_what_it_confirmed_is_told_everything_from_the_beginning() {
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
        let last_received = link.on_frame(hello(Some((mine, 0))), &mut out);
        assert_eq!((last_received, &out[..]), (Received::Forgotten { lost: vec![vec![2]] }, &[][..]));
        let Frame::Hello { life, .. } = link.up(None) else { panic!("it begins with a hello") };
        assert!(life > mine, "another life");
        link.on_frame(hello(Some((mine, 0))), &mut out);
        let next = link.send(vec![3]).expect("there is room");
        assert_eq!(next, Some(Frame::Data { number: 1, has: 0, body: vec![3] }));
    }

    #[test]
    fn what_makes_no_sense_closes_the_connection() {
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
            let last_received: Vec<Received> =
                frames.iter().map(|frame| link.on_frame(frame.clone(), &mut Vec::new())).collect();
            assert!(matches!(last_received.last(), Some(Received::Unexpected(_))), "{frames:?}: {last_received:?}");
            assert_eq!(link.on_frame(data(2, 0), &mut Vec::new()), Received::Nothing, "nothing more is believed");
        }
    }
}
