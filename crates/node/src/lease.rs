//! The lease of a grant.

use std::time::Duration;

use peerlock_types::{Span, Time};

use crate::testing::mutation::{Mutation, makes};

/// The minimum lease duration.
pub const SHORTEST_TTL: Duration = Duration::from_millis(100);

/// A lease: it ends unless it is renewed, and with its session at the latest.
///
/// ```text
///   renewed            end − grace                    end
///   ├──────────────────────────┼──────────────────────┤
///            valid               lost: the client       the slot is handed over
///                                is asked to stop
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ttl: Span,
    pub grace: Span,
    pub auto_renew: bool,
    pub renewed: Time,
    /// The session that bounds it; `None` if it is detached.
    pub bound: Option<Bound>,
    /// Its end, once the client was asked to stop.
    pub lost: Option<Time>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// As far as confirmed.
    pub until: Time,
    /// Clients are asked to stop at most this long before: time for late renewals.
    pub grace: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Valid.
    Valid,
    /// Valid, and renewed by the peer.
    Renewed,
    /// The client must stop. Returned once.
    Lost,
    /// Expired.
    Expired,
}

impl Lease {
    pub fn deadline(&self) -> Time {
        let own = self.renewed + self.ttl;
        if makes(Mutation::BeyondSession) {
            return own;
        }
        self.lost.unwrap_or_else(|| self.bound.map_or(own, |bound| own.min(bound.until)))
    }

    pub fn next(&self) -> Time {
        match self.lost {
            Some(end) => end,
            None if self.auto_renew => self.last_call().min(self.renewed + self.ttl / 3),
            None => self.last_call(),
        }
    }

    fn last_call(&self) -> Time {
        let own = before(self.renewed + self.ttl, self.grace);
        self.bound.map_or(own, |bound| own.min(before(bound.until, self.grace.min(bound.grace))))
    }

    pub fn lost_with(&self, now: Time) -> Option<Bound> {
        self.bound.filter(|_| now < before(self.renewed + self.ttl, self.grace))
    }

    pub fn renew(&mut self, now: Time) -> bool {
        let is_valid = self.lost.is_none() && now < self.last_call();
        if is_valid {
            self.renewed = now;
        }
        is_valid
    }

    pub fn extend(&mut self, bound: Bound) -> bool {
        let before = self.deadline();
        if self.bound.is_some() {
            self.bound = Some(bound);
        }
        self.deadline() > before
    }

    /// After a long pause of the process, even a lease that the peer renews is lost.
    pub fn look(&mut self, now: Time) -> Verdict {
        if let Some(end) = self.lost {
            return if now >= end { Verdict::Expired } else { Verdict::Valid };
        }
        if now >= self.last_call() {
            self.lost = Some(self.deadline());
            return Verdict::Lost;
        }
        if self.auto_renew && now >= self.renewed + self.ttl / 3 {
            self.renewed = now;
            return Verdict::Renewed;
        }
        Verdict::Valid
    }
}

fn before(time: Time, span: Span) -> Time {
    Time::from_nanos(time.as_nanos().saturating_sub(span.as_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lease_of_30_s_with_grace_of_6_s_over_time() {
        use Verdict::{Expired, Lost, Renewed, Valid};
        let at = |second| Time::ZERO + Span::from_secs(second);
        for (auto_renew, seconds) in [
            (false, &[(1, Valid), (23, Valid), (24, Lost), (25, Valid), (29, Valid), (30, Expired)][..]),
            (true, &[(1, Valid), (10, Renewed), (19, Valid), (20, Renewed), (43, Renewed), (44, Valid)]),
            // The process is paused.
            (true, &[(10, Renewed), (34, Lost), (39, Valid), (40, Expired)]),
            (true, &[(10, Renewed), (90, Lost), (90, Expired)]),
        ] {
            let (ttl, grace) = (Span::from_secs(30), Span::from_secs(6));
            let mut lease = Lease { ttl, grace, auto_renew, renewed: at(0), bound: None, lost: None };
            for &(second, verdict) in seconds {
                assert_eq!(lease.look(at(second)), verdict, "kept: {auto_renew}, second {second}");
            }
        }
    }

    #[test]
    fn lease_is_renewable_until_the_client_must_stop() {
        let at = |second| Time::ZERO + Span::from_secs(second);
        let (ttl, grace) = (Span::from_secs(30), Span::from_secs(6));
        let mut lease = Lease { ttl, grace, auto_renew: false, renewed: at(0), bound: None, lost: None };
        assert!(lease.renew(at(23)));
        assert_eq!((lease.deadline(), lease.next()), (at(53), at(47)));
        assert!(!lease.renew(at(47)), "too late");
        assert_eq!(lease.look(at(47)), Verdict::Lost);
        assert_eq!(lease.next(), at(53));
        assert!(!lease.renew(at(48)));
    }

    #[test]
    fn lease_ends_with_its_session_and_bounds_the_grace() {
        use Verdict::{Expired, Lost, Renewed, Valid};
        let at = |second| Time::ZERO + Span::from_secs(second);
        let until = |second| Bound { until: at(second), grace: Span::from_secs(6) };
        let (ttl, grace) = (Span::from_secs(600), Span::from_secs(120));
        let mut lease = Lease { ttl, grace, auto_renew: true, renewed: at(0), bound: Some(until(15)), lost: None };
        assert_eq!((lease.deadline(), lease.look(at(8))), (at(15), Valid));
        assert!(lease.extend(until(20)));
        assert_eq!(lease.look(at(13)), Valid);
        assert_eq!(lease.look(at(14)), Lost);
        assert!(!lease.extend(until(40)), "a lost lease is not extended");
        assert_eq!((lease.look(at(19)), lease.look(at(20))), (Valid, Expired));

        let (ttl, grace) = (Span::from_secs(3), Span::from_secs(1));
        let mut short = Lease { ttl, grace, auto_renew: true, renewed: at(0), bound: Some(until(15)), lost: None };
        assert_eq!((short.deadline(), short.look(at(1))), (at(3), Renewed));
        assert!(!short.extend(until(20)), "it ends long before its session");
    }
}
