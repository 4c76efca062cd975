//! When a leader may end a session, and why no peer uses a token after that. `client.rs` has the peer's half.
//!
//! A session is a lease in the sense of Gray and Cheriton ("Leases", SOSP 1989): the holder acts until a time by its
//! own clock, and the grantor waits for longer by its own. The clocks must run at about the same rate, but need not
//! agree on the time. Here the grantor may also be replaced.
//!
//! ```text
//!   peer      ──●────────────────────────●·······  uses tokens until t₀ + ttl by its own clock; its stop is latched
//!               │t₀ Renew 7        Yes 7 ▲
//!   leader    ──▼──┬────────────┬────────●───────────────────────●── End: not before Yes + ttl · (1 + 3ρ) + slack
//!                  │ round      │ applied up to it
//!   majority  ─────▼──replies───▲──────────────────────────────────
//! ```
//!
//! ρ is the maximum error of a clock's rate: 1 %. Such a clock shows between (1 − ρ) · t and (1 + ρ) · t after a real
//! time t.
//!
//! *Lemma.* While one clock counts (1 + 3ρ) · d, any other counts at least d. The first takes at least (1 + 3ρ) · d /
//! (1 + ρ), the second at most d / (1 − ρ), and (1 + 3ρ)(1 − ρ) ≥ 1 + ρ if ρ ≤ 1/3. So the factor suffices for sessions
//! of any length; the slack covers a kernel timer (3 ms) and the exit of a killed process. Conversely, at least 1 − 3ρ
//! of what another clock has counted has passed by any clock, since (1 − 3ρ)(1 + ρ) ≤ 1 − ρ.
//!
//! Let `End(s)` take effect, decided at (real) time D by the leader L of term T. Claim: at D the peer has stopped, and
//! it never continues with s.
//!
//! 1. *Earlier renewals have run out at the peer.* Consider any `Yes` that the peer ever counts, to a renewal of s that
//!    it sent at t₀.
//!    - *L gave it, in term T*, at a time Y with t₀ ≤ Y < D, since it answers no `Yes` after it has decided an end. L
//!      has counted ttl · (1 + 3ρ) since Y, and the peer counts ttl from t₀. By the lemma the peer has finished first.
//!    - *The leader L' of an earlier term T' gave it.* A majority confirmed L' in T' in a round that *started after L'
//!      had received the renewal*, so after t₀. A voter V of that majority also voted for L, and later, since it
//!      confirmed T' before it left T'. With its vote, V reported how long ago it last took part in a round. L
//!      subtracts (1 − 3ρ) of that from the present, which gives a time not before V's last round, hence not before t₀.
//!      L counts from the latest such time h of all its voters including itself, as if it had answered `Yes` at h.
//!    - *A leader of a later term* gives no `Yes`: it answers only with an entry of its own term applied. The committed
//!      `End` precedes that entry in the log and has taken effect.
//! 2. *The peer never continues.* Its stop is latched: a later `Yes` changes nothing, even if its t₀ + ttl has not
//!    passed.
//! 3. *An effective `End` was decided in the term of its entry.* Otherwise L could decide, lose the leadership, and
//!    have the entry appended in a later term whose leader has answered `Yes`.
//!
//! By 1, a round already in progress does not suffice. A leader takes part in its own rounds. A restarted voter counts
//! from its start. A vote without a report counts as one of this moment. An end that the process requests itself needs
//! only 2: the process stops before it sends the request.
//!
//! *Changes of voters* do not affect "a voter of that majority also voted for L". Every change goes through a joint
//! configuration, which needs both majorities, and a leader starts the next change only when it has applied the last.
//! Suppose that L' asked no voter of L. Then the last change before L's election was decided by a leader that was
//! elected, or still led, after the round. A majority of L's voters received the change from that leader, so after t₀,
//! and one of these voted for L.
//!
//! *Not covered:* a clock that stops while a hypervisor pauses its machine. Only fencing numbers protect then.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::{Span, Time};

use crate::{Label, SessionId};

fn drift(span: Span) -> Span {
    Span::from_nanos(span.as_nanos().div_ceil(100) * 3)
}

/// Returns how long a leader waits after a `Yes` before it may end the session. A short session has less slack.
pub fn patience(ttl: Span, slack: Span) -> Span {
    ttl + drift(ttl) + slack.min(Span::from_nanos(ttl.as_nanos() / 8))
}

/// Returns how much of a span counted by another clock has passed for certain.
pub(crate) fn certainly_passed(span: Span) -> Span {
    Span::from_nanos(span.as_nanos().saturating_sub(drift(span).as_nanos()))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// Every `Yes` of an earlier leader answered a renewal sent before this.
    since: Time,
    slack: Span,
    /// When each session was opened or last confirmed.
    confirmed: BTreeMap<SessionId, Time>,
    ending: BTreeSet<SessionId>,
    /// No session is due before this.
    earliest: Option<Time>,
}

impl Leases {
    pub fn new(since: Time, slack: Span) -> Self {
        Self { since, slack, confirmed: BTreeMap::new(), ending: BTreeSet::new(), earliest: None }
    }

