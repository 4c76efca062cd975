//! When a command has to be over, from when its lease was renewed.
//!
//! ```text
//!   renewal asked for        + ttl − grace         + ttl − margin     + ttl
//!   ├──────────────────────────────┼─────────────────────┼──────────────┤
//!              runs                  asked to end          killed         others may come in
//! ```

use std::time::Duration;

use peerlock_supervise::Moment;

/// How long a grant stands, and what of that is for stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimes {
    /// How long it stands without being renewed.
    pub ttl: Duration,
    /// How long before its end the command must begin to stop.
    pub grace: Duration,
    /// How long before its end the command is killed: a process that is killed takes a moment to go.
    pub margin: Duration,
}

impl LeaseTimes {
    /// A fifth of the lease to stop if nothing is said; a twentieth is for dying in any case.
    pub fn new(ttl: Duration, grace: Option<Duration>) -> Self {
        let margin = ttl / 20;
        Self { ttl, grace: grace.unwrap_or(ttl / 5).max(margin), margin }
    }

    /// The same where it stands no longer than this, whatever was asked for, because the agent's session does not: then
    /// there is less time to stop, so that there is time for the next renewal.
    pub fn within(self, stands: Duration) -> Self {
        let ttl = self.ttl.min(stands);
        let margin = ttl / 20;
        Self { ttl, grace: self.grace.min(ttl / 3).max(margin), margin }
    }

    /// By when nothing of the command may be alive, if the lease was asked for at `asked` and stands this long from
    /// then.
    pub fn end(&self, asked: Moment, stands: Duration) -> Moment {
        asked + stands.saturating_sub(self.margin)
    }

    /// How long the command has from when it is asked to end until it is killed.
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
