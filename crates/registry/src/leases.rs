//! When a leader may end a session. Here is why nobody uses a token after that; the other half is `client.rs`.
//!
//! A session is a lease in the sense of Gray and Cheriton ("Leases: an efficient fault-tolerant mechanism for
//! distributed file cache consistency", SOSP 1989): the holder may act until a time by its own clock, the giver waits
//! for longer than that by its own. They need clocks that run at about the same rate, and no agreement on what time it
//! is. What is added here is a giver that is replaced.
//!
//! ```text
//!   peer      ──●─────────────────────────●······  uses tokens until t₀ + ttl by its own clock; its stop is latched
//!               │t₀ renew 7        yes 7 ▲
//!   leader    ──▼──┬────────────┬────────●───────────────────────●── End: not before yes + ttl · (1 + 3ρ) + slack
//!                  │ round      │ applied up to it
//!   majority  ─────▼──acks──────▲──────────────────────────────────
//! ```
//!
//! ρ is how wrong the rate of a clock may be: 1 %. Such a clock shows between (1 − ρ) · t and (1 + ρ) · t after a real
//! time t, for any t. NTP does not slew it, and it counts suspend (`peerlock-clock`); what is left is the error of the
//! hardware's oscillator, which is below 0.1 %.
//!
//! *Lemma.* What one clock counts as (1 + 3ρ) · d takes at least as long as what another counts as d, for any d.
//! The first takes at least (1 + 3ρ) · d / (1 + ρ), the second at most d / (1 − ρ). The first is not less than the
//! second if (1 + 3ρ)(1 − ρ) ≥ 1 + ρ, which is ρ ≥ 3ρ², or ρ ≤ 1/3. So the factor alone is enough for every length of
//! a session, without the slack. The slack is for what is late otherwise: a timer of the kernel (3 ms), and the death
//! of a process that was killed. In the other direction, 1 − 3ρ of what another clock has counted has passed for sure:
//! (1 − 3ρ)(1 + ρ) ≤ 1 − ρ.
//!
//! All times of the argument are real ones. Let an `End(s)` take effect, decided at time D by the leader L of term T.
//! To show: at D the peer has stopped, and it never goes on with s.
//!
//! 1. *It has stopped what earlier yeses allowed.* Take any yes to a renewal of s that the peer ever counts, sent by
//!    the peer at t₀.
//!    - If L gave it, in this term, then L gave it before D (having decided an end it gives no yes) and at some Y ≥ t₀,
//!      and has counted ttl · (1 + 3ρ) from Y on; the peer counts ttl from t₀. By the lemma the peer has counted out
//!      first.
//!    - If the leader L' of an earlier term T' < T gave it: a majority confirmed L' in T' in a round that *began after
//!      L' had got the renewal*, so after t₀. Some voter V of that majority also voted for L, later than that, since it
//!      confirmed a term that it had then not left. With its vote V told for how long it had taken part in no round, of
//!      which L takes 1 − 3ρ, so L knows a time h that is not before V's last one, and so not before t₀: the latest
//!      that its voters told, itself among them. From h on L counts as long as from a yes of its own. (That is why a
//!      round under way does not do, and why the peer may count from the sending only: the answer may be late by any
//!      time. Who has led has taken part in its own rounds; who has restarted, in none since it began; a vote that
//!      tells nothing tells of this moment.)
//!    - A yes of a later term T'' > T is not given: its leader answers from a state that is applied up to an entry of
//!      its own term. The `End` is committed, so it is before that in the log, with effect.
//! 2. *It never goes on.* The stop is a latch: a yes that comes later changes nothing, even if its t₀ + ttl is still to
//!    come (it may be one of T', or the peer may have asked for its own end meanwhile).
//! 3. *The end that takes effect was decided in the term of its entry.* Else L could decide, lose its office before the
//!    entry is in the log, and the entry be appended in a later term, whose leader has said yes. So an entry of another
//!    term than the deciding one has no effect. It is compared with the entry's own term, which is the same at all
//!    voters.
//!
//! What a process asks to be ended itself (`Leave`, or `replaces` in `Open`) needs 2 only: it has stopped before it
//! asks.
//!
//! That voters change makes no difference to "some voter of that majority also voted for L". A configuration is left by
//! a joint one only, which needs both majorities, and a leader begins the next change when it has applied the one
//! before; so the majority of a leader's round and that of the next leader's election have a voter in common. If L was
//! elected by voters none of whom L' had asked, the last change before that was decided by a leader that was elected,
//! or still led, after the round; a majority of L's voters heard of it from that leader, so after t₀, and one of those
//! voted for L. Not covered: a clock that does not count while its machine is paused from outside (a hypervisor's
//! pause, snapshot or migration). There only fencing helps.