    pub fn on_opened(&mut self, session: SessionId, now: Time) {
        self.confirmed.insert(session, now);
        self.earliest = None;
    }

    /// Confirms a renewal, unless the session is ending. Call it once the round that started after the renewal is
    /// complete, and everything up to it is applied.
    pub fn confirm(&mut self, session: SessionId, now: Time) -> bool {
        let may = !self.ending.contains(&session);
        if may {
            self.confirmed.insert(session, now);
        }
        may
    }

    pub fn on_ended(&mut self, session: SessionId) {
        self.confirmed.remove(&session);
        self.ending.remove(&session);
        self.earliest = None;
    }

    pub fn due(&mut self, now: Time, sessions: impl Iterator<Item = (SessionId, Span)>) -> Vec<SessionId> {
        let mut due = Vec::new();
        if self.earliest.is_some_and(|earliest| now < earliest) {
            return due;
        }
        let mut earliest = Time::END;
        for (session, ttl) in sessions {
            let since = self.confirmed.get(&session).map_or(self.since, |&confirmed| confirmed.max(self.since));
            let ends = since + patience(ttl, self.slack);
            if now < ends {
                earliest = earliest.min(ends);
            } else if self.ending.insert(session) {
                due.push(session);
            }
        }
        self.earliest = Some(earliest);
        due
    }
}

/// Returns the span of which the difference of two leases has certainly passed.
fn counted_for(before: Span, after: Span) -> Span {
    let passed = before.as_nanos().saturating_sub(after.as_nanos());
    Span::from_nanos((u128::from(passed) * 100).div_ceil(97) as u64)
}

/// When each detached grant was last applied here. Every voter counts, so that an election does not restart the count.
/// A restart does, which is late but safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeMap<(Label, u64), Counted>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counted {
    renewals: u64,
    ttl: Span,
    since: Time,
}

/// A lease of which a leader counts the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    pub renewals: u64,
    pub ttl: Span,
    /// It is never renewed, only shortened by what has certainly passed.
    pub shortens: bool,
}

impl Grants {
    /// Returns how much of the present lease this voter has counted.
    pub fn counted(&mut self, grant: (&Label, u64), lease: Counting, now: Time) -> Span {
        let Counting { renewals, ttl, shortens } = lease;
        let key = (grant.0.clone(), grant.1);
        let found = self.0.entry(key).or_insert(Counted { renewals, ttl, since: now });
        if found.renewals != renewals {
            let since = if shortens { (found.since + counted_for(found.ttl, ttl)).min(now) } else { now };
            *found = Counted { renewals, ttl, since };
        }
        now.since(found.since)
    }

    /// Returns what is left of a grant's lease, if this voter has counted it.
    pub fn left(&self, grant: (&Label, u64), renewals: u64, ttl: Span, now: Time) -> Span {
        let found = self.0.get(&(grant.0.clone(), grant.1)).filter(|found| found.renewals == renewals);
        let counted = found.map_or(Span::ZERO, |found| now.since(found.since));
        Span::from_nanos(ttl.as_nanos().saturating_sub(counted.as_nanos()))
    }

