//! The link between two hosts: messages between two live processes arrive at most once and in order, over successive
//! connections or relayed. It has the only numbers, acknowledgements and retransmissions between peers.
//!
//! A lost token cannot be recovered without a new generation, so lost messages are retransmitted:
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
//! **Paths.** A connection delivers frames in order and loses only its last ones: anything else is a violation. Relayed
//! frames ([`relay`](super::relay)) may be lost, duplicated, late or out of order, so each names the *lives* of both
//! ends, and there is nothing to open or to close:
//!
//! ```text
//!   A                                   B
//!   │ hello                              │      asks, at every beat while a message is unacknowledged
//!   ├───────────────────────────────────►│
//!   │                                ack │      answers: from here on, both know the lives
//!   │◄───────────────────────────────────┤
//!   │ data 2 ✂   data 3                  │
//!   ├───────────────────────────────────►│ 2 is missing: 3 is dropped, and B asks
//!   │                              hello │
//!   │◄───────────────────────────────────┤
//!   │ ack   data 2   data 3              │
//!   ├───────────────────────────────────►│
//! ```
//!
//! **Lives.** A restarted process has lost its state, which a higher *life* shows. Messages that were transmitted to
//! the old process are lost, since it may have acted on them; others go to the new process. A link that exceeds its
//! buffer *breaks*: it starts a new life by itself. Lost messages are returned to the caller, which requests another
//! generation.

use std::collections::VecDeque;

use peerlock_registry::ClusterId;
use serde::{Deserialize, Serialize};

use crate::testing::mutation::{Mutation, makes};

/// A process, and how often it has broken this link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Life {
    /// Higher than that of every earlier process of this peer.
    pub process: u64,
    /// Increases whenever the process restarts the link.
    pub part: u64,
}

