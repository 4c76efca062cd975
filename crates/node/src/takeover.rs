//! Takeover: a new process continues the grants of its predecessor on the same host, for clients that outlive a
//! process.
//!
//! ```text
//!   process 1      client            the host's takeover file        process 2                      the registry
//!   │ Record(grant) ──────────────►  session 4; grant n: until 30 s  │                              │
//!   │ Granted ────►│                                                 │                              │
//!   ✗ killed       │ continues until 30 s                            │                              │
//!                  │                 ───────── Predecessor ─────────►│ Open(replaces 4, takes r) ──►│ ends 4; opens
//!                  │ Resume(n) ─────────────────────────────────────►│ (waits)                      │ a generation
//!                  │                                                 │ session 5 valid ◄────────────┤
//!                  │                                                 │ reports n as a token in use
//!                  │ ◄──────────────────────────────── Granted(n) ───┤
//! ```
//!
//! Each grant and deadline is recorded ([`JournalEntry`]) before its client is notified. The next process reports all
//! recorded grants as held until their deadlines, whether the clients return or not. No other client is granted these
//! slots meanwhile:
//!
//! - The predecessor has ended: a driver that passes a [`Predecessor`] to a node has the lock of its directory.
//! - A grant that is not in the file was not sent to a client. A deadline in the file is not before the one sent.
//! - One log entry ends the predecessor's session and makes ours a party (`Command::Open`), so no generation counts
//!   without one of them. If that session had already expired, so had all its grants.
//! - Our session covers the deadlines: it is not shorter ([`Takeover::session`]) and was renewed later. If it never
//!   becomes valid, the registry does not end it before they have passed.
//! - Deadlines are on a clock that restarts with the machine, so a file of another boot is ignored, as is one of
//!   another cluster. The predecessor's session then expires.
//!
//! The positions of waiting clients continue as well, see [`places`].
//!
//! Detached grants are in the registry and need no takeover. But a process may end before it notifies the client of
//! such a grant, or after it has confirmed a release. Such a grant is *owed* to the registry: it is recorded as an
//! expired grant before the registry is asked to persist it, and before a release is confirmed. The record ends before
//! a client is notified of the grant, or when the registry has no such grant. The next process drops every recorded
//! owed grant.

pub mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::take;

use peerlock_protocol::token::Arrival;
use peerlock_protocol::{Grant, custody};
use peerlock_registry::{self as registry, ClusterId, Label, MOST_TAKEN, SessionId, Ttl};
use peerlock_types::{Key, PeerId, Span, Ticket, Time};

use self::places::{Place, Places};
use crate::clients::{Entry, TicketId, Wanted};
use crate::node::{Alarm, Node};
use crate::testing::mutation::{Mutation, makes};
use crate::{Answer, Effect, Error, Name};

/// The state that a process has left for its successor on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The boot of the machine in which it ran.
    pub boot: String,
    pub cluster: ClusterId,
    /// Its last session, valid or not.
    pub session: SessionId,
    pub ttl: Ttl,
    /// Grants that may still be held.
    pub grants: Vec<GrantRecord>,
    /// Of clients that waited.
    pub places: Vec<Place>,
}

impl Predecessor {
    /// Returns the state after appending this entry to the file.
    pub fn after(before: Option<Self>, boot: &str, journal_entry: JournalEntry) -> Option<Self> {
        let mut predecessor = before.filter(|predecessor| predecessor.boot == boot);
        match (journal_entry, &mut predecessor) {
            (JournalEntry::Session { cluster, session, ttl }, _) => {
                let same = predecessor.filter(|predecessor| predecessor.cluster == cluster);
                let (grants, places) =
                    same.map(|predecessor| (predecessor.grants, predecessor.places)).unwrap_or_default();
                return Some(Self { boot: boot.to_owned(), cluster, session, ttl, grants, places });
            }
            (JournalEntry::Grant(record), Some(predecessor)) => predecessor.grants.push(*record),
            (JournalEntry::Until { note, until }, Some(predecessor)) => {
                predecessor
                    .grants
                    .iter_mut()
                    .filter(|record| record.note == note)
                    .for_each(|record| record.until = until);
            }
            (JournalEntry::Over { note }, Some(predecessor)) => predecessor.grants.retain(|record| record.note != note),
            (JournalEntry::Waiting(place), Some(predecessor)) => predecessor.places.push(*place),
            (JournalEntry::Waited { name, arrival }, Some(predecessor)) => {
                predecessor.places.retain(|place| (&place.name, place.arrival) != (&name, arrival));
            }
            (_, None) => {}
        }
        predecessor
    }
}

