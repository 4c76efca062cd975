//! Asking a holder to stop, wherever in the cluster it is.
//!
//! ```text
//!   who asks                  the holder's host
//!      ├── Revoke ───────────────►│  tells its client that the slot is lost; the lease ends when it would have
//!      │◄─── Revoked(3000 ms) ────┤
//!      ├── Revoke ───────────────►│  and so on
//!      │◄─── Revoked(None) ───────┤  the client has given it back, or its lease has ended
//! ```
//!
//! The same question again and again: each may get lost, and the holder's host keeps nothing of who has asked. A
//! detached grant has no process that could be told: it ends at once, and who renews it hears why; its host says so
//! when the register knows. If its host does not answer, the asker takes the one grant back in the register.

use peerlock_registry::{Command, Look, Page};
use peerlock_types::{Key, PeerId, Span};

use super::session::label;
use super::{Alarm, Answer, Node};
use crate::orders::Revocation;
use crate::session_state::Ask;
use crate::wire::Question;
use crate::{Class, Error, Name};

/// How often the holder's host is asked.
const AGAIN: Span = Span::from_millis(200);
/// After this long without an answer it is taken for away, and after this long again the register, too.
const PATIENCE: Span = Span::from_secs(5);

impl Node {
    pub(super) fn revoke(&mut self, call: u64, name: Name, peer: PeerId, fencing: u64) {
        self.orders.revoke(call, name, peer, fencing, self.now);
        self.on_revoke_alarm(call);
    }

    /// Asks the holder's host once more; or the register, when that host is away.
    pub(super) fn on_revoke_alarm(&mut self, call: u64) {
        let Some(Revocation { name, peer, fencing, last_received }) = self.orders.revocation(call).cloned() else {
            return;
        };
        let silent = self.now.since(last_received);
        self.timers.set(Alarm::Revoke(call), self.now + AGAIN);
        if silent < PATIENCE {
            return self.ask(peer, call, Question::Revoke { resource: name.key(), fencing });
        }
        if silent >= PATIENCE * 2 || self.problem().is_some() {
            return self.give_up(call);
        }
        if !self.session_state.is_asking(&Ask::RevokeFrom(call)) {
            self.session_state.look(Look::Resource(label(&name)), Ask::RevokeFrom(call), self.now);
        }
    }

    /// Somebody wants a grant of a client here: how many milliseconds it has left, if there is such a one. One that is
    /// over has none, and is still there as long as the register knows it: its slot is not free before.
    pub(super) fn ask_to_stop(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let left = self.stop_holder(resource, fencing);
        left.or_else(|| self.takeover.is_owed(resource, fencing).then_some(0))
    }

    fn stop_holder(&mut self, resource: Key, fencing: u64) -> Option<u64> {
        let ticket = self.clients.holder(resource, fencing)?;
        let entry = self.clients.get(ticket)?;
        let (name, sent, detached) = (entry.wanted.name.clone(), entry.is_notified(), entry.is_detached());
        let why = Error::Revoked { name: name.clone(), forced: false };
        let until = self.clients.revoke(ticket)?;
        if !sent {
            self.timers.set(Alarm::Ticket(ticket), until);
            self.on_lost(ticket, name, why.clone());
        }
        if detached {
            self.end(ticket, why);
            return None;
        }
        Some(until.max(self.now).since(self.now).as_nanos() / 1_000_000)
    }

    /// The holder's host has answered.
    pub(super) fn on_asked_to_stop(&mut self, from: PeerId, call: u64, is_inside: bool) {
        if self.orders.on_answered(call, from, self.now) && !is_inside {
            self.finish_revocation(call, Ok(Answer::Revoked));
        }
    }

    /// What the register knows of a grant whose host does not answer. A detached one that no party has given can be
    /// taken back by its number: only its client has it. A party may have its token.
    pub(super) fn on_revoke_found(&mut self, call: u64, page: Page) {
        let Some(revocation) = self.orders.revocation(call) else { return };
        let (resource, fencing) = (label(&revocation.name), revocation.fencing);
        let given = page.resources.first().and_then(|found| {
            let session = found.detached.iter().find(|grant| grant.fencing == fencing)?.session;
            let is_party = found.parties.iter().any(|party| party.session == session);
            (!is_party).then_some(session)
        });
        match given {
            Some(session) => {
                self.orders.end(call);
                self.timers.cancel(&Alarm::Revoke(call));
                self.wait_for_register(call);
                let command = Command::TakeBack { resource, fencing, session };
                self.session_state.ask(command, Ask::Revoke(call), self.now);
            }
            None => self.give_up(call),
        }
    }

    fn give_up(&mut self, call: u64) {
        let Some(revocation) = self.orders.revocation(call) else { return };
        let (name, host) = (&revocation.name, self.missing(revocation.peer, revocation.last_received));
        let error = self.problem().unwrap_or_else(|| {
            let hosts = if host.name.is_empty() { host.peer.to_string() } else { host.name.clone() };
            let message = format!(
                "{hosts} has the slot of {name} and has not been heard of for {:?}: nobody there could be asked to stop. \
                 If it stays away the slot is free when its session has ended, and a detached one at the end of its \
                 lease. Only `peerlock release --force` does not wait",
                host.since
            );
            Error::Refused { class: Class::Unavailable, message }
        });
        self.finish_revocation(call, Err(error));
    }

    fn finish_revocation(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.orders.end(call);
        self.timers.cancel(&Alarm::Revoke(call));
        self.answer(call, answer);
    }
}
