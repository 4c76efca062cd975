//! The table of whoever coordinates late binding: who waits, where the tokens are, and which holder should know whom as
//! its next. [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket};

use crate::token::Claim;

/// What the coordinator is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum News {
    /// A client asks; answered by `Next` to a holder.
    Request(Claim),
    /// It does not want in any more.
    Withdraw(Claim),
    /// A token's client has left, and the token with it. Answered by `Next` to where it went.
    Left {
        /// The token, by its slot.
        slot: u32,
        /// Which of its stays is over.
        stay: u64,
        /// Whom it was sent to.
        to: Claim,
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

/// What the coordinator knows of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Seat {
    /// The slot that the token stands for.
    pub slot: u32,
    /// Where the token is, or is going.
    pub at: PeerId,
    /// Which of its stays that is.
    pub stay: u64,
    /// It lies there unused: whoever is told as next gets it at once.
    pub free: bool,
    /// Nobody is told as its next for now.
    barred: bool,
    /// The number of the report that said so, in this stay.
    report: u32,
    /// Whom the peer there was told of. Always somebody who waits.
    pub next: Option<Claim>,
    /// How often it was told in this stay.
    turn: u32,
    /// A report of a stay to come, which was faster than word that the token has gone there.
    early: Option<Report>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Report {
    stay: u64,
    number: u32,
    free: bool,
}

/// What the peer that has a token is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) at: PeerId,
    pub(crate) slot: u32,
    pub(crate) stay: u64,
    pub(crate) turn: u32,
    pub(crate) next: Claim,
}

/// One token in this many may go to somebody who has been served already. Our choice: it then lies idle for one more
/// message, and with one in twenty the mean wait stays within 1 % of the ideal's at k = 3, even where a message takes a
/// tenth of the time inside.
const RARE: u32 = 20;

impl Seat {
    /// Whether its holder may be told of somebody, and knows of nobody.
    fn is_open(&self) -> bool {
        self.next.is_none() && !self.barred
    }
}

impl<A: Copy> Line<A> {
    /// A line in which nobody waits, for tokens that are still to be [added](Self::add).
    pub(crate) fn new() -> Self {
        Self { caution: 3 * RARE, waiting: VecDeque::new(), seats: Vec::new() }
    }

    /// There is one more token.
    pub(crate) fn add(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.seats.push(Seat { slot, at, stay, free, barred: false, report: 0, next: None, turn: 0, early: None });
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

    /// Learns something, or says what is strange about it. Somebody who asks gets this mark. The answer tells whether
    /// somebody who waited has got a token.
    pub(crate) fn note(&mut self, news: News, mark: A) -> Result<bool, &'static str> {
        match news {
            News::Request(claim) => self.waiting.push_back(Waiter { claim, mark, passed: 0 }),
            News::Withdraw(claim) => _ = self.strike_out(claim),
            News::Left { slot, stay, to } => return self.moved(slot, stay, to),
            News::Free { slot, stay, report } => self.set_free(slot, stay, report, true)?,
            News::Busy { slot, stay, report } => self.set_free(slot, stay, report, false)?,
        }
        Ok(false)
    }

    fn moved(&mut self, slot: u32, stay: u64, to: Claim) -> Result<bool, &'static str> {
        let at = self.seat(slot)?;
        let place = self.strike_out(to);
        match place {
            Some(place) => {
                self.waiting.range_mut(..place).for_each(|waiter| waiter.passed += 1);
                self.caution = self.caution.saturating_sub(1);
            }
            // The heir of somebody who leaves for good, or one who does not need it any more.
            None if to.ticket == Ticket::NONE => {}
            // It was served, or has withdrawn: the token goes astray.
            None => self.caution = self.caution.saturating_add(RARE),
        }
        if stay >= self.seats[at].stay {
            // What has moved has been at its peer for the shortest time.
            let Seat { early, barred, .. } = self.seats.remove(at);
            let early = early.filter(|early| early.stay > stay);
            let (at, stay) = (to.peer, stay + 1);
            self.seats.push(Seat { slot, at, stay, free: false, barred, report: 0, next: None, turn: 0, early });
            if let Some(Report { stay, number, free }) = early {
                self.set_free(slot, stay, number, free)?;
            }
        }
        Ok(place.is_some())
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
        for seat in self.seats.iter_mut().filter(|seat| seat.slot != slot) {
            seat.next.take_if(|next| *next == mine);
        }
    }

    /// Binds one waiter to one token, if there is a holder that should be told something.
    pub(crate) fn bind(&mut self) -> Option<Binding> {
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
        self.seats.iter().filter(|seat| seat.next == Some(claim)).count() as u32
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

    /// The mark of somebody who waits.
    pub(crate) fn mark_of(&self, claim: Claim) -> Option<A> {
        self.waiting.iter().find(|waiter| waiter.claim == claim).map(|waiter| waiter.mark)
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
            seat.next.take_if(|next| next.peer == peer);
            seat.free &= seat.at != peer;
        }
    }
}

