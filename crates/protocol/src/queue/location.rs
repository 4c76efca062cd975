//! A token as the coordinator knows it, with the successors announced for it.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::PeerId;

use crate::token::Claim;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Following {
    /// Messages of one turn do not contradict each other: they name one claim for each stay to come, and later ones
    /// extend these. A message of a higher turn replaces all earlier ones.
    ///
    /// The coordinator's turns are even. The turn becomes odd when the token is sent to another claim than announced.
    pub turn: u64,
    pub claims: Vec<Claim>,
    /// More clients may wait. The token then grants no request of its own peer after the last claim.
    pub more: bool,
}

impl Following {
    /// The token is sent to `to`, or nowhere for now, instead of the announced claim. The new turn matches no message
    /// sent so far, so the coordinator announces again.
    pub fn divert(self, to: Option<Claim>) -> Self {
        Self { turn: self.turn | 1, claims: to.into_iter().collect(), ..self }
    }
}

/// The coordinator's knowledge of one token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Location {
    pub slot: u32,
    /// The peer that has the token, or that it was sent to.
    pub at: PeerId,
    /// Number of its stay there.
    pub stay: u64,
    pub free: bool,
    /// No successor may be announced for now.
    pub(super) barred: bool,
    /// The last in this stay.
    pub(super) report: u32,
    /// With several tokens always a waiting claim.
    pub next: Option<Claim>,
    pub(super) further: Vec<Claim>,
    /// The last [`Following::more`] sent.
    pub(super) more: bool,
    /// Increases when all announcements are taken back.
    pub(super) turn: u64,
    /// Nothing was sent in this turn yet.
    pub(super) replaces: bool,
    /// Of a later stay; it has overtaken the update of the move.
    pub(super) early: Option<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Report {
    pub(super) stay: u64,
    pub(super) number: u32,
    pub(super) free: bool,
}

/// A message to the peer that has a token, or will have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    pub at: PeerId,
    pub slot: u32,
    /// These claims follow after this stay.
    pub stay: u64,
    pub following: Following,
    pub replaces: bool,
}

/// Claims that are not announced for a token any more.
#[derive(Default)]
pub(super) struct Gone {
    next: Option<Claim>,
    further: Vec<Claim>,
    /// Further ones that have left the queue already.
    out: usize,
}

impl Gone {
    pub(super) fn len(&self) -> usize {
        self.out + usize::from(self.next.is_some()) + self.further.len()
    }

    /// Counts the next claim as out of the queue, if it is this one.
    pub(super) fn but(mut self, first: Claim) -> Self {
        self.out += usize::from(self.next.take_if(|next| *next == first).is_some());
        self
    }

    /// Those that have not left the queue.
    pub(super) fn iter(&self) -> impl Iterator<Item = Claim> {
        self.next.into_iter().chain(self.further.iter().copied())
    }
}

impl Location {
    pub(super) fn new(slot: u32, at: PeerId, stay: u64, free: bool) -> Self {
        let (barred, report, next, further, more, turn, replaces, early) = <_>::default();
        Self { slot, at, stay, free, barred, report, next, further, more, turn, replaces, early }
    }

    /// The preference for the next announcement, lowest first: a free token, then tokens in use by the number of their
    /// successors. `None` if barred, or free with a successor.
    pub(super) fn rank(&self) -> Option<u32> {
        match (self.barred, self.free, self.next) {
            (true, ..) | (_, true, Some(_)) => None,
            (_, true, None) => Some(0),
            (_, false, None) => Some(1),
            (_, false, Some(_)) => Some(2 + self.further.len() as u32),
        }
    }

    /// The claim that gets the free token.
    pub(super) fn promised(&self) -> Option<Claim> {
        self.next.filter(|_| self.free)
    }

    pub(super) fn announced(&self) -> impl Iterator<Item = Claim> {
        self.next.into_iter().chain(self.further.iter().copied())
    }

    pub(super) fn announced_after(&self, others: usize) -> Option<Claim> {
        others.checked_sub(1).map_or(self.next, |at| self.further.get(at).copied())
    }

    pub(super) fn last_announced(&self) -> Option<Claim> {
        self.further.last().copied().or(self.next)
    }

    pub(super) fn announces(&self) -> usize {
        usize::from(self.next.is_some()) + self.further.len()
    }

    /// Moves between peers until the last announced claim.
    pub(super) fn moves(&self) -> u32 {
        let mut at = self.at;
        self.announced().map(|claim| u32::from(core::mem::replace(&mut at, claim.peer) != claim.peer)).sum()
    }

    /// The message goes to the last claim announced before, which the token must pass, so that it is never too late.
    pub(super) fn announce(&mut self, claims: Vec<Claim>, more: bool) -> Binding {
        let at = self.last_announced().map_or(self.at, |claim| claim.peer);
        let stay = self.stay + self.announces() as u64;
        self.more = more;
        let mut added = claims.iter().copied();
        if self.next.is_none() {
            self.next = added.next();
        }
        self.further.extend(added);
        let (replaces, following) = (core::mem::take(&mut self.replaces), Following { turn: self.turn, claims, more });
        Binding { at, slot: self.slot, stay, following, replaces }
    }

    pub(super) fn take_back(&mut self) -> Gone {
        if self.next.is_some() { self.begin_turn() } else { Gone::default() }
    }

    fn begin_turn(&mut self) -> Gone {
        (self.more, self.replaces) = (false, true);
        self.turn += 2;
        Gone { next: self.next.take(), further: core::mem::take(&mut self.further), out: 0 }
    }

    /// Returns the claims that held the token in between, if their updates are still in flight, and those that are not
    /// announced any more.
    pub(super) fn go_on(&mut self, stay: u64, to: Claim, turn: u64) -> (Vec<Claim>, Gone) {
        let skipped = usize::try_from(stay - self.stay).unwrap_or(usize::MAX);
        (self.at, self.stay, self.free, self.report) = (to.peer, stay + 1, false, 0);
        if turn != self.turn || self.announced_after(skipped) != Some(to) {
            return (Vec::new(), self.begin_turn());
        }
        if skipped == 0 {
            self.next = if self.further.is_empty() { None } else { Some(self.further.remove(0)) };
            return (Vec::new(), Gone { next: Some(to), ..Gone::default() });
        }
        let between: Vec<Claim> = self.announced().take(skipped).collect();
        self.further.drain(..skipped);
        self.next = if self.further.is_empty() { None } else { Some(self.further.remove(0)) };
        let gone = Gone { next: Some(to), further: between.clone(), out: 0 };
        (between, gone)
    }
}

/// Prints `4 5`.
impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut claims = self.claims.iter().enumerate();
        claims.try_for_each(|(place, claim)| write!(f, "{}{claim}", if place > 0 { " " } else { "" }))
    }
}
