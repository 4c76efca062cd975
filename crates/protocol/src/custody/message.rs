//! Messages of custody. docs/design/recovery.md has the rules R1–R11.
//!
//! Every message names its *generation*. A peer in a later one discards it (R1). A peer in an earlier one buffers
//! updates for the coordinator (R9), and discards everything else but the census.
//!
//! A link delivers a message at most once, but messages may overtake each other. So those about a token name its *stay*
//! at a peer, and those about successors also the *turn* of the announcement. Both only increase within a generation.

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
    pub generation: u64,
    pub body: Body,
}

/// Limit of one peer's waiters for a resource: an [`Answer`] must fit into one message.
pub const MOST_WAITING: usize = 32_768;
/// The queue sends at most half as many successors in one message.
const MOST_FOLLOWING: usize = 64;
/// Exclusive; these counters are incremented by one.
const MOST_COUNTED: u64 = 1 << 62;

impl Message {
    /// Returns an error if a field of a received message is out of bounds.
    pub fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        let is_slot = |slot: u32| slot < MOST_SLOTS;
        let is_token = |token: &Token| is_slot(token.slot) && token.fencing < MOST_COUNTED;
        let is_after = |it: &Following| it.claims.len() <= MOST_FOLLOWING && it.turn < MOST_COUNTED;
        within(self.generation < MOST_GENERATION, "an invalid generation")?;
        match &self.body {
            Body::Update(
                Update::Request(_) | Update::RequestAgain(..) | Update::Withdraw(_) | Update::Forgotten(_),
            ) => Ok(()),
            Body::Update(Update::Left { slot, stay, turn, .. }) => {
                within(is_slot(*slot) && *stay < MOST_COUNTED && *turn < MOST_COUNTED, "an invalid update")
            }
            Body::Update(Update::Free { slot, stay, .. } | Update::Busy { slot, stay, .. })
            | Body::Dropped { slot, stay } => within(is_slot(*slot) && *stay < MOST_COUNTED, "an invalid update"),
            Body::Next { slot, stay, following, .. } => {
                within(is_slot(*slot) && *stay < MOST_COUNTED && is_after(following), "invalid successors")
            }
            Body::Token { token, stay, following, .. } => {
                within(is_token(token) && *stay < MOST_COUNTED && is_after(following), "an invalid token")
            }
            Body::Census { slots, .. } => within((1..=MOST_SLOTS).contains(slots), "an invalid number of slots"),
            Body::Answer(Answer { tokens, waiting, .. }) => {
                let is_here = tokens.len() <= MOST_SLOTS as usize && tokens.iter().all(|it| is_token(&it.token));
                within(is_here && waiting.len() <= MOST_WAITING, "an invalid answer")
            }
            Body::Void(token) => within(is_token(token), "an invalid token"),
            Body::Arrivals(arrivals) => within(arrivals.len() <= MOST_WAITING, "too many arrivals"),
        }
    }
}

/// docs/design/protocol.md has a table of senders and receivers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// Sent by a party to the coordinator when one of its requests or tokens changes state.
    Update(Update),
    /// Sent by the coordinator to the peer that has the token of `slot`, or will have it: the next waiters, in order.
    ///
    /// When its client releases, the receiver sends [`Body::Token`] to the first of them. A message for a later stay is
    /// stored until the token arrives, one for an ended stay discarded.
    Next {
        slot: u32,
        /// These waiters follow after this stay.
        stay: u64,
        following: Following,
        /// Replaces all successors sent before. Otherwise extends those of the same turn.
        replaces: bool,
    },
    /// Sent by the releasing client's peer to the next waiter's: the token, the one message of a hand-over.
    ///
    /// The receiver grants `to` at once and reports nothing: the sender has sent [`Update::Left`]. If `to` does not
    /// wait any more, the receiver forwards the token to the next successor, or keeps it and reports it free. Discarded
    /// by a peer that does not know that it is a party (R5).
    Token {
        to: Ticket,
        token: Token,
        /// At the receiver.
        stay: u64,
        following: Following,
    },
    /// Sent by the coordinator of a new generation to every party: report your tokens and waiters.
    ///
    /// A party replies once per session and generation. From then on it discards messages of older generations, and has
    /// discarded all successors (R1, R2).
    Census {
        /// Another session of the same host does not reply (R6).
        session: Session,
        slots: u32,
    },
    /// Sent by a party to the coordinator in reply to [`Body::Census`].
    ///
    /// When every party has replied, the coordinator adopts the valid tokens, creates the missing ones, and rebuilds
    /// the queue (R3).
    Answer(Answer),
    /// Sent by the coordinator to a party that reported a token of which a newer one exists. The party discards it, and
    /// its client has lost the slot.
    Void(Token),
    /// Sent by a releasing client's peer to the coordinator: the token was surplus after a resize, and exists no more.
    Dropped { slot: u32, stay: u64 },
    /// Sent by the coordinator to a client's peer, batched. The peer reports the arrival numbers in the next census, so
    /// that its requests keep their order.
    Arrivals(Vec<(Ticket, Arrival)>),
}

/// A party's reply to a census.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// An earlier session of the same peer is not counted.
    pub session: Session,
    pub tokens: Vec<Report>,
    /// With arrival numbers if confirmed.
    pub waiting: Vec<(Ticket, Option<Arrival>)>,
}

impl Answer {
    /// Returns whether the party has nothing of the resource, and so ceases to be one (R8).
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.waiting.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// Of two tokens of one slot, the one with the higher fencing number is valid.
    pub token: Token,
    pub in_use: bool,
}

/// Prints `g2 token 0`.
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
