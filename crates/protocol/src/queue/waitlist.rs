//! The waiters, oldest first. No operation of the coordinator visits all of them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use peerlock_types::PeerId;

use super::index::Index;
use super::passed::Passed;
use super::slots::Slots;
use super::sorted::Sorted;
use crate::token::Claim;

/// Positions only grow: an older waiter has a lower one.
#[derive(Clone, Debug)]
pub(super) struct Waitlist<A> {
    /// From position `first` on. A removed waiter leaves a gap, but not at the front.
    places: VecDeque<Option<Waiter<A>>>,
    first: u64,
    index: Index,
    /// No waiter was announced from this position on. It is a gap only at the end.
    fresh: u64,
    /// The earlier waiters by number of holders that know them, without those that get a free token or are unreachable.
    informed: Sorted<Known>,
    passed: Passed,
}

#[derive(Clone, Debug)]
struct Waiter<A> {
    claim: Claim,
    mark: A,
    /// At the holders of these tokens.
    announced: Slots,
    /// It gets a free token.
    promised: bool,
    unreachable: bool,
}

impl<A> Waiter<A> {
    fn known(&self) -> u32 {
        self.announced.len() as u32
    }

    fn is_open(&self) -> bool {
        !self.promised && !self.unreachable
    }
}

/// Sorts waiters by the number of holders that know them, then by position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Known(u128);

impl Known {
    fn new(known: u32, place: u64) -> Self {
        Self(u128::from(known) << 64 | u128::from(place))
    }

    fn known(self) -> u32 {
        (self.0 >> 64) as u32
    }

    fn place(self) -> u64 {
        self.0 as u64
    }
}

impl<A: Copy> Waitlist<A> {
    pub(super) fn new() -> Self {
        let (places, index, passed) = <_>::default();
        Self { places, first: 0, index, fresh: 0, informed: Sorted::new(), passed }
    }

    /// With the passes of each.
    pub(super) fn from_list(list: impl IntoIterator<Item = (Claim, A, u32)>) -> Self {
        let mut waitlist = Self::new();
        let mut passed = Vec::new();
        for (claim, mark, times) in list {
            if waitlist.push(claim, mark) {
                passed.push((waitlist.end() - 1, times));
            }
        }
        waitlist.passed = Passed::from_list(0, waitlist.places.len(), passed);
        waitlist
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }

    fn at(&self, place: u64) -> Option<&Waiter<A>> {
        self.places.get(usize::try_from(place.checked_sub(self.first)?).ok()?)?.as_ref()
    }

    fn place_and_waiter(&self, claim: Claim) -> Option<(u64, &Waiter<A>)> {
        let place = self.index.get(claim)?;
        Some((place, self.at(place)?))
    }

    fn of(&self, claim: Claim) -> Option<&Waiter<A>> {
        self.place_and_waiter(claim).map(|(_, waiter)| waiter)
    }

    /// Returns whether the claim is new.
    pub(super) fn push(&mut self, claim: Claim, mark: A) -> bool {
        // Otherwise an old waiter would keep the positions of all that were removed after it.
        if self.places.len() > 64 + 2 * self.len() {
            self.close_ranks();
        }
        let place = self.end();
        if !self.index.insert(claim, place) {
            return false;
        }
        self.places.push_back(Some(Waiter {
            claim,
            mark,
            announced: Slots::new(),
            promised: false,
            unreachable: false,
        }));
        if self.passed.ends_before(place) {
            self.recount();
        }
        true
    }

    /// Returns the position, and the tokens whose holders know the waiter.
    pub(super) fn remove(&mut self, claim: Claim) -> Option<(u64, Slots)> {
        let place = self.index.remove(claim)?;
        let Waiter { announced, .. } = self.places[(place - self.first) as usize].take()?;
        if place < self.fresh {
            self.informed.remove(Known::new(announced.len() as u32, place));
        }
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
        self.fresh = self.fresh.max(self.first);
        self.skip_gaps();
        Some((place, announced))
    }

    /// Counts a pass of every older waiter.
    pub(super) fn pass(&mut self, place: u64) {
        if place > self.first && !self.places.is_empty() {
            if self.passed.is_empty() {
                self.passed = Passed::starting(self.first, self.places.len());
            }
            self.passed.add(place);
        }
    }

    pub(super) fn passed(&self, place: u64) -> u32 {
        self.passed.of(place)
    }

    fn recount(&mut self) {
        let list = self.live().map(|(place, _)| (place, self.passed(place))).collect();
        self.passed = Passed::from_list(self.first, self.places.len(), list);
    }

    fn close_ranks(&mut self) {
        let passed: Vec<u32> = self.live().map(|(place, _)| self.passed(place)).collect();
        let informed = self.live().take_while(|&(place, _)| place < self.fresh).count() as u64;
        let waiters = core::mem::take(&mut self.places).into_iter().flatten();
        self.places = waiters.map(Some).collect();
        (self.first, self.fresh) = (0, informed);
        self.passed = Passed::from_list(0, self.places.len(), (0..).zip(passed).collect());
        let mut index = Index::default();
        for (place, waiter) in self.live() {
            index.insert(waiter.claim, place);
        }
        self.index = index;
        let open = self.live().filter(|&(place, waiter)| place < informed && waiter.is_open());
        self.informed = open.map(|(place, waiter)| Known::new(waiter.known(), place)).collect();
    }

