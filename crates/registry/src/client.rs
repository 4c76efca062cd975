//! A process's session, seen from the process: until when it may use tokens. Why this is safe: `leases.rs`.
//!
//! ```text
//!   Out ──Open──► In ──yes to renewal n──► may use tokens until sent(n) + ttl ──┐
//!    ▲             │ the register says that it is over                          │ latched
//!    └─────────────┴────────────────────────────────────────────────────────────┘
//! ```

use std::collections::BTreeMap;
#[cfg(feature = "mutation")]
use std::hash::Hash;

use peerlock_types::{Rng, Span, Time};

#[cfg(feature = "mutation")]
use crate::mutation::Mutation;
use crate::{SessionId, Ttl};

/// At most this many renewals may be without an answer; the oldest are given up.
const MOST_OPEN: usize = 16;
/// A renewal is due after a fifth of the session's time: 3 s of 15 s. Our choice: an election and two lost letters fit
/// between.
const RENEWALS: u64 = 5;
/// How long the first attempts of anything wait for their answer …
pub(crate) const RETRY: Span = Span::from_millis(300);
/// … of which there are so many before the wait is doubled, and as many before it is doubled again. An election is over
/// by then; whoever does not answer after that has too much to do, and not less if everybody asks again and again.
pub(crate) const TRIES: u32 = 4;

/// What the register is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionRequest {
    /// To open a session.
    Open {
        /// What tells this session's `Open` from others.
        nonce: u64,
        /// For how many sessions this process has asked before.
        opening: u64,
        /// The one before it, which is over here.
        replaces: Option<SessionId>,
    },
    /// To have it stand for its time from when this was asked.
    Renew {
        /// The session to renew.
        session: SessionId,
        /// Which renewal this is; a yes names it.
        renewal: u64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Without a session.
    Out { nonce: u64, replaces: Option<SessionId> },
    /// With one, which may be used until then; nothing may be before the first yes.
    In { session: SessionId, until: Option<Time>, sent: BTreeMap<u64, Time> },
}

/// One process's session.
#[derive(Clone, Debug)]
pub struct SessionClient {
    ttl: Span,
    rng: Rng,
    phase: Phase,
    renewals: u64,
    /// For how many sessions it has asked before the present one.
    openings: u64,
    /// When to ask the next time.
    due: Time,
    /// How often it has asked since it was answered.
    tries: u32,
    /// How often its stop was latched.
    stops: u64,
    #[cfg(feature = "mutation")]
    mutation: Option<Mutation>,
    /// What was stopped, for who does without a latch.
    #[cfg(feature = "mutation")]
    stopped: Option<Phase>,
}

impl SessionClient {
    /// A process without a session, which goes on where another that had this one has ended. Nonces come from `rng`,
    /// which must be another stream for each process.
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

    /// With a rule left out.
    #[cfg(feature = "mutation")]
    pub fn mutated(self, mutation: Option<Mutation>) -> Self {
        Self { mutation, ..self }
    }

    /// The session that may be used now. Nothing else may be believed: to be asked after every wake-up, before anything
    /// is sent.
    pub fn stands(&self, now: Time) -> Option<SessionId> {
        self.until().filter(|(_, until)| now < *until).map(|(session, _)| session)
    }

    /// The session and its end as far as it is known now: what a client may be told at most.
    pub fn until(&self) -> Option<(SessionId, Time)> {
        match self.phase {
            Phase::In { session, until: Some(until), .. } => Some((session, until)),
            Phase::In { until: None, .. } | Phase::Out { .. } => None,
        }
    }

    /// The session that this process has opened and not stopped, whether it may be used or not.
    pub fn session(&self) -> Option<SessionId> {
        match self.phase {
            Phase::In { session, .. } => Some(session),
            Phase::Out { .. } => None,
        }
    }

    /// How often a session of this process was over.
    pub fn stops(&self) -> u64 {
        self.stops
    }

    /// When [`SessionClient::wake`] has something to do.
    pub fn next(&self) -> Time {
        self.until().map_or(self.due, |(_, until)| self.due.min(until))
    }

