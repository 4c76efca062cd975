//! When to dial which address. Pure: no clock, no socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peerlock_types::{PeerId, Rng};

pub(crate) const MOST: usize = 4096;

pub(crate) struct Dials {
    wanted: BTreeMap<SocketAddr, Wanted>,
    /// Attempts in progress, also to forgotten addresses.
    under_way: BTreeSet<u64>,
    at_a_time: usize,
    least: Duration,
    most: Duration,
    rng: Rng,
}

struct Wanted {
    maintain: bool,
    /// Attempts since the last lasting link.
    failures: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Due(Instant),
    Dialling(u64),
    /// Linked since then, as of the last report.
    Linked(PeerId, Instant),
}

impl Dials {
    pub fn new(at_a_time: usize, (least, most): (Duration, Duration), rng: Rng) -> Self {
        Self { wanted: BTreeMap::new(), under_way: BTreeSet::new(), at_a_time, least, most, rng }
    }

    /// Requests a dial. Returns false if the list is full.
    pub fn want(&mut self, address: SocketAddr, maintain: bool, now: Instant) -> bool {
        if let Some(wanted) = self.wanted.get_mut(&address) {
            wanted.maintain |= maintain;
            if let State::Due(when) = &mut wanted.state {
                *when = now;
            }
            return true;
        }
        let room = self.wanted.len() < MOST;
        if room {
            self.wanted.insert(address, Wanted { maintain, failures: 0, state: State::Due(now) });
        }
        room
    }

    pub fn forget(&mut self, address: SocketAddr) {
        self.wanted.remove(&address);
    }

    /// Returns when the next dial is due, unless an attempt must end first.
    pub fn next(&self) -> Option<Instant> {
        self.first().map(|(when, ..)| when)
    }

    pub fn due(&self, now: Instant) -> Option<(SocketAddr, bool)> {
        self.first().filter(|(when, ..)| *when <= now).map(|(_, address, again)| (address, again))
    }

    /// Returns the address that has waited longest.
    fn first(&self) -> Option<(Instant, SocketAddr, bool)> {
        if self.under_way.len() >= self.at_a_time {
            return None;
        }
        let due = self.wanted.iter().filter_map(|(address, wanted)| match wanted.state {
            State::Due(when) => Some((when, *address, wanted.failures > 0)),
            State::Dialling(_) | State::Linked(..) => None,
        });
        due.min()
    }

    pub fn dialling(&mut self, address: SocketAddr, connection: u64) {
        self.under_way.insert(connection);
        if let Some(wanted) = self.wanted.get_mut(&address) {
            wanted.state = State::Dialling(connection);
        }
    }

    pub fn found(&mut self, connection: u64, peer: PeerId, now: Instant) {
        self.under_way.remove(&connection);
        let Some(address) = self.dialled(connection) else { return };
        match self.wanted.get_mut(&address) {
            Some(wanted) if wanted.maintain => wanted.state = State::Linked(peer, now),
            _ => self.forget(address),
        }
    }

    /// Returns the address, and forgets it if `hopeless`.
    pub fn failed(&mut self, connection: u64, hopeless: bool, now: Instant) -> Option<SocketAddr> {
        self.under_way.remove(&connection);
        let address = self.dialled(connection)?;
        let wanted = self.wanted.get_mut(&address)?;
        if wanted.maintain && !hopeless {
            let wait = backoff(self.least, self.most, wanted.failures, &mut self.rng);
            wanted.failures += 1;
            wanted.state = State::Due(now + wait);
        } else {
            self.forget(address);
        }
        Some(address)
    }

    /// Redials soon if the link had lasted, with growing delay if it keeps breaking.
    pub fn down(&mut self, peer: PeerId, now: Instant) {
        for wanted in self.wanted.values_mut() {
            let State::Linked(linked, since) = wanted.state else { continue };
            if linked != peer {
                continue;
            }
            if now.duration_since(since) >= self.most {
                wanted.failures = 0;
            }
            let wait = backoff(self.least, self.most, wanted.failures, &mut self.rng);
            wanted.failures += 1;
            wanted.state = State::Due(now + wait);
        }
    }

    fn dialled(&self, connection: u64) -> Option<SocketAddr> {
        let is_it = |wanted: &Wanted| wanted.state == State::Dialling(connection);
        self.wanted.iter().find(|(_, wanted)| is_it(wanted)).map(|(address, _)| *address)
    }
}

