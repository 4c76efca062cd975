//! The table of whoever coordinates late binding: who waits, where the tokens are, and which holder should know whom as
//! its next. [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out. What it takes for one of them does not grow with the
//! line, and with the number of tokens only up to a bound (lab/docs/papers/fair-k-late.md): whatever is asked of
//! waiters and seats has an index, and all changes go through [`Line::change_placed`], which keeps those.

mod crowd;
mod index;
mod news;
mod pace;
mod passed;
mod seat;
mod slots;
mod sorted;
mod standing;
mod view;

use alloc::vec::Vec;

use peerlock_base::{PeerId, Ticket};

use self::crowd::Crowd;
pub use self::news::News;
use self::pace::Pace;
pub use self::seat::Binding;
pub use self::seat::{Following, Seat};
use self::seat::{Gone, Report};
use self::sorted::Sorted;
use self::standing::{Ranked, Standing};
use crate::token::Claim;

/// For how many hand-overs it is said ahead who comes next. Our choice: word of an entry takes two message times to
/// come back as the next of another, and is told when half of these are left. That is enough where no message takes
/// more than twice as long as another.
pub const REACH: u32 = 8;

/// The line and the tokens. With every waiter goes a mark of type `A` that the line itself does not look at.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "view::Form<A>", into = "view::Form<A>"))]
#[cfg_attr(feature = "serde", serde(bound = "A: Copy + serde::Serialize + serde::de::DeserializeOwned"))]
pub struct Line<A: Copy = ()> {
    /// With one token: how often it may have to go from one peer to another for all who were told to come after. With
    /// several, where stays are short, half as many are told to come after each.
    reach: u32,
    /// How slow we are to tell several holders of the same waiter: goes up by [`RARE`] for every token that came too
    /// late because of it, and down by one for every entry, so that it settles where one in `RARE` does.
    caution: u32,
    /// With several tokens: whether stays are too short to bind late.
    pace: Pace,
    /// Everybody who waits, oldest first.
    waiting: Crowd<A>,
    /// What is known of each token, by slot.
    seats: Vec<Placed>,
    /// How often a token has come or moved.
    moves: u64,
    /// Whose holder may be told of somebody, who first comes first.
    ranks: Sorted<Ranked>,
    /// Those whose next is known to others, too.
    shared: Sorted<Standing>,
    /// How many are barred.
    barred: usize,
}

#[derive(Clone, Debug)]
struct Placed {
    since: u64,
    seat: Seat,
}

/// What a token is looked up by.
#[derive(Clone, Copy)]
struct Looked {
    ranked: Option<Ranked>,
    standing: Standing,
    promised: Option<Claim>,
    /// How many are told to come after.
    tells: usize,
}

impl Placed {
    fn standing(&self) -> Standing {
        Standing::new(self.since, self.seat.slot)
    }

    fn looked(&self) -> Looked {
        let (seat, standing) = (&self.seat, self.standing());
        let ranked = seat.rank().map(|rank| Ranked::new(rank, standing));
        Looked { ranked, standing, promised: seat.promised(), tells: seat.tells() }
    }
}

/// One token in this many may go to somebody who has been served already. Our choice: it then lies idle for one more
/// message, and with one in twenty the mean wait stays within 1 % of the ideal's at k = 3, even where a message takes a
/// tenth of the time inside.
const RARE: u32 = 20;

/// A waiter is told to one more holder each time it was passed this often for each slot. Our choice: without long stays
/// passes are fewer, so that nothing changes there.
const PATIENCE: u32 = 2;

/// A stay is long once tokens have moved this often for each slot since it began. Our choice: with exponential stays
/// one in twenty is, and a waiter is then told to one holder too many.
const LONG: u64 = 3;

/// With one token, at most about this many are told to come after, however near to each other they are: the token
/// carries them along. Our choice: below half a kilobyte.
const MOST_TOLD: usize = 32;

/// At most this many holders are told of one waiter: where tokens are many and few wait, the others report that they
/// are free. Our choice: the more, the more words are said in vain for each entry.
const MOST_KNOWN: u32 = 32;

