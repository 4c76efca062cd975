//! The tokens at one peer under late binding, and what the coordinator has said about them.
//! [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages. A token's stays at peers are numbered; `next` is meant for one stay and ignored
//! at any other, so messages may overtake each other freely. It may be for a stay that is still far away: then it is
//! kept, and the token finds it here.

use alloc::vec::Vec;
use core::fmt;

use peerlock_types::Ticket;

use crate::queue::{Following, Update};
use crate::token::{Claim, Token};

/// A token that is here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Held {
    /// The token.
    pub token: Token,
    /// The number of its stay here.
    pub stay: u64,
    /// The client inside with it.
    pub user: Option<Ticket>,
    /// While nobody uses it, a client of this peer may: if not, only whom the coordinator names.
    pub is_ours: bool,
    /// The coordinator believes that nobody uses it, or will when our last report has come.
    reported_free: bool,
    /// How often we have reported in this stay.
    reports: u32,
    /// The clients that come after.
    pub following: Following,
}

impl Held {
    /// A token that lies here unused, as the coordinator knows.
    pub fn free(token: Token, stay: u64) -> Self {
        let following = Following::default();
        Self { token, stay, user: None, is_ours: true, reported_free: true, reports: 0, following }
    }

    /// A token that is not ours to use until the coordinator says so, but for the client that is inside.
    pub fn in_custody(token: Token, user: Option<Ticket>) -> Self {
        Self { user, is_ours: false, reported_free: user.is_none(), ..Self::free(token, token.fencing) }
    }

    /// Whether a client of this peer may go in with it at once. Not while others are known to wait, even if it is not
    /// known who comes first.
    pub fn is_at_hand(&self) -> bool {
        self.user.is_none() && self.is_ours && !self.following.more
    }

    /// Who comes after, as far as we were told.
    pub fn next(&self) -> Option<Claim> {
        self.following.claims.first().copied()
    }
}

/// What we know of a token that is not here, or of its stays here that are still to come.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
struct Absent {
    slot: u32,
    /// The last of its stays that was here and is over.
    over: Option<u64>,
    /// Who comes after it at stays to come, in their order; all of the same turn.
    words: Vec<Next>,
}

/// Who comes after, as the coordinator says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Next {
    /// The slot of the token.
    pub slot: u32,
    /// The stay of the token that is meant.
    pub stay: u64,
    /// The clients that come after.
    pub following: Following,
    /// It counts whatever was said before. If not, it adds to what was said under the same turn, and only a token that
    /// has gone that way has use for it.
    pub replaces: bool,
}

impl Next {
    /// Whether a token with this stay and turn has use for it.
    fn is_for(&self, stay: u64, turn: u64) -> bool {
        self.stay == stay && (self.following.turn == turn || self.replaces && self.following.turn > turn)
    }
}

/// What is to be done about a token now, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// It stays where it is.
    Nothing,
    /// It goes to its next.
    HandOver(usize),
    /// The coordinator has to know that it is free, or is not any more.
    Report(usize),
}

/// What one peer has, and what it knows of what it has not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Holder {
    /// The tokens that are here.
    pub held: Vec<Held>,
    /// What we heard of tokens that are not here, by slot. At most one entry for each.
    absent: Vec<Absent>,
}

impl Holder {
    /// A holder of these tokens.
    pub fn new(held: Vec<Held>) -> Self {
        Self { held, absent: Vec::new() }
    }

    /// How many tokens are here or heard of, with all who were said to come after.
    pub fn retained(&self) -> usize {
        let here = self.held.iter().map(|held| 1 + held.following.claims.len());
        let words = |absent: &Absent| absent.words.iter().map(|event| 1 + event.following.claims.len()).sum::<usize>();
        here.sum::<usize>() + self.absent.iter().map(|absent| 1 + words(absent)).sum::<usize>()
    }

    /// Returns the index in `held` of the token of a slot.
    pub fn place_of(&self, slot: u32) -> Option<usize> {
        self.held.iter().position(|held| held.token.slot == slot)
    }

    /// Returns the index in `held` of the token that a client uses.
    pub fn used_by(&self, ticket: Ticket) -> Option<usize> {
        self.held.iter().position(|held| held.user == Some(ticket))
    }

