//! Read access to custody for watchers, traces and tables.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::Ticket;

use super::{Body, Custody, Message, Role, Stage};
use crate::queue::{self, Update};
use crate::registry::Session;
use crate::token::{Arrival, Claim};
use crate::{Grant, Observe, UnderWay};

impl Observe for Custody {
    const KINDS: &'static [&'static str] = &[
        "request", "next", "token", "left", "free", "withdraw", "busy", "arrived", "census", "answer", "void",
        "dropped",
    ];
    const NEVER_IDLE: bool = true;

    fn kind(message: &Message) -> usize {
        match message.body {
            Body::Update(Update::Request(_) | Update::RequestAgain(..)) => 0,
            Body::Next { .. } => 1,
            Body::Token { .. } => 2,
            Body::Update(Update::Left { .. }) => 3,
            Body::Update(Update::Free { .. }) => 4,
            Body::Update(Update::Withdraw(_) | Update::Forgotten(_)) => 5,
            Body::Update(Update::Busy { .. }) => 6,
            Body::Arrivals(_) => 7,
            Body::Census { .. } => 8,
            Body::Answer(_) => 9,
            Body::Void(_) => 10,
            Body::Dropped { .. } => 11,
        }
    }

    fn tokens(&self) -> usize {
        self.tokens.held.len()
    }

    fn tokens_in(message: &Message) -> usize {
        usize::from(matches!(message.body, Body::Token { .. }))
    }

    /// R1 discards older messages. Some of the present generation have no effect either.
    fn is_void(&self, UnderWay { message, .. }: UnderWay<'_, Self>) -> bool {
        if self.config.without.is_some() {
            return false;
        }
        let is_old = message.generation < self.generation;
        is_old
            || message.generation == self.generation
                && match &message.body {
                    Body::Next { slot, stay, .. } => self.tokens.is_past(*slot, *stay),
                    Body::Arrivals(arrivals) => {
                        arrivals.iter().all(|(ticket, _)| self.queue_position(*ticket).is_none())
                    }
                    Body::Update(Update::Free { slot, stay, .. } | Update::Busy { slot, stay, .. }) => {
                        self.queue().is_some_and(|queue| queue.is_past(*slot, *stay))
                    }
                    _ => false,
                }
    }

    fn slots_here(&self) -> Vec<u32> {
        self.tokens.held.iter().map(|held| held.token.slot).collect()
    }

    fn slots(&self) -> Option<u32> {
        Some(self.slots)
    }

    fn most_passes(&self) -> Option<u64> {
        queue::most_passes(self.slots)
    }

    fn generation(&self) -> u64 {
        self.generation
    }

    fn arrival_of(&self, ticket: Ticket) -> Option<Arrival> {
        self.waiting.iter().find(|(waiting, _)| *waiting == ticket)?.1
    }

    fn successor(&self, session: u64, inside: &[(Ticket, Grant)]) -> Option<Self> {
        Some(Self::taking_over(Session { number: session, ..self.me }, self.config, inside))
    }
}

/// Prints one line: `g1, coordinator, waiting [4], tokens [0 at 2, next 4]; token 0 in use, next 4; waiting [1]`.
impl fmt::Display for Custody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "g{}, ", self.generation)?;
        match (self.role.as_deref(), self.stage) {
            (Some(Role::Keeping(keeper)), _) => write!(f, "coordinator, {}", keeper.queue)?,
            (Some(Role::Counting(census)), _) => write!(f, "coordinator, asks {:?}", census.asked())?,
            (None, Stage::Party) => write!(f, "coordinator {}", self.coordinator)?,
            (None, Stage::Joining) => write!(f, "joining")?,
            (None, Stage::Outside) => write!(f, "no party")?,
            (None, Stage::Leaving) => write!(f, "gives up")?,
        }
        write!(f, "{}", self.tokens)?;
        if !self.waiting.is_empty() {
            f.write_str("; waiting [")?;
            for (place, &(ticket, arrival)) in self.waiting.iter().enumerate() {
                let claim = Claim { peer: self.me.peer, ticket };
                write!(f, "{}{claim}", if place > 0 { ", " } else { "" })?;
                if let Some(arrival) = arrival {
                    write!(f, " since {arrival}")?;
                }
            }
            f.write_str("]")?;
        }
        if !self.early.is_empty() {
            write!(f, "; {} early news", self.early.len())?;
        }
        Ok(())
    }
}