    fn skip_gaps(&mut self) {
        while self.fresh < self.end() && self.at(self.fresh).is_none() {
            self.fresh += 1;
        }
    }

    /// Updates `informed`. Returns how many holders know the waiter then.
    fn change(&mut self, claim: Claim, change: impl FnOnce(&mut Waiter<A>)) -> usize {
        let Some(place) = self.place(claim) else { return 0 };
        let is_fresh = self.fresh <= place;
        if is_fresh {
            for older in self.fresh..place {
                if self.at(older).is_some() {
                    self.informed.insert(Known::new(0, older));
                }
            }
            self.fresh = place + 1;
            self.skip_gaps();
        }
        let Some(waiter) = &mut self.places[(place - self.first) as usize] else { return 0 };
        if !is_fresh {
            self.informed.remove(Known::new(waiter.known(), place));
        }
        change(waiter);
        if waiter.is_open() {
            self.informed.insert(Known::new(waiter.known(), place));
        }
        waiter.announced.len()
    }

    pub(super) fn announce(&mut self, claim: Claim, slot: u32) -> usize {
        self.change(claim, |waiter| waiter.announced.push(slot))
    }

    pub(super) fn take_back(&mut self, claim: Claim, slot: u32) -> usize {
        self.change(claim, |waiter| waiter.announced.remove(slot))
    }

    pub(super) fn promise(&mut self, claim: Claim, promised: bool) {
        if self.of(claim).is_some_and(|waiter| waiter.promised != promised) {
            self.change(claim, |waiter| waiter.promised = promised);
        }
    }

    pub(super) fn set_reachable(&mut self, claim: Claim, reachable: bool) {
        if self.of(claim).is_some_and(|waiter| waiter.unreachable == reachable) {
            self.change(claim, |waiter| waiter.unreachable = !reachable);
        }
    }

    pub(super) fn announced_and_place(&self, claim: Claim) -> Option<(&[u32], u64)> {
        self.place_and_waiter(claim).map(|(place, waiter)| (&waiter.announced[..], place))
    }

    pub(super) fn announced(&self, claim: Claim) -> &[u32] {
        self.of(claim).map_or(&[], |waiter| &waiter.announced)
    }

    pub(super) fn announced_at(&self, place: u64) -> &[u32] {
        self.at(place).map_or(&[], |waiter| &waiter.announced)
    }

    /// A copy, for callers that change the list meanwhile.
    pub(super) fn known_to(&self, claim: Claim) -> Slots {
        self.of(claim).map_or(Slots::new(), |waiter| waiter.announced.clone())
    }

    pub(super) fn place(&self, claim: Claim) -> Option<u64> {
        self.place_and_waiter(claim).map(|(place, _)| place)
    }

    pub(super) fn claim(&self, place: u64) -> Option<Claim> {
        self.at(place).map(|waiter| waiter.claim)
    }

    pub(super) fn mark(&self, claim: Claim) -> Option<A> {
        self.of(claim).map(|waiter| waiter.mark)
    }

    /// Known to no holder, oldest first.
    pub(super) fn unknown(&self) -> impl Iterator<Item = u64> {
        let before = self.informed.iter().take_while(|informed| informed.known() == 0).map(Known::place);
        before.chain((self.fresh..self.end()).filter(|&place| self.at(place).is_some()))
    }

    pub(super) fn first_unknown(&self) -> Option<u64> {
        let before = self.informed.first().filter(|informed| informed.known() == 0).map(Known::place);
        before.or_else(|| Some(self.fresh).filter(|&fresh| fresh < self.end()))
    }

    /// For each number of holders from one up the oldest waiter known to so many, without those that get a free token.
    pub(super) fn oldest_by_known(&self) -> impl Iterator<Item = (u32, u64)> {
        let first_from = |known| self.informed.first_from(Known::new(known, 0));
        let all = core::iter::successors(first_from(1), move |informed| first_from(informed.known() + 1));
        all.map(|informed| (informed.known(), informed.place()))
    }

    /// For each number from the highest down to two the youngest such waiter.
    pub(super) fn youngest_by_known(&self) -> impl Iterator<Item = (u32, u64)> {
        let last_below = |known| self.informed.last_below(Known::new(known, 0));
        let from_above = core::iter::successors(last_below(u32::MAX), move |informed| last_below(informed.known()));
        from_above.map(|informed| (informed.known(), informed.place())).take_while(|&(known, _)| known > 1)
    }

    fn live(&self) -> impl DoubleEndedIterator<Item = (u64, &Waiter<A>)> {
        let places = self.places.iter().enumerate();
        places.filter_map(|(at, waiter)| waiter.as_ref().map(|waiter| (self.first + at as u64, waiter)))
    }

    pub(super) fn list(&self) -> impl Iterator<Item = (Claim, A, u32)> {
        self.live().map(|(place, waiter)| (waiter.claim, waiter.mark, self.passed(place)))
    }

    pub(super) fn claims(&self) -> impl DoubleEndedIterator<Item = Claim> {
        self.live().map(|(_, waiter)| waiter.claim)
    }

    /// Visits all waiters.
    pub(super) fn at_peer(&self, peer: PeerId) -> impl Iterator<Item = Claim> {
        self.claims().filter(move |claim| claim.peer == peer)
    }
}
