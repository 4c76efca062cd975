//! What the coordinator knows of one token, and what it has said of who comes after.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::PeerId;

use crate::token::Claim;

/// Who comes after the client that has a token, one after the other, as far as the coordinator has said. The token
/// takes along what is left of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Following {
    /// What is said under one turn never contradicts itself: it names one client for each of the token's stays to come,
    /// and later words only add further ones. A word of a higher turn takes the place of all that was said before.
    ///
    /// The coordinator's turns are even. Where a token goes another way than it was told, its turn becomes odd.
    pub turn: u64,
    /// Whom the token goes to from here, and whom from there.
    pub claims: Vec<Claim>,
    /// The coordinator knows of others who wait, or did not promise to tell of each one at once. Who has no claims left
    /// then lets nobody in by itself.
    pub more: bool,
}

impl Following {
    /// The token goes another way than it was told: to `to`, or nowhere for now. No word of the coordinator's can then
    /// be taken for one about its stays to come, and it is told anew.
    pub fn divert(self, to: Option<Claim>) -> Self {
        Self { turn: self.turn | 1, claims: to.into_iter().collect(), ..self }
    }
}

/// What the coordinator knows of one token.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Location {
    /// The slot that the token stands for.
    pub slot: u32,
    /// Where the token is, or is going.
    pub at: PeerId,
    /// Which of its stays that is.
    pub stay: u64,
    /// It lies there unused: whoever is told as next gets it at once.
    pub free: bool,
    /// Nobody is told as its next for now.
    pub(super) barred: bool,
    /// The number of the report that said so, in this stay.
    pub(super) report: u32,
    /// Who was told as its next. Where there are several tokens, always somebody who waits.
    pub next: Option<Claim>,
    /// Who was told to come after that.
    pub(super) further: Vec<Claim>,
    /// Whether the last word spoke of [more](Following::more).
    pub(super) more: bool,
    /// Under which turn that is said: another one whenever all that had been told is void.
    pub(super) turn: u64,
    /// Nothing has been said under this turn yet.
    pub(super) replaces: bool,
    /// A report of a stay to come, which was faster than word that the token has gone there.
    pub(super) early: Option<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub(super) struct Report {
    pub(super) stay: u64,
    pub(super) number: u32,
    pub(super) free: bool,
}

/// What the peer that has a token, or will have it at this stay, is to be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binding {
    /// The peer that has the token, or will have it.
    pub at: PeerId,
    /// The slot of the token.
    pub slot: u32,
    /// The stay of the token that is meant.
    pub stay: u64,
    /// The clients that come after.
    pub following: Following,
    /// Whether this replaces what was sent before.
    pub replaces: bool,
}

/// Who was told to come after a token, and is not any more.
#[derive(Default)]
pub(super) struct Gone {
    next: Option<Claim>,
    further: Vec<Claim>,
    /// How many more, who are out of the line already: for those nothing is kept up.
    out: usize,
}

impl Gone {
    /// How many.
    pub(super) fn len(&self) -> usize {
        self.out + usize::from(self.next.is_some()) + self.further.len()
    }

    /// Who comes first of them is out of the line already, if it is this one.
    pub(super) fn but(mut self, first: Claim) -> Self {
        self.out += usize::from(self.next.take_if(|next| *next == first).is_some());
        self
    }

    /// All but those who are out of the line already.
    pub(super) fn iter(&self) -> impl Iterator<Item = Claim> {
        self.next.into_iter().chain(self.further.iter().copied())
    }
}

impl Location {
    pub(super) fn new(slot: u32, at: PeerId, stay: u64, free: bool) -> Self {
        let (barred, report, next, further, more, turn, replaces, early) = <_>::default();
        Self { slot, at, stay, free, barred, report, next, further, more, turn, replaces, early }
    }

    /// Who is told of somebody first: the lowest. A token that lies unused, then those in use by how many were told to
    /// come after. `None` if its holder is told of nobody: barred, or unused with its next on the way.
    pub(super) fn rank(&self) -> Option<u32> {
        match (self.barred, self.free, self.next) {
            (true, ..) | (_, true, Some(_)) => None,
            (_, true, None) => Some(0),
            (_, false, None) => Some(1),
            (_, false, Some(_)) => Some(2 + self.further.len() as u32),
        }
    }

    /// To whom it is promised as long as it lies unused.
    pub(super) fn promised(&self) -> Option<Claim> {
        self.next.filter(|_| self.free)
    }

    /// Everybody who was told to come after, in this order.
    pub(super) fn announced(&self) -> impl Iterator<Item = Claim> {
        self.next.into_iter().chain(self.further.iter().copied())
    }

    /// Who was told to come after so many others.
    pub(super) fn announced_after(&self, others: usize) -> Option<Claim> {
        others.checked_sub(1).map_or(self.next, |at| self.further.get(at).copied())
    }

    /// Who comes last of those.
    pub(super) fn last_announced(&self) -> Option<Claim> {
        self.further.last().copied().or(self.next)
    }

    /// How many were told to come after.
    pub(super) fn announces(&self) -> usize {
        usize::from(self.next.is_some()) + self.further.len()
    }

    /// How often the token has to go from one peer to another for all that was told.
    pub(super) fn moves(&self) -> u32 {
        let mut at = self.at;
        self.announced().map(|claim| u32::from(core::mem::replace(&mut at, claim.peer) != claim.peer)).sum()
    }

    /// Tells of these, after all that were told before. The last of those hears of it: the token cannot go on from
    /// there before, so that the word never comes too late to be heard, wherever the token is by now.
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

    /// What was told counts no more: the next word takes its place.
    pub(super) fn take_back(&mut self) -> Gone {
        if self.next.is_some() { self.begin_turn() } else { Gone::default() }
    }

    fn begin_turn(&mut self) -> Gone {
        (self.more, self.replaces) = (false, true);
        self.turn += 2;
        Gone { next: self.next.take(), further: core::mem::take(&mut self.further), out: 0 }
    }

    /// The token has left this stay for `to`, with what was told under `turn`. Who had it in between, if word of that
    /// is still to come; and who is told no more.
    pub(super) fn go_on(&mut self, stay: u64, to: Claim, turn: u64) -> (Vec<Claim>, Gone) {
        let skipped = usize::try_from(stay - self.stay).unwrap_or(usize::MAX);
        (self.at, self.stay, self.free, self.report) = (to.peer, stay + 1, false, 0);
        if turn != self.turn || self.announced_after(skipped) != Some(to) {
            // It went another way, and what it took along is not what we have told last.
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

/// `4 5`.
impl fmt::Display for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut claims = self.claims.iter().enumerate();
        claims.try_for_each(|(place, claim)| write!(f, "{}{claim}", if place > 0 { " " } else { "" }))
    }
}
