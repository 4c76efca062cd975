//! Whether a resource moves: who has been heard of, and when.
//!
//! A peer whose clients wait asks the coordinator for the line, and then each peer where a token should be whether it
//! is there. A token that was on its way is somewhere else by the next time; one that is nowhere for a lease time, like
//! a coordinator that says nothing for a lease time, will not come.

use alloc::collections::BTreeMap;

use peerlock_base::{PeerId, Span, Time};

/// What is known of one resource's coordinator and tokens.
#[derive(Clone, Debug, Default)]
pub struct Health {
    coordinator: Option<(PeerId, Time)>,
    tokens: BTreeMap<u32, Token>,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    at: PeerId,
    stay: u64,
    /// When it was last known to be there, or to have moved.
    seen: Time,
}

/// Who holds everybody up, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// The coordinator, or the one of the holders that was heard of last.
    pub who: Option<PeerId>,
    /// When it was last heard of.
    pub since: Time,
}

impl Health {
    /// This peer was asked for the line.
    pub fn asked(&mut self, coordinator: PeerId, now: Time) {
        match &mut self.coordinator {
            Some((known, _)) => *known = coordinator,
            None => self.coordinator = Some((coordinator, now)),
        }
    }

    /// The coordinator has told where a token is.
    pub fn on_seat(&mut self, coordinator: PeerId, slot: u32, at: PeerId, stay: u64, now: Time) {
        self.coordinator = Some((coordinator, now));
        let moved = Token { at, stay, seen: now };
        let token = self.tokens.entry(slot).or_insert(moved);
        if (token.at, token.stay) != (at, stay) {
            *token = moved;
        }
    }

    /// A peer says that it has a token.
    pub fn on_token(&mut self, peer: PeerId, slot: u32, now: Time) {
        if let Some(token) = self.tokens.get_mut(&slot).filter(|token| token.at == peer) {
            token.seen = now;
        }
    }

    /// Where the tokens should be.
    pub fn holders(&self) -> impl Iterator<Item = PeerId> {
        self.tokens.values().map(|token| token.at)
    }

    /// Whether somebody who has waited since `asked` waits in vain.
    pub fn stall(&self, asked: Time, now: Time, patience: Span) -> Option<Stall> {
        let is_late = |seen: Time| now.since(seen.max(asked)) >= patience;
        match self.coordinator {
            None => return is_late(Time::ZERO).then_some(Stall { who: None, since: asked }),
            Some((who, seen)) if is_late(seen) => return Some(Stall { who: Some(who), since: seen.max(asked) }),
            Some(_) => {}
        }
        let last = self.tokens.values().max_by_key(|token| token.seen)?;
        is_late(last.seen).then_some(Stall { who: Some(last.at), since: last.seen.max(asked) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Span = Span::from_secs(30);

    fn at(second: u64) -> Time {
        Time::ZERO + Span::from_secs(second)
    }

    fn peer(number: u64) -> PeerId {
        PeerId::new(number)
    }

    #[test]
    fn without_a_coordinator_nobody_is_to_blame() {
        let health = Health::default();
        assert_eq!(health.stall(at(10), at(39), LEASE), None);
        assert_eq!(health.stall(at(10), at(40), LEASE), Some(Stall { who: None, since: at(10) }));
    }

    #[test]
    fn a_silent_coordinator() {
        let mut health = Health::default();
        health.asked(peer(1), at(0));
        health.on_seat(peer(1), 0, peer(1), 0, at(5));
        health.asked(peer(1), at(15));
        assert_eq!(health.stall(at(0), at(34), LEASE), None);
        assert_eq!(health.stall(at(0), at(35), LEASE), Some(Stall { who: Some(peer(1)), since: at(5) }));
        assert_eq!(health.stall(at(30), at(35), LEASE), None, "who has just come gives it time");
    }

    #[test]
    fn all_tokens_must_be_missing() {
        let mut health = Health::default();
        let seats = |health: &mut Health, now| {
            health.on_seat(peer(1), 0, peer(2), 7, now);
            health.on_seat(peer(1), 1, peer(3), 9, now);
        };
        seats(&mut health, at(0));
        seats(&mut health, at(20));
        health.on_token(peer(2), 0, at(20));
        health.on_token(peer(2), 1, at(20)); // It is not where it should be.
        seats(&mut health, at(40));
        assert_eq!(health.stall(at(0), at(40), LEASE), None, "one of the two was there");
        seats(&mut health, at(50));
        assert_eq!(health.stall(at(0), at(50), LEASE), Some(Stall { who: Some(peer(2)), since: at(20) }));
    }

    #[test]
    fn a_token_that_moves_is_alive() {
        let mut health = Health::default();
        for step in 0..10 {
            health.on_seat(peer(1), 0, peer(2), step, at(20 * step));
            assert_eq!(health.stall(at(0), at(20 * step), LEASE), None);
        }
    }
}