    /// Time has passed: what is to be asked now.
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

    /// The session that was asked for with this nonce is open. It gives no time yet: how long ago it was opened is not
    /// known, and how long ago the first letter about it was sent could be longer than its time.
    pub fn on_opened(&mut self, nonce: u64, session: SessionId, now: Time) {
        if matches!(self.phase, Phase::Out { nonce: asked, .. } if asked == nonce) {
            self.phase = Phase::In { session, until: None, sent: BTreeMap::new() };
            (self.due, self.tries) = (now, 0);
        }
    }

    /// The register does not open the session that was asked for with this nonce, since it knows a later one: most
    /// often it had opened this one, and has ended it before its answer came. Asks for another session in its turn.
    pub fn on_outdated(&mut self, nonce: u64) {
        if let Phase::Out { nonce: asked, .. } = &mut self.phase
            && *asked == nonce
        {
            *asked = self.rng.bits();
            self.openings += 1;
        }
    }

    /// The leader has said yes to this renewal.
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
            // Counted from the sending of this very renewal. Older ones are answered by it.
            *until = (*until).max(Some(at + self.ttl));
            *sent = sent.split_off(&(renewal + 1));
            self.tries = 0;
            if sent.is_empty() {
                self.due = at + self.ttl / RENEWALS;
            }
            self.look(now);
        }
    }

    /// The register says that this session is over.
    pub fn on_over(&mut self, session: SessionId, now: Time) {
        self.look(now);
        if self.session() == Some(session) {
            self.stop(None, now);
        }
    }

    /// Somebody who can answer was found: what is due anyway is asked now.
    pub fn hurry(&mut self, now: Time) {
        if !matches!(&self.phase, Phase::In { sent, .. } if sent.is_empty()) {
            self.due = now;
        }
    }

    /// Ends the session here. It is for the caller to tell the register.
    pub fn leave(&mut self, now: Time) -> Option<SessionId> {
        let session = self.session();
        self.stop(session, now);
        session
    }

    /// The latch: a session whose time has passed is over here, whatever comes later. It is asked to be ended together
    /// with the opening of the next one.
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

/// How long to wait for an answer before the same is asked again, after so many times; at most so long. From half of it
/// on it is drawn, so that those who lost their sessions at once do not all come back at once.
pub(crate) fn again(tries: u32, most: Span, rng: &mut Rng) -> Span {
    match tries / TRIES {
        0 => RETRY.min(most),
        doublings => {
            let wait = (RETRY * (1 << doublings.min(10))).min(most);
            rng.between(wait / 2, wait)
        }
    }
}

