//! How long a grant stands without being renewed.

use peerlock_base::{Span, Time};

/// The lease of one grant.
///
/// ```text
///   renewed            renewed + ttl − grace     renewed + ttl
///   ├──────────────────────────┼──────────────────────┤
///            stands              lost: the client       the slot goes on to others
///                                is told to stop
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    pub ttl: Span,
    pub grace: Span,
    /// We renew it ourselves as long as we run; else the client has to.
    pub kept: bool,
    pub renewed: Time,
    pub lost: bool,
}

/// What has become of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It stands: the client may go on.
    Stands,
    /// It stands, and was renewed.
    Renewed,
    /// The client must stop: this is said once.
    Lost,
    /// The time to stop is over.
    Over,
}

impl Lease {
    /// When it ends unless it is renewed.
    pub fn deadline(&self) -> Time {
        self.renewed + self.ttl
    }

    /// When to look at it again.
    pub fn next(&self) -> Time {
        if self.lost {
            self.deadline()
        } else if self.kept {
            self.renewed + self.ttl / 3
        } else {
            self.last_call()
        }
    }

    /// Until when it can be renewed.
    fn last_call(&self) -> Time {
        self.renewed + Span::from_nanos(self.ttl.as_nanos().saturating_sub(self.grace.as_nanos()))
    }

    /// Renews it, unless it is too late.
    pub fn renew(&mut self, now: Time) -> bool {
        let stands = !self.lost && now < self.last_call();
        if stands {
            self.renewed = now;
        }
        stands
    }

    /// Looks at it. A peer that was frozen finds even the leases that it keeps itself lost.
    pub fn look(&mut self, now: Time) -> Verdict {
        if self.lost {
            return if now >= self.deadline() { Verdict::Over } else { Verdict::Stands };
        }
        if now >= self.last_call() {
            self.lost = true;
            return Verdict::Lost;
        }
        if self.kept && now >= self.next() {
            self.renewed = now;
            return Verdict::Renewed;
        }
        Verdict::Stands
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_becomes_of_a_lease_of_30_seconds_with_a_grace_of_6() {
        use Verdict::{Lost, Over, Renewed, Stands};
        let at = |second| Time::ZERO + Span::from_secs(second);
        for (kept, seconds) in [
            (false, &[(1, Stands), (23, Stands), (24, Lost), (25, Stands), (29, Stands), (30, Over)][..]),
            (true, &[(1, Stands), (10, Renewed), (19, Stands), (20, Renewed), (43, Renewed), (44, Stands)]),
            // Frozen for a while.
            (true, &[(10, Renewed), (34, Lost), (39, Stands), (40, Over)]),
            (true, &[(10, Renewed), (90, Lost), (90, Over)]),
        ] {
            let (ttl, grace) = (Span::from_secs(30), Span::from_secs(6));
            let mut lease = Lease { ttl, grace, kept, renewed: at(0), lost: false };
            for &(second, verdict) in seconds {
                assert_eq!(lease.look(at(second)), verdict, "kept: {kept}, second {second}");
            }
        }
    }

    #[test]
    fn a_client_may_renew_until_it_is_told_to_stop() {
        let at = |second| Time::ZERO + Span::from_secs(second);
        let (ttl, grace) = (Span::from_secs(30), Span::from_secs(6));
        let mut lease = Lease { ttl, grace, kept: false, renewed: at(0), lost: false };
        assert!(lease.renew(at(23)));
        assert_eq!((lease.deadline(), lease.next()), (at(53), at(47)));
        assert!(!lease.renew(at(47)), "too late");
        assert_eq!(lease.look(at(47)), Verdict::Lost);
        assert_eq!(lease.next(), at(53));
        assert!(!lease.renew(at(48)));
    }
}