/// The highest caution. Without a limit, a time in which many tokens go astray would leave a caution that takes twenty
/// entries for each of them to come down.
const MOST_CAUTION: u32 = 20 * RARE;

/// So many seats are looked at for one whose holder need not know its next.
const LOOKS: usize = 64;

/// Returns how many later requests enter before one that waits, at most (lab/docs/papers/fair-k-late.md); `None` for
/// one slot, where order is kept.
pub fn most_passes(slots: u32) -> Option<u64> {
    let slots = u64::from(slots);
    (slots > 1).then(|| u64::from(PATIENCE) * slots * (slots + 2))
}

impl<A: Copy> Line<A> {
    /// A line in which nobody waits, for tokens that are still to be [added](Self::add). Several are told ahead where
    /// stays turn out to be short, or `always`.
    pub fn new(reach: u32, always: bool) -> Self {
        let (pace, waiting, ranks, shared) = (Pace::new(always), Crowd::new(), Sorted::new(), Sorted::new());
        Self { reach, caution: 3 * RARE, pace, waiting, seats: Vec::new(), moves: 0, ranks, shared, barred: 0 }
    }

    /// There is one more token.
    pub fn add(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.place_newest(Seat::new(slot, at, stay, free));
    }

    /// There is one more token, of which nobody is told until it is [let go](Self::let_go).
    pub fn add_barred(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        let mut seat = Seat::new(slot, at, stay, free);
        seat.barred = true;
        self.place_newest(seat);
    }

    /// As the one that has been where it is for the shortest time.
    fn place_newest(&mut self, seat: Seat) {
        self.moves += 1;
        self.place(self.moves, seat);
    }

    /// Adds a token that came where it is with this move. A slot has one token.
    fn place(&mut self, since: u64, seat: Seat) {
        let Err(at) = self.seats.binary_search_by_key(&seat.slot, |placed| placed.seat.slot) else { return };
        self.barred += usize::from(seat.barred);
        // It is looked up by nothing yet.
        let nowhere = Seat { barred: true, ..Seat::new(seat.slot, seat.at, seat.stay, true) };
        self.seats.insert(at, Placed { since, seat: nowhere });
        self.change(at, |placed| *placed = seat);
    }

    /// A token has ended with this stay.
    pub fn remove(&mut self, slot: u32, stay: u64) {
        let Ok(at) = self.seat(slot) else { return };
        if self.seats[at].seat.stay == stay {
            self.barred -= usize::from(self.seats[at].seat.barred);
            self.change_placed(at, |Placed { seat, .. }| {
                (seat.barred, seat.free) = (true, false);
                ((), seat.take_back())
            });
            self.seats.remove(at);
        }
    }

    /// Lets barred tokens go, as long as no more than `room` can then be inside. Tokens of slots from `slots` on are
    /// surplus: never let go.
    pub fn let_go(&mut self, slots: u32, room: usize) {
        while self.barred > 0 {
            let counts = |placed: &&Placed| !placed.seat.barred || !placed.seat.free;
            let inside = self.seats.iter().filter(counts).count();
            let is_next = |placed: &Placed, free: bool| {
                let Seat { slot, barred, free: is_free, .. } = placed.seat;
                barred && slot < slots && is_free == free
            };
            let oldest = |free: bool| {
                let barred = (0..self.seats.len()).filter(|&at| is_next(&self.seats[at], free));
                barred.min_by_key(|&at| self.seats[at].since)
            };
            // Whoever leaves a token in use makes room for its next.
            let in_use = oldest(false).filter(|_| inside <= room);
            let Some(at) = in_use.or_else(|| oldest(true).filter(|_| inside < room)) else { return };
            self.barred -= 1;
            self.change(at, |seat| seat.barred = false);
        }
    }