/// Doubles with every failure. Has jitter, so that peers that lost each other do not redial simultaneously.
fn backoff(least: Duration, most: Duration, failures: u32, rng: &mut Rng) -> Duration {
    let wait = least.saturating_mul(1 << failures.min(20)).min(most);
    wait.mul_f64(0.5 + rng.unit() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: Duration = Duration::from_millis(200);
    const MOST_WAIT: Duration = Duration::from_secs(10);

    fn dials() -> (Dials, SocketAddr, Instant) {
        (Dials::new(2, (LEAST, MOST_WAIT), Rng::new(1)), "127.0.0.1:7400".parse().unwrap(), Instant::now())
    }

    #[test]
    fn backoff_doubles_with_jitter_and_a_limit() {
        let mut rng = Rng::new(5);
        for (failures, full) in [(0, 200), (1, 400), (2, 800), (5, 6_400), (6, 10_000), (40, 10_000)] {
            let waits: Vec<_> = (0..100).map(|_| backoff(LEAST, MOST_WAIT, failures, &mut rng)).collect();
            let full = Duration::from_millis(full);
            assert!(waits.iter().all(|wait| (full / 2..=full).contains(wait)), "{failures}: {waits:?}");
            assert!(waits.windows(2).any(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn address_not_maintained_is_dialled_once() {
        let (mut dials, address, now) = dials();
        assert!(dials.want(address, false, now));
        assert_eq!(dials.due(now), Some((address, false)));
        dials.dialling(address, 1);
        assert_eq!((dials.due(now), dials.next()), (None, None), "under way");
        assert_eq!(dials.failed(2, false, now), None, "another connection");
        assert_eq!(dials.failed(1, false, now), Some(address));
        assert_eq!(dials.next(), None);
        assert!(dials.wanted.is_empty());
    }

    #[test]
    fn maintained_address_is_redialled_until_forgotten() {
        let (mut dials, address, now) = dials();
        dials.want(address, true, now);
        dials.dialling(address, 1);
        dials.failed(1, false, now);
        let due = dials.next().unwrap();
        assert!(due >= now + LEAST / 2 && due <= now + LEAST);
        assert_eq!(dials.due(now), None);
        assert_eq!(dials.due(due), Some((address, true)));
        dials.dialling(address, 2);
        dials.found(2, PeerId::new(9), now);
        assert_eq!(dials.next(), None, "linked");
        dials.down(PeerId::new(8), now);
        assert_eq!(dials.next(), None, "another peer");
        dials.down(PeerId::new(9), now);
        assert!(dials.next().is_some());
        dials.want(address, false, now);
        assert_eq!(dials.due(now), Some((address, true)), "requested now");
        dials.dialling(address, 3);
        dials.failed(3, true, now);
        assert_eq!(dials.next(), None, "hopeless");
        dials.want(address, true, now);
        dials.forget(address);
        assert_eq!(dials.next(), None, "forgotten");
    }

    #[test]
    fn short_lived_link_increases_backoff() {
        let (mut dials, address, mut now) = dials();
        dials.want(address, true, now);
        let mut wait_after = |lasted: Duration| {
            dials.dialling(address, 1);
            dials.found(1, PeerId::new(9), now);
            now += lasted;
            dials.down(PeerId::new(9), now);
            dials.next().unwrap() - now
        };
        for failures in 0..12 {
            let full = (LEAST * (1 << failures)).min(MOST_WAIT);
            let wait = wait_after(Duration::from_secs(1));
            assert!((full / 2..=full).contains(&wait), "{failures}: {wait:?}");
        }
        assert!(wait_after(MOST_WAIT) <= LEAST, "it lasted");
    }

    #[test]
    fn concurrent_dials_are_limited_and_fair() {
        let (mut dials, address, now) = dials();
        let at = |port| SocketAddr::new(address.ip(), port);
        let later = |millis| now + Duration::from_millis(millis);
        for (port, millis) in [(9, 0), (1, 2), (5, 1)] {
            dials.want(at(port), true, later(millis));
        }
        for (connection, port) in [(1, 9), (2, 5)] {
            assert_eq!(dials.due(later(9)), Some((at(port), false)), "the longest wait first");
            dials.dialling(at(port), connection);
        }
        assert_eq!((dials.due(later(9)), dials.next()), (None, None), "two at a time");
        dials.forget(at(9));
        assert_eq!(dials.due(later(9)), None, "a forgotten address is still being dialled");
        dials.failed(1, false, now);
        assert_eq!(dials.due(later(9)), Some((at(1), false)));
        dials.dialling(at(1), 3);
        dials.found(3, PeerId::new(9), now);
        assert_eq!((dials.due(later(9)), dials.under_way.len()), (None, 1), "nothing more is due");
    }

    #[test]
    fn list_is_bounded() {
        let (mut dials, mut address, now) = dials();
        for number in 0..MOST {
            address.set_port(number as u16);
            assert!(dials.want(address, true, now));
        }
        assert!(dials.want(address, true, now), "already on it");
        address.set_port(MOST as u16);
        assert!(!dials.want(address, true, now));
    }
}