/// The time of a grant; perhaps before the clock's origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(i64);

impl Since {
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Returns the time from this to `now`; zero if `now` is earlier.
    pub fn until(self, now: Time) -> Span {
        let span = i128::from(now.as_nanos()) - i128::from(self.0);
        Span::from_nanos(span.max(0).try_into().unwrap_or(u64::MAX))
    }
}

impl From<Time> for Since {
    fn from(time: Time) -> Self {
        Self(time.as_nanos().try_into().unwrap_or(i64::MAX))
    }
}

/// A grant whose client outlives the process that granted it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// The grant ID ([`Wanted::taken_over_as`]).
    pub note: String,
    pub name: Name,
    pub grant: Grant,
    /// Perhaps by an earlier predecessor. On the same clock as `until`.
    pub since: Since,
    /// The last deadline sent to the client.
    pub until: Time,
    pub ttl: Span,
    pub grace: Span,
    pub auto_renew: bool,
    pub label: String,
    pub pid: Option<u32>,
}

impl GrantRecord {
    fn of(entry: &Entry, note: String, until: Time) -> Option<Self> {
        let (grant, since, _) = entry.held()?;
        let Wanted { name, ttl, grace, auto_renew, label, pid, .. } = entry.wanted.clone();
        Some(Self { note, name, grant, since, until, ttl, grace, auto_renew, label, pid })
    }

    pub(crate) fn wanted(&self) -> Wanted {
        let Self { note, name, ttl, grace, auto_renew, label, pid, .. } = self.clone();
        Wanted { auto_renew, taken_over_as: Some(note), label, pid, ..Wanted::new(name, ttl, grace) }
    }
}

/// Written to the takeover file before the following effects of the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// This session was opened; earlier ones are over.
    Session {
        cluster: ClusterId,
        /// The session that the next process takes over or replaces.
        session: SessionId,
        ttl: Ttl,
    },
    Grant(Box<GrantRecord>),
    Until {
        note: String,
        until: Time,
    },
    Over {
        note: String,
    },
    /// A client waits with this arrival number.
    Waiting(Box<Place>),
    Waited {
        name: Name,
        arrival: Arrival,
    },
}

/// The maximum number of buffered messages per sender.
const MOST_EARLY: usize = 10_000;

#[derive(Default)]
pub(crate) struct Takeover {
    predecessor: Option<Predecessor>,
    /// Ends of grants and waits in the file that do not count: recorded after our session is recorded.
    void: Vec<JournalEntry>,
    pub(crate) early: Vec<(PeerId, Key, custody::Message)>,
    /// The number of buffered messages per sender; of dropped ones, the latest generation.
    buffered: BTreeMap<PeerId, usize>,
    pub(crate) missed: BTreeMap<(PeerId, Key), u64>,
    resumes: Vec<(u64, Name, String)>,
    /// The recorded grants of this process, in both directions.
    written: BTreeMap<TicketId, String>,
    tickets: BTreeMap<String, TicketId>,
    /// Recorded grants whose clients have not resumed.
    awaited: BTreeSet<TicketId>,
    /// Owed grants, by name and fencing number.
    owed: BTreeSet<(Name, u64)>,
    /// Those of the predecessor, until the registry has reported all detached grants of this host.
    unseen: BTreeSet<(Name, u64)>,
    places: Places,
    out: Vec<JournalEntry>,
}

