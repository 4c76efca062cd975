//! Deletion of an unused resource.
//!
//! ```text
//!   requester            the parties' hosts                        the registry
//!      ├── query ──────────────────────────────────────────────────►│
//!      │◄── generation 4, parties 1, 2 ─────────────────────────────┤
//!      ├── Used? ──────────────►│                                   │
//!      │◄── no ─────────────────┤  (yes: nothing has changed)       │
//!      ├── Used? Give it up. ──►│── Quit ──────────────────────────►│  as after a long time without use (R10)
//!      ├── query ──────────────────────────────────────────────────►│  and so on
//!      │◄── generation 6, no parties ───────────────────────────────┤
//!      ├── Remove, generation 6 ───────────────────────────────────►│  refused if a session has joined since (R11)
//! ```
//!
//! Only the registry decides, so no state has to survive: the requester may fail at any point, and a host that has quit
//! in vain joins again at the next request. All parties are asked before any of them quits, so that an attempt to
//! delete a used resource has no effect.

use peerlock_protocol as protocol;
use peerlock_registry::{Command, Look, Outcome, Page, Refusal};
use peerlock_types::{Key, PeerId, Span};

use super::session::label;
use super::{Alarm, Answer, Node};
use crate::orders::Found;
use crate::session_state::Ask;
use crate::wire::Question;
use crate::{Class, Error, Name};

const AGAIN: Span = Span::from_millis(100);
/// The timeout: longer than an election, but shorter than the session of an unreachable host.
const PATIENCE: Span = Span::from_secs(5);

impl Node {
    pub(super) fn remove(&mut self, call: u64, name: Name) {
        if let Some(error) = self.problem() {
            return self.answer(call, Err(error));
        }
        self.orders.remove(call, name, self.now);
        self.on_remove_alarm(call);
    }

    pub(super) fn on_remove_alarm(&mut self, call: u64) {
        let problem = self.problem();
        let Some(removal) = self.orders.removal(call) else { return };
        let (name, since) = (removal.name().clone(), removal.since());
        if self.now.since(since) >= PATIENCE || problem.is_some() {
            if removal.is_asking() {
                self.orders.end(call);
                self.timers.cancel(&Alarm::Remove(call));
                return self.give_up_register(call);
            }
            let hosts: Vec<PeerId> = removal.parties().iter().copied().collect();
            let error = problem.unwrap_or_else(|| self.recovering(name, since, &hosts));
            return self.finish_removal(call, Err(error));
        }
        self.timers.set(Alarm::Remove(call), self.now + AGAIN);
        if removal.ask() {
            self.session_state.look(Look::Resource(label(&name)), Ask::RemoveFound(call), self.now);
        }
    }

    pub(super) fn on_remove_found(&mut self, call: u64, page: Page) {
        let Some(removal) = self.orders.removal(call) else { return };
        let (found, name) = (removal.on_result(page), removal.name().clone());
        match found {
            Found::Nothing => {}
            Found::Gone { was_there: true } => self.finish_removal(call, Ok(Answer::Done)),
            Found::Gone { was_there: false } => self.finish_removal(call, Err(Error::NoSuchResource { name })),
            Found::Detached(host) => self.refuse_to_remove(call, host),
            Found::Unused(generation) => {
                let command = Command::Remove { resource: label(&name), generation };
                self.session_state.ask(command, Ask::Remove(call), self.now);
            }
            Found::Shared { hosts, give_up } => {
                for host in hosts {
                    self.ask(host, call, Question::Used { resource: name.key(), give_up });
                }
            }
        }
    }

    /// Returns whether a client here uses the resource. If not, and `give_up` is set, quits it as soon as possible.
    pub(super) fn is_used(&mut self, resource: Key, give_up: bool) -> bool {
        let is_used = self.clients.has_any(resource);
        if give_up && !is_used {
            self.part_step(resource, protocol::Input::Forget);
        }
        is_used
    }

    pub(super) fn on_used(&mut self, from: PeerId, call: u64, is_used: bool) {
        let Some(removal) = self.orders.removal(call).filter(|it| it.parties().contains(&from)) else { return };
        if is_used {
            return self.refuse_to_remove(call, from);
        }
        // After the last answer the next query is due.
        if removal.on_unused(from) {
            self.on_remove_alarm(call);
        }
    }

    pub(super) fn on_remove_outcome(&mut self, call: u64, outcome: &Outcome) {
        let Some(removal) = self.orders.removal(call) else { return };
        removal.on_outcome();
        match outcome {
            // Our command was applied twice, or another one came first.
            Outcome::Done | Outcome::Refused(Refusal::NoResource) => self.finish_removal(call, Ok(Answer::Done)),
            // A session has joined since; or, if the next query finds none, one was evicted.
            Outcome::Refused(Refusal::InUse) if !removal.on_refused() => self.on_remove_alarm(call),
            Outcome::Refused(Refusal::InUse) => {
                let error = Error::InUse { name: removal.name().clone(), host: String::new(), forced: true };
                self.finish_removal(call, Err(error));
            }
            Outcome::Refused(Refusal::OldGeneration) => self.on_remove_alarm(call),
            outcome => {
                let message = match outcome {
                    Outcome::Refused(why) => why.to_string(),
                    outcome => format!("the registry has returned an unexpected outcome: {outcome:?}"),
                };
                self.finish_removal(call, Err(Error::Refused { class: Class::Unavailable, message }));
            }
        }
    }

    fn refuse_to_remove(&mut self, call: u64, host: PeerId) {
        let Some(name) = self.orders.removal(call).map(|removal| removal.name().clone()) else { return };
        let host = self.name_of(host);
        self.finish_removal(call, Err(Error::InUse { name, host, forced: false }));
    }

    fn finish_removal(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.orders.end(call);
        self.timers.cancel(&Alarm::Remove(call));
        self.answer(call, answer);
    }
}
