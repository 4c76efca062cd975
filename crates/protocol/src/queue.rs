//! The coordinator's table under late binding.
//!
//! The cost of an update or a [`Binding`] does not grow with the queue, and with the tokens only up to a bound
//! (lab/docs/papers/fair-k-late.md): every lookup has an index, maintained by `Queue::change_placed`.

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

/// Hand-overs for which successors are sent ahead. Our choice: an update returns as a successor after two message
/// delays, and successors are extended when half are left.
pub const REACH: u32 = 8;

/// The mark of a waiter, `A`, is not interpreted.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(from = "view::Form<A>", into = "view::Form<A>"))]
#[cfg_attr(feature = "serde", serde(bound = "A: Copy + serde::Serialize + serde::de::DeserializeOwned"))]
pub struct Queue<A: Copy = ()> {
    /// See [`REACH`]; half as many per token if there are several.
    reach: u32,
    /// Reluctance to announce one waiter to several holders. Grows by [`RARE`] for each token that thereby goes astray
    /// and shrinks by one per entry, so that about one in `RARE` does.
    caution: u32,
    pace: Pace,
    waiting: Waitlist<A>,
    /// Sorted by slot.
    locations: Vec<Placed>,
    /// Of all tokens.
    moves: u64,
    /// Tokens whose holders may be sent a successor.
    ranks: Sorted<Ranked>,
    /// Tokens whose next waiter is known to other holders, too.
    shared: Sorted<Rating>,
    barred: usize,
}

#[derive(Clone, Debug)]
struct Placed {
    since: u64,
    location: Location,
}

#[derive(Clone, Copy)]
struct Looked {
    ranked: Option<Ranked>,
    rating: Rating,
    promised: Option<Claim>,
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

/// One token in this many may be sent to a waiter that was served already. Our choice: the mean wait stays within 1 %
/// of the ideal at k = 3, even if a message takes a tenth of a stay.
const RARE: u32 = 20;

/// A waiter is announced to one more holder each time it was passed this often per slot. Our choice: without long stays
/// a waiter has fewer.
const PATIENCE: u32 = 2;

/// A stay is long once tokens have moved this often per slot since its start. Our choice: with exponential stays one in
/// twenty.
const LONG: u64 = 3;

/// Claims that a single token carries. Our choice: less than 512 bytes.
const MAX_ANNOUNCED: usize = 32;

/// Holders to which one waiter is announced. Our choice: each costs a message.
const MOST_KNOWN: u32 = 32;

/// Limit of `caution`, so that it wears off.
const MOST_CAUTION: u32 = 20 * RARE;

/// Tokens inspected in one search.
const LOOKS: usize = 64;

/// How many later requests can enter before a waiting one (lab/docs/papers/fair-k-late.md). `None` for one slot, which
/// keeps the order.
pub fn most_passes(slots: u32) -> Option<u64> {
    let slots = u64::from(slots);
    (slots > 1).then(|| u64::from(PATIENCE) * slots * (slots + 2))
}

impl<A: Copy> Queue<A> {
    /// With several slots, successors are sent ahead if stays are short, or if `always`.
    pub fn new(reach: u32, always: bool) -> Self {
        let (pace, waiting, ranks, shared) = (Pace::new(always), Waitlist::new(), Sorted::new(), Sorted::new());
        Self { reach, caution: 3 * RARE, pace, waiting, locations: Vec::new(), moves: 0, ranks, shared, barred: 0 }
    }

    pub fn add(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        self.place_newest(Location::new(slot, at, stay, free));
    }

    /// No successors are announced for it until it is [let go](Self::let_go).
    pub fn add_barred(&mut self, slot: u32, at: PeerId, stay: u64, free: bool) {
        let mut location = Location::new(slot, at, stay, free);
        location.barred = true;
        self.place_newest(location);
    }

    fn place_newest(&mut self, location: Location) {
        self.moves += 1;
        self.place(self.moves, location);
    }

    /// A slot has at most one token.
    fn place(&mut self, since: u64, location: Location) {
        let Err(at) = self.locations.binary_search_by_key(&location.slot, |placed| placed.location.slot) else {
            return;
        };
        self.barred += usize::from(location.barred);
        // A barred location is in no index.
        let nowhere = Location { barred: true, ..Location::new(location.slot, location.at, location.stay, true) };
        self.locations.insert(at, Placed { since, location: nowhere });
        self.change(at, |placed| *placed = location);
    }

