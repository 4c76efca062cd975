//! The tokens at one peer under late binding, and their successors as sent by the coordinator. A `Next` applies to one
//! stay only; one for a later stay is stored until the token arrives.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::Ticket;

use crate::queue::{Following, Update};
use crate::token::{Claim, Token};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    pub token: Token,
    /// Number of its stay here.
    pub stay: u64,
    pub user: Option<Ticket>,
    /// A client of this peer, not only a successor, may use it while it is free.
    pub is_ours: bool,
    /// As the coordinator knows, or will know from our last report.
    reported_free: bool,
    reports: u32,
    pub following: Following,
}

impl Held {
    /// The coordinator knows that it is free.
    pub fn free(token: Token, stay: u64) -> Self {
        let following = Following::default();
        Self { token, stay, user: None, is_ours: true, reported_free: true, reports: 0, following }
    }

    /// Only its user may use it until successors arrive.
    pub fn in_custody(token: Token, user: Option<Ticket>) -> Self {
        Self { user, is_ours: false, reported_free: user.is_none(), ..Self::free(token, token.fencing) }
    }

    /// A client of this peer may acquire it at once: not if others wait.
    pub fn is_at_hand(&self) -> bool {
        self.user.is_none() && self.is_ours && !self.following.more
    }

    pub fn next(&self) -> Option<Claim> {
        self.following.claims.first().copied()
    }
}

/// Of a token that is elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Absent {
    slot: u32,
    /// The last stay at this peer.
    over: Option<u64>,
    /// For later stays, sorted by stay; all of the same turn.
    later: Vec<Next>,
}

/// Successors of a token, as sent by the coordinator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Next {
    pub slot: u32,
    /// These claims follow after this stay.
    pub stay: u64,
    pub following: Following,
    /// Replaces all earlier ones. Otherwise extends those of the same turn, and applies only to a token that was passed
    /// on along these.
    pub replaces: bool,
}

impl Next {
    fn is_for(&self, stay: u64, turn: u64) -> bool {
        self.stay == stay && (self.following.turn == turn || self.replaces && self.following.turn > turn)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    Nothing,
    HandOver(usize),
    /// The token is free, or in use again.
    Report(usize),
}

/// The tokens of one peer, and its knowledge of others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    pub held: Vec<Held>,
    /// Sorted by slot; at most one entry each.
    absent: Vec<Absent>,
}

impl Holder {
    pub fn new(held: Vec<Held>) -> Self {
        Self { held, absent: Vec::new() }
    }

    pub fn retained(&self) -> usize {
        let here = self.held.iter().map(|held| 1 + held.following.claims.len());
        let later = |absent: &Absent| absent.later.iter().map(|event| 1 + event.following.claims.len()).sum::<usize>();
        here.sum::<usize>() + self.absent.iter().map(|absent| 1 + later(absent)).sum::<usize>()
    }

    pub fn place_of(&self, slot: u32) -> Option<usize> {
        self.held.iter().position(|held| held.token.slot == slot)
    }

    pub fn used_by(&self, ticket: Ticket) -> Option<usize> {
        self.held.iter().position(|held| held.user == Some(ticket))
    }

    pub fn on_next(&mut self, next: Next) -> Due {
        let Some(at) = self.place_of(next.slot).filter(|&at| self.held[at].stay >= next.stay) else {
            self.store(next);
            return Due::Nothing;
        };
        let held = &mut self.held[at];
        if !next.is_for(held.stay, held.following.turn) || next.following.claims.is_empty() {
            return Due::Nothing;
        }
        held.following = next.following;
        match held.user {
            None => Due::HandOver(at),
            Some(_) if held.reported_free => Due::Report(at),
            Some(_) => Due::Nothing,
        }
    }

    fn store(&mut self, next: Next) {
        let absent = self.absent_of(next.slot);
        let turn = next.following.turn;
        let known = absent.later.last().map_or(0, |event| event.following.turn);
        if absent.over.is_some_and(|over| next.stay <= over) || turn < known {
            return;
        }
        absent.later.retain(|event| event.following.turn == turn);
        match absent.later.binary_search_by_key(&next.stay, |event| event.stay) {
            Ok(_) => {}
            Err(at) => absent.later.insert(at, next),
        }
    }

