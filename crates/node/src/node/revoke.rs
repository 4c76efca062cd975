//! Revocation: asks a holder anywhere in the cluster to stop.
//!
//! ```text
//!   requester                 the holder's host
//!      ├── Revoke ───────────────►│  notifies its client that the slot is lost; the lease is not renewed any more
//!      │◄─── Revoked(3000 ms) ────┤
//!      ├── Revoke ───────────────►│  and so on
//!      │◄─── Revoked(None) ───────┤  the client has released, or its lease has ended
//! ```
//!
//! The question is repeated, since messages may be lost and the holder's host keeps no state about the requester. A
//! detached grant has no process to notify: it ends at once, and its next renewal fails; its host replies `None` when
//! the registry has recorded the end. If the host does not answer, the requester ends a detached grant in the registry.

use peerlock_registry::{Command, Look, Page};
use peerlock_types::{Key, PeerId, Span};

use super::session::label;
use super::{Alarm, Answer, Node};
use crate::orders::Revocation;
use crate::session_state::Ask;
use crate::wire::Question;
use crate::{Class, Error, Name};

const AGAIN: Span = Span::from_millis(200);
/// Without an answer for this long the registry is queried; after twice this long the revocation fails.
const PATIENCE: Span = Span::from_secs(5);

impl Node {
    pub(super) fn revoke(&mut self, call: u64, name: Name, peer: Option<PeerId>, fencing: u64) {
        let Some(peer) = peer else { return self.answer(call, Err(Error::Lost)) };
        self.orders.revoke(call, name, peer, fencing, self.now);
        self.on_revoke_alarm(call);
    }

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

    /// Returns the milliseconds until the lease ends; 0 for an ended grant that the registry still has, since its slot
    /// is not free before; `None` if there is no such grant.
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

    pub(super) fn on_asked_to_stop(&mut self, from: PeerId, call: u64, is_inside: bool) {
        if self.orders.on_answered(call, from, self.now) && !is_inside {
            self.finish_revocation(call, Ok(Answer::Done));
        }
    }

    /// The holder's host does not answer. A detached grant can be ended by its fencing number if the session that
    /// granted it is no party; a party may have its token.
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
                "{hosts} holds the slot of {name} and has not answered for {:?}, so its client could not be asked to \
                 stop. If it stays unreachable, the slot is free when its session has expired, or a detached grant \
                 when its lease has. Only `peerlock release --force` does not wait",
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
