//! The tokens at one peer under late binding, and what the coordinator has said about them.
//! [`FairKLate`](crate::FairKLate) and [`Custody`](crate::Custody) share it.
//!
//! Plain arithmetic, without messages. A token's stays at peers are numbered; `next` is meant for one stay and ignored
//! at any other, so messages may overtake each other freely.

use alloc::vec::Vec;
use core::fmt;

use peerlock_base::Ticket;

use crate::line::News;
use crate::token::{Claim, Token};

/// A token that is here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Held {
    pub(crate) token: Token,
    pub(crate) stay: u64,
    /// The client inside with it.
    pub(crate) user: Option<Ticket>,
    /// While nobody uses it, a client of this peer may: if not, only whom the coordinator names.
    pub(crate) is_ours: bool,
    /// The coordinator believes that nobody uses it, or will when our last report has come.
    reported_free: bool,
    /// How often we have reported in this stay.
    reports: u32,
    pub(crate) next: Option<Next>,
}

impl Held {
    /// A token that lies here unused, as the coordinator knows.
    pub(crate) fn free(token: Token, stay: u64) -> Self {
        Self { token, stay, user: None, is_ours: true, reported_free: true, reports: 0, next: None }
    }

    /// A token that is not ours to use until the coordinator says so, but for the client that is inside.
    pub(crate) fn in_custody(token: Token, user: Option<Ticket>) -> Self {
        Self { user, is_ours: false, reported_free: user.is_none(), ..Self::free(token, token.fencing) }
    }
}

/// A token that is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Absent {
    slot: u32,
    stay: u64,
    /// Who comes after it at the stay to come; `None` if this stay was here and is over.
    next: Option<Next>,
}

/// Who comes after, as the coordinator says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Next {
    pub(crate) slot: u32,
    pub(crate) stay: u64,
    /// The last word for this stay has the highest number.
    pub(crate) turn: u32,
    pub(crate) claim: Claim,
}

/// What is to be done about a token now, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// It stays where it is.
    Nothing,
    /// It goes to its next.
    HandOver(usize),
    /// The coordinator has to know that it is free, or is not any more.
    Report(usize),
}

/// What one peer has, and what it knows of what it has not.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Holder {
    pub(crate) held: Vec<Held>,
    /// What we heard of tokens that are not here, by slot. At most one entry for each.
    absent: Vec<Absent>,
}

impl Holder {
    pub(crate) fn new(held: Vec<Held>) -> Self {
        Self { held, absent: Vec::new() }
    }

    pub(crate) fn place_of(&self, slot: u32) -> Option<usize> {
        self.held.iter().position(|held| held.token.slot == slot)
    }

    pub(crate) fn used_by(&self, ticket: Ticket) -> Option<usize> {
        self.held.iter().position(|held| held.user == Some(ticket))
    }

    /// The coordinator has said who comes after.
    pub(crate) fn on_next(&mut self, next: Next) -> Due {
        let Some(at) = self.place_of(next.slot) else {
            self.keep(next);
            return Due::Nothing;
        };
        let held = &mut self.held[at];
        if next.stay > held.stay {
            self.keep(next);
            return Due::Nothing;
        }
        if next.stay < held.stay || held.next.is_some_and(|known| known.turn > next.turn) {
            return Due::Nothing;
        }
        held.next = Some(next);
        match held.user {
            None => Due::HandOver(at),
            Some(_) if held.reported_free => Due::Report(at),
            Some(_) => Due::Nothing,
        }
    }

    /// The token is still on its way here, or has gone again.
    fn keep(&mut self, next: Next) {
        let Next { slot, stay, turn, .. } = next;
        let later = Absent { slot, stay, next: Some(next) };
        match self.absent.binary_search_by_key(&slot, |absent| absent.slot) {
            Err(at) => self.absent.insert(at, later),
            Ok(at) => {
                let known = &mut self.absent[at];
                let is_newer = |known: Next| known.turn < turn;
                if known.stay < stay || known.stay == stay && known.next.is_some_and(is_newer) {
                    *known = later;
                }
            }
        }
    }