    /// Learns something, or says what is strange about it. Somebody who asks gets this mark. The answer tells how many
    /// who waited are now known to have got a token.
    pub fn note(&mut self, news: News, mark: A) -> Result<u32, &'static str> {
        match news {
            News::Request(claim) => _ = self.waiting.push(claim, mark),
            // Its place in what was told stays: the token passes through its peer, one message later. To take that back
            // could come too late, and then the one who asked last would not be known where the token has gone.
            News::Withdraw(claim) if self.seats.len() == 1 => _ = self.waiting.remove(claim),
            News::Withdraw(claim) => _ = self.strike_out(claim),
            News::Forgotten(claim) => {
                self.strike_out(claim);
                // One that has withdrawn may still be among those who were told.
                self.take_back(|told| told == claim);
            }
            News::Left { slot, stay, to, turn } => return self.moved(slot, stay, to, turn),
            News::Free { slot, stay, report } => self.set_free(slot, stay, report, true)?,
            News::Busy { slot, stay, report } => self.set_free(slot, stay, report, false)?,
        }
        Ok(0)
    }

    fn moved(&mut self, slot: u32, stay: u64, to: Claim, turn: u64) -> Result<u32, &'static str> {
        let at = self.seat(slot)?;
        let Seat { stay: known, early, .. } = self.seats[at].seat;
        if stay == known && early.is_none() {
            // As nearly always. Who has got it is taken out of the line first: then nothing is kept up for it.
            let waited = self.waiting.remove(to);
            self.go_on(at, stay, to, turn, true);
            let is_served = waited.is_some();
            if let Some((place, told)) = waited {
                told.iter().filter(|&&other| other != slot).for_each(|&other| self.take_back_slot(other));
                self.enter(place);
            } else {
                self.went_astray(to);
            }
            return Ok(u32::from(is_served));
        }
        let is_late = stay < known;
        let mut served = 0;
        if !is_late {
            let between = self.go_on(at, stay, to, turn, false);
            let early = self.seats[at].seat.early.take_if(|early| early.stay <= stay + 1);
            served += between.into_iter().map(|claim| u32::from(self.serve(claim))).sum::<u32>();
            if let Some(Report { number, free, .. }) = early.filter(|early| early.stay > stay) {
                self.set_free(slot, stay + 1, number, free)?;
            }
        }
        let is_served = self.serve(to);
        if !is_served && !is_late {
            self.went_astray(to);
        }
        Ok(served + u32::from(is_served))
    }

    /// A token has gone on to somebody who `is_out` of the line already, or not; who had it in between.
    fn go_on(&mut self, at: usize, stay: u64, to: Claim, turn: u64, is_out: bool) -> Vec<Claim> {
        // What has moved has been at its peer for the shortest time.
        self.moves += 1;
        let since = self.moves;
        self.change_placed(at, |placed| {
            placed.since = since;
            let (between, gone) = placed.seat.go_on(stay, to, turn);
            (between, if is_out { gone.but(to) } else { gone })
        })
    }

    /// A token has gone to somebody who was served, or has withdrawn. Not so the heir of somebody who leaves for good;
    /// and nobody says it of whom we know to be served since word of a later stay was faster.
    fn went_astray(&mut self, to: Claim) {
        if to.ticket != Ticket::NONE {
            self.caution = (self.caution + RARE).min(MOST_CAUTION);
        }
    }

    /// Somebody has got a token. Whether it waited.
    fn serve(&mut self, claim: Claim) -> bool {
        let place = self.strike_out(claim);
        place.into_iter().for_each(|place| self.enter(place));
        place.is_some()
    }

    /// Who had this place in line has got a token.
    fn enter(&mut self, place: u64) {
        self.waiting.pass(place);
        self.caution = self.caution.saturating_sub(1);
        self.pace.entry(self.seats.len() as u32);
    }

    fn seat(&self, slot: u32) -> Result<usize, &'static str> {
        let at = self.seats.binary_search_by_key(&slot, |placed| placed.seat.slot);
        at.map_err(|_| "news of a token that does not exist")
    }

    /// Takes somebody out of the line, with what was told of it, and tells which place it had.
    fn strike_out(&mut self, claim: Claim) -> Option<u64> {
        let (place, told) = self.waiting.remove(claim)?;
        told.iter().for_each(|&slot| self.take_back_slot(slot));
        Some(place)
    }

    fn set_free(&mut self, slot: u32, stay: u64, report: u32, free: bool) -> Result<(), &'static str> {
        let at = self.seat(slot)?;
        let seat = &mut self.seats[at].seat;
        if seat.stay < stay {
            seat.early = seat.early.max(Some(Report { stay, number: report, free }));
        } else if seat.stay == stay && seat.report < report {
            // Word of its next was under way when it was left.
            let is_late = free && seat.next.is_some();
            self.change(at, |seat| (seat.free, seat.report) = (free, report));
            if is_late && self.seats.len() > 1 && self.waiting.len() > self.seats.len() {
                self.pace.late(self.seats.len() as u32);
            }
            self.free_the_others(at);
        }
        Ok(())
    }

    /// A waiter that gets a free token needs no other: holders that were told of it may be told of somebody else.
    fn free_the_others(&mut self, at: usize) {
        let Seat { slot, free: true, next: Some(mine), .. } = self.seats[at].seat else { return };
        if self.waiting.told(mine).len() < 2 {
            return;
        }
        for &other in &*self.waiting.known_to(mine) {
            let is_next = self.seat(other).is_ok_and(|at| self.seats[at].seat.next == Some(mine));
            if other != slot && is_next {
                self.take_back_slot(other);
            }
        }
    }

    /// What was told of this token counts no more.
    fn take_back_slot(&mut self, slot: u32) {
        if let Ok(at) = self.seat(slot) {
            self.take_back_at(at);
        }
    }

    fn take_back_at(&mut self, at: usize) {
        self.change_placed(at, |placed| ((), placed.seat.take_back()));
    }

    /// Changes what is known of a token; some may be told to come after it beside those who were.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Seat) -> R) -> R {
        self.change_placed(at, |placed| (change(&mut placed.seat), Gone::default()))
    }

    /// Changes what is known of a token, and whatever is looked up by that: some who were told are so no more, and
    /// others may be told after those who are left.
    fn change_placed<R>(&mut self, at: usize, change: impl FnOnce(&mut Placed) -> (R, Gone)) -> R {
        let was = self.seats[at].looked();
        let (result, gone) = change(&mut self.seats[at]);
        self.keep_up(at, &was, &gone);
        result
    }

    /// Brings up to date what a token is looked up by. Apart, so that all changes share it: what a coordinator does for
    /// a message is small enough then for a processor to have all of it at hand.
    #[inline(never)]
    fn keep_up(&mut self, at: usize, was: &Looked, gone: &Gone) {
        let now = self.seats[at].looked();
        if was.ranked != now.ranked {
            was.ranked.into_iter().for_each(|ranked| self.ranks.remove(ranked));
            now.ranked.into_iter().for_each(|ranked| self.ranks.insert(ranked));
        }
        let kept = was.tells - gone.len();
        if gone.len() > 0 || now.tells > kept || was.standing != now.standing {
            self.shared.remove(was.standing);
            let known = self.tell_waiters(at, gone, kept);
            let next = self.seats[at].seat.next.filter(|_| self.seats.len() > 1);
            if next.is_some_and(|next| known.unwrap_or_else(|| self.waiting.told(next).len()) > 1) {
                self.shared.insert(now.standing);
            }
        }
        if was.promised != now.promised {
            [was.promised, now.promised].into_iter().flatten().for_each(|claim| self.look_who_promises(claim));
        }
    }

    /// These are told no more to come after a token, and others are, after those `kept`: they know by how many holders
    /// they are known. How many know who comes next, if that is one of the others.
    fn tell_waiters(&mut self, at: usize, gone: &Gone, kept: usize) -> Option<usize> {
        let slot = self.seats[at].seat.slot;
        for claim in gone.iter() {
            if self.waiting.take_back(claim, slot) == 1 {
                self.look_who_shares(claim);
            }
        }
        let mut known_next = None;
        for come in kept.. {
            let Some(claim) = self.seats[at].seat.told_after(come) else { break };
            let known = self.waiting.tell(claim, slot);
            if known == 2 {
                self.look_who_shares(claim);
            }
            if come == 0 {
                known_next = Some(known);
            }
        }
        known_next
    }

    /// A token that lies unused is promised to somebody, or is so no more.
    fn look_who_promises(&mut self, claim: Claim) {
        let promises = |slot: &u32| self.seat(*slot).is_ok_and(|at| self.seats[at].seat.promised() == Some(claim));
        let is_promised = self.waiting.told(claim).iter().any(promises);
        self.waiting.promise(claim, is_promised);
    }

    /// The number of those who know somebody has become one, or two.
    fn look_who_shares(&mut self, claim: Claim) {
        let told = self.waiting.told(claim);
        for &slot in told {
            let Ok(at) = self.seat(slot) else { continue };
            let placed = &self.seats[at];
            match (placed.seat.next == Some(claim), told.len() > 1) {
                (true, true) => self.shared.insert(placed.standing()),
                (true, false) => self.shared.remove(placed.standing()),
                (false, _) => {}
            }
        }
    }

    /// Binds waiters to one token, if there is a holder that should be told something.
    pub fn bind(&mut self) -> Option<Binding> {
        if self.seats.len() == 1 {
            return self.look_ahead();
        }
        if let Some((slot, next)) = self.choose() {
            let at = self.seat(slot).ok()?;
            // Where stays are long nobody is told that there are more: word of the next will come before it leaves.
            let more =
                self.pace.were_short() && self.waiting.unknown().any(|place| Some(place) != self.waiting.place(next));
            let binding = self.change_placed(at, |Placed { seat, .. }| {
                let gone = seat.take_back();
                (seat.tell(Vec::from([next]), more), gone)
            });
            self.free_the_others(at);
            return Some(binding);
        }
        self.look_further()
    }

    /// With one token there is nothing to bind late: who comes after is told as far ahead as it takes for word from
    /// here to reach the token in time. Who asks is told of at once as long as the token has not heard of `more`, and
    /// from then on several together, when half of the way is left.
    fn look_ahead(&mut self) -> Option<Binding> {
        let [Placed { seat, .. }] = &self.seats[..] else { return None };
        let (mut moves, mut told) = (seat.moves(), seat.tells());
        if seat.barred || seat.more && (moves > self.reach / 2 || told > MOST_TOLD / 2) {
            return None;
        }
        let mut at = seat.last_told().map_or(seat.at, |claim| claim.peer);
        let mut untold = self.waiting.unknown().filter_map(|place| self.waiting.claim(place)).peekable();
        let mut claims = Vec::new();
        while let Some(claim) =
            untold.next_if(|claim| told < MOST_TOLD && moves + u32::from(claim.peer != at) <= self.reach)
        {
            (moves, told) = (moves + u32::from(claim.peer != at), told + 1);
            at = claim.peer;
            claims.push(claim);
        }
        let more = untold.next().is_some() || moves >= self.reach || told >= MOST_TOLD;
        drop(untold);
        if claims.is_empty() { None } else { Some(self.change(0, |seat| seat.tell(claims, more))) }
    }

    /// With several tokens and stays too short to bind late: one more is told to come after the token after which the
    /// fewest do, so that the line is still served in its order as long as no stay is much longer than another.
    fn look_further(&mut self) -> Option<Binding> {
        if !self.pace.is_ahead(self.seats.len()) {
            return None;
        }
        let first = self.ranks.iter().take(LOOKS).find(|ranked| !self.is_long(ranked.slot()))?;
        if first.rank() > self.reach / 2 {
            return None;
        }
        let place = self.due_after(first.slot())?;
        let next = self.waiting.claim(place)?;
        let more = self.waiting.unknown().any(|unknown| unknown != place);
        let at = self.seat(first.slot()).ok()?;
        Some(self.change(at, |seat| seat.tell(Vec::from([next]), more)))
    }

    /// A token whose holder should be told something, and whom to tell it of. Of several tokens, the one that has
    /// been at its peer longest: it is likely to leave first.
    fn choose(&self) -> Option<(u32, Claim)> {
        let claim = |place| self.waiting.claim(place);
        let unknown = self.waiting.first_unknown();
        // A waiter that gets a free token is as good as served, and not among these.
        let known = || self.waiting.oldest_by_known();
        match self.ranks.first().map(|first| (first.rank(), first.slot())) {
            Some((0, slot)) if !self.pace.were_short() => {
                Some((slot, claim(known().map(|(_, place)| place).chain(unknown).min()?)?))
            }
            // Where stays are short a free token is told in the same way: who was told ahead will be served soon, and
            // to take that back comes too late.
            Some((0 | 1, slot)) => {
                let few = || known().take_while(|&(known, _)| known < MOST_KNOWN).next();
                let next = self.due_after(slot).or_else(|| few().map(|(_, place)| place))?;
                Some((slot, claim(next)?))
            }
            // Somebody whom more holders know than need to makes room for one whom nobody knows.
            _ => {
                self.shared.first()?;
                let unknown = claim(unknown?)?;
                Some((self.spare()?, unknown))
            }
        }
    }

    /// Returns the position of the waiter to announce to the holder of a token: the oldest that is known to fewer
    /// holders than it should be, or else the oldest that is known to none. An older waiter was passed at least as
    /// often, so that of those known to equally many holders it is enough to look at the oldest.
    fn due_after(&self, slot: u32) -> Option<u64> {
        let unknown = self.waiting.first_unknown();
        let is_long = self.is_long(slot);
        let is_due = |&(known, place): &(u32, u64)| {
            // A long stay counts for nothing where a waiter has another one, so no second one is spent on it.
            let wanted = if is_long { self.wanted_for_passes(place) } else { self.wanted(place) };
            known < wanted && !self.waiting.told_at(place).contains(&slot)
        };
        let before = self.waiting.oldest_by_known().filter(|&(_, place)| unknown.is_none_or(|unknown| place < unknown));
        before.filter(is_due).map(|(_, place)| place).min().or(unknown)
    }

    /// Returns how many holders should know a waiter. One that has stayed [long](Self::is_long) does not count.
    fn wanted(&self, place: u64) -> u32 {
        let told = self.waiting.told_at(place);
        self.wanted_for_passes(place) + told.iter().filter(|&&slot| self.is_long(slot)).count() as u32
    }

    /// Returns how many of them should know it because of its passes: one, and more the more often it was passed.
    ///
    /// Where tokens seldom go astray a few passes are enough for another one. Where there is a holder for every waiter,
    /// half as many passes as there are slots are usual and count for nothing. In any case there is one more for each
    /// [`PATIENCE`] × slots passes, which bounds them (lab/docs/papers/fair-k-late.md).
    fn wanted_for_passes(&self, place: u64) -> u32 {
        let passed = self.waiting.passed(place);
        if passed == 0 {
            return 1; // As nearly always, and without a division.
        }
        let slots = self.seats.len() as u32;
        let is_few = self.waiting.len() <= self.seats.len() - self.barred;
        let usual = if is_few { slots / 2 } else { 0 };
        let soon = passed.saturating_sub(usual).saturating_mul(RARE) / self.caution.max(1);
        1 + soon.min(MOST_KNOWN).max(passed / (PATIENCE * slots))
    }

    /// Returns whether the token has been where it is for much longer than the others of late.
    fn is_long(&self, slot: u32) -> bool {
        self.seat(slot).is_ok_and(|at| self.moves - self.seats[at].since > LONG * self.seats.len() as u64)
    }

    /// A token whose holder need not know its next, since enough others do. The tokens that have been out longest come
    /// back first: those are kept.
    fn spare(&self) -> Option<u32> {
        // Who is younger was passed no more often: of those whom equally many know, it is enough to look at the
        // youngest.
        if !self.waiting.youngest_by_known().any(|(known, place)| known > self.wanted(place)) {
            return None;
        }
        let is_spare = |standing: &Standing| {
            let seat =
                self.seat(standing.slot()).ok().map(|at| &self.seats[at].seat).filter(|seat| seat.further.is_empty());
            let Some(next) = seat.and_then(|seat| seat.next) else { return false };
            let Some((told, place)) = self.waiting.told_and_place(next) else { return false };
            let wanted = self.wanted(place);
            let is_sooner = |&&other: &&u32| {
                let other = self.seat(other).map(|at| &self.seats[at]);
                other.is_ok_and(|other| other.seat.next == Some(next) && other.since < standing.since())
            };
            // Most are not known to more than they need to be.
            told.len() as u32 > wanted && told.iter().filter(is_sooner).count() as u32 >= wanted
        };
        self.shared.iter().take(LOOKS).find(is_spare).map(Standing::slot)
    }

    /// Whether no report of this stay matters any more.
    pub fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.seat(slot).is_ok_and(|at| self.seats[at].seat.stay > stay)
    }

    /// The mark of somebody who waits.
    pub fn mark(&self, claim: Claim) -> Option<A> {
        self.waiting.mark(claim)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait at this peer.
    pub fn waiting_at(&self, peer: PeerId) -> usize {
        self.waiting.at_peer(peer).count()
    }

    /// Everybody who waits, oldest first.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = Claim> {
        self.waiting.claims()
    }

    /// Where each token is, and who gets it next as far as that is settled. The one that has been at its peer longest
    /// comes first.
    pub fn seats(&self) -> impl ExactSizeIterator<Item = &Seat> {
        self.placed().into_iter().map(|placed| &placed.seat)
    }

    fn placed(&self) -> Vec<&Placed> {
        let mut seats: Vec<&Placed> = self.seats.iter().collect();
        seats.sort_unstable_by_key(|placed| (placed.since, placed.seat.slot));
        seats
    }

    /// The peers of everyone whom a holder was told to come after a token. Some of them may be named twice.
    pub fn told(&self) -> impl Iterator<Item = PeerId> {
        self.seats.iter().flat_map(|placed| placed.seat.told()).map(|claim| claim.peer)
    }

    /// Passes over everyone who waits at `peer`, or ends that. They keep their places; holders that were told of them
    /// are told of others. A token that is on its way there already is not affected. When the peer can be reached
    /// again, holders are told of them before all who asked later.
    pub fn set_reachable(&mut self, peer: PeerId, reachable: bool) {
        if !reachable {
            // One that has withdrawn may be among those, too: the token would pass through its peer.
            self.take_back(|told| told.peer == peer);
        }
        let claims: Vec<Claim> = self.waiting.at_peer(peer).collect();
        claims.iter().for_each(|&claim| self.waiting.set_reachable(claim, reachable));
        if reachable && let Some(&oldest) = claims.first() {
            // It is served before those that were told meanwhile and asked later.
            let oldest = self.waiting.place(oldest);
            let in_use = self.seats.iter().filter(|placed| !placed.seat.free).flat_map(|placed| placed.seat.told());
            let younger: Vec<Claim> = in_use.filter(|claim| self.waiting.place(*claim) > oldest).collect();
            self.take_back(|told| younger.contains(&told));
        }
    }

    /// Takes everybody who waits at `peer` out of the line. A token that lies there may be gone with it: who is told of
    /// it is not as good as served, and gets another if there is one. Should the peer be alive, it hands its token over
    /// all the same.
    pub fn forget(&mut self, peer: PeerId) {
        self.take_back(|told| told.peer == peer);
        for at in 0..self.seats.len() {
            if self.seats[at].seat.at == peer {
                self.change(at, |seat| seat.free = false);
            }
        }
        for claim in self.waiting.at_peer(peer).collect::<Vec<_>>() {
            self.waiting.remove(claim);
        }
    }

    /// What was told of such as these counts no more. Looks at all tokens: for what is rare.
    fn take_back(&mut self, is_gone: impl Fn(Claim) -> bool) {
        for at in 0..self.seats.len() {
            if self.seats[at].seat.told().any(&is_gone) {
                self.take_back_at(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