    /// The coordinator has said who comes after.
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

    /// The token is still on its way here, or has gone again.
    fn store(&mut self, next: Next) {
        let absent = self.absent_of(next.slot);
        let turn = next.following.turn;
        let known = absent.words.last().map_or(0, |event| event.following.turn);
        if absent.over.is_some_and(|over| next.stay <= over) || turn < known {
            return;
        }
        absent.words.retain(|event| event.following.turn == turn);
        match absent.words.binary_search_by_key(&next.stay, |event| event.stay) {
            Ok(_) => {}
            Err(at) => absent.words.insert(at, next),
        }
    }

    fn absent_of(&mut self, slot: u32) -> &mut Absent {
        let at = self.absent.binary_search_by_key(&slot, |absent| absent.slot).unwrap_or_else(|at| {
            self.absent.insert(at, Absent { slot, over: None, words: Vec::new() });
            at
        });
        &mut self.absent[at]
    }

    /// A token has come, which must not be here already; its place. `following` is what it has brought along: a word
    /// that was waiting for it goes further, or is said anew.
    pub fn take(&mut self, token: Token, stay: u64, mut following: Following) -> usize {
        if let Ok(at) = self.absent.binary_search_by_key(&token.slot, |absent| absent.slot) {
            let absent = &mut self.absent[at];
            for event in absent.words.extract_if(.., |event| event.stay <= stay) {
                if event.is_for(stay, following.turn) {
                    following = event.following;
                }
            }
            absent.over = None;
            if absent.words.is_empty() {
                self.absent.remove(at);
            }
        }
        self.held.push(Held { token, stay, user: None, is_ours: true, reported_free: false, reports: 0, following });
        self.held.len() - 1
    }

    /// The token at this place came for somebody who does not need it any more: it goes on, if need be to who was to
    /// come after another one. The coordinator hears of that, and tells that other one's holder anew.
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

    /// The token goes to somebody whom the coordinator has not named.
    pub fn divert(&mut self, at: usize, to: Option<Claim>) {
        let following = &mut self.held[at].following;
        *following = core::mem::take(following).divert(to);
    }

    /// Nobody here uses the token any more.
    pub fn leave(&mut self, at: usize) -> Due {
        let held = &mut self.held[at];
        held.user = None;
        match held.next() {
            Some(_) => Due::HandOver(at),
            None if !held.reported_free => Due::Report(at),
            None => Due::Nothing,
        }
    }

    /// What the coordinator is to be told of the token.
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

    /// Whether nothing that is said of this stay matters any more.
    pub fn is_past(&self, slot: u32, stay: u64) -> bool {
        self.place_of(slot).is_some_and(|at| self.held[at].stay > stay)
            || self.absent.iter().any(|absent| absent.slot == slot && absent.over.is_some_and(|over| over >= stay))
    }

    /// Gives the token away: it, the stay that is over, whom it goes to, and what it takes along of who follows.
    pub fn hand_over(&mut self, at: usize) -> (Token, u64, Claim, Following) {
        let Held { token, stay, mut following, .. } = self.held.remove(at);
        let absent = self.absent_of(token.slot);
        absent.over = Some(stay);
        absent.words.retain(|event| event.stay > stay);
        assert!(!following.claims.is_empty(), "a token is handed over only to somebody");
        let to = following.claims.remove(0);
        (token, stay, to, following)
    }

    /// Forgets who comes after, from the first on of whom `is_void` says so: who of them that was, also after a token
    /// that is still to come here. It would lie here then, and be taken for the one who is gone.
    pub fn forget_next(&mut self, is_void: impl Fn(Claim) -> bool) -> Vec<Claim> {
        let words = self.absent.iter_mut().flat_map(|absent| &mut absent.words).map(|event| &mut event.following);
        let mut forgotten = Vec::new();
        for following in self.held.iter_mut().map(|held| &mut held.following).chain(words) {
            let Some(first) = following.claims.iter().position(|&claim| is_void(claim)) else { continue };
            forgotten.extend(following.claims.drain(first..).filter(|&claim| is_void(claim)));
            following.more = true;
        }
        self.absent.iter_mut().for_each(|absent| absent.words.retain(|event| !event.following.claims.is_empty()));
        self.absent.retain(|absent| absent.over.is_some() || !absent.words.is_empty());
        forgotten
    }

