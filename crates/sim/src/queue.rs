//! The event queue: what happens next, by (time, sequence).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use peerlock_base::Time;

/// Events in order of time; events of one moment in the order they were pushed.
///
/// The heap moves small keys about; the events themselves stay put in a slab whose places are used again, so a queue
/// that has reached its size allocates no more.
#[derive(Debug)]
pub struct Queue<E> {
    heap: BinaryHeap<Reverse<Key>>,
    events: Vec<Option<E>>,
    free: Vec<u32>,
    pushed: u64,
    /// The first key of the heap was popped, and is still there: what is pushed next takes its place, which puts the
    /// heap in order once instead of twice. Most events push another.
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
            heap: BinaryHeap::with_capacity(events),
            events: Vec::with_capacity(events),
            free: Vec::with_capacity(events),
            pushed: 0,
            is_first_gone: false,
        }
    }

    /// Puts `event` in line for `at`.
    pub fn push(&mut self, at: Time, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place as usize
            }
            None => {
                self.events.push(Some(event));
                self.events.len() - 1
            }
        };
        let key = Reverse(Key::new(at, self.pushed, place));
        self.pushed += 1;
        if self.is_first_gone
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = key;
            self.is_first_gone = false;
            return;
        }
        self.heap.push(key);
    }

    /// Takes the earliest event out.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        if self.is_first_gone {
            self.heap.pop();
        }
        self.is_first_gone = !self.heap.is_empty();
        let &Reverse(key) = self.heap.peek()?;
        let event = self.events[key.place()].take();
        self.free.push(key.place() as u32);
        Some((key.at(), event.expect("every key in the heap has its event")))
    }

    /// When the earliest event is due.
    pub fn first(&mut self) -> Option<Time> {
        if self.is_first_gone {
            self.heap.pop();
            self.is_first_gone = false;
        }
        self.heap.peek().map(|Reverse(key)| key.at())
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