impl Takeover {
    pub fn new(predecessor: Option<Predecessor>, boot: &str) -> Self {
        let counts = |predecessor: &Predecessor| predecessor.boot == boot || makes(Mutation::OtherBoot);
        let mut predecessor = predecessor.filter(counts);
        let is_owed = |record: &mut GrantRecord| record.note == owed_as(&record.name, record.grant.fencing);
        let owed = predecessor.iter_mut().flat_map(|predecessor| predecessor.grants.extract_if(.., is_owed));
        let owed: BTreeSet<(Name, u64)> = owed.map(|record| (record.name, record.grant.fencing)).collect();
        let places = Places::new(predecessor.iter_mut().flat_map(|predecessor| predecessor.places.drain(..)));
        Self { predecessor, unseen: owed.clone(), owed, places, ..Self::default() }
    }

    /// Returns the predecessor for a session request in this cluster, unless it has too many resources.
    pub fn predecessor(&self, cluster: ClusterId) -> Option<registry::Predecessor> {
        let predecessor = self.predecessor.as_ref().filter(|predecessor| predecessor.cluster == cluster)?;
        let names = Some(names(&predecessor.grants)).filter(|names| names.len() <= MOST_TAKEN)?;
        let takes = if makes(Mutation::TakesNothing) { Vec::new() } else { names };
        let label = |name: &Name| Label::new(name.as_str()).expect("a valid name is a valid label");
        Some(registry::Predecessor { session: predecessor.session, names: takes.iter().map(label).collect() })
    }

    pub fn session(&self, wanted: Ttl) -> Ttl {
        let holds = self.predecessor.as_ref().filter(|predecessor| !predecessor.grants.is_empty());
        holds.filter(|_| !makes(Mutation::ShorterSession)).map_or(wanted, |predecessor| wanted.max(predecessor.ttl))
    }

    /// Ignores the predecessor, whose session then expires. Its grants stay in the file until a session of ours is
    /// recorded: until then, the next process would replace that session and must know the holders.
    pub fn disclaim(&mut self) {
        let grants = self.predecessor.take().map(|predecessor| predecessor.grants).unwrap_or_default();
        let notes = grants.into_iter().map(|record| record.note);
        let owed = take(&mut self.owed);
        let notes = notes.chain(owed.iter().map(|(name, fencing)| owed_as(name, *fencing)));
        self.void.extend(notes.map(|note| JournalEntry::Over { note }).chain(self.places.forget_left()));
        self.unseen.clear();
    }

    pub fn on_opened(&mut self, cluster: ClusterId, session: SessionId, ttl: Ttl) {
        self.out.push(JournalEntry::Session { cluster, session, ttl });
        self.out.append(&mut self.void);
    }

    /// Ends a takeover whose session ended before it was valid: the grants are lost.
    pub fn renounce(&mut self) -> Vec<(u64, Name, String)> {
        let notes =
            self.predecessor.take().into_iter().flat_map(|predecessor| predecessor.grants).map(|record| record.note);
        self.out.extend(notes.map(|note| JournalEntry::Over { note }));
        (self.buffered, self.early, self.missed) = <_>::default();
        take(&mut self.resumes)
    }

    pub fn is_waiting(&self) -> bool {
        self.predecessor.is_some()
    }

    pub fn holds(&self, now: Time) -> bool {
        self.predecessor.iter().flat_map(|predecessor| &predecessor.grants).any(|record| record.until > now)
    }

    /// Buffers a message that can concern our coming session: a census, or an update to its coordinator. Returns
    /// whether the resource is to be taken over.
    pub fn buffer_message(&mut self, from: PeerId, resource: Key, message: &custody::Message) -> bool {
        let is_it = |record: &GrantRecord| record.name.key() == resource;
        let is_ours = self.predecessor.as_ref().is_some_and(|predecessor| predecessor.grants.iter().any(is_it));
        let can_matter = matches!(
            message.body,
            custody::Body::Census { .. } | custody::Body::Update(_) | custody::Body::Dropped { .. }
        );
        if is_ours && can_matter {
            let buffered = self.buffered.entry(from).or_default();
            if *buffered < MOST_EARLY {
                *buffered += 1;
                self.early.push((from, resource, message.clone()));
            } else {
                let latest = self.missed.entry((from, resource)).or_default();
                *latest = message.generation.max(*latest);
            }
        }
        is_ours
    }

