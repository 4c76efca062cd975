//! A line as it is seen, compared and sent: without what is only kept to find things.

use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;
use core::hash::{Hash, Hasher};

use super::crowd::Crowd;
use super::pace::Pace;
use super::{Line, Seat};
use crate::token::Claim;

/// All that makes a line: what it would be put together from again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Form<A> {
    reach: u32,
    caution: u32,
    pace: Pace,
    /// Who waits, with how many younger ones went in before it.
    waiting: Vec<(Claim, A, u32)>,
    /// Each token with how often others have come or moved since it came where it is, the longest stay first.
    seats: Vec<(u64, Seat)>,
}

impl<A: Copy> From<Line<A>> for Form<A> {
    fn from(line: Line<A>) -> Self {
        Self::from(&line)
    }
}

impl<A: Copy> From<&Line<A>> for Form<A> {
    fn from(line: &Line<A>) -> Self {
        let seats = line.placed().into_iter().map(|placed| (line.moves - placed.since, placed.seat.clone())).collect();
        let waiting = line.waiting.list().collect();
        Self { reach: line.reach, caution: line.caution, pace: line.pace, waiting, seats }
    }
}

impl<A: Copy> From<Form<A>> for Line<A> {
    fn from(Form { reach, caution, pace, waiting, seats }: Form<A>) -> Self {
        let moves = seats.iter().map(|(age, _)| *age).max().unwrap_or(0);
        let line = Self::new(reach, false);
        let mut line = Self { caution, pace, moves, waiting: Crowd::from_list(waiting), ..line };
        seats.into_iter().for_each(|(age, seat)| line.place(moves - age, seat));
        line
    }
}

impl<A: Copy + PartialEq> PartialEq for Line<A> {
    fn eq(&self, other: &Self) -> bool {
        Form::from(self) == Form::from(other)
    }
}

impl<A: Copy + Eq> Eq for Line<A> {}

impl<A: Copy + PartialOrd> PartialOrd for Line<A> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Form::from(self).partial_cmp(&Form::from(other))
    }
}

impl<A: Copy + Ord> Ord for Line<A> {
    fn cmp(&self, other: &Self) -> Ordering {
        Form::from(self).cmp(&Form::from(other))
    }
}

impl<A: Copy + Hash> Hash for Line<A> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Form::from(self).hash(state);
    }
}

/// `waiting [4, 5], tokens [0 at 2, next 4]`; the token that has been at its peer longest comes first.
impl<A: Copy> fmt::Display for Line<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: Vec<Claim> = self.waiting().collect();
        write!(f, "waiting {waiting:?}, tokens [")?;
        for (place, seat) in self.seats().enumerate() {
            let (between, free) = (if place > 0 { "; " } else { "" }, if seat.free { ", free" } else { "" });
            write!(f, "{between}{} at {}{free}", seat.slot, seat.at)?;
            for (place, claim) in seat.told().enumerate() {
                write!(f, "{}{claim}", if place > 0 { " " } else { ", next " })?;
            }
        }
        write!(f, "]")
    }
}
