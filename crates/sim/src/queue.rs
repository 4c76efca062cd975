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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    at: Time,
    sequence: u64,
    place: u32,
}

impl<E> Queue<E> {
    /// An empty queue with room for `events` before it has to grow.
    pub fn with_capacity(events: usize) -> Self {
        Self {
            heap: BinaryHeap::with_capacity(events),
            events: Vec::with_capacity(events),
            free: Vec::with_capacity(events),
            pushed: 0,
        }
    }

    /// Puts `event` in line for `at`.
    pub fn push(&mut self, at: Time, event: E) {
        let place = match self.free.pop() {
            Some(place) => {
                self.events[place as usize] = Some(event);
                place
            }
            None => {
                self.events.push(Some(event));
                u32::try_from(self.events.len() - 1).expect("four thousand million events do not fit into memory")
            }
        };
        self.heap.push(Reverse(Key { at, sequence: self.pushed, place }));
        self.pushed += 1;
    }

    /// Takes the earliest event out.
    pub fn pop(&mut self) -> Option<(Time, E)> {
        let Reverse(key) = self.heap.pop()?;
        let event = self.events[key.place as usize].take();
        self.free.push(key.place);
        Some((key.at, event.expect("every key in the heap has its event")))
    }

    /// How many events wait.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// Whether nothing is left to happen.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
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