    fn absent_of(&mut self, slot: u32) -> &mut Absent {
        let at = self.absent.binary_search_by_key(&slot, |absent| absent.slot).unwrap_or_else(|at| {
            self.absent.insert(at, Absent { slot, over: None, later: Vec::new() });
            at
        });
        &mut self.absent[at]
    }

    /// Returns the index of the token. A stored `Next` for this stay replaces `following`.
    pub fn take(&mut self, token: Token, stay: u64, mut following: Following) -> usize {
        if let Ok(at) = self.absent.binary_search_by_key(&token.slot, |absent| absent.slot) {
            let absent = &mut self.absent[at];
            for event in absent.later.extract_if(.., |event| event.stay <= stay) {
                if event.is_for(stay, following.turn) {
                    following = event.following;
                }
            }
            absent.over = None;
            if absent.later.is_empty() {
                self.absent.remove(at);
            }
        }
        self.held.push(Held { token, stay, user: None, is_ours: true, reported_free: false, reports: 0, following });
        self.held.len() - 1
    }

    /// Passes on a token that its addressee does not need any more: to its successor or, if it has none, to the
    /// successor of another token here, which the coordinator replaces when it receives `Left`.
    pub fn pass_on(&mut self, at: usize) -> Due {
        if self.held[at].next().is_none() {
            let mut others = self.held.iter_mut().map(|held| core::mem::take(&mut held.following.claims));
            let next = others.find_map(|claims| claims.first().copied());
            if next.is_some() {
                self.divert(at, next);
            }
        }
        self.leave(at)
    }

    /// Changes the successor to one that the coordinator has not sent.
    pub fn divert(&mut self, at: usize, to: Option<Claim>) {
        let following = &mut self.held[at].following;
        *following = core::mem::take(following).divert(to);
    }

    pub fn leave(&mut self, at: usize) -> Due {
        let held = &mut self.held[at];
        held.user = None;
        match held.next() {
            Some(_) => Due::HandOver(at),
            None if !held.reported_free => Due::Report(at),
            None => Due::Nothing,
        }
    }

    pub fn report(&mut self, at: usize) -> Update {
        let held = &mut self.held[at];
        held.reported_free = !held.reported_free;
        held.reports += 1;
        let (slot, stay, report) = (held.token.slot, held.stay, held.reports);
        match held.reported_free {
            true => Update::Free { slot, stay, report },
            false => Update::Busy { slot, stay, report },
        }
    }

    /// Returns whether messages for this stay have no effect any more.
    pub fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.place_of(slot).is_some_and(|at| self.held[at].stay > stay)
            || self.absent.iter().any(|absent| absent.slot == slot && absent.over.is_some_and(|over| over >= stay))
    }

    /// Returns the token with the ended stay, the receiver and the remaining successors.
    pub fn hand_over(&mut self, at: usize) -> (Token, u64, Claim, Following) {
        let Held { token, stay, mut following, .. } = self.held.remove(at);
        let absent = self.absent_of(token.slot);
        absent.over = Some(stay);
        absent.later.retain(|event| event.stay > stay);
        assert!(!following.claims.is_empty(), "a hand-over needs a successor");
        let to = following.claims.remove(0);
        (token, stay, to, following)
    }

    /// Removes the first claim for which `is_void` holds, and all later ones. Returns those for which it holds.
    pub fn forget_next(&mut self, is_void: impl Fn(Claim) -> bool) -> Vec<Claim> {
        let later = self.absent.iter_mut().flat_map(|absent| &mut absent.later).map(|event| &mut event.following);
        let mut forgotten = Vec::new();
        for following in self.held.iter_mut().map(|held| &mut held.following).chain(later) {
            let Some(first) = following.claims.iter().position(|&claim| is_void(claim)) else { continue };
            forgotten.extend(following.claims.drain(first..).filter(|&claim| is_void(claim)));
            following.more = true;
        }
        self.absent.iter_mut().for_each(|absent| absent.later.retain(|event| !event.following.claims.is_empty()));
        self.absent.retain(|absent| absent.over.is_some() || !absent.later.is_empty());
        forgotten
    }

    /// Discards all stays and successors, and lets no client of this peer use a token before successors arrive (R2);
    /// the arguments leave parts of that out.
    ///
    /// Stays are then counted from the token's next fencing number: of two tokens of a slot the newer has later stays.
    pub fn restart(&mut self, keeps_next: bool, keeps_ours: bool) {
        self.absent.clear();
        for held in &mut self.held {
            let Held { token, user, is_ours, .. } = *held;
            let known = core::mem::take(&mut held.following);
            let following = if keeps_next { known } else { Following::default() };
            *held = Held { is_ours: is_ours && keeps_ours, following, ..Held::in_custody(token, user) };
        }
    }
}