    /// A token has come, which must not be here already; its place.
    pub(crate) fn take(&mut self, token: Token, stay: u64) -> usize {
        let known = self.absent.iter().position(|absent| absent.slot == token.slot);
        let known = known.map(|at| self.absent.remove(at));
        let next = known.and_then(|absent| absent.next).filter(|next| next.stay == stay);
        self.held.push(Held { token, stay, user: None, is_ours: true, reported_free: false, reports: 0, next });
        self.held.len() - 1
    }

    /// The token at this place came for somebody who does not need it any more: it goes on, if need be to who was to
    /// come after another one.
    pub(crate) fn pass_on(&mut self, at: usize) -> Due {
        if self.held[at].next.is_none() {
            self.held[at].next = self.held.iter_mut().find_map(|held| held.next.take());
        }
        self.leave(at)
    }

    /// Nobody here uses the token any more.
    pub(crate) fn leave(&mut self, at: usize) -> Due {
        let held = &mut self.held[at];
        held.user = None;
        match held.next {
            Some(_) => Due::HandOver(at),
            None if !held.reported_free => Due::Report(at),
            None => Due::Nothing,
        }
    }

    /// What the coordinator is to be told of the token.
    pub(crate) fn report(&mut self, at: usize) -> News {
        let held = &mut self.held[at];
        held.reported_free = !held.reported_free;
        held.reports += 1;
        let (slot, stay, report) = (held.token.slot, held.stay, held.reports);
        match held.reported_free {
            true => News::Free { slot, stay, report },
            false => News::Busy { slot, stay, report },
        }
    }

    /// Whether nothing that is said of this stay matters any more.
    pub(crate) fn is_past(&self, slot: u32, stay: u64) -> bool {
        let is_over = |absent: &Absent| absent.stay > stay || absent.stay == stay && absent.next.is_none();
        self.place_of(slot).is_some_and(|at| self.held[at].stay > stay)
            || self.absent.iter().any(|absent| absent.slot == slot && is_over(absent))
    }

    /// Gives the token away: it, the stay that is over, and whom it goes to.
    pub(crate) fn hand_over(&mut self, at: usize) -> (Token, u64, Claim) {
        let Held { token, stay, next, .. } = self.held.remove(at);
        let place = self.absent.partition_point(|absent| absent.slot < token.slot);
        self.absent.insert(place, Absent { slot: token.slot, stay, next: None });
        (token, stay, next.expect("a token is handed over only to somebody").claim)
    }

    /// Forgets who comes after, where `is_void` says so: who that was, also after a token that is still to come here.
    /// It would lie here then, and be taken for the one who is gone.
    pub(crate) fn forget_next(&mut self, is_void: impl Fn(Claim) -> bool) -> Vec<Claim> {
        let held = self.held.iter_mut().filter_map(|held| held.next.take_if(|next| is_void(next.claim)));
        let is_next = |absent: &mut Absent| absent.next.is_some_and(|next| is_void(next.claim));
        let absent = self.absent.extract_if(.., is_next).filter_map(|absent| absent.next);
        held.chain(absent).map(|next| next.claim).collect()
    }

    /// Begins anew with what is here: all that was said of stays and of who comes after is void, unless `keeps_next`.
    /// Each token's stays are counted on from its next fencing number, so that of two tokens of one slot the younger
    /// has the later stays. None is ours to use before the coordinator has spoken of it, unless `keeps_ours`.
    pub(crate) fn begin_anew(&mut self, keeps_next: bool, keeps_ours: bool) {
        self.absent.clear();
        for held in &mut self.held {
            let Held { token, user, is_ours, next, .. } = *held;
            let (is_ours, next) = (is_ours && keeps_ours, next.filter(|_| keeps_next));
            *held = Held { is_ours, next, ..Held::in_custody(token, user) };
        }
    }
}

/// `; token 0 in use, next 4; after token 1 comes 5`.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Held { token, user, next, .. } in &self.held {
            write!(f, "; token {} {}", token.slot, if user.is_some() { "in use" } else { "free" })?;
            if let Some(next) = next {
                write!(f, ", next {}", next.claim)?;
            }
        }
        for next in self.absent.iter().filter_map(|absent| absent.next) {
            write!(f, "; after token {} comes {}", next.slot, next.claim)?;
        }
        Ok(())
    }
}
