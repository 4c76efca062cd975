use std::collections::VecDeque;

use peerlock_types::{PeerId, Time};

/// Events in order of time; events of one moment in the order they were pushed or posted.
///
/// The heap moves small keys; the events stay in a slab whose entries are reused. Messages posted in the order of their
/// arrival are in a FIFO and not sorted.
#[derive(Debug)]
pub struct Queue<E, M> {
    heap: Vec<Key>,
    /// A parallel FIFO: reading back freshly written data in pieces of another size would stall the processor.
    posted: VecDeque<(Key, PeerId, PeerId)>,
    messages: VecDeque<M>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    pushed: u64,
    /// The first event was taken, and its key remains: the next push replaces it, so that the heap is restored once
    /// instead of twice. This is why the heap is our own.
    is_first_gone: bool,
    /// The earliest event is a posted message.
    is_posted: bool,
}

/// From the highest bit to the lowest: the time, the push number, the slab index. 38 bits of pushes are hours of the
/// fastest run, 26 bits of indices exceed any memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    const PLACE_BITS: u32 = 26;
    const PUSH_BITS: u32 = 64 - Self::PLACE_BITS;

    #[inline]
    fn new(at: Time, push: u64, place: usize) -> Self {
        assert!(push < 1 << Self::PUSH_BITS, "a run of 274 thousand million events is too long");
        assert!(place < 1 << Self::PLACE_BITS, "67 million queued events do not fit into memory");
        Self(u128::from(at.as_nanos()) << 64 | u128::from(push) << Self::PLACE_BITS | place as u128)
    }

    #[inline]
    fn at(self) -> Time {
        Time::from_nanos((self.0 >> 64) as u64)
    }

    #[inline]
    fn place(self) -> usize {
        (self.0 as u64 & ((1 << Self::PLACE_BITS) - 1)) as usize
    }
}

impl<E, M> Queue<E, M> {
    pub fn with_capacity(events: usize) -> Self {
        Self {
            heap: Vec::with_capacity(events),
            posted: VecDeque::with_capacity(events),
            messages: VecDeque::with_capacity(events),
            events: Vec::with_capacity(events),
            free: Vec::new(),
            pushed: 0,
            is_first_gone: false,
            is_posted: false,
        }
    }

    /// Inlined, so that the event is written once, to its final place.
    #[inline(always)]
    pub fn push(&mut self, at: Time, event: E) {
        let place = if self.is_first_gone { self.heap[0].place() } else { self.room() };
        self.events[place] = Some(event);
        let key = self.key(at, place);
        self.enqueue(key);
    }

    /// Whether a message that arrives at `at` may be [posted](Queue::post).
    #[inline(always)]
    pub fn is_last(&self, at: Time) -> bool {
        self.posted.back().is_none_or(|(last, ..)| last.at() <= at)
    }

    #[inline(always)]
    pub fn post(&mut self, at: Time, from: PeerId, to: PeerId, message: M) {
        debug_assert!(self.is_last(at), "posted messages must arrive in order");
        let key = self.key(at, 0);
        self.posted.push_back((key, from, to));
        self.messages.push_back(message);
    }

    /// Takes the earliest posted message, if it is the earliest event.
    #[inline(always)]
    pub fn take_message(&mut self) -> Option<(PeerId, PeerId, M)> {
        if !self.is_posted {
            return None;
        }
        let (_, from, to) = self.posted.pop_front()?;
        self.messages.pop_front().map(|message| (from, to, message))
    }

    #[inline]
    fn key(&mut self, at: Time, place: usize) -> Key {
        self.pushed += 1;
        Key::new(at, self.pushed, place)
    }

    fn room(&mut self) -> usize {
        self.free.pop().map_or_else(
            || {
                self.events.push(None);
                self.events.len() - 1
            },
            |place| place as usize,
        )
    }

    fn enqueue(&mut self, key: Key) {
        if std::mem::take(&mut self.is_first_gone) { self.sink(key) } else { self.rise(key) }
    }

