//! The table of whoever coordinates late binding: who waits, where the tokens are, and which holder should know whom as
//! its next. [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages: news in, [`Binding`]s out. What it takes for one of them does not grow with the
//! line, and with the number of tokens only up to a bound (lab/docs/papers/fair-k-late.md): whatever is asked of
//! waiters and seats has an index, and all changes go through [`Queue::change_placed`], which keeps those.

mod index;
mod location;
mod pace;
mod passed;
mod rating;
mod slots;
mod sorted;
mod update;
mod view;
mod waitlist;

use alloc::vec::Vec;

use peerlock_types::{PeerId, Ticket};

pub use self::location::Binding;
pub use self::location::{Following, Location};
use self::location::{Gone, Report};
use self::pace::Pace;
use self::rating::{Ranked, Rating};
use self::sorted::Sorted;
pub use self::update::Update;
use self::waitlist::Waitlist;
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
pub struct Queue<A: Copy = ()> {
    /// With one token: how often it may have to go from one peer to another for all who were told to come after. With
    /// several, where stays are short, half as many are told to come after each.
    reach: u32,
    /// How slow we are to tell several holders of the same waiter: goes up by [`RARE`] for every token that came too
    /// late because of it, and down by one for every entry, so that it settles where one in `RARE` does.
    caution: u32,
    /// With several tokens: whether stays are too short to bind late.
    pace: Pace,
    /// Everybody who waits, oldest first.
    waiting: Waitlist<A>,
    /// What is known of each token, by slot.
    locations: Vec<Placed>,
    /// How often a token has come or moved.
    moves: u64,
    /// Whose holder may be told of somebody, who first comes first.
    ranks: Sorted<Ranked>,
    /// Those whose next is known to others, too.
    shared: Sorted<Rating>,
    /// How many are barred.
    barred: usize,
}

#[derive(Clone, Debug)]
struct Placed {
    since: u64,
    location: Location,
}

/// What a token is looked up by.
#[derive(Clone, Copy)]
struct Looked {
    ranked: Option<Ranked>,
    rating: Rating,
    promised: Option<Claim>,
    /// How many are told to come after.
    announces: usize,
}

impl Placed {
    fn rating(&self) -> Rating {
        Rating::new(self.since, self.location.slot)
    }

