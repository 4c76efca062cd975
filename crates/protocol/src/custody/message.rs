//! What peers say to each other under custody. Every message names the generation that it belongs to.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, Ticket};

use crate::queue::{Following, Update};
use crate::registry::Session;
use crate::token::{Arrival, Claim, Token};

/// Something that a peer tells another, and the generation in which it counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Message {
    /// Void where a later one is known.
    pub generation: u64,
    /// What is told.
    pub body: Body,
}

/// At most this many clients wait for one resource at one peer: what it says of them fits into one message.
pub const MOST_WAITING: usize = 32_768;
/// Nobody is told of more who come after: the line stops at half as many.
const MOST_FOLLOWING: usize = 64;
/// Numbers that are counted on by one are below this.
const MOST_COUNTED: u64 = 1 << 62;

impl Message {
    /// Whether it is within its bounds, or what is not: for who has it from outside, where it is decoded.
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

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// Something the coordinator has to know.
    Update(Update),
    /// From the coordinator to the peer that has a token, or will: who comes after the client there. Answered by
    /// `Token` to the first of them when that client leaves.
    Next {
        /// The token, by its slot.
        slot: u32,
        /// At which of its stays.
        stay: u64,
        /// Who comes after.
        following: Following,
        /// It takes the place of all that was said before. If not, it adds to what was said under the same turn.
        replaces: bool,
    },
    /// From who leaves to its next.
    Token {
        /// The ticket that it is meant for.
        to: Ticket,
        /// The token itself.
        token: Token,
        /// The number of the stay that begins.
        stay: u64,
        /// Who comes after, as far as the sender knows.
        following: Following,
    },
    /// From the coordinator of a new generation to each party: what is there? Answered by `Answer`.
    Census {
        /// Who is asked. Another session of the same host has nothing to say.
        session: Session,
        /// How many slots the resource has now.
        slots: u32,
    },
    /// All that a party has of the resource. It has forgotten everything else when it says so.
    Answer(Answer),
    /// From the coordinator to who has reported a token that does not count: there is a younger one of that slot.
    Void(Token),
    /// From a holder to the coordinator: a token that is surplus since the resource was made smaller is no more.
    Dropped {
        /// The dropped token, by its slot.
        slot: u32,
        /// At which of its stays.
        stay: u64,
    },
    /// From the coordinator to a peer: when the requests of these tickets came.
    Arrivals(Vec<(Ticket, Arrival)>),
}

/// What a party answers when it is asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Answer {
    /// The party that answers: a peer's session, so that an earlier one's answer does not count.
    pub session: Session,
    /// The tokens that are here.
    pub tokens: Vec<Report>,
    /// The clients that wait here, with the arrival number of those that were told one.
    pub waiting: Vec<(Ticket, Option<Arrival>)>,
}

impl Answer {
    /// Whether who answers has nothing of the resource.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty() && self.waiting.is_empty()
    }
}

/// A token that is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Report {
    /// The token. Its fencing number is its age: of two tokens of one slot, the younger has the higher one.
    pub token: Token,
    /// Whether a client is inside with it.
    pub in_use: bool,
}

/// As in late binding, with the generation from the second on: `g2 token 0`.
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