/// Prints `; token 0 in use, next 4 5; after token 1 comes 5`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Held { token, user, following, .. } in &self.held {
            write!(f, "; token {} {}", token.slot, if user.is_some() { "in use" } else { "free" })?;
            if !following.claims.is_empty() {
                write!(f, ", next {following}")?;
            }
        }
        for Next { slot, following, .. } in self.absent.iter().flat_map(|absent| &absent.later) {
            write!(f, "; after token {slot} comes {following}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::{String, ToString};

    use peerlock_types::PeerId;

    use super::*;

    fn following(turn: u64, peers: &[u64], more: bool) -> Following {
        let claim = |&peer| Claim { peer: PeerId::new(peer), ticket: Ticket::new(1) };
        Following { turn, claims: peers.iter().map(claim).collect(), more }
    }

    /// For token 0.
    fn next(stay: u64, turn: u64, peers: &[u64], replaces: bool) -> Next {
        Next { slot: 0, stay, following: following(turn, peers, false), replaces }
    }

    fn goes_to(later: &[Next], stay: u64, turn: u64, brought: &[u64]) -> String {
        let mut holder = Holder::new(Vec::new());
        later.iter().for_each(|event| assert_eq!(holder.on_next(event.clone()), Due::Nothing));
        let at = holder.take(Token::new(0), stay, following(turn, brought, false));
        holder.held[at].following.to_string()
    }

    #[test]
    fn token_uses_stored_successors_of_its_stay() {
        let later = [next(9, 0, &[4], false), next(7, 0, &[2, 3], false)];
        assert_eq!(goes_to(&later, 7, 0, &[]), "2 3");
        assert_eq!(goes_to(&later, 9, 0, &[]), "4");
        assert_eq!(goes_to(&later, 8, 0, &[5]), "5", "carried by the token");
    }

    #[test]
    fn extension_of_another_turn_is_ignored() {
        assert_eq!(goes_to(&[next(7, 2, &[2], false)], 7, 0, &[]), "");
        assert_eq!(goes_to(&[next(7, 2, &[2], false)], 7, 1, &[]), "");
        assert_eq!(goes_to(&[next(7, 2, &[2], true)], 7, 1, &[]), "2", "replaced");
        assert_eq!(goes_to(&[next(7, 2, &[2], true)], 7, 4, &[3]), "3", "older than the turn of the token");
    }

    #[test]
    fn later_turn_replaces_stored_successors() {
        let later = [next(7, 0, &[2], false), next(9, 2, &[4], true), next(8, 0, &[3], false)];
        assert_eq!(goes_to(&later, 7, 0, &[]), "");
        assert_eq!(goes_to(&later, 9, 0, &[]), "4");
    }

    #[test]
    fn handed_over_token_leaves_successors_of_later_stays() {
        let mut holder = Holder::new(Vec::new());
        assert_eq!(holder.on_next(next(9, 0, &[4], false)), Due::Nothing);
        let at = holder.take(Token::new(0), 7, following(0, &[2, 3], true));
        let (_, stay, to, along) = holder.hand_over(at);
        assert_eq!((stay, to.peer.get(), along), (7, 2, following(0, &[3], true)));
        assert!(holder.is_past(0, 7) && !holder.is_past(0, 8));
        assert_eq!(holder.to_string(), "; after token 0 comes 4");
    }

    #[test]
    fn token_with_more_waiters_is_not_at_hand() {
        let mut holder = Holder::new(Vec::new());
        let at = holder.take(Token::new(0), 7, following(0, &[], true));
        assert!(!holder.held[at].is_at_hand());
        holder.held[at].following.more = false;
        assert!(holder.held[at].is_at_hand());
    }

    #[test]
    fn removed_successor_removes_all_later_ones() {
        let mut holder = Holder::new(Vec::new());
        holder.take(Token::new(0), 7, following(0, &[2, 3, 4], false));
        let forgotten = holder.forget_next(|claim| claim.peer == PeerId::new(3));
        assert_eq!(forgotten.len(), 1);
        assert_eq!(holder.held[0].following, following(0, &[2], true), "more waiters are known");
    }
}