    /// Unless the token is in another stay.
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

    /// Ends the bar of tokens while at most `room` slots can then be in use. Slots from `slots` on are surplus.
    pub fn let_go(&mut self, slots: u32, room: usize) {
        while self.barred > 0 {
            let counts = |placed: &&Placed| !placed.location.barred || !placed.location.free;
            let used = self.locations.iter().filter(counts).count();
            let is_next = |placed: &Placed, free: bool| {
                let Location { slot, barred, free: is_free, .. } = placed.location;
                barred && slot < slots && is_free == free
            };
            let oldest = |free: bool| {
                let barred = (0..self.locations.len()).filter(|&at| is_next(&self.locations[at], free));
                barred.min_by_key(|&at| self.locations[at].since)
            };
            // A release of a token in use makes room for its successor.
            let in_use = oldest(false).filter(|_| used <= room);
            let Some(at) = in_use.or_else(|| oldest(true).filter(|_| used < room)) else { return };
            self.barred -= 1;
            self.change(at, |location| location.barred = false);
        }
    }

    /// A request enters with this mark. Returns how many waiters have thereby received a token, or why the update is
    /// not valid.
    pub fn note(&mut self, update: Update, mark: A) -> Result<u32, &'static str> {
        match update {
            Update::Request(claim) | Update::RequestAgain(claim, _) => _ = self.waiting.push(claim, mark),
            // The token passes through its peer. A replacement could arrive too late, and then the last waiter would be
            // announced off the token's path.
            Update::Withdraw(claim) if self.locations.len() == 1 => _ = self.waiting.remove(claim),
            Update::Withdraw(claim) => _ = self.drop_claim(claim),
            Update::Forgotten(claim) => {
                self.drop_claim(claim);
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
            // The usual case. Removed first, so that its indices need no update.
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

    /// `to` may be out of the queue already. Returns the claims that held the token in between.
    fn go_on(&mut self, at: usize, stay: u64, to: Claim, turn: u64, is_out: bool) -> Vec<Claim> {
        self.moves += 1;
        let since = self.moves;
        self.change_placed(at, |placed| {
            placed.since = since;
            let (between, gone) = placed.location.go_on(stay, to, turn);
            (between, if is_out { gone.but(to) } else { gone })
        })
    }

    fn went_astray(&mut self, to: Claim) {
        if to.ticket != Ticket::NONE {
            self.caution = (self.caution + RARE).min(MOST_CAUTION);
        }
    }

    /// Returns whether the claim was waiting.
    fn serve(&mut self, claim: Claim) -> bool {
        let place = self.drop_claim(claim);
        place.into_iter().for_each(|place| self.enter(place));
        place.is_some()
    }

    fn enter(&mut self, place: u64) {
        self.waiting.pass(place);
        self.caution = self.caution.saturating_sub(1);
        self.pace.entry(self.locations.len() as u32);
    }

    fn location(&self, slot: u32) -> Result<usize, &'static str> {
        let at = self.locations.binary_search_by_key(&slot, |placed| placed.location.slot);
        at.map_err(|_| "update of a token that does not exist")
    }

    /// Returns its position.
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
            // Its successors were in flight when it was released.
            let is_late = free && location.next.is_some();
            self.change(at, |location| (location.free, location.report) = (free, report));
            if is_late && self.locations.len() > 1 && self.waiting.len() > self.locations.len() {
                self.pace.late(self.locations.len() as u32);
            }
            self.free_the_others(at);
        }
        Ok(())
    }

    /// Of the waiter that gets this free token.
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

    fn take_back_slot(&mut self, slot: u32) {
        if let Ok(at) = self.location(slot) {
            self.take_back_at(at);
        }
    }

    fn take_back_at(&mut self, at: usize) {
        self.change_placed(at, |placed| ((), placed.location.take_back()));
    }