/// The two ends of a relayed frame, as its sender knows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lives {
    pub sender: Life,
    pub receiver: Option<Life>,
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
    /// An acknowledgement, if there is no `Data` to carry it. Also the answer to a relayed hello.
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
const UNSENT: &str = "an acknowledgement of messages that were never sent";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Not connected, or the rest of this connection is ignored.
    Closed,
    Greeting,
    Open,
    /// Relayed, and both ends know each other's life.
    Relayed,
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
    /// Relayed hellos since the last answer to one.
    asked: u32,
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
            asked: 0,
        }
    }

    /// Starts a connection with the returned hello.
    pub fn up(&mut self, cluster: Option<ClusterId>) -> Frame {
        (self.stage, self.asked) = (Stage::Greeting, 0);
        self.hello(cluster)
    }

    fn hello(&self, cluster: Option<ClusterId>) -> Frame {
        Frame::Hello { life: self.mine, has: self.theirs.map(|theirs| (theirs, self.has)), cluster }
    }

    pub fn down(&mut self) {
        self.stage = Stage::Closed;
    }

    /// Returns a hello to be relayed, which the other side answers.
    pub fn ask(&mut self) -> Frame {
        self.asked = self.asked.saturating_add(1);
        self.hello(None)
    }

    pub fn stop_asking(&mut self) {
        self.asked = 0;
    }

    /// Returns the number of relayed hellos since the last answer to one.
    pub fn asked(&self) -> u32 {
        self.asked
    }

    pub fn lives(&self) -> Lives {
        Lives { sender: self.mine, receiver: self.theirs }
    }

    /// Returns whether both sides have received a hello, or relayed frames.
    pub fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Relayed)
    }

    pub fn is_relayed(&self) -> bool {
        self.stage == Stage::Relayed
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
        let frame = self.is_open().then(|| self.data(self.sent, body.clone()));
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
        self.is_open().then_some(Frame::Loose { body })
    }

    fn take_unsent(&mut self) -> Vec<Vec<u8>> {
        let confirmed = self.sent - self.retained.len() as u64;
        let unsent: Vec<_> = self.retained.drain((self.gone_out.max(confirmed) - confirmed) as usize..).collect();
        self.bytes -= unsent.iter().map(Vec::len).sum::<usize>();
        self.sent -= unsent.len() as u64;
        unsent
    }

    pub fn ack(&mut self) -> Option<Frame> {
        if !self.is_open() || self.acked == self.has {
            return None;
        }
        self.acked = self.has;
        Some(Frame::Ack { has: self.has })
    }

    pub fn unacknowledged(&self) -> u64 {
        self.has - self.acked
    }

    /// Handles a frame of the current connection. Retransmissions are appended to `out`.
    pub fn on_frame(&mut self, frame: Frame, out: &mut Vec<Frame>) -> Received {
        match (self.stage, frame) {
            (Stage::Closed | Stage::Relayed, _) => Received::Nothing,
            (Stage::Greeting, Frame::Hello { life, has, .. }) => self.on_hello(life, has, out),
            (Stage::Greeting, _) => self.close("a message before a hello"),
            (Stage::Open, Frame::Hello { .. }) => self.close("a second hello"),
            (Stage::Open, Frame::Loose { body }) => Received::Body(body),
            (Stage::Open, Frame::Ack { has } | Frame::Data { has, .. }) if !self.confirm(has) => self.close(UNSENT),
            (Stage::Open, Frame::Ack { .. }) => Received::Nothing,
            (Stage::Open, Frame::Data { number, .. }) if number != self.has + 1 => self.close("a message is missing"),
            (Stage::Open, Frame::Data { number, body, .. }) => {
                self.has = number;
                Received::Body(body)
            }
        }
    }

    fn on_hello(&mut self, life: Life, has: Option<(Life, u64)>, out: &mut Vec<Frame>) -> Received {
        if self.theirs.is_some_and(|theirs| theirs > life) {
            // A connection of an earlier process, which was still on its way: its end follows.
            self.stage = Stage::Closed;
            return Received::Nothing;
        }
        let received = self.meet(life).unwrap_or(Received::Hello);
        // It would wait for messages that we have discarded, on every connection.
        let confirmed = self.sent - self.retained.len() as u64;
        if has.is_some_and(|(mine, has)| mine == self.mine && has < confirmed) {
            return Received::Forgotten { lost: self.restart() };
        }
        if let Some((mine, has)) = has
            && mine == self.mine
            && !self.confirm(has)
        {
            return self.close(UNSENT);
        }
        self.stage = Stage::Open;
        self.acked = self.has; // The hello has acknowledged them.
        self.retransmit(out);
        received
    }

    /// Handles the life of the other side; its messages are numbered from 1 in each.
    pub fn meet(&mut self, life: Life) -> Option<Received> {
        let theirs = self.theirs.replace(life).filter(|theirs| *theirs != life)?;
        let unsent = self.take_unsent();
        let lost = self.retained.drain(..).collect();
        *self = Self { theirs: self.theirs, ..Self::of(self.mine) };
        (self.sent, self.bytes) = (unsent.len() as u64, unsent.iter().map(Vec::len).sum());
        self.retained = unsent.into();
        Some(Received::NewLife { lost, is_same: theirs.process == life.process })
    }

    /// Returns whether a relayed frame is of an earlier life.
    pub fn is_late(&self, lives: Lives) -> bool {
        self.theirs.is_some_and(|theirs| theirs > lives.sender)
    }

    /// Handles a relayed frame of the life that was met last, to the given life of this side. Answers and
    /// retransmissions are appended to `out`.
    pub fn on_relayed(&mut self, to: Option<Life>, frame: Frame, out: &mut Vec<Frame>) -> Received {
        if to != Some(self.mine) {
            // The other side learns this life from any frame, and answers a hello.
            out.push(match frame {
                Frame::Ack { .. } => self.ask(),
                _ => Frame::Ack { has: self.has },
            });
            return Received::Nothing;
        }
        let (Frame::Hello { has: Some((_, has)), .. } | Frame::Ack { has } | Frame::Data { has, .. }) = frame else {
            return match frame {
                Frame::Loose { body } => Received::Body(body),
                _ => Received::Nothing,
            };
        };
        if !self.confirm(has) {
            return self.close(UNSENT);
        }
        let is_new = !self.is_relayed();
        self.stage = Stage::Relayed;
        let is_hello = matches!(frame, Frame::Hello { .. });
        if is_hello {
            self.acked = self.has;
            out.push(Frame::Ack { has: self.has });
        }
        let is_answer = matches!(frame, Frame::Ack { .. }) && std::mem::take(&mut self.asked) > 0;
        if is_new || is_hello || is_answer {
            self.retransmit(out);
        }
        match frame {
            Frame::Data { number, body, .. } if number == self.has + 1 => {
                self.has = number;
                Received::Body(body)
            }
            Frame::Data { number, .. } if number > self.has && self.asked == 0 => {
                out.push(self.ask());
                Received::Nothing
            }
            _ => Received::Nothing,
        }
    }

    fn retransmit(&mut self, out: &mut Vec<Frame>) {
        self.gone_out = self.sent;
        let first = self.sent - self.retained.len() as u64 + 1;
        let again = self.retained.len().saturating_sub(usize::from(makes(Mutation::Resend)));
        out.extend((first..).zip(&self.retained).take(again).map(|(number, body)| self.data(number, body.clone())));
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
mod tests;
