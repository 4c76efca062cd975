//! Derives a command's deadline from the renewals of its lease.
//!
//! ```text
//!   renewal sent             + ttl − grace         + ttl − margin     + ttl
//!   ├──────────────────────────────┼─────────────────────┼──────────────┤
//!              runs                  SIGTERM               SIGKILL        other clients may acquire
//! ```

use std::time::Duration;

use peerlock_supervise::Moment;

/// The duration of a lease, and the part of it that is reserved for stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// The validity without renewal.
    pub ttl: Duration,
    /// How long before the lease expires the command is asked to stop.
    pub grace: Duration,
    /// How long before the lease expires the command is killed: a killed process takes a moment to exit.
    pub margin: Duration,
}

impl LeaseTimes {
    /// Uses a fifth of the lease as the grace period by default, and a twentieth as the margin.
    pub fn new(ttl: Duration, grace: Option<Duration>) -> Self {
        let margin = ttl / 20;
        Self { ttl, grace: grace.unwrap_or(ttl / 5).max(margin), margin }
    }

    /// Limits the lease to `stands`, the remaining session of the agent. The grace period shrinks to leave time for the
    /// next renewal.
    pub fn within(self, stands: Duration) -> Self {
        let ttl = self.ttl.min(stands);
        let margin = ttl / 20;
        Self { ttl, grace: self.grace.min(ttl / 3).max(margin), margin }
    }

    /// Returns when the command must have exited, for a lease requested at `asked` and valid for `stands` from then.
    pub fn end(&self, asked: Moment, stands: Duration) -> Moment {
        asked + stands.saturating_sub(self.margin)
    }

    /// Returns the time between SIGTERM and SIGKILL.
    pub fn time_to_stop(&self) -> Duration {
        self.grace.saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_that_is_bound_by_a_session_leaves_time_to_renew_it() {
        let ms = Duration::from_millis;
        for (ttl, stands, grace, stopping) in [
            (3_600_000, 12_000, 4_000, 3_400),
            (30_000, 12_000, 4_000, 3_400),
            (30_000, 30_000, 6_000, 4_500),
            (2_000, 12_000, 400, 300),
        ] {
            let lease = LeaseTimes::new(ms(ttl), None).within(ms(stands));
            assert_eq!((lease.grace, lease.time_to_stop()), (ms(grace), ms(stopping)), "{ttl} {stands}");
        }
    }

    #[test]
    fn the_last_of_a_lease_is_for_dying() {
        let ms = Duration::from_millis;
        for (ttl, grace, granted, stopping) in [
            (30_000, None, 6_000, 4_500),
            (30_000, Some(10_000), 10_000, 8_500),
            (30_000, Some(0), 1_500, 0),
            (100, None, 20, 15),
        ] {
            let lease = LeaseTimes::new(ms(ttl), grace.map(ms));
            assert_eq!((lease.grace, lease.time_to_stop()), (ms(granted), ms(stopping)), "{ttl} {grace:?}");
            let now = Moment::now();
            assert!(lease.end(now, lease.ttl) < now + lease.ttl);
            assert_eq!(lease.end(now, lease.ttl) - lease.time_to_stop(), now + lease.ttl - lease.grace);
        }
    }
}
