//! A process's session, seen from the process. `leases.rs` has the safety argument.
//!
//! ```text
//!   Out ──Open──► In ──Yes to renewal n──► may use tokens until sent(n) + ttl ──┐
//!    ▲             │ the registry answers that it has ended                     │ latched
//!    └─────────────┴────────────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
#[cfg(feature = "mutation")]
use std::hash::Hash;

use peerlock_types::{Rng, Span, Time};

#[cfg(feature = "mutation")]
use crate::mutation::Mutation;
use crate::{SessionId, Ttl};

const MOST_OPEN: usize = 16;
/// 3 s of 15 s. Our choice: an election and two lost messages fit between.
const RENEWALS: u64 = 5;
pub(crate) const RETRY: Span = Span::from_millis(300);
/// Attempts before the interval is doubled, each time. By then an election is over, so the leader is overloaded.
pub(crate) const TRIES: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRequest {
    /// Opens a session. The process has stopped the one that it `replaces`.
    Open { nonce: u64, opening: u64, replaces: Option<SessionId> },
    /// Renews a session. The answer repeats the number.
    Renew { session: SessionId, renewal: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Requests a session.
    Out { nonce: u64, replaces: Option<SessionId> },
    /// Has a session, which is not usable before the first `Yes`.
    In { session: SessionId, until: Option<Time>, sent: BTreeMap<u64, Time> },
}

#[derive(Clone, Debug)]
pub struct SessionClient {
    ttl: Span,
    rng: Rng,
    phase: Phase,
    renewals: u64,
    openings: u64,
    due: Time,
    tries: u32,
    stops: u64,
    #[cfg(feature = "mutation")]
    mutation: Option<Mutation>,
    #[cfg(feature = "mutation")]
    stopped: Option<Phase>,
}

impl SessionClient {
    /// The first session replaces `replaces`. `rng` must be another stream for each process.
    pub fn new(ttl: Ttl, replaces: Option<SessionId>, mut rng: Rng) -> Self {
        let phase = Phase::Out { nonce: rng.bits(), replaces };
        Self {
            ttl: ttl.span(),
            rng,
            phase,
            renewals: 0,
            openings: 0,
            due: Time::ZERO,
            tries: 0,
            stops: 0,
            #[cfg(feature = "mutation")]
            mutation: None,
            #[cfg(feature = "mutation")]
            stopped: None,
        }
    }

    #[cfg(feature = "mutation")]
    pub fn mutated(self, mutation: Option<Mutation>) -> Self {
        Self { mutation, ..self }
    }

    /// Returns the session that may be used now. Call it after every wake-up, before anything is sent.
    pub fn stands(&self, now: Time) -> Option<SessionId> {
        self.until().filter(|(_, until)| now < *until).map(|(session, _)| session)
    }

    /// Returns the session and its end as far as known: an upper bound of every client's deadline.
    pub fn until(&self) -> Option<(SessionId, Time)> {
        match self.phase {
            Phase::In { session, until: Some(until), .. } => Some((session, until)),
            Phase::In { until: None, .. } | Phase::Out { .. } => None,
        }
    }

    /// The session that was opened and not stopped, usable or not.
    pub fn session(&self) -> Option<SessionId> {
        match self.phase {
            Phase::In { session, .. } => Some(session),
            Phase::Out { .. } => None,
        }
    }

    pub fn stops(&self) -> u64 {
        self.stops
    }

    pub fn next(&self) -> Time {
        self.until().map_or(self.due, |(_, until)| self.due.min(until))
    }

    pub fn wake(&mut self, now: Time) -> Option<SessionRequest> {
        self.look(now);
        if now < self.due {
            return None;
        }
        self.due = now + again(self.tries, self.ttl / RENEWALS, &mut self.rng);
        self.tries += 1;
        match &mut self.phase {
            &mut Phase::Out { nonce, replaces } => {
                Some(SessionRequest::Open { nonce, opening: self.openings, replaces })
            }
            Phase::In { session, sent, .. } => {
                self.renewals += 1;
                sent.insert(self.renewals, now);
                while sent.len() > MOST_OPEN {
                    sent.pop_first();
                }
                Some(SessionRequest::Renew { session: *session, renewal: self.renewals })
            }
        }
    }

    /// Opens the session, which is not usable yet: the first `Open` may have been sent longer ago than the ttl.
    pub fn on_opened(&mut self, nonce: u64, session: SessionId, now: Time) {
        if matches!(self.phase, Phase::Out { nonce: asked, .. } if asked == nonce) {
            self.phase = Phase::In { session, until: None, sent: BTreeMap::new() };
            (self.due, self.tries) = (now, 0);
        }
    }

    /// Requests another session. Usually the registry has opened this session, and ended it before the answer arrived.
    pub fn on_outdated(&mut self, nonce: u64) {
        if let Phase::Out { nonce: asked, .. } = &mut self.phase
            && *asked == nonce
        {
            *asked = self.rng.bits();
            self.openings += 1;
        }
    }

    pub fn on_yes(&mut self, session: SessionId, renewal: u64, now: Time) {
        self.look(now);
        #[cfg(feature = "mutation")]
        self.revive(session, renewal);
        if let Phase::In { session: mine, until, sent } = &mut self.phase
            && *mine == session
            && let Some(&at) = sent.get(&renewal)
        {
            #[cfg(feature = "mutation")]
            let at = if self.mutation == Some(Mutation::CountsFromAnswer) { now } else { at };
            // Counted from the sending of this renewal. Also answers older ones.
            *until = (*until).max(Some(at + self.ttl));
            *sent = sent.split_off(&(renewal + 1));
            self.tries = 0;
            if sent.is_empty() {
                self.due = at + self.ttl / RENEWALS;
            }
            self.look(now);
        }
    }

    pub fn on_over(&mut self, session: SessionId, now: Time) {
        self.look(now);
        if self.session() == Some(session) {
            self.stop(None, now);
        }
    }

    /// Makes a pending request due: a voter that can answer was found.
    pub fn retry_now(&mut self, now: Time) {
        if !matches!(&self.phase, Phase::In { sent, .. } if sent.is_empty()) {
            self.due = now;
        }
    }

    /// Ends the session locally. The caller reports the end to the registry.
    pub fn leave(&mut self, now: Time) -> Option<SessionId> {
        let session = self.session();
        self.stop(session, now);
        session
    }

    /// The latch: an expired session ends here.
    fn look(&mut self, now: Time) {
        if let Some((session, until)) = self.until()
            && now >= until
        {
            #[cfg(feature = "mutation")]
            self.unlatch();
            self.stop(Some(session), now);
        }
    }

    fn stop(&mut self, replaces: Option<SessionId>, now: Time) {
        self.phase = Phase::Out { nonce: self.rng.bits(), replaces };
        (self.due, self.tries) = (now, 0);
        self.stops += 1;
        self.openings += 1;
    }
}

/// Returns the interval before the next attempt. It has jitter, so that sessions lost together are not requested
/// together.
pub(crate) fn again(tries: u32, most: Span, rng: &mut Rng) -> Span {
    match tries / TRIES {
        0 => RETRY.min(most),
        doublings => {
            let wait = (RETRY * (1 << doublings.min(10))).min(most);
            rng.between(wait / 2, wait)
        }
    }
}

#[cfg(feature = "mutation")]
impl SessionClient {
    /// Returns the state that matters while every wake-up finds a request due.
    pub fn relevant_state(&self) -> impl Hash {
        let Self { ttl: _, rng: _, phase, renewals, openings, due: _, tries: _, stops, mutation: _, stopped } = self;
        (phase, renewals, openings, stops, stopped)
    }

    fn unlatch(&mut self) {
        self.stopped = (self.mutation == Some(Mutation::NoLatch)).then(|| self.phase.clone());
    }

    fn revive(&mut self, session: SessionId, renewal: u64) {
        let names = |it: &mut Phase| match it {
            Phase::In { session: stopped, sent, .. } => *stopped == session && sent.contains_key(&renewal),
            Phase::Out { .. } => false,
        };
        if let Some(stopped) = self.stopped.take_if(names) {
            self.phase = stopped;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: SessionId = SessionId::new(4);

    fn at(millis: u64) -> Time {
        Time::ZERO + Span::from_millis(millis)
    }

    fn opened() -> SessionClient {
        let mut client = SessionClient::new(Ttl::from_millis(10_000).unwrap(), None, Rng::new(1));
        let Some(SessionRequest::Open { nonce, opening: 0, replaces: None }) = client.wake(Time::ZERO) else {
            panic!("{client:?}")
        };
        client.on_opened(nonce, S, Time::ZERO);
        assert_eq!(client.stands(Time::ZERO), None, "open, but not confirmed");
        assert_eq!(client.wake(Time::ZERO), Some(SessionRequest::Renew { session: S, renewal: 1 }));
        assert_eq!(client.wake(at(299)), None);
        assert_eq!(client.wake(at(300)), Some(SessionRequest::Renew { session: S, renewal: 2 }));
        client
    }

    #[test]
    fn session_end_counts_from_sending_of_renewal() {
        for (renewal, answered, last) in [(1, 900, 9_999), (2, 900, 10_299), (1, 9_998, 9_999)] {
            let mut client = opened();
            client.on_yes(S, renewal, at(answered));
            assert_eq!(client.stands(at(last)), Some(S), "{renewal}");
            assert_eq!(client.stands(at(last + 1)), None, "{renewal}");
        }
    }

    #[test]
    fn unrequested_confirmation_is_ignored() {
        let mut client = opened();
        client.on_yes(S, 3, at(400));
        client.on_yes(SessionId::new(3), 1, at(400));
        assert_eq!(client.until(), None);
        client.on_yes(S, 1, at(10_000));
        assert_eq!((client.session(), client.stops()), (None, 1));
    }

    #[test]
    fn stop_is_latched() {
        let mut client = opened();
        client.on_yes(S, 1, at(100));
        client.on_yes(S, 2, at(10_100));
        assert_eq!(client.stands(at(10_100)), None, "by the second renewal it would be valid until 10.3 s");
        assert!(matches!(client.wake(at(10_100)), Some(SessionRequest::Open { opening: 1, replaces: Some(S), .. })));
        client.on_yes(S, 2, at(10_101));
        assert_eq!(client.stands(at(10_101)), None);
    }

    #[test]
    fn answer_to_an_earlier_session_is_ignored() {
        let mut client = opened();
        client.on_yes(S, 2, at(400));
        client.on_over(SessionId::new(3), at(500));
        assert_eq!(client.stands(at(500)), Some(S));
        client.on_over(S, at(500));
        assert_eq!(client.stands(at(500)), None);
        let Some(SessionRequest::Open { nonce, opening: 1, replaces: None }) = client.wake(at(500)) else {
            panic!("{client:?}")
        };
        client.on_opened(nonce ^ 1, SessionId::new(9), at(500));
        assert_eq!(client.session(), None);
        client.on_opened(nonce, SessionId::new(9), at(500));
        assert_eq!(client.session(), Some(SessionId::new(9)));
    }

    /// The same nonce would be refused forever.
    #[test]
    fn client_requests_another_session_when_outdated() {
        let mut client = SessionClient::new(Ttl::from_millis(10_000).unwrap(), Some(S), Rng::new(1));
        let Some(SessionRequest::Open { nonce, opening: 0, .. }) = client.wake(Time::ZERO) else {
            panic!("{client:?}")
        };
        client.on_outdated(nonce ^ 1);
        assert_eq!(client.wake(at(300)), Some(SessionRequest::Open { nonce, opening: 0, replaces: Some(S) }));
        client.on_outdated(nonce);
        assert_eq!(client.wake(at(301)), None, "a refusal does not shorten the interval");
        let Some(SessionRequest::Open { nonce: next, opening: 1, replaces: Some(S) }) = client.wake(at(600)) else {
            panic!("{client:?}")
        };
        client.on_opened(nonce, SessionId::new(8), at(600));
        assert_eq!(client.session(), None);
        client.on_opened(next, SessionId::new(9), at(600));
        assert_eq!(client.session(), Some(SessionId::new(9)));
    }

    fn asks(seed: u64, ttl: u64, millis: u64) -> Vec<Time> {
        let mut client = SessionClient::new(Ttl::from_millis(ttl).unwrap(), None, Rng::new(seed));
        (0..millis).map(at).filter(|now| client.wake(*now).is_some()).collect()
    }

    #[test]
    fn unanswered_requests_back_off_with_jitter() {
        for (ttl, quick, longest) in [(15_000, 300, 3000), (2_000, 300, 400), (1_000, 200, 200)] {
            let all: Vec<Vec<Time>> = (0..100).map(|seed| asks(seed, ttl, 60_000)).collect();
            for asks in &all {
                let pauses: Vec<Span> = asks.windows(2).map(|pair| pair[1].since(pair[0])).collect();
                assert!(pauses[..4].iter().all(|pause| *pause == Span::from_millis(quick)), "{ttl}: {pauses:?}");
                let last = &pauses[20..];
                let (half, most) = (Span::from_millis(longest / 2), Span::from_millis(longest + 1));
                assert!(last.iter().all(|pause| (half..=most).contains(pause)), "{ttl}: {last:?}");
            }
            let moments: std::collections::BTreeSet<Time> =
                all.iter().filter_map(|asks| asks.last().copied()).collect();
            assert!(moments.len() > 30, "{ttl}: {}", moments.len());
        }
    }

    #[test]
    fn answer_resets_backoff() {
        let mut client = opened();
        for millis in (300..9_000).step_by(10) {
            let _ = client.wake(at(millis));
        }
        let last = client.renewals;
        client.on_yes(S, last, at(9_000));
        let due = client.next();
        assert_eq!(client.wake(due), Some(SessionRequest::Renew { session: S, renewal: last + 1 }));
        assert_eq!(client.next(), due + RETRY);
    }
}
