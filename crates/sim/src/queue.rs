//! The event queue: what happens next, by (time, sequence).

use peerlock_base::Time;

/// Events in order of time; events of one moment in the order they were pushed.
///
/// The heap moves small keys about; the events themselves stay put in a slab whose places are used again, so a queue
/// that has reached its size allocates no more.
#[derive(Debug)]
pub struct Queue<E> {
    /// Each comes before those at twice its place and one, and two, more: the earliest is the first.
    heap: Vec<Key>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    pushed: u64,
    /// The first event was taken, and its key is still there: what is pushed next takes its place, which puts the heap
    /// in order once instead of twice. Most events push another. That is why the heap is our own.
    is_first_gone: bool,
}

/// The moment, then which push it was, then the place in the slab, from the highest bit to the lowest: one number,
/// since the heap does little else than compare and move keys. 38 bits of pushes are hours of the fastest run, 26 bits
/// of places more memory than there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u128);

impl Key {
    const PLACE_BITS: u32 = 26;
    const PUSH_BITS: u32 = 64 - Self::PLACE_BITS;

    #[inline]
    fn new(at: Time, push: u64, place: usize) -> Self {
        assert!(push < 1 << Self::PUSH_BITS, "a run of 274 thousand million events is too long");
        assert!(place < 1 << Self::PLACE_BITS, "67 million events in line do not fit into memory");
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

impl<E> Queue<E> {
    /// An empty queue with room for `events` before it has to grow.
    pub fn with_capacity(events: usize) -> Self {
        Self {
            heap: Vec::with_capacity(events),
            events: Vec::with_capacity(events),
            free: Vec::new(),
            pushed: 0,
            is_first_gone: false,
        }
    }

    /// Puts `event` in line for `at`. In place, so that an event is written once, to where it stays.
    #[inline(always)]
    pub fn push(&mut self, at: Time, event: E) {
        let place = if self.is_first_gone { self.heap[0].place() } else { self.room() };
        self.events[place] = Some(event);
        self.put_in_line(at, place);
    }

    /// A place that is free.
    fn room(&mut self) -> usize {
        self.free.pop().map_or_else(
            || {
                self.events.push(None);
                self.events.len() - 1
            },
            |place| place as usize,
        )
    }

    fn put_in_line(&mut self, at: Time, place: usize) {
        let key = Key::new(at, self.pushed, place);
        self.pushed += 1;
        if std::mem::take(&mut self.is_first_gone) { self.sink(key) } else { self.rise(key) }
    }

    /// Takes the earliest event out.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(Time, E)> {
        self.first().map(|at| (at, self.take_first()))
    }

    /// Takes the earliest event out: [`Queue::first`] has just said that there is one. By itself, so that it is moved
    /// once.
    #[inline(always)]
    pub fn take_first(&mut self) -> E {
        self.is_first_gone = true;
        self.events[self.heap[0].place()].take().expect("every key in the heap has its event")
    }

    /// When the earliest event is due.
    #[inline(always)]
    pub fn first(&mut self) -> Option<Time> {
        if self.is_first_gone {
            self.remove_first();
        }
        self.heap.first().map(|key| key.at())
    }

    /// The first key, whose event is gone, goes as well.
    fn remove_first(&mut self) {
        self.is_first_gone = false;
        self.free.push(self.heap[0].place() as u32);
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            self.sink(last);
        }
    }

    /// Puts a key instead of the first one to where it belongs.
    fn sink(&mut self, key: Key) {
        let heap = &mut self.heap[..];
        let (mut at, mut child) = (0, 1);
        while child < heap.len() {
            // Which of two comes first is as good as chance: no branch, since none could be foretold.
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

    /// Puts one more key to where it belongs.
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

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.heap.len() - usize::from(self.is_first_gone)
    }

    /// Whether nothing is left to happen.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_first_and_first_pushed_first() {
        let mut queue = Queue::with_capacity(0);
        for (at, name) in [(5, 'c'), (1, 'a'), (5, 'd'), (1, 'b')] {
            queue.push(Time::from_nanos(at), name);
        }
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, name)| name).collect();
        assert_eq!(order, "abcd");
        assert!(queue.is_empty());
    }

    #[test]
    fn places_are_used_again() {
        let mut queue = Queue::with_capacity(2);
        for round in 0..1000 {
            queue.push(Time::from_nanos(round), round);
            queue.push(Time::from_nanos(round), round);
            assert_eq!(queue.len(), 2);
            assert_eq!(queue.pop().map(|(_, event)| event), Some(round));
            assert_eq!(queue.pop().map(|(_, event)| event), Some(round));
        }
        assert_eq!(queue.events.len(), 2);
    }
}
