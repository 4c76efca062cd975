//! Resources that are not known to be founded: our attempts to found them, what we have answered to the attempts of
//! others, and messages that came before word of the founding did.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use peerlock_base::{Key, PeerId};

use crate::paxos::{Attempt, Ballot, Memory, Next, Question};
use crate::{Charter, Name};

/// At most this many messages are kept of resources that we are yet to hear of, in all: word of a founding can be
/// slower than they are, but only for a moment.
const MOST_EARLY: usize = 10_000;
/// At most this many attempts of others are remembered. A promise must never be forgotten, so there is no answer to
/// more.
const MOST_MEMORIES: usize = 100_000;

/// An attempt of ours.
#[derive(Clone, Debug)]
struct Pending {
    name: Name,
    slots: u32,
    number: u64,
    /// How many attempts there were before this one.
    tries: u32,
    attempt: Attempt,
}

/// See the module. `W` is a message that waits for its resource to be founded.
#[derive(Clone, Debug)]
pub struct Founding<W> {
    pending: BTreeMap<Key, Pending>,
    memories: BTreeMap<Key, Memory>,
    early: BTreeMap<Key, Vec<(PeerId, W)>>,
    /// How many messages are in `early`.
    kept: usize,
    /// How many attempts there have been.
    attempts: u64,
}

impl<W> Default for Founding<W> {
    fn default() -> Self {
        let (pending, memories, early) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { pending, memories, early, kept: 0, attempts: 0 }
    }
}

impl<W> Founding<W> {
    /// Whether we are trying to found a resource.
    pub fn is_pending(&self, resource: Key) -> bool {
        self.pending.contains_key(&resource)
    }

    /// A new attempt to found a resource with ourselves as its home, after `tries` in vain: its number, and what to ask
    /// everybody.
    pub fn attempt(&mut self, name: Name, slots: u32, tries: u32, me: PeerId, above: u64) -> (u64, Question) {
        let resource = name.key();
        let round = self.memories.get(&resource).map_or(0, Memory::round) + 1;
        let attempt = Attempt::new(Ballot { round, member: me }, Charter { slots, home: me, above });
        self.attempts += 1;
        let (number, question) = (self.attempts, attempt.question());
        self.pending.insert(resource, Pending { name, slots, number, tries, attempt });
        (number, question)
    }

    /// An attempt has taken too long: what was to be founded, with how many slots, and how many attempts there have
    /// been.
    pub fn give_up(&mut self, resource: Key) -> Option<(Name, u32, u32)> {
        self.pending.remove(&resource).map(|pending| (pending.name, pending.slots, pending.tries + 1))
    }

    /// Another member, or we ourselves, want a resource to be founded. No answer if too many were asked about.
    pub fn on_question(&mut self, resource: Key, question: Question) -> Option<Memory> {
        let room = self.memories.len() < MOST_MEMORIES || self.memories.contains_key(&resource);
        room.then(|| self.memories.entry(resource).or_default().on_question(question))
    }

    /// A member has answered an attempt of ours.
    pub fn on_answer(&mut self, from: PeerId, number: u64, memory: Memory, majority: usize) -> Option<(Name, Next)> {
        let pending = self.pending.values_mut().find(|pending| pending.number == number)?;
        Some((pending.name.clone(), pending.attempt.on_answer(from, memory, majority)))
    }

    /// Keeps a message of a resource that we are yet to hear of. False if there are too many.
    pub fn keep(&mut self, resource: Key, from: PeerId, message: W) -> bool {
        let fits = self.kept < MOST_EARLY;
        if fits {
            self.kept += 1;
            self.early.entry(resource).or_default().push((from, message));
        }
        fits
    }

    /// A resource is founded: the messages that came before, in order.
    pub fn founded(&mut self, resource: Key) -> Vec<(PeerId, W)> {
        self.pending.remove(&resource);
        self.memories.remove(&resource);
        let early = self.early.remove(&resource).unwrap_or_default();
        self.kept -= early.len();
        early
    }

    /// What must be true after each step; `is_known` tells whether a resource is known to be founded.
    pub fn check(&self, is_known: impl Fn(Key) -> bool) {
        for resource in self.pending.keys().chain(self.early.keys()) {
            assert!(!is_known(*resource), "{resource} is founded, and something still waits for that");
        }
        assert_eq!(self.early.values().map(Vec::len).sum::<usize>(), self.kept, "early messages are counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: PeerId = PeerId::new(1);
    const OTHER: PeerId = PeerId::new(2);

    #[test]
    fn two_members_decide_and_nothing_is_left_of_it() {
        let name: Name = "r".parse().unwrap();
        let (mut mine, mut theirs) = (Founding::<()>::default(), Founding::<()>::default());
        let (number, question) = mine.attempt(name.clone(), 3, 0, ME, 100);
        assert!(mine.is_pending(name.key()));
        let promise = |founding: &mut Founding<()>, question| founding.on_question(name.key(), question).unwrap();
        let (here, there) = (promise(&mut mine, question), promise(&mut theirs, question));
        assert_eq!(mine.on_answer(ME, number, here, 2), Some((name.clone(), Next::Wait)));
        let Some((_, Next::Ask(question))) = mine.on_answer(OTHER, number, there, 2) else { panic!("{mine:?}") };
        let (here, there) = (promise(&mut mine, question), promise(&mut theirs, question));
        mine.on_answer(ME, number, here, 2);
        let charter = Charter { slots: 3, home: ME, above: 100 };
        assert_eq!(mine.on_answer(OTHER, number, there, 2), Some((name.clone(), Next::Decided(charter))));
        assert_eq!(mine.on_answer(OTHER, number + 1, there, 2), None, "an answer to another attempt");
        mine.founded(name.key());
        mine.check(|_| true);
        assert_eq!(mine.give_up(name.key()), None);
    }

    #[test]
    fn early_messages_are_kept_in_order_and_not_without_end() {
        let (one, two) = (Key::new(1), Key::new(2));
        let mut founding = Founding::default();
        for number in 0..MOST_EARLY {
            assert!(founding.keep(if number < 3 { one } else { two }, OTHER, number));
        }
        assert!(!founding.keep(Key::new(3), OTHER, 0), "whatever resource they are of");
        founding.check(|_| false);
        assert_eq!(founding.founded(one), [(OTHER, 0), (OTHER, 1), (OTHER, 2)]);
        assert!(founding.keep(one, OTHER, 7));
        founding.check(|_| false);
    }
}