/// `waiting [4, 5], tokens [0 at 2, next 4]`; the token that has been at its peer longest comes first.
impl<A: Copy> fmt::Display for Line<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<Claim> = self.waiting.iter().map(|waiter| waiter.claim).collect();
        write!(f, "waiting {waiting:?}, tokens [")?;
        for (place, Seat { slot, at, free, next, .. }) in self.seats.iter().enumerate() {
            let (between, free) = (if place > 0 { "; " } else { "" }, if *free { ", free" } else { "" });
            write!(f, "{between}{slot} at {at}{free}")?;
            if let Some(next) = next {
                write!(f, ", next {next}")?;
            }
        }
        write!(f, "]")
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::{String, ToString};

    use super::*;

    fn claim(peer: u64) -> Claim {
        Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) }
    }

    /// Tokens at peers 1, 2, … in use, and nobody who waits.
    fn in_use(slots: u32) -> Line {
        let mut line = Line::new();
        (0..slots).for_each(|slot| line.add(slot, PeerId::new(u64::from(slot) + 1), 0, false));
        line
    }

    fn note(line: &mut Line, news: News) {
        line.note(news, ()).expect("nothing strange");
    }

    fn ask(line: &mut Line, peers: &[u64]) {
        peers.iter().for_each(|&peer| note(line, News::Request(claim(peer))));
    }

    /// The bindings that follow, as `slot:next`.
    fn bound(line: &mut Line) -> String {
        let mut all: Vec<String> = Vec::new();
        while let Some(Binding { slot, next, .. }) = line.bind() {
            all.push(format!("{slot}:{next}"));
        }
        all.join(" ")
    }

    #[test]
    fn a_free_token_goes_to_the_oldest_and_the_others_forget_it() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7]);
        assert_eq!(bound(&mut line), "0:5 1:6");

        note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6) });
        note(&mut line, News::Free { slot: 1, stay: 1, report: 1 });

        assert_eq!(bound(&mut line), "1:5 0:7", "the oldest gets it, and 0's holder is told of the next");
    }

    #[test]
    fn with_few_who_wait_every_holder_is_told_of_somebody() {
        let mut line = in_use(3);
        ask(&mut line, &[5]);
        assert_eq!(bound(&mut line), "0:5 1:5 2:5");
    }

    #[test]
    fn who_is_known_more_than_needed_makes_room_and_keeps_the_token_that_comes_back_first() {
        let mut line = in_use(3);
        ask(&mut line, &[5]);
        bound(&mut line);

        ask(&mut line, &[6]);
        assert_eq!(bound(&mut line), "1:6");
        ask(&mut line, &[7]);
        assert_eq!(bound(&mut line), "2:7");
        ask(&mut line, &[8]);
        assert_eq!(bound(&mut line), "", "three holders, three who come next");
    }

    #[test]
    fn who_was_passed_is_told_to_one_more() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7, 8, 9, 10]);
        assert_eq!(bound(&mut line), "0:5 1:6");

        note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6) });
        assert_eq!(bound(&mut line), "1:7", "passed once");
        note(&mut line, News::Left { slot: 1, stay: 1, to: claim(7) });
        assert_eq!(bound(&mut line), "1:8", "passed twice");
        note(&mut line, News::Left { slot: 1, stay: 2, to: claim(8) });
        assert_eq!(bound(&mut line), "1:5", "passed three times");
    }

    #[test]
    fn every_token_that_goes_astray_makes_the_coordinator_slower_to_tell_two_of_one() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7, 8, 9, 10]);
        bound(&mut line);
        note(&mut line, News::Left { slot: 1, stay: 0, to: claim(6) });
        note(&mut line, News::Left { slot: 1, stay: 1, to: claim(1) }); // Nobody in line.
        note(&mut line, News::Left { slot: 1, stay: 2, to: claim(7) });
        note(&mut line, News::Left { slot: 1, stay: 3, to: claim(8) });
        assert_eq!(bound(&mut line), "1:9", "passed three times");
    }

    #[test]
    fn whoever_has_had_its_token_longest_is_told_first() {
        let mut line = in_use(2);
        note(&mut line, News::Left { slot: 0, stay: 0, to: claim(3) });
        ask(&mut line, &[5, 6]);
        assert_eq!(bound(&mut line), "1:5 0:6");
    }

    #[test]
    fn old_news_and_news_told_twice_change_neither_line_nor_tokens() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7]);
        bound(&mut line);
        let left = |slot, stay, peer| News::Left { slot, stay, to: claim(peer) };
        note(&mut line, left(0, 1, 6)); // Overtakes the news of stay 0.
        bound(&mut line);
        let before = line.to_string();

        let old = [
            left(0, 0, 6),
            left(0, 1, 6),
            News::Free { slot: 0, stay: 1, report: 1 },
            News::Busy { slot: 1, stay: 0, report: 1 },
            News::Free { slot: 1, stay: 0, report: 1 },
            News::Withdraw(claim(6)),
        ];
        for news in old {
            note(&mut line, news);
            assert_eq!(line.to_string(), before, "{news:?}");
        }
    }

    #[test]
    fn a_report_that_comes_before_its_token_counts_when_that_has_come() {
        let mut line = in_use(1);
        note(&mut line, News::Free { slot: 0, stay: 2, report: 1 });
        note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5) });
        assert_eq!(line.to_string(), "waiting [], tokens [0 at 5]");
        note(&mut line, News::Left { slot: 0, stay: 1, to: claim(6) });
        assert_eq!(line.to_string(), "waiting [], tokens [0 at 6, free]");
    }

    #[test]
    fn a_peer_that_is_gone_waits_no_more() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7]);
        assert_eq!(bound(&mut line), "0:5 1:6");
        line.forget(PeerId::new(5));
        assert_eq!(bound(&mut line), "0:7");
        assert_eq!(line.to_string(), "waiting [6, 7], tokens [0 at 1, next 7; 1 at 2, next 6]");
    }

    /// Once a waiter was told of a free token that had died with its peer, and of no other for ever.
    #[test]
    fn a_free_token_of_a_peer_that_is_gone_is_not_waited_for() {
        let mut line = Line::new();
        [0, 1].into_iter().for_each(|slot| line.add(slot, PeerId::new(u64::from(slot) + 1), 0, true));
        line.forget(PeerId::new(1));
        ask(&mut line, &[5]);
        assert_eq!(bound(&mut line), "1:5");
        ask(&mut line, &[6]);
        assert_eq!(bound(&mut line), "0:6", "it may be alive after all");
        note(&mut line, News::Left { slot: 1, stay: 0, to: claim(5) });
        note(&mut line, News::Free { slot: 1, stay: 1, report: 1 });
        assert_eq!(bound(&mut line), "1:6", "and if not, there is another");
    }

    #[test]
    fn news_of_a_token_that_does_not_exist_are_strange() {
        let mut line = in_use(1);
        let before = line.clone();
        let strange = [
            News::Left { slot: 1, stay: 0, to: claim(5) },
            News::Free { slot: 7, stay: 0, report: 1 },
            News::Busy { slot: u32::MAX, stay: 0, report: 1 },
        ];
        for news in strange {
            assert!(line.note(news, ()).is_err(), "{news:?}");
            assert_eq!(line, before);
        }
    }

    #[test]
    fn a_request_told_twice_costs_a_detour_and_no_more() {
        let mut line = in_use(1);
        ask(&mut line, &[5, 5, 6]);
        assert_eq!(bound(&mut line), "0:5");
        note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5) });
        assert_eq!(bound(&mut line), "0:5");
        note(&mut line, News::Left { slot: 0, stay: 1, to: claim(5) });
        assert_eq!(bound(&mut line), "0:6");
    }

    /// What is let go of three tokens, of which `in_use` are, as the slots' numbers.
    fn let_go(in_use: &[u32], slots: u32, room: usize) -> Vec<u32> {
        let mut line: Line = Line::new();
        (0..3).for_each(|slot| line.add_barred(slot, PeerId::new(1), 0, !in_use.contains(&slot)));
        line.let_go(slots, room);
        line.seats().filter(|seat| !seat.barred).map(|seat| seat.slot).collect()
    }

    #[test]
    fn tokens_are_let_go_as_long_as_no_more_than_the_slots_can_be_inside() {
        let table: [(&[u32], u32, usize, &[u32]); 9] = [
            (&[], 3, 3, &[0, 1, 2]),
            (&[0, 1, 2], 3, 3, &[0, 1, 2]),
            (&[], 1, 1, &[0]),
            (&[2], 1, 1, &[]), // One is inside with a surplus token.
            (&[2], 2, 2, &[0]),
            (&[1, 2], 2, 2, &[1]), // Whoever leaves slot 1 makes room for its next, and nobody else.
            (&[0, 1, 2], 2, 2, &[]), // Not even that.
            (&[0], 3, 1, &[0]),
            (&[0], 3, 2, &[0, 1]),
        ];
        for (in_use, slots, room, expected) in table {
            assert_eq!(let_go(in_use, slots, room), expected, "{in_use:?} in use, {slots} slots, room for {room}");
        }
    }
}