use std::collections::{BTreeMap, BTreeSet};

use peerlock_types::{Span, Time};

use crate::{Label, SessionId};

/// Returns 3ρ of a span.
fn drift(span: Span) -> Span {
    Span::from_nanos(span.as_nanos().div_ceil(100) * 3)
}

/// How long a leader waits from a yes until it may end the session: `ttl · (1 + 3ρ) + slack` with ρ = 1 %, and no more
/// slack than an eighth of the ttl. Who chose a short session wants a short wait.
pub fn patience(ttl: Span, slack: Span) -> Span {
    ttl + drift(ttl) + slack.min(Span::from_nanos(ttl.as_nanos() / 8))
}

/// How much of a span that another clock has counted has passed for sure: 1 − 3ρ of it.
pub(crate) fn surely(span: Span) -> Span {
    Span::from_nanos(span.as_nanos().saturating_sub(drift(span).as_nanos()))
}

/// One leader's memory of one term: what it has said yes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leases {
    /// No yes of an earlier leader was to a renewal that was sent after this.
    since: Time,
    slack: Span,
    /// When the last yes was said, or the session was seen to be open.
    said: BTreeMap<SessionId, Time>,
    /// What is being ended. Once proposed that is not taken back, and there is no yes any more.
    ending: BTreeSet<SessionId>,
    /// Nothing is due before this, if it is known: a yes only makes it later.
    earliest: Option<Time>,
}

impl Leases {
    /// Elected, after which nothing was said yet. What the leaders before have said is not known, and only that it was
    /// to renewals from before `since`.
    pub fn new(since: Time, slack: Span) -> Self {
        Self { since, slack, said: BTreeMap::new(), ending: BTreeSet::new(), earliest: None }
    }

    /// A session was opened: it has its time from now on.
    pub fn on_opened(&mut self, session: SessionId, now: Time) {
        self.said.insert(session, now);
        self.earliest = None;
    }

    /// Asks whether the session may be told yes now, which it is to be if so. Called when the round that began after
    /// its request is over, and everything up to it is applied.
    pub fn may_say_yes(&mut self, session: SessionId, now: Time) -> bool {
        let may = !self.ending.contains(&session);
        if may {
            self.said.insert(session, now);
        }
        may
    }

    /// A session is over.
    pub fn on_ended(&mut self, session: SessionId) {
        self.said.remove(&session);
        self.ending.remove(&session);
        self.earliest = None;
    }

