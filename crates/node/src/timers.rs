//! Named timers: at most one of each name is pending.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::Time;

#[derive(Clone, Debug)]
pub struct Timers<N> {
    by_name: BTreeMap<N, (Time, u64)>,
    by_time: BTreeSet<(Time, u64, N)>,
    set: u64,
}

impl<N: Ord + Clone> Timers<N> {
    pub fn new() -> Self {
        Self { by_name: BTreeMap::new(), by_time: BTreeSet::new(), set: 0 }
    }

    /// Sets a timer, replacing a pending one of the same name.
    pub fn set(&mut self, name: N, at: Time) {
        self.cancel(&name);
        self.set += 1;
        self.by_name.insert(name.clone(), (at, self.set));
        self.by_time.insert((at, self.set, name));
    }

    /// Sets a timer unless one of that name is pending.
    pub fn set_if_none(&mut self, name: N, at: Time) {
        if !self.is_set(&name) {
            self.set(name, at);
        }
    }

    pub fn cancel(&mut self, name: &N) {
        if let Some((at, number)) = self.by_name.remove(name) {
            self.by_time.remove(&(at, number, name.clone()));
        }
    }

    pub fn is_set(&self, name: &N) -> bool {
        self.by_name.contains_key(name)
    }

    pub fn when(&self, name: &N) -> Option<Time> {
        self.by_name.get(name).map(|(at, _)| *at)
    }

    pub fn next(&self) -> Option<Time> {
        self.by_time.first().map(|(at, ..)| *at)
    }

    /// Removes and returns a timer that is due: the earliest, and of those the one set first.
    pub fn due(&mut self, now: Time) -> Option<N> {
        self.next().filter(|at| *at <= now)?;
        let (_, _, name) = self.by_time.pop_first()?;
        self.by_name.remove(&name);
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_expire_in_order_and_once() {
        let at = Time::from_nanos;
        let mut timers = Timers::new();
        timers.set("late", at(9));
        timers.set("early", at(2));
        timers.set("moved", at(1));
        timers.set("moved", at(5));
        timers.set_if_none("moved", at(1));
        timers.set("cancelled", at(1));
        timers.cancel(&"cancelled");
        assert_eq!(timers.next(), Some(at(2)));
        assert_eq!(timers.due(at(1)), None);
        assert_eq!([timers.due(at(6)), timers.due(at(6)), timers.due(at(6))], [Some("early"), Some("moved"), None]);
        assert_eq!([timers.due(at(9)), timers.due(at(99))], [Some("late"), None]);
        assert_eq!(timers.next(), None);
    }
}
