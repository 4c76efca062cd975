//! The coordinator's table: who waits, where the tokens are, and which holder should know whom as its next.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::fmt;

use peerlock_base::{PeerId, Ticket};

use super::News;
use crate::token::Claim;

/// What makes a peer the coordinator. Exactly one peer has it, or one message carries it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
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
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Waiter {
    claim: Claim,
    /// How many younger ones went in before it.
    passed: u32,
}

/// What the coordinator knows of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Seat {
    /// Which token.
    pub slot: u32,
    /// Where the token is, or is going.
    pub at: PeerId,
    /// Which of its stays that is.
    pub stay: u64,
    /// It lies there unused: whoever is told as next gets it at once.
    pub free: bool,
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
        let seat = |(slot, &at)| Seat { slot, at, stay: 0, free: true, report: 0, next: None, turn: 0, early: None };
        let seats = (0..).zip(tokens).map(seat).collect();
        Self { epoch: 0, served: 0, caution: 3 * RARE, waiting: VecDeque::new(), seats }
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
                    // The heir of somebody who leaves for good, or one who does not need it any more.
                    None if to.ticket == Ticket::NONE => {}
                    // It was served, or has withdrawn: the token goes astray.
                    None => self.caution = self.caution.saturating_add(RARE),
                }
                if stay >= self.seats[at].stay {
                    // What has moved has been at its peer for the shortest time.
                    let early = self.seats.remove(at).early.filter(|early| early.stay > stay);
                    let (at, stay) = (to.peer, stay + 1);
                    self.seats.push(Seat { slot, at, stay, free: false, report: 0, next: None, turn: 0, early });
                    if let Some(Report { stay, number, free }) = early {
                        self.set_free(slot, stay, number, free)?;
                    }
                }
            }
            News::Free { slot, stay, report } => self.set_free(slot, stay, report, true)?,
            News::Busy { slot, stay, report } => self.set_free(slot, stay, report, false)?,
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

    /// How many holders should know somebody: one, and more the more often it was passed. Where there is a holder for
    /// everybody, nobody needs two.
    fn wanted(&self, waiter: &Waiter) -> u32 {
        if self.waiting.len() <= self.seats.len() {
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

    /// Everybody who waits, oldest first.
    pub fn waiting(&self) -> impl ExactSizeIterator<Item = Claim> {
        self.waiting.iter().map(|waiter| waiter.claim)
    }

    /// Where each token is, and who gets it next as far as that is settled.
    pub fn seats(&self) -> impl ExactSizeIterator<Item = &Seat> {
        self.seats.iter()
    }

    /// Takes everybody who waits at `peer` out of the line. A token that lies there may be gone with it: who is told of it is
    /// not as good as served, and gets another if there is one. Should the peer be alive, it hands its token over all the same.
    pub(super) fn forget(&mut self, peer: PeerId) {
        self.waiting.retain(|waiter| waiter.claim.peer != peer);
        for seat in &mut self.seats {
            seat.next.take_if(|next| next.peer == peer);
            seat.free &= seat.at != peer;
        }
    }

    /// The role goes to `heir`, whoever waits.
    pub(super) fn pass_to(&mut self, heir: PeerId) -> PeerId {
        self.served = 0;
        self.epoch += 1;
        heir
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

/// `epoch 0: waiting [4, 5], tokens [0 at 2, next 4]`; the token that has been at its peer longest comes first.
impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<Claim> = self.waiting.iter().map(|waiter| waiter.claim).collect();
        write!(f, "epoch {}: waiting {waiting:?}, tokens [", self.epoch)?;
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
        let tokens: Vec<PeerId> = (1..=u64::from(slots)).map(PeerId::new).collect();
        let mut line = Line::new(&tokens);
        (0..slots).for_each(|slot| note(&mut line, News::Busy { slot, stay: 0, report: 1 }));
        line
    }

    fn note(line: &mut Line, news: News) {
        line.note(news).expect("nothing strange");
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
        assert_eq!(line.to_string(), "epoch 0: waiting [], tokens [0 at 5]");
        note(&mut line, News::Left { slot: 0, stay: 1, to: claim(6) });
        assert_eq!(line.to_string(), "epoch 0: waiting [], tokens [0 at 6, free]");
    }

    #[test]
    fn a_peer_that_is_gone_waits_no_more() {
        let mut line = in_use(2);
        ask(&mut line, &[5, 6, 7]);
        assert_eq!(bound(&mut line), "0:5 1:6");
        line.forget(PeerId::new(5));
        assert_eq!(bound(&mut line), "0:7");
        assert_eq!(line.to_string(), "epoch 0: waiting [6, 7], tokens [0 at 1, next 7; 1 at 2, next 6]");
    }

    /// Once a waiter was told of a free token that had died with its peer, and of no other for ever.
    #[test]
    fn a_free_token_of_a_peer_that_is_gone_is_not_waited_for() {
        let mut line = Line::new(&[PeerId::new(1), PeerId::new(2)]);
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
            assert!(line.note(news).is_err(), "{news:?}");
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

    #[test]
    fn the_role_goes_to_the_last_in_line_when_the_term_is_over() {
        let me = PeerId::new(1);
        let mut line = in_use(1);
        assert_eq!(line.pass_on(0, me), None, "nobody waits");
        ask(&mut line, &[5, 6]);
        assert_eq!(line.pass_on(1, me), None, "nobody has entered yet");
        note(&mut line, News::Left { slot: 0, stay: 0, to: claim(5) });

        assert_eq!(line.pass_on(1, PeerId::new(6)), None, "it is there already");
        assert_eq!(line.pass_on(1, me), Some(PeerId::new(6)));
        assert_eq!(line.to_string(), "epoch 1: waiting [6], tokens [0 at 5]");
        assert_eq!(line.pass_on(1, me), None, "a new term begins");
    }
}
