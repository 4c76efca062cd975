//! The table of whoever coordinates late binding: who waits, where the tokens are, and which holder should know whom as
//! its next. [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out.

mod seat;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket};

pub(crate) use self::seat::Binding;
use self::seat::Report;
pub use self::seat::{Following, Seat};
use crate::token::Claim;

/// What the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum News {
    /// A client asks; answered by `Next` to a holder.
    Request(Claim),
    /// It does not want in any more.
    Withdraw(Claim),
    /// Its peer is gone, and a holder that was told of it has forgotten it and all who were to come after it. Answered
    /// by `Next`, with those.
    Forgotten(Claim),
    /// A token's client has left, and the token with it. Answered by `Next` to where it went.
    Left {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays is over.
        stay: u64,
        /// Whom it was sent to.
        to: Claim,
        /// The turn of what it took along of who follows.
        turn: u64,
    },
    /// A token's client has left, and nobody was known to come after. Answered by `Next` as soon as somebody asks.
    Free {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays.
        stay: u64,
        /// Counts `Free` and `Busy` of one stay, which must not be taken in the wrong order.
        report: u32,
    },
    /// A token that was reported free is in use again: who was told as next has to wait, or gets another.
    Busy {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays.
        stay: u64,
        /// As with `Free`.
        report: u32,
    },
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(claim) => write!(f, "request({claim})"),
            Self::Withdraw(claim) => write!(f, "withdraw({claim})"),
            Self::Forgotten(claim) => write!(f, "forgotten({claim})"),
            Self::Left { slot, to, .. } => write!(f, "left(token {slot} → {to})"),
            Self::Free { slot, .. } => write!(f, "free(token {slot})"),
            Self::Busy { slot, .. } => write!(f, "busy(token {slot})"),
        }
    }
}

/// The line and the tokens. With every waiter goes a mark of type `A` that the line itself does not look at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Line<A = ()> {
    /// With one token: how often it may have to go from one peer to another for all who were told to come after.
    reach: u32,
    /// How slow we are to tell several holders of the same waiter: goes up by [`RARE`] for every token that came too
    /// late because of it, and down by one for every entry, so that it settles where one in `RARE` does.
    caution: u32,
    /// Everybody who waits, oldest first.
    waiting: VecDeque<Waiter<A>>,
    /// What is known of each token; the one that has been at its peer longest comes first.
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Waiter<A> {
    claim: Claim,
    mark: A,
    /// How many younger ones went in before it.
    passed: u32,
}

/// One token in this many may go to somebody who has been served already. Our choice: it then lies idle for one more
/// message, and with one in twenty the mean wait stays within 1 % of the ideal's at k = 3, even where a message takes a
/// tenth of the time inside.
const RARE: u32 = 20;

/// With one token, at most about this many are told to come after, however near to each other they are: the token
/// carries them along. Our choice: below half a kilobyte.
const MOST_TOLD: usize = 32;

impl<A: Copy> Line<A> {
    /// A line in which nobody waits, for tokens that are still to be [added](Self::add).
    pub(crate) fn new(reach: u32) -> Self {
        Self { reach, caution: 3 * RARE, waiting: VecDeque::new(), seats: Vec::new() }
    }

    /// There is one more token.
    pub(crate) fn add(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.seats.push(Seat::new(slot, at, stay, free));
    }

    /// There is one more token, of which nobody is told until it is [let go](Self::let_go).
    pub(crate) fn add_barred(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.add(slot, at, stay, free);
        self.seats.iter_mut().filter(|seat| seat.slot == slot).for_each(|seat| seat.barred = true);
    }

    /// A token has ended with this stay.
    pub(crate) fn remove(&mut self, slot: u32, stay: u64) {
        self.seats.retain(|seat| (seat.slot, seat.stay) != (slot, stay));
    }

    /// Lets barred tokens go, as long as no more than `room` can then be inside. Tokens of slots from `slots` on are
    /// surplus: never let go.
    pub(crate) fn let_go(&mut self, slots: u32, room: usize) {
        let counts = |seat: &&Seat| !seat.barred || !seat.free;
        loop {
            let inside = self.seats.iter().filter(counts).count();
            let barred = |seat: &&mut Seat| seat.barred && seat.slot < slots;
            // Whoever leaves a token in use makes room for its next.
            let in_use = self.seats.iter_mut().filter(barred).find(|seat| !seat.free && inside <= room);
            let next = match in_use {
                Some(seat) => Some(seat),
                None => self.seats.iter_mut().filter(barred).find(|seat| seat.free && inside < room),
            };
            let Some(seat) = next else { return };
            seat.barred = false;
        }
    }