    fn looked(&self) -> Looked {
        let (location, rating) = (&self.location, self.rating());
        let ranked = location.rank().map(|rank| Ranked::new(rank, rating));
        Looked { ranked, rating, promised: location.promised(), announces: location.announces() }
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
const MAX_ANNOUNCED: usize = 32;

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

impl<A: Copy> Queue<A> {
    /// A line in which nobody waits, for tokens that are still to be [added](Self::add). Several are told ahead where
    /// stays turn out to be short, or `always`.
    pub fn new(reach: u32, always: bool) -> Self {
        let (pace, waiting, ranks, shared) = (Pace::new(always), Waitlist::new(), Sorted::new(), Sorted::new());
        Self { reach, caution: 3 * RARE, pace, waiting, locations: Vec::new(), moves: 0, ranks, shared, barred: 0 }
    }

    /// There is one more token.
    pub fn add(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.place_newest(Location::new(slot, at, stay, free));
    }

    /// There is one more token, of which nobody is told until it is [let go](Self::let_go).
    pub fn add_barred(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        let mut location = Location::new(slot, at, stay, free);
        location.barred = true;
        self.place_newest(location);
    }

    /// As the one that has been where it is for the shortest time.
    fn place_newest(&mut self, location: Location) {
        self.moves += 1;
        self.place(self.moves, location);
    }

    /// Adds a token that came where it is with this move. A slot has one token.
    fn place(&mut self, since: u64, location: Location) {
        let Err(at) = self.locations.binary_search_by_key(&location.slot, |placed| placed.location.slot) else {
            return;
        };
        self.barred += usize::from(location.barred);
        // It is looked up by nothing yet.
        let nowhere = Location { barred: true, ..Location::new(location.slot, location.at, location.stay, true) };
        self.locations.insert(at, Placed { since, location: nowhere });
        self.change(at, |placed| *placed = location);
    }

    /// A token has ended with this stay.
    pub fn remove(&mut self, slot: u32, stay: u64) {
        let Ok(at) = self.location(slot) else { return };
        if self.locations[at].location.stay == stay {
            self.barred -= usize::from(self.locations[at].location.barred);
            self.change_placed(at, |Placed { location, .. }| {
                (location.barred, location.free) = (true, false);
                ((), location.take_back())
            });
            self.locations.remove(at);
        }
    }

    /// Lets barred tokens go, as long as no more than `room` can then be inside. Tokens of slots from `slots` on are
    /// surplus: never let go.
    pub fn let_go(&mut self, slots: u32, room: usize) {
        while self.barred > 0 {
            let counts = |placed: &&Placed| !placed.location.barred || !placed.location.free;
            let inside = self.locations.iter().filter(counts).count();
            let is_next = |placed: &Placed, free: bool| {
                let Location { slot, barred, free: is_free, .. } = placed.location;
                barred && slot < slots && is_free == free
            };
            let oldest = |free: bool| {
                let barred = (0..self.locations.len()).filter(|&at| is_next(&self.locations[at], free));
                barred.min_by_key(|&at| self.locations[at].since)
            };
            // Whoever leaves a token in use makes room for its next.
            let in_use = oldest(false).filter(|_| inside <= room);
            let Some(at) = in_use.or_else(|| oldest(true).filter(|_| inside < room)) else { return };
            self.barred -= 1;
            self.change(at, |location| location.barred = false);
        }
    }

    /// Learns something, or says what is strange about it. Somebody who asks gets this mark. The answer tells how many
    /// who waited are now known to have got a token.
    pub fn note(&mut self, update: Update, mark: A) -> Result<u32, &'static str> {
        match update {
            Update::Request(claim) => _ = self.waiting.push(claim, mark),
            // Its place in what was told stays: the token passes through its peer, one message later. To take that back
            // could come too late, and then the one who asked last would not be known where the token has gone.
            Update::Withdraw(claim) if self.locations.len() == 1 => _ = self.waiting.remove(claim),
            Update::Withdraw(claim) => _ = self.drop_claim(claim),
            Update::Forgotten(claim) => {
                self.drop_claim(claim);
                // One that has withdrawn may still be among those who were told.
                self.take_back(|announced| announced == claim);
            }
            Update::Left { slot, stay, to, turn } => return self.moved(slot, stay, to, turn),
            Update::Free { slot, stay, report } => self.set_free(slot, stay, report, true)?,
            Update::Busy { slot, stay, report } => self.set_free(slot, stay, report, false)?,
        }
        Ok(0)
    }

    fn moved(&mut self, slot: u32, stay: u64, to: Claim, turn: u64) -> Result<u32, &'static str> {
        let at = self.location(slot)?;
        let Location { stay: known, early, .. } = self.locations[at].location;
        if stay == known && early.is_none() {
            // As nearly always. Who has got it is taken out of the line first: then nothing is kept up for it.
            let waited = self.waiting.remove(to);
            self.go_on(at, stay, to, turn, true);
            let is_served = waited.is_some();
            if let Some((place, announced)) = waited {
                announced.iter().filter(|&&other| other != slot).for_each(|&other| self.take_back_slot(other));
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
            let early = self.locations[at].location.early.take_if(|early| early.stay <= stay + 1);
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
            let (between, gone) = placed.location.go_on(stay, to, turn);
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
        let place = self.drop_claim(claim);
        place.into_iter().for_each(|place| self.enter(place));
        place.is_some()
    }

    /// Who had this place in line has got a token.
    fn enter(&mut self, place: u64) {
        self.waiting.pass(place);
        self.caution = self.caution.saturating_sub(1);
        self.pace.entry(self.locations.len() as u32);
    }

    fn location(&self, slot: u32) -> Result<usize, &'static str> {
        let at = self.locations.binary_search_by_key(&slot, |placed| placed.location.slot);
        at.map_err(|_| "news of a token that does not exist")
    }

    /// Takes somebody out of the line, with what was told of it, and tells which place it had.
    fn drop_claim(&mut self, claim: Claim) -> Option<u64> {
        let (place, announced) = self.waiting.remove(claim)?;
        announced.iter().for_each(|&slot| self.take_back_slot(slot));
        Some(place)
    }

    fn set_free(&mut self, slot: u32, stay: u64, report: u32, free: bool) -> Result<(), &'static str> {
        let at = self.location(slot)?;
        let location = &mut self.locations[at].location;
        if location.stay < stay {
            location.early = location.early.max(Some(Report { stay, number: report, free }));
        } else if location.stay == stay && location.report < report {
            // Word of its next was under way when it was left.
            let is_late = free && location.next.is_some();
            self.change(at, |location| (location.free, location.report) = (free, report));
            if is_late && self.locations.len() > 1 && self.waiting.len() > self.locations.len() {
                self.pace.late(self.locations.len() as u32);
            }
            self.free_the_others(at);
        }
        Ok(())
    }

