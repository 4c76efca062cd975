//! A queue as it is displayed, compared and serialized.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::pace::Pace;
use super::waitlist::Waitlist;
use super::{Location, Queue};
use crate::token::Claim;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Form<A> {
    reach: u32,
    caution: u32,
    pace: Pace,
    /// With the passes of each.
    waiting: Vec<(Claim, A, u32)>,
    /// With the moves since each token's own last one, longest stay first.
    locations: Vec<(u64, Location)>,
}

impl<A: Copy> From<Queue<A>> for Form<A> {
    fn from(queue: Queue<A>) -> Self {
        Self::from(&queue)
    }
}

impl<A: Copy> From<&Queue<A>> for Form<A> {
    fn from(queue: &Queue<A>) -> Self {
        let locations =
            queue.placed().into_iter().map(|placed| (queue.moves - placed.since, placed.location.clone())).collect();
        let waiting = queue.waiting.list().collect();
        Self { reach: queue.reach, caution: queue.caution, pace: queue.pace, waiting, locations }
    }
}

impl<A: Copy> From<Form<A>> for Queue<A> {
    fn from(Form { reach, caution, pace, waiting, locations }: Form<A>) -> Self {
        let moves = locations.iter().map(|(age, _)| *age).max().unwrap_or(0);
        let queue = Self::new(reach, false);
        let mut queue = Self { caution, pace, moves, waiting: Waitlist::from_list(waiting), ..queue };
        locations.into_iter().for_each(|(age, location)| queue.place(moves - age, location));
        queue
    }
}

impl<A: Copy + PartialEq> PartialEq for Queue<A> {
    fn eq(&self, other: &Self) -> bool {
        Form::from(self) == Form::from(other)
    }
}

impl<A: Copy + Eq> Eq for Queue<A> {}

impl<A: Copy + PartialOrd> PartialOrd for Queue<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Form::from(self).partial_cmp(&Form::from(other))
    }
}

impl<A: Copy + Ord> Ord for Queue<A> {
    fn cmp(&self, other: &Self) -> Ordering {
        Form::from(self).cmp(&Form::from(other))
    }
}

impl<A: Copy + Hash> Hash for Queue<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Form::from(self).hash(state);
    }
}

/// Prints `waiting [4, 5], tokens [0 at 2, next 4]`, longest stay first.
impl<A: Copy> fmt::Display for Queue<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<Claim> = self.waiting().collect();
        write!(f, "waiting {waiting:?}, tokens [")?;
        for (place, location) in self.locations().enumerate() {
            let (between, free) = (if place > 0 { "; " } else { "" }, if location.free { ", free" } else { "" });
            write!(f, "{between}{} at {}{free}", location.slot, location.at)?;
            for (place, claim) in location.announced().enumerate() {
                write!(f, "{}{claim}", if place > 0 { " " } else { ", next " })?;
            }
        }
        write!(f, "]")
    }
}
