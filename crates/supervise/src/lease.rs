//! Decides what to do to a command, and when, as its lease expires. Pure: time is an argument.
//!
//! ```text
//!   renewed …                end - grace                 end
//!   ───────────────────────────┼──────────────────────────┼──────────▶  the next waiter may start
//!   term        running        │ SIGTERM, time to clean up │ SIGKILL
//!   kill        running        │ SIGKILL
//!   none        running                                    │ a warning, running
//! ```

use std::time::Duration;

use peerlock_clock::Moment;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLost {
    /// Send SIGTERM, and SIGKILL at the end of the lease.
    Term,
    /// Send SIGKILL at once.
    Kill,
    /// Leave the command alone, even if its supervisor dies: for work that must never be interrupted.
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Ask,
    Kill,
    Warn,
}

/// The stages of a loss, in order: a late renewal does not undo a SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Running,
    Asked,
    Over,
}

pub struct Countdown {
    on_lost: OnLost,
    grace: Duration,
    end: Moment,
    granted: Moment,
    stage: Stage,
}

impl Countdown {
    pub fn new(on_lost: OnLost, grace: Duration, end: Moment) -> Self {
        Self { on_lost, grace, end, granted: end, stage: Stage::Running }
    }

    /// Moves the end: later by a renewal, earlier by a revocation.
    pub fn ends(&mut self, end: Moment) {
        self.end = if self.stage == Stage::Running { end } else { end.min(self.end) };
        self.granted = self.granted.max(self.end);
    }

    pub fn end(&self) -> Moment {
        self.end
    }

    pub fn granted(&self) -> Moment {
        self.granted
    }

    /// Returns whether the time is up before the command has started.
    pub fn is_late(&mut self, now: Moment) -> bool {
        let late = now >= self.dead_by().unwrap_or(self.end);
        if late {
            self.stage = Stage::Over;
        }
        late
    }

    pub fn next(&self) -> Option<Moment> {
        match (self.stage, self.on_lost) {
            (Stage::Running, OnLost::Term | OnLost::Kill) => Some(self.end - self.grace),
            (Stage::Running, OnLost::Leave) | (Stage::Asked, _) => Some(self.end),
            (Stage::Over, _) => None,
        }
    }

    /// Returns when the whole group must be dead, even if the supervisor cannot act.
    pub fn dead_by(&self) -> Option<Moment> {
        match self.on_lost {
            OnLost::Term => Some(self.end),
            OnLost::Kill => Some(self.end - self.grace),
            OnLost::Leave => None,
        }
    }

    /// Returns the due action. After a late wake-up there is no grace, since another holder may exist.
    pub fn due(&mut self, now: Moment) -> Option<Due> {
        if self.next().is_none_or(|at| now < at) {
            return None;
        }
        let due = match self.on_lost {
            OnLost::Term if now < self.end => Due::Ask,
            OnLost::Term | OnLost::Kill => Due::Kill,
            OnLost::Leave => Due::Warn,
        };
        self.stage = if due == Due::Ask { Stage::Asked } else { Stage::Over };
        Some(due)
    }

    /// Returns whether the time to kill has passed unnoticed. For a command that was found to have exited.
    pub fn is_over(&mut self, now: Moment) -> bool {
        let over = self.stage != Stage::Over && self.dead_by().is_some_and(|end| now >= end);
        if over {
            self.stage = Stage::Over;
        }
        over
    }

    pub fn is_lost(&self) -> bool {
        self.stage != Stage::Running && self.on_lost != OnLost::Leave
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_nanos(seconds * 1_000_000_000)
    }

    fn lease(on_lost: OnLost) -> Countdown {
        Countdown::new(on_lost, Duration::from_secs(10), at(100))
    }