    /// Learns something, or says what is strange about it. Somebody who asks gets this mark. The answer tells how many
    /// who waited are now known to have got a token.
    pub(crate) fn note(&mut self, news: News, mark: A) -> Result<u32, &'static str> {
        match news {
            News::Request(claim) => self.waiting.push_back(Waiter { claim, mark, passed: 0 }),
            // Its place in what was told stays: the token passes through its peer, one message later. To take that back
            // could come too late, and then the one who asked last would not be known where the token has gone.
            News::Withdraw(claim) if self.seats.len() == 1 => _ = self.take_out(claim),
            News::Withdraw(claim) | News::Forgotten(claim) => _ = self.strike_out(claim),
            News::Left { slot, stay, to, turn } => return self.moved(slot, stay, to, turn),
            News::Free { slot, stay, report } => self.set_free(slot, stay, report, true)?,
            News::Busy { slot, stay, report } => self.set_free(slot, stay, report, false)?,
        }
        Ok(0)
    }

    fn moved(&mut self, slot: u32, stay: u64, to: Claim, turn: u64) -> Result<u32, &'static str> {
        let at = self.seat(slot)?;
        let is_late = stay < self.seats[at].stay;
        let mut served = 0;
        if !is_late {
            // What has moved has been at its peer for the shortest time.
            let mut seat = self.seats.remove(at);
            let between = seat.go_on(stay, to, turn);
            let early = seat.early.take_if(|early| early.stay <= stay + 1);
            self.seats.push(seat);
            served += between.into_iter().map(|claim| u32::from(self.serve(claim))).sum::<u32>();
            if let Some(Report { number, free, .. }) = early.filter(|early| early.stay > stay) {
                self.set_free(slot, stay + 1, number, free)?;
            }
        }
        let is_served = self.serve(to);
        // It was served, or has withdrawn: the token goes astray. Not so the heir of somebody who leaves for good, and
        // not whom we know to be served since word of a later stay was faster.
        if !is_served && !is_late && to.ticket != Ticket::NONE {
            self.caution = self.caution.saturating_add(RARE);
        }
        Ok(served + u32::from(is_served))
    }

    /// Somebody has got a token. Whether it waited.
    fn serve(&mut self, claim: Claim) -> bool {
        let Some(place) = self.strike_out(claim) else { return false };
        self.waiting.range_mut(..place).for_each(|waiter| waiter.passed += 1);
        self.caution = self.caution.saturating_sub(1);
        true
    }

    fn seat(&self, slot: u32) -> Result<usize, &'static str> {
        self.seats.iter().position(|seat| seat.slot == slot).ok_or("news of a token that does not exist")
    }

    /// Takes somebody out of the line, and tells which place it had.
    fn take_out(&mut self, claim: Claim) -> Option<usize> {
        let place = self.waiting.iter().position(|waiter| waiter.claim == claim)?;
        self.waiting.remove(place);
        Some(place)
    }

    /// The same, and what was told of it is taken back.
    fn strike_out(&mut self, claim: Claim) -> Option<usize> {
        let place = self.take_out(claim);
        self.seats.iter_mut().filter(|seat| seat.is_told(claim)).for_each(Seat::take_back);
        place
    }

    fn set_free(&mut self, slot: u32, stay: u64, report: u32, free: bool) -> Result<(), &'static str> {
        let at = self.seat(slot)?;
        let seat = &mut self.seats[at];
        if seat.stay < stay {
            seat.early = seat.early.max(Some(Report { stay, number: report, free }));
        } else if seat.stay == stay && seat.report < report {
            (seat.free, seat.report) = (free, report);
            self.free_the_others(at);
        }
        Ok(())
    }

    /// A waiter that gets a free token needs no other: holders that were told of it may be told of somebody else.
    fn free_the_others(&mut self, at: usize) {
        let Seat { slot, free: true, next: Some(mine), .. } = self.seats[at] else { return };
        let is_other = |seat: &&mut Seat| seat.slot != slot && seat.next == Some(mine);
        self.seats.iter_mut().filter(is_other).for_each(Seat::take_back);
    }

    /// Binds waiters to one token, if there is a holder that should be told something.
    pub(crate) fn bind(&mut self) -> Option<Binding> {
        if self.seats.len() == 1 {
            return self.look_ahead();
        }
        let (at, next) = self.choose()?;
        let seat = &mut self.seats[at];
        seat.take_back();
        let binding = seat.tell(Vec::from([next]), false);
        self.free_the_others(at);
        Some(binding)
    }

    /// With one token there is nothing to bind late: who comes after is told as far ahead as it takes for word from
    /// here to reach the token in time. Who asks is told of at once as long as the token has not heard of `more`, and
    /// from then on several together, when half of the way is left.
    fn look_ahead(&mut self) -> Option<Binding> {
        let [seat] = &mut self.seats[..] else { return None };
        let (mut moves, mut told) = (seat.moves(), seat.told().count());
        if seat.barred || seat.more && (moves > self.reach / 2 || told > MOST_TOLD / 2) {
            return None;
        }
        let mut at = seat.told().last().map_or(seat.at, |claim| claim.peer);
        let mut untold =
            self.waiting.iter().map(|waiter| waiter.claim).filter(|&claim| !seat.is_told(claim)).peekable();
        let mut claims = Vec::new();
        while let Some(claim) =
            untold.next_if(|claim| told < MOST_TOLD && moves + u32::from(claim.peer != at) <= self.reach)
        {
            (moves, told) = (moves + u32::from(claim.peer != at), told + 1);
            at = claim.peer;
            claims.push(claim);
        }
        let more = untold.next().is_some() || moves >= self.reach || told >= MOST_TOLD;
        if claims.is_empty() { None } else { Some(seat.tell(claims, more)) }
    }

    /// A token whose holder should be told something, and whom to tell it of. Of several tokens, the one that has
    /// been at its peer longest: it is likely to leave first.
    fn choose(&self) -> Option<(usize, Claim)> {
        // A waiter that gets a free token is as good as served.
        let open = || self.waiting.iter().filter(|waiter| !self.gets_a_free_token(waiter));
        let oldest = open().next()?;
        if let Some(at) = self.seats.iter().position(|seat| seat.free && seat.is_open()) {
            return Some((at, oldest.claim));
        }
        // A holder who has nobody after it is told of one who was passed, or else of the oldest whom nobody knows;
        // where all are known, of one whom few know.
        let unknown = open().find(|waiter| self.known(waiter.claim) == 0);
        if let Some(at) = self.seats.iter().position(Seat::is_open) {
            let mut known = open().take_while(|waiter| self.known(waiter.claim) > 0);
            let passed = known.find(|waiter| self.known(waiter.claim) < self.wanted(waiter));
            let next = passed.or(unknown).or_else(|| open().min_by_key(|waiter| self.known(waiter.claim)));
            return next.map(|waiter| (at, waiter.claim));
        }
        // Somebody whom more holders know than need to makes room for one whom nobody knows.
        let unknown = unknown?;
        let at = (0..self.seats.len()).find(|&at| self.is_spare(at))?;
        Some((at, unknown.claim))
    }

    fn gets_a_free_token(&self, waiter: &Waiter<A>) -> bool {
        self.seats.iter().any(|seat| seat.free && seat.next == Some(waiter.claim))
    }

    /// How many holders know somebody as their next. Counted anew each time: a count that is kept can be wrong.
    fn known(&self, claim: Claim) -> u32 {
        self.seats.iter().filter(|seat| seat.is_told(claim)).count() as u32
    }

    /// How many holders should know somebody: one, and more the more often it was passed. Where there is a holder for
    /// everybody, nobody needs two.
    fn wanted(&self, waiter: &Waiter<A>) -> u32 {
        if self.waiting.len() <= self.seats.iter().filter(|seat| !seat.barred).count() {
            return 1;
        }
        1 + waiter.passed.saturating_mul(RARE) / self.caution.max(1)
    }

    /// Whether the holder of a token need not know its next, since enough others do. The tokens that have been out
    /// longest come back first: those are kept.
    fn is_spare(&self, at: usize) -> bool {
        let Some(next) = self.seats[at].next else { return false };
        let sooner = self.seats[..at].iter().filter(|seat| seat.next == Some(next)).count() as u32;
        let waiter = || self.waiting.iter().find(|waiter| waiter.claim == next);
        sooner > 0 && waiter().is_some_and(|waiter| sooner >= self.wanted(waiter)) // The line may be long: last.
    }

    /// Whether no report of this stay matters any more.
    pub(crate) fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.seats.iter().any(|seat| seat.slot == slot && seat.stay > stay)
    }

    /// Everybody who waits with its mark, oldest first.
    pub(crate) fn marked(&self) -> impl Iterator<Item = (Claim, A)> {
        self.waiting.iter().map(|waiter| (waiter.claim, waiter.mark))
    }

    /// Everybody who waits, oldest first.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = Claim> + ExactSizeIterator {
        self.waiting.iter().map(|waiter| waiter.claim)
    }

    /// Where each token is, and who gets it next as far as that is settled.
    pub fn seats(&self) -> impl ExactSizeIterator<Item = &Seat> {
        self.seats.iter()
    }

    /// Takes everybody who waits at `peer` out of the line. A token that lies there may be gone with it: who is told of
    /// it is not as good as served, and gets another if there is one. Should the peer be alive, it hands its token over
    /// all the same.
    pub(crate) fn forget(&mut self, peer: PeerId) {
        self.waiting.retain(|waiter| waiter.claim.peer != peer);
        for seat in &mut self.seats {
            if seat.told().any(|claim| claim.peer == peer) {
                seat.take_back();
            }
            seat.free &= seat.at != peer;
        }
    }
}

/// `waiting [4, 5], tokens [0 at 2, next 4]`; the token that has been at its peer longest comes first.
impl<A: Copy> fmt::Display for Line<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<Claim> = self.waiting.iter().map(|waiter| waiter.claim).collect();
        write!(f, "waiting {waiting:?}, tokens [")?;
        for (place, seat) in self.seats.iter().enumerate() {
            let (between, free) = (if place > 0 { "; " } else { "" }, if seat.free { ", free" } else { "" });
            write!(f, "{between}{} at {}{free}", seat.slot, seat.at)?;
            for (place, claim) in seat.told().enumerate() {
                write!(f, "{}{claim}", if place > 0 { " " } else { ", next " })?;
            }
        }
        write!(f, "]")
    }
}

#[cfg(test)]
mod tests;