/// What the latch is for, and what is explored.
#[cfg(feature = "mutation")]
impl SessionClient {
    /// What tells one client from another that is woken so seldom that it has always something to ask by then: it makes
    /// no difference when it would ask again, how often it has asked, and what it would draw for that.
    pub fn what_matters(&self) -> impl Hash {
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

    /// Opened at 0, the first renewal sent at 0 ms and the second at 300.
    fn opened() -> SessionClient {
        let mut client = SessionClient::new(Ttl::from_millis(10_000).unwrap(), None, Rng::new(1));
        let Some(SessionRequest::Open { nonce, opening: 0, replaces: None }) = client.wake(Time::ZERO) else {
            panic!("{client:?}")
        };
        client.on_opened(nonce, S, Time::ZERO);
        assert_eq!(client.stands(Time::ZERO), None, "open, but nobody has said yes");
        assert_eq!(client.wake(Time::ZERO), Some(SessionRequest::Renew { session: S, renewal: 1 }));
        assert_eq!(client.wake(at(299)), None);
        assert_eq!(client.wake(at(300)), Some(SessionRequest::Renew { session: S, renewal: 2 }));
        client
    }

    #[test]
    fn time_is_counted_from_the_sending_of_the_renewal_that_is_answered() {
        for (renewal, answered, last) in [(1, 900, 9_999), (2, 900, 10_299), (1, 9_998, 9_999)] {
            let mut client = opened();
            client.on_yes(S, renewal, at(answered));
            assert_eq!(client.stands(at(last)), Some(S), "{renewal}");
            assert_eq!(client.stands(at(last + 1)), None, "{renewal}");
        }
    }

    #[test]
    fn what_was_not_asked_gives_no_time() {
        let mut client = opened();
        client.on_yes(S, 3, at(400));
        client.on_yes(SessionId::new(3), 1, at(400));
        assert_eq!(client.until(), None);
        // An answer that took longer than the session stops it at once.
        client.on_yes(S, 1, at(10_000));
        assert_eq!((client.session(), client.stops()), (None, 1));
    }

    #[test]
    fn the_stop_is_a_latch() {
        let mut client = opened();
        client.on_yes(S, 1, at(100));
        client.on_yes(S, 2, at(10_100));
        assert_eq!(client.stands(at(10_100)), None, "the second renewal's time would last until 10.3 s");
        // It goes on as another session, and asks for the end of the old one.
        assert!(matches!(client.wake(at(10_100)), Some(SessionRequest::Open { opening: 1, replaces: Some(S), .. })));
        client.on_yes(S, 2, at(10_101));
        assert_eq!(client.stands(at(10_101)), None);
    }

    #[test]
    fn answers_to_an_earlier_session_are_nobodys() {
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

    /// It was opened and counted out before the answer came: asked again with the same nonce it is refused for ever.
    #[test]
    fn client_asks_for_another_session_when_its_request_is_outdated() {
        let mut client = SessionClient::new(Ttl::from_millis(10_000).unwrap(), Some(S), Rng::new(1));
        let Some(SessionRequest::Open { nonce, opening: 0, .. }) = client.wake(Time::ZERO) else {
            panic!("{client:?}")
        };
        client.on_outdated(nonce ^ 1);
        assert_eq!(client.wake(at(300)), Some(SessionRequest::Open { nonce, opening: 0, replaces: Some(S) }));
        client.on_outdated(nonce);
        assert_eq!(client.wake(at(301)), None, "a register that refuses is not asked more often");
        let Some(SessionRequest::Open { nonce: next, opening: 1, replaces: Some(S) }) = client.wake(at(600)) else {
            panic!("{client:?}")
        };
        client.on_opened(nonce, SessionId::new(8), at(600));
        assert_eq!(client.session(), None);
        client.on_opened(next, SessionId::new(9), at(600));
        assert_eq!(client.session(), Some(SessionId::new(9)));
    }

    /// When it asks, if nobody answers.
    fn asks(seed: u64, ttl: u64, millis: u64) -> Vec<Time> {
        let mut client = SessionClient::new(Ttl::from_millis(ttl).unwrap(), None, Rng::new(seed));
        (0..millis).map(at).filter(|now| client.wake(*now).is_some()).collect()
    }

    #[test]
    fn who_is_not_answered_asks_less_often_and_not_when_everybody_does() {
        for (ttl, quick, longest) in [(15_000, 300, 3000), (2_000, 300, 400), (1_000, 200, 200)] {
            let all: Vec<Vec<Time>> = (0..100).map(|seed| asks(seed, ttl, 60_000)).collect();
            for asks in &all {
                let pauses: Vec<Span> = asks.windows(2).map(|pair| pair[1].since(pair[0])).collect();
                assert!(pauses[..4].iter().all(|pause| *pause == Span::from_millis(quick)), "{ttl}: {pauses:?}");
                let last = &pauses[20..];
                let (half, most) = (Span::from_millis(longest / 2), Span::from_millis(longest + 1));
                assert!(last.iter().all(|pause| (half..=most).contains(pause)), "{ttl}: {last:?}");
            }
            // In the last minute nobody asks in the same moment as many others.
            let moments: std::collections::BTreeSet<Time> =
                all.iter().filter_map(|asks| asks.last().copied()).collect();
            assert!(moments.len() > 30, "{ttl}: {}", moments.len());
        }
    }

    #[test]
    fn who_is_answered_again_asks_as_often_as_before() {
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
