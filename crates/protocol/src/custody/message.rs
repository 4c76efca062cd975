//! Messages of the token protocol with recovery. See docs/design/recovery.md for the rules (R1–R11).
//!
//! Every message names the *generation* it belongs to. A peer in a later generation discards it (R1). A peer in an
//! earlier one buffers updates for the coordinator until it has reached that generation (R9).

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, Ticket};

use crate::queue::{Following, Update};
use crate::registry::Session;
use crate::token::{Arrival, Claim, Token};

/// A protocol message and the generation in which it is valid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// Receivers in a later generation discard the message.
    pub generation: u64,
    /// The message itself.
    pub body: Body,
}

/// Limit of the clients that wait for one resource at one peer, so that an [`Answer`] fits into one message.
pub const MOST_WAITING: usize = 32_768;
/// Limit of the successors in one message. The queue sends at most half as many.
const MOST_FOLLOWING: usize = 64;
/// Exclusive limit of counters that are incremented by one.
const MOST_COUNTED: u64 = 1 << 62;

impl Message {
    /// Returns an error if a field is out of bounds. Called where a received message is decoded.
    pub fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        let is_slot = |slot: u32| slot < MOST_SLOTS;
        let is_token = |token: &Token| is_slot(token.slot) && token.fencing < MOST_COUNTED;
        let is_after = |it: &Following| it.claims.len() <= MOST_FOLLOWING && it.turn < MOST_COUNTED;
        within(self.generation < MOST_GENERATION, "a generation that cannot be")?;
        match &self.body {
            Body::Update(Update::Request(_) | Update::Withdraw(_) | Update::Forgotten(_)) => Ok(()),
            Body::Update(Update::Left { slot, stay, turn, .. }) => {
                within(is_slot(*slot) && *stay < MOST_COUNTED && *turn < MOST_COUNTED, "news of a token that cannot be")
            }
            Body::Update(Update::Free { slot, stay, .. } | Update::Busy { slot, stay, .. })
            | Body::Dropped { slot, stay } => {
                within(is_slot(*slot) && *stay < MOST_COUNTED, "news of a token that cannot be")
            }
            Body::Next { slot, stay, following, .. } => {
                within(is_slot(*slot) && *stay < MOST_COUNTED && is_after(following), "a next that cannot be")
            }
            Body::Token { token, stay, following, .. } => {
                within(is_token(token) && *stay < MOST_COUNTED && is_after(following), "a token that cannot be")
            }
            Body::Census { slots, .. } => within((1..=MOST_SLOTS).contains(slots), "a number of slots that cannot be"),
            Body::Answer(Answer { tokens, waiting, .. }) => {
                let is_here = tokens.len() <= MOST_SLOTS as usize && tokens.iter().all(|it| is_token(&it.token));
                within(is_here && waiting.len() <= MOST_WAITING, "an answer that cannot be")
            }
            Body::Void(token) => within(is_token(token), "a token that cannot be"),
            Body::Arrivals(arrivals) => within(arrivals.len() <= MOST_WAITING, "more arrivals than can wait"),
        }
    }
}

/// The content of a message. The table in docs/design/protocol.md shows sender, receiver and moment of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// Sent to the coordinator when the state of a request or a token changes.
    Update(Update),
    /// Sent by the coordinator to the peer that has the token of `slot`, or will have it: the next waiters, in order.
    ///
    /// When its client releases, the receiver sends [`Body::Token`] to the first of them, without asking the
    /// coordinator. Discarded if the stay has ended.
    Next {
        /// The slot of the token.
        slot: u32,
        /// The stay of the token after which these waiters come.
        stay: u64,
        /// The successors.
        following: Following,
        /// Whether these replace all successors sent before. Otherwise they extend those of the same turn.
        replaces: bool,
    },
    /// Transfers the token of a slot from the releasing peer to the next waiter: the one message of a hand-over.
    ///
    /// The receiver grants `to` at once and reports nothing, since the sender has sent [`Update::Left`] to the
    /// coordinator. If `to` does not wait any more, the receiver forwards the token to the next successor, or keeps it
    /// and reports it free. Discarded unless the receiver knows that it is a party (R5).
    Token {
        /// The ticket that is granted.
        to: Ticket,
        /// The token.
        token: Token,
        /// The number of the stay at the receiver.
        stay: u64,
        /// The remaining successors known to the sender.
        following: Following,
    },
    /// Sent by the coordinator of a new generation to every party: report your tokens and waiters.
    ///
    /// A party replies once per session and generation with [`Body::Answer`], and from then on discards messages of
    /// older generations and all successors (R1, R2).
    Census {
        /// The session that is asked. Another session of the same host does not reply (R6).
        session: Session,
        /// The number of slots in this generation.
        slots: u32,
    },
    /// Reply to [`Body::Census`]: all that a party has of the resource.
    Answer(Answer),
    /// Sent by the coordinator to a party that reported a token which is not valid: there is a newer one of that slot.
    /// The party drops the token and notifies its client.
    Void(Token),
    /// Sent by a holder's peer to the coordinator when a surplus token was released after a resize. The token no longer
    /// exists.
    Dropped {
        /// The slot of the dropped token.
        slot: u32,
        /// The stay in which it was dropped.
        stay: u64,
    },
    /// Sent by the coordinator to a client's peer, batched: the arrival numbers of its requests. The peer reports them
    /// in the next census.
    Arrivals(Vec<(Ticket, Arrival)>),
}

/// A party's reply to a census.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// The session of the party. The reply of an earlier session of the same peer does not count.
    pub session: Session,
    /// The tokens at this peer.
    pub tokens: Vec<Report>,
    /// The clients that wait at this peer, with their arrival numbers if known.
    pub waiting: Vec<(Ticket, Option<Arrival>)>,
}

impl Answer {
    /// Returns whether the party has nothing of the resource. It then ceases to be a party (R8).
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.waiting.is_empty()
    }
}

/// A token reported in a census.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The token. Of two tokens of one slot, the one with the higher fencing number is valid.
    pub token: Token,
    /// Whether a client holds the slot with it.
    pub in_use: bool,
}

/// Prints the generation and the message: `g2 token 0`.
impl fmt::Display for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{} ", self.generation)?;
        match &self.body {
            Body::Update(update) => write!(f, "{update}"),
            Body::Next { slot, following, .. } => write!(f, "next({following}) for token {slot}"),
            Body::Token { token, .. } => write!(f, "token {}", token.slot),
            Body::Census { session, slots } => write!(f, "census({session}, slots {slots})"),
            Body::Answer(Answer { session, tokens, waiting }) => {
                write!(f, "answer({session}")?;
                for Report { token, in_use } in tokens {
                    write!(f, ", token {} {}", token.slot, if *in_use { "in use" } else { "free" })?;
                }
                for (ticket, arrival) in waiting {
                    write!(f, ", {} waits", Claim { peer: session.peer, ticket: *ticket })?;
                    if let Some(arrival) = arrival {
                        write!(f, " since {arrival}")?;
                    }
                }
                f.write_str(")")
            }
            Body::Void(token) => write!(f, "void(token {})", token.slot),
            Body::Dropped { slot, .. } => write!(f, "dropped(token {slot})"),
            Body::Arrivals(arrivals) => {
                f.write_str("arrived(")?;
                for (place, (ticket, arrival)) in arrivals.iter().enumerate() {
                    write!(f, "{}#{ticket} as {arrival}", if place > 0 { ", " } else { "" })?;
                }
                f.write_str(")")
            }
        }
    }
}
