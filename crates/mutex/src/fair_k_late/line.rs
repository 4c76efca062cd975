//! The coordinator's table: who waits, where the tokens are, and which holder should know whom as its next.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use peerlock_base::PeerId;

use super::News;
use crate::token::Claim;

/// What makes a peer the coordinator. Exactly one peer has it, or one message carries it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Line {
    /// How often the role has moved.
    pub(super) epoch: u64,
    /// Entries since it came here.
    served: u32,
    /// How slow we are to tell several holders of the same waiter: goes up by [`RARE`] for every token that came too
    /// late because of it, and down by one for every entry, so that it settles where one in `RARE` does.
    caution: u32,
    /// Everybody who waits, oldest first.
    waiting: VecDeque<Waiter>,
    /// What is known of each token; the one that has been at its peer longest comes first.
    seats: Vec<Seat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Waiter {
    claim: Claim,
    /// How many younger ones went in before it.
    passed: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Seat {
    slot: u32,
    /// Where the token is, or is going.
    at: PeerId,
    stay: u64,
    /// It lies there unused: whoever is told as next gets it at once.
    free: bool,
    /// Whom the peer there was told of. Always somebody who waits.
    next: Option<Claim>,
    /// How often it was told in this stay.
    turn: u32,
}

/// What the peer that has a token is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Binding {
    pub(super) at: PeerId,
    pub(super) slot: u32,
    pub(super) stay: u64,
    pub(super) turn: u32,
    pub(super) next: Claim,
}

/// One token in this many may go to somebody who has been served already. Our choice: it then lies idle for one more
/// message, and with one in twenty the mean wait stays within 1 % of the ideal's at k = 3, even where a message takes a
/// tenth of the time inside.
const RARE: u32 = 20;

impl Line {
    pub(super) fn new(tokens: &[PeerId]) -> Self {
        let seat = |(slot, &at)| Seat { slot, at, stay: 0, free: true, next: None, turn: 0 };
        let seats = (0..).zip(tokens).map(seat).collect();
        Self { epoch: 0, served: 0, caution: 3 * RARE, waiting: VecDeque::new(), seats }
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Learns something, or says what is strange about it.
    pub(super) fn note(&mut self, news: News) -> Result<(), &'static str> {
        match news {
            News::Request(claim) => self.waiting.push_back(Waiter { claim, passed: 0 }),
            News::Withdraw(claim) => _ = self.strike_out(claim),
            News::Left { slot, stay, to } => {
                let at = self.seat(slot)?;
                match self.strike_out(to) {
                    Some(place) => {
                        self.waiting.range_mut(..place).for_each(|waiter| waiter.passed += 1);
                        self.served += 1;
                        self.caution = self.caution.saturating_sub(1);
                    }
                    // It was served, or has withdrawn: the token goes astray.
                    None => self.caution = self.caution.saturating_add(RARE),
                }
                if stay >= self.seats[at].stay {
                    self.seats.remove(at); // What has moved has been at its peer for the shortest time.
                    self.seats.push(Seat { slot, at: to.peer, stay: stay + 1, free: false, next: None, turn: 0 });
                }
            }
            News::Free { slot, stay } => self.set_free(slot, stay, true)?,
            News::Busy { slot, stay } => self.set_free(slot, stay, false)?,
        }
        Ok(())
    }

    fn seat(&self, slot: u32) -> Result<usize, &'static str> {
        self.seats.iter().position(|seat| seat.slot == slot).ok_or("news of a token that does not exist")
    }

    /// Takes somebody out of the line, and tells which place it had.
    fn strike_out(&mut self, claim: Claim) -> Option<usize> {
        let place = self.waiting.iter().position(|waiter| waiter.claim == claim)?;
        self.waiting.remove(place);
        for seat in &mut self.seats {
            seat.next.take_if(|next| *next == claim);
        }
        Some(place)
    }

    fn set_free(&mut self, slot: u32, stay: u64, free: bool) -> Result<(), &'static str> {
        let at = self.seat(slot)?;
        if self.seats[at].stay == stay {
            self.seats[at].free = free;
            self.free_the_others(at);
        }
        Ok(())
    }

    /// Whoever gets a free token needs no other: holders that were told of it may be told of somebody else.
    fn free_the_others(&mut self, at: usize) {
        let Seat { slot, free: true, next: Some(mine), .. } = self.seats[at] else { return };
        for seat in self.seats.iter_mut().filter(|seat| seat.slot != slot) {
            seat.next.take_if(|next| *next == mine);
        }
    }

    /// Binds one waiter to one token, if there is a holder that should be told something.
    pub(super) fn bind(&mut self) -> Option<Binding> {
        let (at, next) = self.choose()?;
        let seat = &mut self.seats[at];
        seat.next = Some(next);
        seat.turn += 1;
        let Seat { slot, at: peer, stay, turn, .. } = *seat;
        self.free_the_others(at);
        Some(Binding { at: peer, slot, stay, turn, next })
    }

    /// A token whose holder should be told something, and whom to tell it of. Of several tokens, the one that has
    /// been at its peer longest: it is likely to leave first.
    fn choose(&self) -> Option<(usize, Claim)> {
        // Who gets a free token is as good as served.
        let open = || self.waiting.iter().filter(|waiter| !self.gets_a_free_token(waiter));
        let oldest = open().next()?;
        if let Some(at) = self.seats.iter().position(|seat| seat.free && seat.next.is_none()) {
            return Some((at, oldest.claim));
        }
        // A holder who has nobody after it is told of one who was passed, or else of the oldest whom nobody knows; where
        // all are known, of one whom few know.
        let unknown = open().find(|waiter| self.known(waiter.claim) == 0);
        if let Some(at) = self.seats.iter().position(|seat| seat.next.is_none()) {
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

    fn gets_a_free_token(&self, waiter: &Waiter) -> bool {
        self.seats.iter().any(|seat| seat.free && seat.next == Some(waiter.claim))
    }

    /// How many holders know somebody as their next. Counted anew each time: a count that is kept can be wrong.
    fn known(&self, claim: Claim) -> u32 {
        self.seats.iter().filter(|seat| seat.next == Some(claim)).count() as u32
    }

    /// How many holders should know somebody: one, and more the more often it was passed.
    fn wanted(&self, waiter: &Waiter) -> u32 {
        1 + waiter.passed.saturating_mul(RARE) / self.caution.max(1)
    }

    /// Whether the holder of a token need not know its next, since enough others do. The tokens that have been out
    /// longest come back first: those are kept.
    fn is_spare(&self, at: usize) -> bool {
        let Some(next) = self.seats[at].next else { return false };
        let sooner = self.seats[..at].iter().filter(|seat| seat.next == Some(next)).count() as u32;
        // Where there is a holder for everybody, nobody needs two. The line may be long, so it is looked at last.
        let a_holder_for_everybody = self.waiting.len() <= self.seats.len();
        let waiter = || self.waiting.iter().find(|waiter| waiter.claim == next);
        sooner > 0 && (a_holder_for_everybody || waiter().is_some_and(|waiter| sooner >= self.wanted(waiter)))
    }

    /// When the term is over: to whom the role goes, which is the last in line unless that is `me`.
    pub(super) fn pass_on(&mut self, term: u32, me: PeerId) -> Option<PeerId> {
        let last = self.waiting.back()?.claim.peer;
        if self.served < term || last == me {
            return None;
        }
        self.served = 0;
        self.epoch += 1;
        Some(last)
    }
}
