//! Derives a command's deadline from the renewals of its lease.
//!
//! ```text
//!   renewal sent             + ttl − grace         + ttl − margin     + ttl
//!   ├──────────────────────────────┼─────────────────────┼──────────────┤
//!              runs                  SIGTERM               SIGKILL        other clients may acquire
//! ```

use std::time::Duration;

use peerlock_supervise::Moment;

/// The duration of a lease, and its parts that are reserved for stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    pub ttl: Duration,
    pub grace: Duration,
    /// The time between SIGKILL and the end of the lease, for the killed process to exit.
    pub margin: Duration,
}

impl LeaseTimes {
    /// The grace is a fifth of the lease by default, the margin a twentieth.
    pub fn new(ttl: Duration, grace: Option<Duration>) -> Self {
        let margin = ttl / 20;
        Self { ttl, grace: grace.unwrap_or(ttl / 5).max(margin), margin }
    }

    /// Limits the lease to `valid`, the remaining session of the agent. The grace shrinks to leave time for the next
    /// renewal.
    pub fn within(self, valid: Duration) -> Self {
        let ttl = self.ttl.min(valid);
        let margin = ttl / 20;
        Self { ttl, grace: self.grace.min(ttl / 3).max(margin), margin }
    }

    /// Returns when the command must have exited, if the lease is valid for `valid` from `asked`.
    pub fn end(&self, asked: Moment, valid: Duration) -> Moment {
        asked + valid.saturating_sub(self.margin)
    }

    pub fn time_to_stop(&self) -> Duration {
        self.grace.saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_limited_by_a_session_leaves_time_to_renew() {
        let ms = Duration::from_millis;
        for (ttl, valid, grace, stopping) in [
            (3_600_000, 12_000, 4_000, 3_400),
            (30_000, 12_000, 4_000, 3_400),
            (30_000, 30_000, 6_000, 4_500),
            (2_000, 12_000, 400, 300),
        ] {
            let lease = LeaseTimes::new(ms(ttl), None).within(ms(valid));
            assert_eq!((lease.grace, lease.time_to_stop()), (ms(grace), ms(stopping)), "{ttl} {valid}");
        }
    }

    #[test]
    fn end_of_a_lease_is_reserved_for_stopping() {
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