    pub fn resume_later(&mut self, call: u64, name: &Name, note: &str) -> Option<Time> {
        let grants = self.predecessor.as_ref().map_or(&[][..], |predecessor| &predecessor.grants);
        let until = grants.iter().find(|record| record.note == note && record.name == *name)?.until;
        self.resumes.push((call, name.clone(), note.to_owned()));
        Some(until)
    }

    pub fn give_up(&mut self, call: u64) -> bool {
        let before = self.resumes.len();
        self.resumes.retain(|(waiting, ..)| *waiting != call);
        self.resumes.len() < before
    }

    pub fn inherit(&mut self, now: Time) -> Vec<(Name, Vec<GrantRecord>)> {
        let grants = self.predecessor.take().map(|predecessor| predecessor.grants).unwrap_or_default();
        let over = grants.iter().filter(|record| record.until <= now).map(|record| record.note.clone());
        self.out.extend(over.map(|note| JournalEntry::Over { note }));
        let of = |name: &Name| {
            let is_valid = |record: &&GrantRecord| record.name == *name && record.until > now;
            let has_resumed = |record: &&GrantRecord| self.resumes.iter().any(|(_, _, note)| *note == record.note);
            let counts =
                |record: &&GrantRecord| is_valid(record) && (!makes(Mutation::OnlyPresented) || has_resumed(record));
            grants.iter().filter(counts).cloned().collect()
        };
        names(&grants).into_iter().map(|name| (name.clone(), of(&name))).collect()
    }

    fn note(&mut self, ticket: TicketId, note: String) {
        self.tickets.insert(note.clone(), ticket);
        self.written.insert(ticket, note);
    }

    pub fn on_until(&mut self, ticket: TicketId, until: Time, entry: Option<&Entry>) {
        if let Some(note) = self.written.get(&ticket) {
            if !makes(Mutation::OldEnds) {
                self.out.push(JournalEntry::Until { note: note.clone(), until });
            }
        } else if let Some(entry) = entry
            && let Some(note) = entry.wanted.taken_over_as.clone()
            && let Some(record) = GrantRecord::of(entry, note.clone(), until)
        {
            self.out.push(JournalEntry::Grant(Box::new(record)));
            self.note(ticket, note);
        }
    }

    pub fn owe(&mut self, name: &Name, grant: Grant, now: Time) {
        if self.owed.insert((name.clone(), grant.fencing)) {
            self.out.push(JournalEntry::Grant(Box::new(GrantRecord {
                note: owed_as(name, grant.fencing),
                name: name.clone(),
                grant,
                since: now.into(),
                until: Time::ZERO,
                ttl: Span::ZERO,
                grace: Span::ZERO,
                auto_renew: false,
                label: String::new(),
                pid: None,
            })));
        }
    }

    pub fn settle(&mut self, name: &Name, fencing: u64) {
        if self.owed.remove(&(name.clone(), fencing)) {
            self.out.push(JournalEntry::Over { note: owed_as(name, fencing) });
        }
    }

    /// Returns, for an owed grant, whether the predecessor left it and it has to be dropped now.
    pub fn owes(&mut self, name: &Name, fencing: u64) -> Option<bool> {
        let grant = (name.clone(), fencing);
        self.owed.contains(&grant).then(|| self.unseen.remove(&grant))
    }

    pub fn is_owed(&self, resource: Key, fencing: u64) -> bool {
        self.owed.iter().any(|(name, owed)| *owed == fencing && name.key() == resource)
    }

    pub fn on_all_known(&mut self) {
        for (name, fencing) in take(&mut self.unseen) {
            self.settle(&name, fencing);
        }
    }

