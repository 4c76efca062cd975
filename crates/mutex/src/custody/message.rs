//! What peers say to each other under custody. Every message names the generation that it belongs to.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::Ticket;

use crate::line::{Following, News};
use crate::register::Session;
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

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Body {
    /// Something the coordinator has to know.
    Tell(News),
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
        anew: bool,
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
            Body::Tell(news) => write!(f, "{news}"),
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