    /// [`Queue::first`] must have returned the event's time just before, and it must not be posted.
    #[inline(always)]
    pub fn take_first(&mut self) -> E {
        debug_assert!(!self.is_posted, "the first event must not be a posted message");
        self.is_first_gone = true;
        self.events[self.heap[0].place()].take().expect("every key in the heap has its event")
    }

    #[inline(always)]
    pub fn first(&mut self) -> Option<Time> {
        if self.is_first_gone {
            self.remove_first();
        }
        let (pushed, posted) = (self.heap.first(), self.posted.front().map(|(key, ..)| key));
        self.is_posted = posted.is_some_and(|posted| pushed.is_none_or(|pushed| posted < pushed));
        if self.is_posted { posted } else { pushed }.map(|key| key.at())
    }

    fn remove_first(&mut self) {
        self.is_first_gone = false;
        self.free.push(self.heap[0].place() as u32);
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sink(last);
        }
    }

    fn sink(&mut self, key: Key) {
        let heap = &mut self.heap[..];
        let (mut at, mut child) = (0, 1);
        while child < heap.len() {
            // Branch-free: the outcome is unpredictable.
            if child + 1 < heap.len() {
                child += usize::from(heap[child + 1] < heap[child]);
            }
            if key < heap[child] {
                break;
            }
            heap[at] = heap[child];
            (at, child) = (child, 2 * child + 1);
        }
        heap[at] = key;
    }

    fn rise(&mut self, key: Key) {
        let mut at = self.heap.len();
        self.heap.push(key);
        while at > 0 {
            let parent = (at - 1) / 2;
            if self.heap[parent] < key {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = key;
    }

    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.is_first_gone) + self.posted.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use peerlock_types::Rng;

    use super::*;

    #[test]
    fn queue_orders_by_time_then_push() {
        let mut queue: Queue<_, ()> = Queue::with_capacity(0);
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            queue.push(Time::from_nanos(at), name);
        }
        let order: String = std::iter::from_fn(|| queue.first().map(|_| queue.take_first())).collect();
        assert_eq!(order, "abcd");
        assert!(queue.is_empty());
    }

    /// Compares with a tree.
    #[test]
    fn posted_messages_stay_in_order_among_pushed() {
        let mut rng = Rng::new(1);
        let (mut queue, mut tree) = (Queue::<u64, u64>::with_capacity(0), BTreeMap::new());
        let (mut now, mut posts) = (Time::ZERO, 0);
        for number in 0..20_000_u64 {
            let after = if rng.below(4) > 0 { 20 } else { rng.below(30) };
            let (at, peer) = (Time::from_nanos(now.as_nanos() + after), PeerId::new(number));
            match rng.below(3) > 0 && queue.is_last(at) {
                true => queue.post(at, peer, peer, number),
                false => queue.push(at, number),
            }
            posts += u64::from(queue.posted.back().is_some_and(|(_, from, _)| *from == peer));
            tree.insert((at, number), ());
            assert_eq!(queue.len(), tree.len());
            while tree.len() as u64 > rng.below(60)
                && let Some(((at, number), ())) = tree.pop_first()
            {
                now = at;
                assert_eq!(queue.first(), Some(at));
                match queue.take_message() {
                    Some((from, to, message)) => assert_eq!((from.get(), to.get(), message), (number, number, number)),
                    None => assert_eq!(queue.take_first(), number),
                }
            }
        }
        assert!((2000..18_000).contains(&posts), "{posts} were posted");
    }

    #[test]
    fn queue_reuses_slab_entries() {
        let mut queue: Queue<_, ()> = Queue::with_capacity(2);
        for round in 0..1000 {
            queue.push(Time::from_nanos(round), round);
            queue.push(Time::from_nanos(round), round);
            assert_eq!(queue.len(), 2);
            for _ in 0..2 {
                assert_eq!(queue.first(), Some(Time::from_nanos(round)));
                assert_eq!(queue.take_first(), round);
            }
        }
        assert_eq!(queue.events.len(), 2);
    }
}
