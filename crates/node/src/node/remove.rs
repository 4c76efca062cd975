//! Removing a name that nobody uses.
//!
//! ```text
//!   who asks             the hosts that take part              the register
//!      ├── look ───────────────────────────────────────────────────►│
//!      │◄── generation 4, taking part: 1, 2 ────────────────────────┤
//!      ├── Used? ──────────────►│                                   │
//!      │◄── no ─────────────────┤  (yes: nothing has changed)       │
//!      ├── Used? Give it up. ──►│── Quit ──────────────────────────►│  as if nobody had used it for long (R10)
//!      ├── look ───────────────────────────────────────────────────►│  and so on
//!      │◄── generation 6, nobody ───────────────────────────────────┤
//!      ├── Remove, generation 6 ───────────────────────────────────►│  refused if anybody has joined since (R11)
//! ```
//!
//! Only the register decides; all before that only leads to where it can say yes. So nothing has to be remembered
//! anywhere: whoever asks may die in the midst, and a host that has given up its part for nothing joins again when it
//! is asked for. That it is used is asked everywhere before anything is given up, so that who tries to remove what is
//! in use disturbs nobody.

use std::collections::BTreeSet;

use peerlock_base::{Key, PeerId, Span, Time};
use peerlock_mutex as mutex;
use peerlock_register::{Command, Look, Outcome, Page, Refusal};

use super::session::label;
use super::{Alarm, Answer, Node};
use crate::standing::Ask;
use crate::wire::Question;
use crate::{Class, Error, Name};

/// How soon we look again who takes part.
const AGAIN: Span = Span::from_millis(100);
/// After this long we give up. A new leader is elected within that, but the session of a host that is away does not
/// end.
const PATIENCE: Span = Span::from_secs(5);

/// A name that somebody here wants removed.
pub(super) struct Removal {
    name: Name,
    since: Time,
    /// The register is being asked, and has not answered.
    is_asking: bool,
    /// It exists in the register as of this entry.
    seen: Option<u64>,
    /// The hosts that take part, as the register has told it last.
    parties: BTreeSet<PeerId>,
    /// Those that have said that nobody uses it there.
    unused: BTreeSet<PeerId>,
    /// The register has refused although nobody takes part.
    is_refused: bool,
}

impl Node {
    pub(super) fn remove(&mut self, call: u64, name: Name) {
        if let Some(error) = self.trouble() {
            return self.answer(call, Err(error));
        }
        let (parties, unused) = (BTreeSet::new(), BTreeSet::new());
        let (since, is_asking, seen, is_refused) = (self.now, false, None, false);
        self.removals.insert(call, Removal { name, since, is_asking, seen, parties, unused, is_refused });
        self.on_remove_alarm(call);
    }

    /// Looks once more who takes part.
    pub(super) fn on_remove_alarm(&mut self, call: u64) {
        let trouble = self.trouble();
        let Some(removal) = self.removals.get_mut(&call) else { return };
        let (name, since) = (removal.name.clone(), removal.since);
        if self.now.since(since) >= PATIENCE || trouble.is_some() {
            if removal.is_asking {
                self.removals.remove(&call);
                self.timers.cancel(&Alarm::Remove(call));
                return self.give_up_register(call);
            }
            let who: Vec<PeerId> = removal.parties.iter().copied().collect();
            let error = trouble.unwrap_or_else(|| self.recovering(name, since, &who));
            return self.finish_removal(call, Err(error));
        }
        self.timers.set(Alarm::Remove(call), self.now + AGAIN);
        if !std::mem::replace(&mut removal.is_asking, true) {
            self.standing.look(Look::Resource(label(&name)), Ask::RemoveSeen(call), self.now);
        }
    }

    /// Who takes part, as the register has it.
    pub(super) fn on_remove_seen(&mut self, call: u64, page: Page) {
        let Some(removal) = self.removals.get_mut(&call) else { return };
        removal.is_asking = false;
        // A voter that is behind may not know yet what we have seen at another. We look again after a while.
        if removal.seen.is_some_and(|index| page.index < index) {
            return;
        }
        let (name, resource) = (removal.name.clone(), removal.name.key());
        let Some(seen) = page.resources.into_iter().next() else {
            let answer = removal.seen.map(|_| Answer::Removed).ok_or(Error::NoSuchResource { name });
            return self.finish_removal(call, answer);
        };
        removal.seen = Some(page.index);
        if let Some(grant) = seen.detached.first() {
            return self.refuse_to_remove(call, grant.host);
        }
        removal.parties = seen.parties.iter().map(|(_, host)| *host).collect();
        if removal.parties.is_empty() {
            removal.is_asking = true;
            let command = Command::Remove { resource: label(&name), generation: seen.generation };
            return self.standing.ask(command, Ask::Remove(call), self.now);
        }
        removal.is_refused = false;
        let give_up = removal.parties.is_subset(&removal.unused);
        for host in removal.parties.clone() {
            self.ask(host, call, Question::Used { resource, give_up });
        }
    }

    /// Somebody wants a name removed: whether anybody here uses it. If not, our part in it is given up, if that is
    /// wanted, as soon as it can be.
    pub(super) fn is_used(&mut self, resource: Key, give_up: bool) -> bool {
        let is_used = self.clients.has_any(resource);
        if give_up && !is_used {
            self.part_step(resource, mutex::Input::Forget);
        }
        is_used
    }

    /// A host has said whether somebody uses it there.
    pub(super) fn on_used(&mut self, from: PeerId, call: u64, is_used: bool) {
        let Some(removal) = self.removals.get_mut(&call).filter(|it| it.parties.contains(&from)) else { return };
        if is_used {
            return self.refuse_to_remove(call, from);
        }
        // As soon as everybody has said so the next look is due.
        if removal.unused.insert(from) && removal.parties.is_subset(&removal.unused) {
            self.on_remove_alarm(call);
        }
    }

    pub(super) fn on_remove_outcome(&mut self, call: u64, outcome: &Outcome) {
        let Some(removal) = self.removals.get_mut(&call) else { return };
        removal.is_asking = false;
        match outcome {
            // Where there is none any more, ours was applied twice, or somebody else's came first.
            Outcome::Done | Outcome::Refused(Refusal::NoResource) => self.finish_removal(call, Ok(Answer::Removed)),
            // Somebody has joined since; or if nobody has, somebody was forced out.
            Outcome::Refused(Refusal::InUse) if !std::mem::replace(&mut removal.is_refused, true) => {
                self.on_remove_alarm(call);
            }
            Outcome::Refused(Refusal::InUse) => {
                let error = Error::InUse { name: removal.name.clone(), host: String::new(), forced: true };
                self.finish_removal(call, Err(error));
            }
            Outcome::Refused(Refusal::OldGeneration) => self.on_remove_alarm(call),
            outcome => {
                let message = match outcome {
                    Outcome::Refused(why) => why.to_string(),
                    outcome => format!("the register has answered something else: {outcome:?}"),
                };
                self.finish_removal(call, Err(Error::Refused { class: Class::Unavailable, message }));
            }
        }
    }

    fn refuse_to_remove(&mut self, call: u64, host: PeerId) {
        let Some(name) = self.removals.get(&call).map(|removal| removal.name.clone()) else { return };
        let host = self.name_of(host);
        self.finish_removal(call, Err(Error::InUse { name, host, forced: false }));
    }

    fn finish_removal(&mut self, call: u64, answer: Result<Answer, Error>) {
        self.removals.remove(&call);
        self.timers.cancel(&Alarm::Remove(call));
        self.answer(call, answer);
    }
}
