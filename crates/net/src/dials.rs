//! Which addresses to dial, and when: once, or repeatedly with back-off. No clock and no socket in here.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use peerlock_base::{PeerId, Rng};

/// How many addresses can be on the list.
pub(crate) const MOST: usize = 4096;

/// The addresses we want to be linked with.
pub(crate) struct Dials {
    wanted: BTreeMap<SocketAddr, Wanted>,
    least: Duration,
    most: Duration,
    rng: Rng,
}

struct Wanted {
    keep: bool,
    /// Attempts since the last link that lasted.
    failures: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Due(Instant),
    /// By the connection with this number.
    Dialling(u64),
    /// The peer that was found there is up, since then; or was, when we last looked.
    Linked(PeerId, Instant),
}

impl Dials {
    /// Nothing yet; back-off runs from `least` to `most`.
    pub fn new(least: Duration, most: Duration, rng: Rng) -> Self {
        Self { wanted: BTreeMap::new(), least, most, rng }
    }

    /// Dial this address now, and if `keep` stay linked with whoever is there. False if the list is full.
    pub fn want(&mut self, address: SocketAddr, keep: bool, now: Instant) -> bool {
        if let Some(wanted) = self.wanted.get_mut(&address) {
            wanted.keep |= keep;
            // The caller has reason to expect an answer: no more waiting.
            if let State::Due(when) = &mut wanted.state {
                *when = now;
            }
            return true;
        }
        let room = self.wanted.len() < MOST;
        if room {
            self.wanted.insert(address, Wanted { keep, failures: 0, state: State::Due(now) });
        }
        room
    }

    /// No more dials to this address. A link that there is stays.
    pub fn forget(&mut self, address: SocketAddr) {
        self.wanted.remove(&address);
    }

    /// When something is to be done next.
    pub fn next(&self) -> Option<Instant> {
        self.wanted
            .values()
            .filter_map(|wanted| if let State::Due(when) = wanted.state { Some(when) } else { None })
            .min()
    }

    /// An address that is due, and whether it was dialled before. The caller reports with [`Self::dialling`].
    pub fn due(&self, now: Instant) -> Option<(SocketAddr, bool)> {
        let is_due = |state| matches!(state, State::Due(when) if when <= now);
        self.wanted
            .iter()
            .find(|(_, wanted)| is_due(wanted.state))
            .map(|(address, wanted)| (*address, wanted.failures > 0))
    }

    /// The address is being dialled.
    pub fn dialling(&mut self, address: SocketAddr, connection: u64) {
        if let Some(wanted) = self.wanted.get_mut(&address) {
            wanted.state = State::Dialling(connection);
        }
    }

    /// The dial has found this peer, which is up.
    pub fn found(&mut self, connection: u64, peer: PeerId, now: Instant) {
        let Some(address) = self.dialled(connection) else { return };
        match self.wanted.get_mut(&address) {
            Some(wanted) if wanted.keep => wanted.state = State::Linked(peer, now),
            _ => self.forget(address),
        }
    }

    /// The dial led nowhere. `hopeless`: it always will. Returns the address.
    pub fn failed(&mut self, connection: u64, hopeless: bool, now: Instant) -> Option<SocketAddr> {
        let address = self.dialled(connection)?;
        let wanted = self.wanted.get_mut(&address)?;
        if wanted.keep && !hopeless {
            let wait = backoff(self.least, self.most, wanted.failures, &mut self.rng);
            wanted.failures += 1;
            wanted.state = State::Due(now + wait);
        } else {
            self.forget(address);
        }
        Some(address)
    }

    /// This peer is down: those that led to it are dialled again. That is soon if the link had lasted; one that breaks
    /// again and again, or whose peer makes no sense, is waited for longer every time.
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

/// Doubles with every failure up to `most`; of that, between half and all, so that peers that lost each other at once
/// do not all come back at once.
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
        (Dials::new(LEAST, MOST_WAIT, Rng::new(1)), "127.0.0.1:7400".parse().unwrap(), Instant::now())
    }

    #[test]
    fn back_off_doubles_is_spread_and_has_an_end() {
        let mut rng = Rng::new(5);
        for (failures, full) in [(0, 200), (1, 400), (2, 800), (5, 6_400), (6, 10_000), (40, 10_000)] {
            let waits: Vec<_> = (0..100).map(|_| backoff(LEAST, MOST_WAIT, failures, &mut rng)).collect();
            let full = Duration::from_millis(full);
            assert!(waits.iter().all(|wait| (full / 2..=full).contains(wait)), "{failures}: {waits:?}");
            assert!(waits.windows(2).any(|pair| pair[0] != pair[1]));
        }
    }

    #[test]
    fn what_is_not_kept_is_dialled_once() {
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
    fn what_is_kept_is_dialled_again_until_it_is_hopeless_or_forgotten() {
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
        assert_eq!(dials.next(), None, "somebody else");
        dials.down(PeerId::new(9), now);
        assert!(dials.next().is_some());
        dials.want(address, false, now);
        assert_eq!(dials.due(now), Some((address, true)), "asked for now");
        dials.dialling(address, 3);
        dials.failed(3, true, now);
        assert_eq!(dials.next(), None, "hopeless");
        dials.want(address, true, now);
        dials.forget(address);
        assert_eq!(dials.next(), None, "forgotten");
    }

    #[test]
    fn a_link_that_does_not_last_is_waited_for_longer_every_time() {
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
    fn the_list_has_an_end() {
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