    pub fn check(&self, is_there: impl Fn(TicketId) -> bool + Copy, has_alarm: impl Fn(u64) -> bool) {
        for (ticket, note) in &self.written {
            assert_eq!(self.tickets.get(note), Some(ticket), "grant {note:?} is recorded for another ticket");
            assert!(is_there(*ticket), "grant {note:?} is recorded for {ticket:?}, which has ended");
        }
        assert_eq!(self.written.len(), self.tickets.len(), "a grant ID is not recorded");
        self.places.check(is_there);
        let awaits = |ticket| self.written.contains_key(ticket);
        assert!(self.awaited.iter().all(awaits), "an awaited grant is not recorded");
        assert_eq!(self.buffered.values().sum::<usize>(), self.early.len(), "early messages are not counted by sender");
        for (call, ..) in &self.resumes {
            assert!(self.is_waiting() && has_alarm(*call), "resume {call} waits without a takeover or a timer");
        }
    }

    pub fn on_over(&mut self, ticket: TicketId) {
        if let Some(note) = self.written.remove(&ticket) {
            self.tickets.remove(&note);
            self.awaited.remove(&ticket);
            self.out.push(JournalEntry::Over { note });
        }
    }
}

/// Returns the ID of an owed grant's record, which differs from all grant IDs.
fn owed_as(name: &Name, fencing: u64) -> String {
    format!("owed {fencing} {name}")
}