    /// Changes a location without removing announced claims.
    fn change<R>(&mut self, at: usize, change: impl FnOnce(&mut Location) -> R) -> R {
        self.change_placed(at, |placed| (change(&mut placed.location), Gone::default()))
    }

    /// Maintains the indices. The closure returns claims that are not announced any more, and may only append others.
    fn change_placed<R>(&mut self, at: usize, change: impl FnOnce(&mut Placed) -> (R, Gone)) -> R {
        let was = self.locations[at].looked();
        let (result, gone) = change(&mut self.locations[at]);
        self.update_indices(at, &was, &gone);
        result
    }

    /// All callers share its code in the instruction cache.
    #[inline(never)]
    fn update_indices(&mut self, at: usize, was: &Looked, gone: &Gone) {
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

    /// `gone` were removed, those after the first `retained` are new. Returns how many holders know the next claim, if
    /// that is new.
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

    fn update_promises(&mut self, claim: Claim) {
        let promises =
            |slot: &u32| self.location(*slot).is_ok_and(|at| self.locations[at].location.promised() == Some(claim));
        let is_promised = self.waiting.announced(claim).iter().any(promises);
        self.waiting.promise(claim, is_promised);
    }

    /// Call when the number of holders that know a waiter has become one or two.
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

    /// Binds waiters to one token. `None` if no holder needs one.
    pub fn bind(&mut self) -> Option<Binding> {
        if self.locations.len() == 1 {
            return self.look_ahead();
        }
        if let Some((slot, next)) = self.choose() {
            let at = self.location(slot).ok()?;
            // With long stays further successors arrive before the release.
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

    /// With one token there is no choice to delay: successors are announced as far ahead as an update needs to reach
    /// the token in time. Without `more` each request is announced at once, otherwise several when half of the
    /// successors are left.
    fn look_ahead(&mut self) -> Option<Binding> {
        let [Placed { location, .. }] = &self.locations[..] else { return None };
        let (mut moves, mut announced) = (location.moves(), location.announces());
        if location.barred || location.more && (moves > self.reach / 2 || announced > MAX_ANNOUNCED / 2) {
            return None;
        }
        let mut at = location.last_announced().map_or(location.at, |claim| claim.peer);
        let mut unannounced = self.waiting.unknown().filter_map(|place| self.waiting.claim(place)).peekable();
        let mut claims = Vec::new();
        while let Some(claim) =
            unannounced.next_if(|claim| announced < MAX_ANNOUNCED && moves + u32::from(claim.peer != at) <= self.reach)
        {
            (moves, announced) = (moves + u32::from(claim.peer != at), announced + 1);
            at = claim.peer;
            claims.push(claim);
        }
        let more = unannounced.next().is_some() || moves >= self.reach || announced >= MAX_ANNOUNCED;
        drop(unannounced);
        if claims.is_empty() { None } else { Some(self.change(0, |location| location.announce(claims, more))) }
    }

    /// With several tokens and short stays: one more successor for the token with the fewest. Keeps the order unless
    /// some stay is much longer than others.
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

    /// Returns the token that needs a successor, and the successor. The longest stay is likely to end first.
    fn choose(&self) -> Option<(u32, Claim)> {
        let claim = |place| self.waiting.claim(place);
        let unknown = self.waiting.first_unknown();
        // Without those that get a free token.
        let known = || self.waiting.oldest_by_known();
        match self.ranks.first().map(|first| (first.rank(), first.slot())) {
            Some((0, slot)) if !self.pace.were_short() => {
                Some((slot, claim(known().map(|(_, place)| place).chain(unknown).min()?)?))
            }
            // With short stays also a free token: waiters announced elsewhere are served too soon to take them back.
            Some((0 | 1, slot)) => {
                let few = || known().take_while(|&(known, _)| known < MOST_KNOWN).next();
                let next = self.due_after(slot).or_else(|| few().map(|(_, place)| place))?;
                Some((slot, claim(next)?))
            }
            // A waiter known to more holders than needed makes room for one known to none.
            _ => {
                self.shared.first()?;
                let unknown = claim(unknown?)?;
                Some((self.spare()?, unknown))
            }
        }
    }

    /// The oldest waiter that is known to too few holders, or else the oldest known to none. An older waiter was passed
    /// at least as often, so of those known to equally many holders only the oldest is checked.
    fn due_after(&self, slot: u32) -> Option<u64> {
        let unknown = self.waiting.first_unknown();
        let is_long = self.is_long(slot);
        let is_due = |&(known, place): &(u32, u64)| {
            // A second long stay does not help.
            let wanted = if is_long { self.wanted_for_passes(place) } else { self.wanted(place) };
            known < wanted && !self.waiting.announced_at(place).contains(&slot)
        };
        let before = self.waiting.oldest_by_known().filter(|&(_, place)| unknown.is_none_or(|unknown| place < unknown));
        before.filter(is_due).map(|(_, place)| place).min().or(unknown)
    }

    /// Without those with [long](Self::is_long) stays.
    fn wanted(&self, place: u64) -> u32 {
        let announced = self.waiting.announced_at(place);
        self.wanted_for_passes(place) + announced.iter().filter(|&&slot| self.is_long(slot)).count() as u32
    }

    /// Returns how many holders should know a waiter with so many passes: one, and more with each of
    ///
    /// - a few passes, if tokens seldom go astray. If there is a holder for every waiter, half as many passes as slots
    ///   are usual and are not counted;
    /// - [`PATIENCE`] × slots passes in any case, which bounds them (lab/docs/papers/fair-k-late.md).
    fn wanted_for_passes(&self, place: u64) -> u32 {
        let passed = self.waiting.passed(place);
        if passed == 0 {
            return 1; // Without a division.
        }
        let slots = self.locations.len() as u32;
        let is_few = self.waiting.len() <= self.locations.len() - self.barred;
        let usual = if is_few { slots / 2 } else { 0 };
        let soon = passed.saturating_sub(usual).saturating_mul(RARE) / self.caution.max(1);
        1 + soon.min(MOST_KNOWN).max(passed / (PATIENCE * slots))
    }

    fn is_long(&self, slot: u32) -> bool {
        self.location(slot).is_ok_and(|at| self.moves - self.locations[at].since > LONG * self.locations.len() as u64)
    }

    /// A token whose next waiter is known to enough others that are likely to be released sooner.
    fn spare(&self) -> Option<u32> {
        // A younger waiter was passed no more often: see [`Self::due_after`].
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
            announced.len() as u32 > wanted && announced.iter().filter(is_sooner).count() as u32 >= wanted
        };
        self.shared.iter().take(LOOKS).find(is_spare).map(Rating::slot)
    }

    /// Returns whether reports of this stay have no effect.
    pub fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.location(slot).is_ok_and(|at| self.locations[at].location.stay > stay)
    }

    pub fn mark(&self, claim: Claim) -> Option<A> {
        self.waiting.mark(claim)
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn waiting_at(&self, peer: PeerId) -> usize {
        self.waiting.at_peer(peer).count()
    }

    /// Oldest first.
    pub fn waiting(&self) -> impl DoubleEndedIterator<Item = Claim> {
        self.waiting.claims()
    }

    /// Longest stay first.
    pub fn locations(&self) -> impl ExactSizeIterator<Item = &Location> {
        self.placed().into_iter().map(|placed| &placed.location)
    }

    fn placed(&self) -> Vec<&Placed> {
        let mut locations: Vec<&Placed> = self.locations.iter().collect();
        locations.sort_unstable_by_key(|placed| (placed.since, placed.location.slot));
        locations
    }

    pub fn announced(&self) -> impl Iterator<Item = PeerId> {
        self.locations.iter().flat_map(|placed| placed.location.announced()).map(|claim| claim.peer)
    }

    /// Passes over the waiters at `peer`, which keep their positions, or ends that. Then they are announced before all
    /// later requests.
    pub fn set_reachable(&mut self, peer: PeerId, reachable: bool) {
        if !reachable {
            // A token would also pass through the peer of a withdrawn claim.
            self.take_back(|announced| announced.peer == peer);
        }
        let claims: Vec<Claim> = self.waiting.at_peer(peer).collect();
        claims.iter().for_each(|&claim| self.waiting.set_reachable(claim, reachable));
        if reachable && let Some(&oldest) = claims.first() {
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

    /// A failed peer that is alive after all hands its token over nevertheless.
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