    #[test]
    fn actions_are_due_in_order() {
        use Due::{Ask, Kill, Warn};
        type Looks = &'static [(u64, Option<Due>)];
        let table: [(OnLost, Looks); 7] = [
            (OnLost::Term, &[(89, None), (90, Some(Ask)), (90, None), (99, None), (100, Some(Kill)), (101, None)]),
            (OnLost::Term, &[(99, Some(Ask)), (200, Some(Kill)), (201, None)]),
            (OnLost::Term, &[(100, Some(Kill)), (101, None)]),
            (OnLost::Kill, &[(89, None), (90, Some(Kill)), (91, None), (100, None)]),
            (OnLost::Kill, &[(200, Some(Kill)), (201, None)]),
            (OnLost::Leave, &[(90, None), (99, None), (100, Some(Warn)), (101, None)]),
            (OnLost::Leave, &[(200, Some(Warn)), (201, None)]),
        ];
        for (on_lost, looks) in table {
            let mut lease = lease(on_lost);
            for &(now, due) in looks {
                assert_eq!(lease.due(at(now)), due, "{on_lost:?} at {now} of {looks:?}");
            }
        }
    }

    #[test]
    fn a_renewal_moves_the_end_until_it_is_lost() {
        let mut lease = lease(OnLost::Term);
        lease.ends(at(130));
        assert_eq!((lease.next(), lease.dead_by()), (Some(at(120)), Some(at(130))));
        assert_eq!(lease.due(at(119)), None);
        assert!(!lease.is_lost());
        assert_eq!(lease.due(at(120)), Some(Due::Ask));
        assert!(lease.is_lost());
        lease.ends(at(160));
        assert_eq!((lease.next(), lease.dead_by()), (Some(at(130)), Some(at(130))), "too late");
        lease.ends(at(125));
        assert_eq!(lease.due(at(125)), Some(Due::Kill), "it may still become shorter");
        assert_eq!(lease.next(), None);
    }

    /// The granted end counts for processes that cannot be killed.
    #[test]
    fn revocation_keeps_the_granted_end() {
        let mut lease = lease(OnLost::Term);
        lease.ends(at(130));
        lease.ends(at(105));
        assert_eq!((lease.end(), lease.granted()), (at(105), at(130)));
    }

    #[test]
    fn nothing_starts_after_the_end() {
        for (on_lost, end) in [(OnLost::Term, 100), (OnLost::Kill, 90), (OnLost::Leave, 100)] {
            let mut lease = lease(on_lost);
            assert!(!lease.is_late(at(end - 1)) && lease.next().is_some(), "{on_lost:?}");
            assert!(lease.is_late(at(end)) && lease.next().is_none(), "{on_lost:?}");
        }
    }

    #[test]
    fn end_is_in_time_or_late() {
        let table = [
            (OnLost::Term, 99, false), // It ended in time.
            (OnLost::Term, 100, true),
            (OnLost::Kill, 89, false),
            (OnLost::Kill, 90, true),
            (OnLost::Leave, 200, false),
        ];
        for (on_lost, now, over) in table {
            let mut lease = lease(on_lost);
            assert_eq!((lease.is_over(at(now)), lease.is_lost()), (over, over), "{on_lost:?} at {now}");
            assert!(!over || !lease.is_over(at(now)), "noticed now");
        }
        let mut asked = lease(OnLost::Term);
        assert_eq!(asked.due(at(95)), Some(Due::Ask));
        assert!(!asked.is_over(at(99)) && asked.is_lost() && asked.next() == Some(at(100)));
        assert!(asked.is_over(at(100)) && asked.next().is_none());
    }

    #[test]
    fn guard_deadline_depends_on_policy() {
        assert_eq!(lease(OnLost::Term).dead_by(), Some(at(100)));
        assert_eq!(lease(OnLost::Kill).dead_by(), Some(at(90)));
        assert_eq!(lease(OnLost::Leave).dead_by(), None);
        let mut left = lease(OnLost::Leave);
        assert_eq!(left.due(at(100)), Some(Due::Warn));
        assert!(!left.is_lost(), "the command goes on, and its own exit code counts");
    }
}