fn names(grants: &[GrantRecord]) -> Vec<Name> {
    let mut names: Vec<Name> = grants.iter().map(|record| record.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

impl Node {
    /// Continues the predecessor's grants: from before its first census, this process reports all that may be held.
    pub(crate) fn take_over(&mut self) {
        self.takeover.places.expire_at(self.now + places::KEPT);
        if !self.session_state.is_first() {
            let waiting = self.takeover.renounce();
            return waiting.into_iter().for_each(|(call, ..)| self.refuse_to_resume(call, Error::Lost));
        }
        let Some(bound) = self.session_state.bound() else { return };
        for (name, grants) in self.takeover.inherit(self.now) {
            let mut taken_over: Vec<(Ticket, Grant)> = Vec::new();
            for record in grants {
                let (ticket, look) = self.clients.inherit(&record, self.now, bound);
                self.timers.set(Alarm::Ticket(ticket), look);
                self.takeover.note(ticket, record.note.clone());
                self.takeover.awaited.insert(ticket);
                self.effects.push(Effect::Inherited { ticket, note: record.note });
                taken_over.extend(self.clients.give_alias(ticket).map(|alias| (alias, record.grant)));
            }
            self.open_part_with(&name, &taken_over);
        }
        self.takeover.buffered.clear();
        for (from, resource, message) in take(&mut self.takeover.early) {
            self.on_part_message(from, resource, message);
        }
        // One of the dropped messages may have been a census, which is sent only once.
        for ((_, resource), generation) in take(&mut self.takeover.missed) {
            self.recount(resource, generation);
        }
        take(&mut self.takeover.resumes).into_iter().for_each(|(call, name, note)| self.resume(call, name, note));
    }

    pub(crate) fn resume(&mut self, call: u64, name: Name, note: String) {
        if self.takeover.is_waiting() {
            return match self.takeover.resume_later(call, &name, &note).filter(|until| *until > self.now) {
                Some(until) => self.timers.set(Alarm::Resume(call), until),
                None => self.refuse_to_resume(call, Error::Lost),
            };
        }
        let is_it = |ticket: &TicketId| self.clients.get(*ticket).is_some_and(|entry| entry.wanted.name == name);
        let ticket = self.takeover.tickets.get(&note).copied().filter(is_it);
        let Some(ticket) = ticket else { return self.refuse_to_resume(call, Error::Lost) };
        let Some(lease) = self.clients.resume(ticket, self.now) else {
            let why = self.why_not(ticket);
            return self.refuse_to_resume(call, why);
        };
        self.timers.cancel(&Alarm::Resume(call));
        self.timers.set(Alarm::Ticket(ticket), lease.next());
        self.answer(call, Ok(Answer::Ticket(ticket)));
        let until = lease.deadline();
        self.effects.push(match self.takeover.awaited.remove(&ticket) {
            true => Effect::Granted { ticket, until },
            false => Effect::Renewed { ticket, until },
        });
    }

    pub(crate) fn resume_no_more(&mut self, call: u64) {
        if self.takeover.give_up(call) {
            self.timers.cancel(&Alarm::Resume(call));
        }
    }

    pub(crate) fn on_resume_alarm(&mut self, call: u64) {
        if self.takeover.give_up(call) {
            let why = self.problem().unwrap_or(Error::Lost);
            self.refuse_to_resume(call, why);
        }
    }

    fn refuse_to_resume(&mut self, call: u64, why: Error) {
        self.takeover.give_up(call);
        self.timers.cancel(&Alarm::Resume(call));
        self.answer(call, Err(why));
    }

    pub(crate) fn write_down(&mut self, out: &mut Vec<Effect>) {
        out.extend(self.takeover.out.drain(..).map(Effect::Record));
        for effect in &self.effects {
            match *effect {
                Effect::Granted { ticket, until } | Effect::Renewed { ticket, until } => {
                    self.takeover.on_until(ticket, until, self.clients.get(ticket));
                    self.takeover.on_waited(ticket, false);
                }
                Effect::Ended(ticket, ref why) => {
                    self.takeover.on_over(ticket);
                    // The next process continues its wait.
                    self.takeover.on_waited(ticket, matches!(why, Error::Stopped));
                }
                _ => {}
            }
        }
        if !makes(Mutation::AnsweredBeforeRecorded) {
            out.extend(self.takeover.out.drain(..).map(Effect::Record));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: TicketId = TicketId(1);

    fn takeover() -> Takeover {
        let mut takeover = Takeover::new(None, "boot");
        takeover.note(TICKET, "a".to_owned());
        takeover.awaited.insert(TICKET);
        takeover.check(|ticket| ticket == TICKET, |_| true);
        takeover
    }

    #[test]
    fn ended_grant_leaves_no_state() {
        let mut takeover = takeover();
        takeover.on_over(TICKET);
        takeover.check(|_| false, |_| false);
        assert!(takeover.tickets.is_empty());
        assert_eq!(takeover.out, [JournalEntry::Over { note: "a".to_owned() }]);
    }

    #[test]
    fn cancelled_call_leaves_no_state() {
        let mut takeover = takeover();
        takeover.resumes.extend([7, 8, 7].map(|call| (call, "r".parse().unwrap(), "a".to_owned())));
        assert!(takeover.give_up(7) && !takeover.give_up(7));
        assert_eq!(take(&mut takeover.resumes).len(), 1);
        takeover.check(|_| true, |_| false);
    }

    #[test]
    #[should_panic(expected = "is recorded for another ticket")]
    fn recorded_grant_of_another_ticket_panics() {
        let mut takeover = takeover();
        takeover.tickets.insert("a".to_owned(), TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "grant ID is not recorded")]
    fn unrecorded_grant_id_panics() {
        let mut takeover = takeover();
        takeover.tickets.insert("b".to_owned(), TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "TicketId(1), which has ended")]
    fn recorded_grant_without_a_ticket_panics() {
        takeover().check(|_| false, |_| true);
    }

    #[test]
    #[should_panic(expected = "awaited grant is not recorded")]
    fn awaited_client_without_a_record_panics() {
        let mut takeover = takeover();
        takeover.awaited.insert(TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "not counted by sender")]
    fn uncounted_early_messages_panic() {
        let mut takeover = takeover();
        takeover.buffered.insert(PeerId::new(2), 1);
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "resume 7 waits without a takeover or a timer")]
    fn pending_resume_without_a_takeover_panics() {
        let mut takeover = takeover();
        takeover.resumes.push((7, "r".parse().unwrap(), "a".to_owned()));
        takeover.check(|_| true, |_| true);
    }
}