    pub fn retain(&mut self, holds: impl Fn(&Label, u64) -> bool) {
        self.0.retain(|(resource, fencing), _| holds(resource, *fencing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ttl;

    const S: SessionId = SessionId::new(1);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn due(leases: &mut Leases, now: Time) -> bool {
        !leases.due(now, [(S, Span::from_secs(10))].into_iter()).is_empty()
    }

    /// Returns, in real nanoseconds, when the peer with the slowest clock stops, and when the leader with the fastest
    /// one ends its session.
    fn stops_and_ends(ttl: Span, slack: Span, ppm: u128) -> (u128, u128) {
        let stops = (u128::from(ttl.as_nanos()) * 1_000_000).div_ceil(1_000_000 - ppm);
        let ends = u128::from(patience(ttl, slack).as_nanos()) * 1_000_000 / (1_000_000 + ppm);
        (stops, ends)
    }

    #[test]
    fn slowest_peer_stops_before_fastest_leader_ends_its_session() {
        const DAY: u64 = 86_400_000;
        for ttl in [Ttl::LEAST, 101, 999, 1_000, 2_000, 15_000, 60_000, 600_000, 3_600_000, DAY, Ttl::MOST] {
            for ppm in [0, 1, 100, 5_000, 10_000] {
                let (stops, ends) = stops_and_ends(Span::from_millis(ttl), Span::ZERO, ppm);
                assert!(stops <= ends, "{ttl} ms, {ppm} ppm: {stops} {ends}");
            }
        }
    }

    /// With larger errors a slot can have two holders: see `lab/sim/tests/nodes`.
    #[test]
    fn session_of_15_s_tolerates_2_percent_and_not_3() {
        let slack = crate::Config::default().slack;
        let holds = |ttl, ppm| {
            let (stops, ends) = stops_and_ends(Span::from_millis(ttl), slack, ppm);
            stops <= ends
        };
        for (ttl, most, too_much) in [(1_000, 67_000, 80_000), (15_000, 22_000, 23_000), (3_600_000, 14_000, 15_000)] {
            assert!(holds(ttl, most) && !holds(ttl, too_much), "{ttl} ms");
        }
    }

    #[test]
    fn time_reported_by_another_voter_has_passed() {
        for silent in [1, 99, 1_000_000, 15_000_000_000, 3_600_000_000_000] {
            let (counted, passed) =
                (silent * 1_010_000 / 1_000_000, |span: Span| span.as_nanos() * 1_000_000 / 990_000);
            assert!(passed(certainly_passed(Span::from_nanos(counted))) <= silent, "{silent} ns");
        }
    }

    #[test]
    fn short_session_has_less_slack() {
        let slack = Span::from_millis(500);
        for (ttl, waits) in [(1_000, 1_155), (2_000, 2_310), (4_000, 4_620), (15_000, 15_950)] {
            assert_eq!(patience(Span::from_millis(ttl), slack), Span::from_millis(waits), "{ttl} ms");
        }
    }

    #[test]
    fn new_leader_waits_before_it_ends_sessions() {
        let slack = Span::from_millis(500);
        for (confirmed, now, is_due) in [
            (None, 10_799, false),
            (None, 10_800, true),
            (Some(5_000), 10_800, false),
            (Some(5_000), 15_799, false),
            (Some(5_000), 15_800, true),
        ] {
            let mut leases = Leases::new(Time::ZERO, slack);
            if let Some(confirmed) = confirmed {
                assert!(leases.confirm(S, at(confirmed)));
            }
            assert_eq!(due(&mut leases, at(now)), is_due, "{confirmed:?} {now}");
        }
    }

    #[test]
    fn later_session_may_be_due_first() {
        let mut leases = Leases::new(Time::ZERO, Span::ZERO);
        let (long, short) = (Span::from_secs(10), Span::from_secs(1));
        leases.on_opened(S, at(0));
        assert_eq!(leases.due(at(1_000), [(S, long)].into_iter()), []);
        let later = SessionId::new(2);
        leases.on_opened(later, at(1_500));
        let all = || [(S, long), (later, short)].into_iter();
        assert_eq!(leases.due(at(2_529), all()), []);
        assert_eq!(leases.due(at(2_530), all()), [later]);
        assert!(leases.confirm(S, at(9_000)));
        assert_eq!(leases.due(at(10_300), all()), [], "it was renewed");
        assert_eq!(leases.due(at(19_299), all()), []);
        assert_eq!(leases.due(at(19_300), all()), [S]);
    }

    #[test]
    fn decided_end_is_final() {
        let mut leases = Leases::new(Time::ZERO, Span::ZERO);
        assert!(due(&mut leases, at(10_300)));
        assert!(!due(&mut leases, at(10_400)), "an end is proposed once");
        assert!(!leases.confirm(S, at(10_400)));
        leases.on_ended(S);
        assert_eq!(leases, Leases::new(Time::ZERO, Span::ZERO), "no state is left of an ended session");
    }

    #[test]
    fn detached_grant_expires_after_its_last_renewal() {
        let name = Label::new("x").unwrap();
        let mut grants = Grants::default();
        let ttl = Span::from_secs(100);
        let mut expired = |renewals, now| {
            let left = grants.left((&name, 7), renewals, ttl, at(now));
            let counted = grants.counted((&name, 7), Counting { renewals, ttl, shortens: false }, at(now));
            assert!(counted == Span::ZERO || left.as_nanos() == ttl.as_nanos().saturating_sub(counted.as_nanos()));
            counted >= patience(ttl, Span::from_millis(500))
        };
        assert!(!expired(0, 1_000));
        assert!(!expired(0, 104_499));
        assert!(expired(0, 104_500));
        assert!(!expired(1, 104_600), "renewed");
        assert!(!expired(1, 208_099));
        assert!(expired(1, 208_100));
    }

    #[test]
    fn shortened_lease_ends_as_if_it_were_not() {
        let name = Label::new("x").unwrap();
        let (mut grants, mut ttl, mut renewals) = (Grants::default(), Span::from_secs(400), 0);
        for now in (0..412_000).step_by(50) {
            let counted = grants.counted((&name, 7), Counting { renewals, ttl, shortens: true }, at(now));
            assert!(counted < patience(ttl, Span::ZERO), "at {now} ms");
            let passed = certainly_passed(counted).as_nanos() / 10_000_000_000 * 10_000_000_000;
            if passed > 0 && ttl.as_nanos() > passed {
                (ttl, renewals) = (Span::from_nanos(ttl.as_nanos() - passed), renewals + 1);
            }
        }
        let counted = grants.counted((&name, 7), Counting { renewals, ttl, shortens: true }, at(412_500));
        assert!(renewals > 30 && counted >= patience(ttl, Span::ZERO), "{renewals}: {counted} of {ttl}");
    }
}