    /// Which of these sessions have to be ended now: all of one moment in one entry.
    pub fn due(&mut self, now: Time, sessions: impl Iterator<Item = (SessionId, Span)>) -> Vec<SessionId> {
        let mut due = Vec::new();
        if self.earliest.is_some_and(|earliest| now < earliest) {
            return due;
        }
        let mut earliest = Time::END;
        for (session, ttl) in sessions {
            let since = self.said.get(&session).map_or(self.since, |&said| said.max(self.since));
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

/// When each detached grant was last seen applied here: counted by every voter, leader or not, so that an election does
/// not begin it anew. A voter that restarts does begin anew, which is late and safe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeMap<(Label, u64), (u64, Time)>);

impl Grants {
    /// The register holds this grant, in this stretch, with this end: whether that has passed.
    pub fn has_expired(&mut self, grant: (&Label, u64), stretch: u64, ttl: Span, slack: Span, now: Time) -> bool {
        let key = (grant.0.clone(), grant.1);
        let found = self.0.entry(key).or_insert((stretch, now));
        if found.0 != stretch {
            *found = (stretch, now);
        }
        now >= found.1 + patience(ttl, slack)
    }

    /// Forgets what the register does not hold any more.
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

    /// In real time, in nanoseconds, rounded against what is to be shown: when a peer stops whose clock is slow by so
    /// many millionths, and when a leader ends its session whose clock is fast by as many.
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

    /// With the product's slack. Beyond that two may hold one slot: see the runs with such clocks in
    /// `crates/sim/tests/nodes`.
    #[test]
    fn session_of_15_s_bears_2_percent_and_not_3() {
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
    fn time_told_by_another_voter_has_passed() {
        for silent in [1, 99, 1_000_000, 15_000_000_000, 3_600_000_000_000] {
            // Counted by a fast clock, taken off by a slow one.
            let (counted, passed) =
                (silent * 1_010_000 / 1_000_000, |span: Span| span.as_nanos() * 1_000_000 / 990_000);
            assert!(passed(surely(Span::from_nanos(counted))) <= silent, "{silent} ns");
        }
    }

    #[test]
    fn a_short_session_has_less_slack() {
        let slack = Span::from_millis(500);
        for (ttl, waits) in [(1_000, 1_155), (2_000, 2_310), (4_000, 4_620), (15_000, 15_950)] {
            assert_eq!(patience(Span::from_millis(ttl), slack), Span::from_millis(waits), "{ttl} ms");
        }
    }

    #[test]
    fn a_new_leader_ends_nobody_before_its_own_time_has_passed() {
        let slack = Span::from_millis(500);
        for (said, now, is_due) in [
            (None, 10_799, false),
            (None, 10_800, true),
            (Some(5_000), 10_800, false),
            (Some(5_000), 15_799, false),
            (Some(5_000), 15_800, true),
        ] {
            let mut leases = Leases::new(Time::ZERO, slack);
            if let Some(said) = said {
                assert!(leases.may_say_yes(S, at(said)));
            }
            assert_eq!(due(&mut leases, at(now)), is_due, "{said:?} {now}");
        }
    }

    #[test]
    fn who_comes_later_may_be_due_first() {
        let mut leases = Leases::new(Time::ZERO, Span::ZERO);
        let (long, short) = (Span::from_secs(10), Span::from_secs(1));
        leases.on_opened(S, at(0));
        assert_eq!(leases.due(at(1_000), [(S, long)].into_iter()), []);
        let later = SessionId::new(2);
        leases.on_opened(later, at(1_500));
        let all = || [(S, long), (later, short)].into_iter();
        assert_eq!(leases.due(at(2_529), all()), []);
        assert_eq!(leases.due(at(2_530), all()), [later]);
        assert!(leases.may_say_yes(S, at(9_000)));
        assert_eq!(leases.due(at(10_300), all()), [], "it was renewed");
        assert_eq!(leases.due(at(19_299), all()), []);
        assert_eq!(leases.due(at(19_300), all()), [S]);
    }

    #[test]
    fn an_end_once_decided_is_not_taken_back() {
        let mut leases = Leases::new(Time::ZERO, Span::ZERO);
        assert!(due(&mut leases, at(10_300)));
        assert!(!due(&mut leases, at(10_400)), "it is proposed once");
        assert!(!leases.may_say_yes(S, at(10_400)));
        leases.on_ended(S);
        assert_eq!(leases, Leases::new(Time::ZERO, Span::ZERO), "and nothing is left of it");
    }

    #[test]
    fn a_detached_grant_is_counted_from_its_last_stretch() {
        let name = Label::new("x").unwrap();
        let mut grants = Grants::default();
        let mut lapsed = |stretch, now| {
            grants.has_expired((&name, 7), stretch, Span::from_secs(100), Span::from_millis(500), at(now))
        };
        assert!(!lapsed(0, 1_000));
        assert!(!lapsed(0, 104_499));
        assert!(lapsed(0, 104_500));
        assert!(!lapsed(1, 104_600), "renewed");
        assert!(!lapsed(1, 208_099));
        assert!(lapsed(1, 208_100));
    }
}