    /// Begins anew with what is here: all that was said of stays and of who comes after is void, unless `keeps_next`.
    /// Each token's stays are counted on from its next fencing number, so that of two tokens of one slot the younger
    /// has the later stays. None is ours to use before the coordinator has spoken of it, unless `keeps_ours`.
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

/// `; token 0 in use, next 4 5; after token 1 comes 5`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Held { token, user, following, .. } in &self.held {
            write!(f, "; token {} {}", token.slot, if user.is_some() { "in use" } else { "free" })?;
            if !following.claims.is_empty() {
                write!(f, ", next {following}")?;
            }
        }
        for Next { slot, following, .. } in self.absent.iter().flat_map(|absent| &absent.words) {
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

    /// A word for a stay of token 0.
    fn next(stay: u64, turn: u64, peers: &[u64], replaces: bool) -> Next {
        Next { slot: 0, stay, following: following(turn, peers, false), replaces }
    }

    /// Where the token goes from here at this stay, having come with this turn and these, after all words were heard.
    fn goes_to(words: &[Next], stay: u64, turn: u64, brought: &[u64]) -> String {
        let mut holder = Holder::new(Vec::new());
        words.iter().for_each(|event| assert_eq!(holder.on_next(event.clone()), Due::Nothing));
        let at = holder.take(Token::new(0), stay, following(turn, brought, false));
        holder.held[at].following.to_string()
    }

    #[test]
    fn a_token_finds_the_word_for_its_stay() {
        let words = [next(9, 0, &[4], false), next(7, 0, &[2, 3], false)];
        assert_eq!(goes_to(&words, 7, 0, &[]), "2 3");
        assert_eq!(goes_to(&words, 9, 0, &[]), "4");
        assert_eq!(goes_to(&words, 8, 0, &[5]), "5", "what it has brought along");
    }

    #[test]
    fn a_word_that_adds_to_another_way_is_not_for_it() {
        assert_eq!(goes_to(&[next(7, 2, &[2], false)], 7, 0, &[]), "");
        assert_eq!(goes_to(&[next(7, 2, &[2], false)], 7, 1, &[]), "");
        assert_eq!(goes_to(&[next(7, 2, &[2], true)], 7, 1, &[]), "2", "said anew");
        assert_eq!(goes_to(&[next(7, 2, &[2], true)], 7, 4, &[3]), "3", "and older than what it has brought");
    }

    #[test]
    fn of_two_turns_only_the_later_is_kept() {
        let words = [next(7, 0, &[2], false), next(9, 2, &[4], true), next(8, 0, &[3], false)];
        assert_eq!(goes_to(&words, 7, 0, &[]), "");
        assert_eq!(goes_to(&words, 9, 0, &[]), "4");
    }

    #[test]
    fn a_token_takes_along_who_follows_and_leaves_the_words_for_its_later_stays() {
        let mut holder = Holder::new(Vec::new());
        assert_eq!(holder.on_next(next(9, 0, &[4], false)), Due::Nothing);
        let at = holder.take(Token::new(0), 7, following(0, &[2, 3], true));
        let (_, stay, to, along) = holder.hand_over(at);
        assert_eq!((stay, to.peer.get(), along), (7, 2, following(0, &[3], true)));
        assert!(holder.is_past(0, 7) && !holder.is_past(0, 8));
        assert_eq!(holder.to_string(), "; after token 0 comes 4");
    }

    #[test]
    fn a_token_is_not_at_hand_while_there_are_more() {
        let mut holder = Holder::new(Vec::new());
        let at = holder.take(Token::new(0), 7, following(0, &[], true));
        assert!(!holder.held[at].is_at_hand());
        holder.held[at].following.more = false;
        assert!(holder.held[at].is_at_hand());
    }

    #[test]
    fn who_forgets_one_forgets_all_behind_it() {
        let mut holder = Holder::new(Vec::new());
        holder.take(Token::new(0), 7, following(0, &[2, 3, 4], false));
        let forgotten = holder.forget_next(|claim| claim.peer == PeerId::new(3));
        assert_eq!(forgotten.len(), 1);
        assert_eq!(holder.held[0].following, following(0, &[2], true), "and knows that there are more");
    }
}