    /// A waiter that gets a free token needs no other: holders that were told of it may be told of somebody else.
    fn free_the_others(&mut self, at: usize) {
        let Location { slot, free: true, next: Some(mine), .. } = self.locations[at].location else { return };
        if self.waiting.announced(mine).len() < 2 {
            return;
        }
        for &other in &*self.waiting.known_to(mine) {
            let is_next = self.location(other).is_ok_and(|at| self.locations[at].location.next == Some(mine));
            if other != slot && is_next {
                self.take_back_slot(other);
            }
        }
    }

    /// What was told of this token counts no more.
    fn take_back_slot(&mut self, slot: u32) {
        if let Ok(at) = self.location(slot) {
            self.take_back_at(at);
        }
    }

    fn take_back_at(&mut self, at: usize) {
        self.change_placed(at, |placed| ((), placed.location.take_back()));
    }

    /// Changes what is known of a token; some may be told to come after it beside those who were.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Location) -> R) -> R {
        self.change_placed(at, |placed| (change(&mut placed.location), Gone::default()))
    }

    /// Changes what is known of a token, and whatever is looked up by that: some who were told are so no more, and
    /// others may be told after those who are left.
    fn change_placed<R>(&mut self, at: usize, change: impl FnOnce(&mut Placed) -> (R, Gone)) -> R {
        let was = self.locations[at].looked();
        let (result, gone) = change(&mut self.locations[at]);
        self.keep_up(at, &was, &gone);
        result
    }

    /// Brings up to date what a token is looked up by. Apart, so that all changes share it: what a coordinator does for
    /// a message is small enough then for a processor to have all of it at hand.
    #[inline(never)]
    fn keep_up(&mut self, at: usize, was: &Looked, gone: &Gone) {
        let now = self.locations[at].looked();
        if was.ranked != now.ranked {
            was.ranked.into_iter().for_each(|ranked| self.ranks.remove(ranked));
            now.ranked.into_iter().for_each(|ranked| self.ranks.insert(ranked));
        }
        let retained = was.announces - gone.len();
        if gone.len() > 0 || now.announces > retained || was.rating != now.rating {
            self.shared.remove(was.rating);
            let known = self.notify_waiters(at, gone, retained);
            let next = self.locations[at].location.next.filter(|_| self.locations.len() > 1);
            if next.is_some_and(|next| known.unwrap_or_else(|| self.waiting.announced(next).len()) > 1) {
                self.shared.insert(now.rating);
            }
        }
        if was.promised != now.promised {
            [was.promised, now.promised].into_iter().flatten().for_each(|claim| self.update_promises(claim));
        }
    }

    /// These are told no more to come after a token, and others are, after those `retained`: they know by how many holders
    /// they are known. How many know who comes next, if that is one of the others.
    fn notify_waiters(&mut self, at: usize, gone: &Gone, retained: usize) -> Option<usize> {
        let slot = self.locations[at].location.slot;
        for claim in gone.iter() {
            if self.waiting.take_back(claim, slot) == 1 {
                self.update_shares(claim);
            }
        }
        let mut known_next = None;
        for come in retained.. {
            let Some(claim) = self.locations[at].location.announced_after(come) else { break };
            let known = self.waiting.announce(claim, slot);
            if known == 2 {
                self.update_shares(claim);
            }
            if come == 0 {
                known_next = Some(known);
            }
        }
        known_next
    }

    /// A token that lies unused is promised to somebody, or is so no more.
    fn update_promises(&mut self, claim: Claim) {
        let promises =
            |slot: &u32| self.location(*slot).is_ok_and(|at| self.locations[at].location.promised() == Some(claim));
        let is_promised = self.waiting.announced(claim).iter().any(promises);
        self.waiting.promise(claim, is_promised);
    }

    /// The number of those who know somebody has become one, or two.
    fn update_shares(&mut self, claim: Claim) {
        let announced = self.waiting.announced(claim);
        for &slot in announced {
            let Ok(at) = self.location(slot) else { continue };
            let placed = &self.locations[at];
            match (placed.location.next == Some(claim), announced.len() > 1) {
                (true, true) => self.shared.insert(placed.rating()),
                (true, false) => self.shared.remove(placed.rating()),
                (false, _) => {}
            }
        }
    }

    /// Binds waiters to one token, if there is a holder that should be told something.
    pub fn bind(&mut self) -> Option<Binding> {
        if self.locations.len() == 1 {
            return self.look_ahead();
        }
        if let Some((slot, next)) = self.choose() {
            let at = self.location(slot).ok()?;
            // Where stays are long nobody is told that there are more: word of the next will come before it leaves.
            let more =
                self.pace.were_short() && self.waiting.unknown().any(|place| Some(place) != self.waiting.place(next));
            let binding = self.change_placed(at, |Placed { location, .. }| {
                let gone = location.take_back();
                (location.announce(Vec::from([next]), more), gone)
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
        let [Placed { location, .. }] = &self.locations[..] else { return None };
        let (mut moves, mut announced) = (location.moves(), location.announces());
        if location.barred || location.more && (moves > self.reach / 2 || announced > MAX_ANNOUNCED / 2) {
            return None;
        }
        let mut at = location.last_announced().map_or(location.at, |claim| claim.peer);
        let mut untold = self.waiting.unknown().filter_map(|place| self.waiting.claim(place)).peekable();
        let mut claims = Vec::new();
        while let Some(claim) =
            untold.next_if(|claim| announced < MAX_ANNOUNCED && moves + u32::from(claim.peer != at) <= self.reach)
        {
            (moves, announced) = (moves + u32::from(claim.peer != at), announced + 1);
            at = claim.peer;
            claims.push(claim);
        }
        let more = untold.next().is_some() || moves >= self.reach || announced >= MAX_ANNOUNCED;
        drop(untold);
        if claims.is_empty() { None } else { Some(self.change(0, |location| location.announce(claims, more))) }
    }

    /// With several tokens and stays too short to bind late: one more is told to come after the token after which the
    /// fewest do, so that the line is still served in its order as long as no stay is much longer than another.
    fn look_further(&mut self) -> Option<Binding> {
        if !self.pace.is_ahead(self.locations.len()) {
            return None;
        }
        let first = self.ranks.iter().take(LOOKS).find(|ranked| !self.is_long(ranked.slot()))?;
        if first.rank() > self.reach / 2 {
            return None;
        }
        let place = self.due_after(first.slot())?;
        let next = self.waiting.claim(place)?;
        let more = self.waiting.unknown().any(|unknown| unknown != place);
        let at = self.location(first.slot()).ok()?;
        Some(self.change(at, |location| location.announce(Vec::from([next]), more)))
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
            known < wanted && !self.waiting.announced_at(place).contains(&slot)
        };
        let before = self.waiting.oldest_by_known().filter(|&(_, place)| unknown.is_none_or(|unknown| place < unknown));
        before.filter(is_due).map(|(_, place)| place).min().or(unknown)
    }

    /// Returns how many holders should know a waiter. One that has stayed [long](Self::is_long) does not count.
    fn wanted(&self, place: u64) -> u32 {
        let announced = self.waiting.announced_at(place);
        self.wanted_for_passes(place) + announced.iter().filter(|&&slot| self.is_long(slot)).count() as u32
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
        let slots = self.locations.len() as u32;
        let is_few = self.waiting.len() <= self.locations.len() - self.barred;
        let usual = if is_few { slots / 2 } else { 0 };
        let soon = passed.saturating_sub(usual).saturating_mul(RARE) / self.caution.max(1);
        1 + soon.min(MOST_KNOWN).max(passed / (PATIENCE * slots))
    }

    /// Returns whether the token has been where it is for much longer than the others of late.
    fn is_long(&self, slot: u32) -> bool {
        self.location(slot).is_ok_and(|at| self.moves - self.locations[at].since > LONG * self.locations.len() as u64)
    }

    /// A token whose holder need not know its next, since enough others do. The tokens that have been out longest come
    /// back first: those are kept.
    fn spare(&self) -> Option<u32> {
        // Who is younger was passed no more often: of those whom equally many know, it is enough to look at the
        // youngest.
        if !self.waiting.youngest_by_known().any(|(known, place)| known > self.wanted(place)) {
            return None;
        }
        let is_spare = |rating: &Rating| {
            let location = self
                .location(rating.slot())
                .ok()
                .map(|at| &self.locations[at].location)
                .filter(|location| location.further.is_empty());
            let Some(next) = location.and_then(|location| location.next) else { return false };
            let Some((announced, place)) = self.waiting.announced_and_place(next) else { return false };
            let wanted = self.wanted(place);
            let is_sooner = |&&other: &&u32| {
                let other = self.location(other).map(|at| &self.locations[at]);
                other.is_ok_and(|other| other.location.next == Some(next) && other.since < rating.since())
            };
            // Most are not known to more than they need to be.
            announced.len() as u32 > wanted && announced.iter().filter(is_sooner).count() as u32 >= wanted
        };
        self.shared.iter().take(LOOKS).find(is_spare).map(Rating::slot)
    }

    /// Whether no report of this stay matters any more.
    pub fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.location(slot).is_ok_and(|at| self.locations[at].location.stay > stay)
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
    pub fn locations(&self) -> impl ExactSizeIterator<Item = &Location> {
        self.placed().into_iter().map(|placed| &placed.location)
    }

    fn placed(&self) -> Vec<&Placed> {
        let mut locations: Vec<&Placed> = self.locations.iter().collect();
        locations.sort_unstable_by_key(|placed| (placed.since, placed.location.slot));
        locations
    }

    /// The peers of everyone whom a holder was told to come after a token. Some of them may be named twice.
    pub fn announced(&self) -> impl Iterator<Item = PeerId> {
        self.locations.iter().flat_map(|placed| placed.location.announced()).map(|claim| claim.peer)
    }

    /// Passes over everyone who waits at `peer`, or ends that. They keep their places; holders that were told of them
    /// are told of others. A token that is on its way there already is not affected. When the peer can be reached
    /// again, holders are told of them before all who asked later.
    pub fn set_reachable(&mut self, peer: PeerId, reachable: bool) {
        if !reachable {
            // One that has withdrawn may be among those, too: the token would pass through its peer.
            self.take_back(|announced| announced.peer == peer);
        }
        let claims: Vec<Claim> = self.waiting.at_peer(peer).collect();
        claims.iter().for_each(|&claim| self.waiting.set_reachable(claim, reachable));
        if reachable && let Some(&oldest) = claims.first() {
            // It is served before those that were told meanwhile and asked later.
            let oldest = self.waiting.place(oldest);
            let in_use = self
                .locations
                .iter()
                .filter(|placed| !placed.location.free)
                .flat_map(|placed| placed.location.announced());
            let younger: Vec<Claim> = in_use.filter(|claim| self.waiting.place(*claim) > oldest).collect();
            self.take_back(|announced| younger.contains(&announced));
        }
    }

    /// Takes everybody who waits at `peer` out of the line. A token that lies there may be gone with it: who is told of
    /// it is not as good as served, and gets another if there is one. Should the peer be alive, it hands its token over
    /// all the same.
    pub fn forget(&mut self, peer: PeerId) {
        self.take_back(|announced| announced.peer == peer);
        for at in 0..self.locations.len() {
            if self.locations[at].location.at == peer {
                self.change(at, |location| location.free = false);
            }
        }
        for claim in self.waiting.at_peer(peer).collect::<Vec<_>>() {
            self.waiting.remove(claim);
        }
    }

    /// What was told of such as these counts no more. Looks at all tokens: for what is rare.
    fn take_back(&mut self, is_gone: impl Fn(Claim) -> bool) {
        for at in 0..self.locations.len() {
            if self.locations[at].location.announced().any(&is_gone) {
                self.take_back_at(at);
            }
        }
    }
}

#[cfg(test)]
mod tests;
