//! What outlives a process on its host: the grants of clients that do not die with it.
//!
//! ```text
//!   process 1      client            the host's run-time file        process 2                      the register
//!   │ Keep(grant) ────────────────►  session 4; grant n: until 30 s  │                              │
//!   │ Granted ────►│                                                 │                              │
//!   ✗ killed       │ goes on until 30 s                              │                              │
//!                  │                 ───────── Estate ──────────────►│ Open(replaces 4, takes r) ──►│ ends 4; r has a
//!                  │ Resume(n) ─────────────────────────────────────►│ (waits)                      │ new generation
//!                  │                                                 │ session 5 stands ◄───────────┤
//!                  │                                                 │ answers for n, with a token in use
//!                  │ ◄──────────────────────────────── Granted(n) ───┤
//! ```
//!
//! Everything that a client is told is written down first ([`JournalEntry`]), so a process that comes after this one knows of
//! whoever may be inside, and until when. It answers for all of them, whether they come to it or not, each until its
//! end. Why this lets nobody in beside them:
//!
//! - The process before is gone: whoever hands an [`Predecessor`] to a node has the lock that it had.
//! - What it has told nobody it has given to nobody. What it has told is in the estate, with an end that is not before
//!   the one that was told.
//! - Its session ends in the entry in which ours takes part (`Command::Open`), so no generation counts without either.
//!   If that session had ended before, by its time, the ends of its grants have passed.
//! - Ours stands for as long as the ends of these grants at least, because it is not shorter ([`Takeover::session`]) and
//!   was renewed later. If it never stands, the register ends it not before they have passed.
//! - Ends are on a clock that begins anew with the machine: an estate of another boot does not count at all, nor does
//!   one of another cluster. Then the session before ends by its time.
//!
//! Detached grants need no heir: the register knows them. But it may know one that nobody has, since its client was not
//! told yet, or was told that it is given back. Such a one is *owed*: it is written down before the register is asked
//! for it, and before its client is told that it is given back, as a grant that has ended; and it is crossed out before
//! a client is told that it is inside, or when the register has answered that there is no such grant. So what the next
//! process finds written down it takes back, if the register knows it, and nobody is inside with it.

use std::collections::{BTreeMap, BTreeSet};
use std::vec::Drain;

use peerlock_protocol::{Grant, custody};
use peerlock_registry::{self as registry, ClusterId, Label, MOST_TAKEN, SessionId, Ttl};
use peerlock_types::{Key, PeerId, Span, Time};

use crate::Name;
use crate::clients::{Entry, Stage, TicketId, Wait, Wanted};
use crate::mutation::{Mutation, makes};

/// What a process has left behind, as the next one of the same host finds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// The boot of the machine in which it ran.
    pub boot: String,
    /// The cluster that it belonged to.
    pub cluster: ClusterId,
    /// Its last session, whether that ever stood or not.
    pub session: SessionId,
    /// How long it stands after a renewal.
    pub ttl: Ttl,
    /// Who may still be inside.
    pub grants: Vec<GrantRecord>,
}

impl Predecessor {
    /// What is left when this is written down behind what was there before.
    pub fn after(before: Option<Self>, boot: &str, journal_entry: JournalEntry) -> Option<Self> {
        let mut predecessor = before.filter(|predecessor| predecessor.boot == boot);
        match (journal_entry, &mut predecessor) {
            (JournalEntry::Session { cluster, session, ttl }, _) => {
                let same = predecessor.filter(|predecessor| predecessor.cluster == cluster);
                let grants = same.map(|predecessor| predecessor.grants).unwrap_or_default();
                return Some(Self { boot: boot.to_owned(), cluster, session, ttl, grants });
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
            (_, None) => {}
        }
        predecessor
    }
}

/// When a client came in: by the clock of a node, but perhaps before that clock began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(i64);

impl Since {
    /// So many nanoseconds after the clock's beginning, or before it.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// How long ago that was; zero if it is not earlier.
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

/// A grant whose client outlives the process that gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    /// What its client calls it ([`Wanted::taken_over_as`]).
    pub note: String,
    /// Of which resource.
    pub name: Name,
    /// Its slot and fencing number.
    pub grant: Grant,
    /// When its client came in, by the same clock as its end: perhaps under an earlier process than the last one.
    pub since: Since,
    /// The last end that its client was told, by the clock of the node that is handed or hands this out.
    pub until: Time,
    /// As in [`Wanted`].
    pub ttl: Span,
    /// As in [`Wanted`].
    pub grace: Span,
    /// As in [`Wanted`].
    pub auto_renew: bool,
    /// As in [`Wanted`].
    pub label: String,
    /// As in [`Wanted`].
    pub pid: Option<u32>,
}

impl GrantRecord {
    fn of(entry: &Entry, note: String, until: Time) -> Option<Self> {
        let Stage::Held { grant, since, .. } = entry.stage else { return None };
        let Wanted { name, ttl, grace, auto_renew, label, pid, .. } = entry.wanted.clone();
        Some(Self { note, name, grant, since, until, ttl, grace, auto_renew, label, pid })
    }

    /// As if it had been asked for here.
    pub(crate) fn wanted(&self) -> Wanted {
        let Self { note, name, ttl, grace, auto_renew, label, pid, .. } = self.clone();
        Wanted {
            name,
            slots: None,
            ttl,
            grace,
            auto_renew,
            detached: None,
            taken_over_as: Some(note),
            wait: Wait::Forever,
            label,
            pid,
            request: None,
        }
    }
}

/// To be written down for the next process of this host, before anything else of the same step is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEntry {
    /// This session is open, and those before it are over.
    Session {
        /// The cluster that it is of.
        cluster: ClusterId,
        /// The one that the next process takes over, or replaces.
        session: SessionId,
        /// How long it stands after a renewal.
        ttl: Ttl,
    },
    /// A client is let in.
    Grant(Box<GrantRecord>),
    /// It may stay until then.
    Until {
        /// What it calls its grant.
        note: String,
        /// Its end from now on.
        until: Time,
    },
    /// Nothing is left of this grant.
    Over {
        /// What its client called it.
        note: String,
    },
}

/// At most this many messages of a host are kept for the session that is to come.
const MOST_EARLY: usize = 10_000;

/// See the module.
pub(crate) struct Takeover {
    /// What was left to us, until our first session stands.
    predecessor: Option<Predecessor>,
    /// What was written down for us and does not count, until a session of ours is written down, too.
    void: Vec<String>,
    /// Messages for our parts in what was left to us, which are not there yet.
    early: Vec<(PeerId, Key, custody::Message)>,
    /// How many of them are of which host; and of what there was no room for, the latest generation, by who said it.
    said: BTreeMap<PeerId, usize>,
    missed: BTreeMap<(PeerId, Key), u64>,
    /// Who wants to go on with a grant: the call, and what the grant is called.
    resumes: Vec<(u64, Name, String)>,
    /// The grants of ours that are written down.
    written: BTreeMap<TicketId, String>,
    tickets: BTreeMap<String, TicketId>,
    /// Those of them whose clients have not come to us yet.
    awaited: BTreeSet<TicketId>,
    /// Detached grants that nobody has, and that the register may know: by name and number.
    owed: BTreeSet<(Name, u64)>,
    /// Those of them that were left to us, until the register has told what it knows.
    unseen: BTreeSet<(Name, u64)>,
    /// What is to be written down.
    out: Vec<JournalEntry>,
}

impl Takeover {
    /// Of a process that was left this, if it counts in this boot of the machine.
    pub fn new(predecessor: Option<Predecessor>, boot: &str) -> Self {
        let counts = |predecessor: &Predecessor| predecessor.boot == boot || makes(Mutation::OtherBoot);
        let mut predecessor = predecessor.filter(counts);
        let is_owed = |record: &mut GrantRecord| record.note == owed_as(&record.name, record.grant.fencing);
        let owed = predecessor.iter_mut().flat_map(|predecessor| predecessor.grants.extract_if(.., is_owed));
        let owed: BTreeSet<(Name, u64)> = owed.map(|record| (record.name, record.grant.fencing)).collect();
        Self {
            predecessor,
            void: Vec::new(),
            early: Vec::new(),
            said: BTreeMap::new(),
            missed: BTreeMap::new(),
            resumes: Vec::new(),
            written: BTreeMap::new(),
            tickets: BTreeMap::new(),
            awaited: BTreeSet::new(),
            unseen: owed.clone(),
            owed,
            out: Vec::new(),
        }
    }

    /// What the register is to be told of it, by a member of this cluster; nothing if it is of another, or too much.
    pub fn predecessor(&self, cluster: ClusterId) -> Option<registry::Predecessor> {
        let predecessor = self.predecessor.as_ref().filter(|predecessor| predecessor.cluster == cluster)?;
        let names = Some(names(&predecessor.grants)).filter(|names| names.len() <= MOST_TAKEN)?;
        let takes = if makes(Mutation::TakesNothing) { Vec::new() } else { names };
        let label = |name: &Name| Label::new(name.as_str()).expect("what can be a name can be a label");
        Some(registry::Predecessor { session: predecessor.session, names: takes.iter().map(label).collect() })
    }

    /// How long our session is to stand, where this was wanted.
    pub fn session(&self, wanted: Ttl) -> Ttl {
        let holds = self.predecessor.as_ref().filter(|predecessor| !predecessor.grants.is_empty());
        holds.filter(|_| !makes(Mutation::ShorterSession)).map_or(wanted, |predecessor| wanted.max(predecessor.ttl))
    }

    /// We do not answer for it: then its session ends by its time. Until a session of ours is written down the next
    /// process would end that one, and must know who is inside.
    pub fn disclaim(&mut self) {
        let grants = self.predecessor.take().map(|predecessor| predecessor.grants).unwrap_or_default();
        self.void.extend(grants.into_iter().map(|record| record.note));
        self.unseen.clear();
        self.void.extend(std::mem::take(&mut self.owed).iter().map(|(name, fencing)| owed_as(name, *fencing)));
    }

    /// A session of ours is open: what is written down from now on is of this one.
    pub fn on_opened(&mut self, cluster: ClusterId, session: SessionId, ttl: Ttl) {
        self.out.push(JournalEntry::Session { cluster, session, ttl });
        self.out.extend(self.void.drain(..).map(|note| JournalEntry::Over { note }));
    }

    /// It is none any more: the first session is over without having stood, and another one is open.
    pub fn renounce(&mut self) -> Vec<(u64, Name, String)> {
        let notes =
            self.predecessor.take().into_iter().flat_map(|predecessor| predecessor.grants).map(|record| record.note);
        self.out.extend(notes.map(|note| JournalEntry::Over { note }));
        drop((self.take_early(), self.take_missed()));
        std::mem::take(&mut self.resumes)
    }

    /// Takes out what is to be written down from now on, in order.
    pub fn take_out(&mut self) -> Drain<'_, JournalEntry> {
        self.out.drain(..)
    }

    /// Whether there is something for which we shall answer.
    pub fn is_waiting(&self) -> bool {
        self.predecessor.is_some()
    }

    /// Whether somebody may be inside with something for which we shall answer.
    pub fn holds(&self, now: Time) -> bool {
        self.predecessor.iter().flat_map(|predecessor| &predecessor.grants).any(|record| record.until > now)
    }

    /// Keeps a message for when our session stands, if it can mean that one: the question of a count, and what is told
    /// to who is to coordinate. All else answers something that it has not said yet. False if the message is not about
    /// what was left to us.
    pub fn buffer_message(&mut self, from: PeerId, resource: Key, message: &custody::Message) -> bool {
        let is_it = |record: &GrantRecord| record.name.key() == resource;
        let is_ours = self.predecessor.as_ref().is_some_and(|predecessor| predecessor.grants.iter().any(is_it));
        let can_matter = matches!(
            message.body,
            custody::Body::Census { .. } | custody::Body::Update(_) | custody::Body::Dropped { .. }
        );
        if is_ours && can_matter {
            let said = self.said.entry(from).or_default();
            if *said < MOST_EARLY {
                *said += 1;
                self.early.push((from, resource, message.clone()));
            } else {
                let latest = self.missed.entry((from, resource)).or_default();
                *latest = message.generation.max(*latest);
            }
        }
        is_ours
    }

    /// How much is kept of what others have said.
    #[cfg(any(test, feature = "fuzz"))]
    pub fn retained(&self) -> usize {
        self.early.len() + self.missed.len()
    }

    /// A client comes before our session stands: until when it may be inside, if it may.
    pub fn resume_later(&mut self, call: u64, name: &Name, note: &str) -> Option<Time> {
        let grants = self.predecessor.as_ref().map_or(&[][..], |predecessor| &predecessor.grants);
        let until = grants.iter().find(|record| record.note == note && record.name == *name)?.until;
        self.resumes.push((call, name.clone(), note.to_owned()));
        Some(until)
    }

    /// A client has waited for that in vain, or does not wait any more. False if it was answered.
    pub fn give_up(&mut self, call: u64) -> bool {
        let before = self.resumes.len();
        self.resumes.retain(|(waiting, ..)| *waiting != call);
        self.resumes.len() < before
    }

    /// Our first session stands: every resource, and of its grants those that have not ended.
    pub fn inherit(&mut self, now: Time) -> Vec<(Name, Vec<GrantRecord>)> {
        let grants = self.predecessor.take().map(|predecessor| predecessor.grants).unwrap_or_default();
        let over = grants.iter().filter(|record| record.until <= now).map(|record| record.note.clone());
        self.out.extend(over.map(|note| JournalEntry::Over { note }));
        let of = |name: &Name| {
            let stands = |record: &&GrantRecord| record.name == *name && record.until > now;
            let comes = |record: &&GrantRecord| self.resumes.iter().any(|(_, _, note)| *note == record.note);
            let counts = |record: &&GrantRecord| stands(record) && (!makes(Mutation::OnlyPresented) || comes(record));
            grants.iter().filter(counts).cloned().collect()
        };
        names(&grants).into_iter().map(|name| (name.clone(), of(&name))).collect()
    }

    /// One of them is this ticket from now on.
    pub fn await_client(&mut self, ticket: TicketId, note: String) {
        self.note(ticket, note);
        self.awaited.insert(ticket);
    }

    /// Messages that have waited for it.
    pub fn take_early(&mut self) -> Vec<(PeerId, Key, custody::Message)> {
        self.said.clear();
        std::mem::take(&mut self.early)
    }

    /// The resources about which there were more of them than one host may have kept, and in which generation. One of
    /// them may have been the question of a count, which is put once.
    pub fn take_missed(&mut self) -> BTreeMap<(PeerId, Key), u64> {
        std::mem::take(&mut self.missed)
    }

    /// Clients that have waited for it: the call, the resource, and what the client calls its grant.
    pub fn take_resumes(&mut self) -> Vec<(u64, Name, String)> {
        std::mem::take(&mut self.resumes)
    }

    /// The ticket of what a client calls this.
    pub fn ticket(&self, note: &str) -> Option<TicketId> {
        self.tickets.get(note).copied()
    }

    /// The client of this ticket has come. Whether it is the first time.
    pub fn come(&mut self, ticket: TicketId) -> bool {
        self.awaited.remove(&ticket)
    }

    fn note(&mut self, ticket: TicketId, note: String) {
        self.tickets.insert(note.clone(), ticket);
        self.written.insert(ticket, note);
    }

    /// A client is told that it may be inside until then.
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

    /// Nobody has this grant, or not yet, and the register may know it from now on.
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

    /// A client is told that it is inside with this grant, or the register does not know it.
    pub fn settle(&mut self, name: &Name, fencing: u64) {
        if self.owed.remove(&(name.clone(), fencing)) {
            self.out.push(JournalEntry::Over { note: owed_as(name, fencing) });
        }
    }

    /// Whether nobody has a grant that the register knows; if so, whether it was left to us and is to be taken back
    /// now.
    pub fn owes(&mut self, name: &Name, fencing: u64) -> Option<bool> {
        let grant = (name.clone(), fencing);
        self.owed.contains(&grant).then(|| self.unseen.remove(&grant))
    }

    /// Whether nobody has this grant, and the register may know it.
    pub fn is_owed(&self, resource: Key, fencing: u64) -> bool {
        self.owed.iter().any(|(name, owed)| *owed == fencing && name.key() == resource)
    }

    /// The register has told everything that it knows of this host.
    pub fn on_all_known(&mut self) {
        for (name, fencing) in std::mem::take(&mut self.unseen) {
            self.settle(&name, fencing);
        }
    }

    /// What must be true after each step; the arguments tell whether there is such a ticket, and whether a call that
    /// waits will be looked at again.
    pub fn check(&self, is_there: impl Fn(TicketId) -> bool, has_alarm: impl Fn(u64) -> bool) {
        for (ticket, note) in &self.written {
            assert_eq!(self.tickets.get(note), Some(ticket), "{note:?} is written down, and leads elsewhere");
            assert!(is_there(*ticket), "{note:?} is written down, and nothing is left of {ticket:?}");
        }
        assert_eq!(self.written.len(), self.tickets.len(), "what a client calls its grant is not written down");
        let awaits = |ticket| self.written.contains_key(ticket);
        assert!(self.awaited.iter().all(awaits), "a client is awaited for what is not written down");
        assert_eq!(self.said.values().sum::<usize>(), self.early.len(), "early messages are not counted by host");
        for (call, ..) in &self.resumes {
            assert!(self.is_waiting() && has_alarm(*call), "call {call} waits for what never comes");
        }
    }

    /// Nothing is left of a ticket.
    pub fn on_over(&mut self, ticket: TicketId) {
        if let Some(note) = self.written.remove(&ticket) {
            self.tickets.remove(&note);
            self.awaited.remove(&ticket);
            self.out.push(JournalEntry::Over { note });
        }
    }
}

/// What a grant is called that is owed: nobody else calls one so.
fn owed_as(name: &Name, fencing: u64) -> String {
    format!("owed {fencing} {name}")
}

/// The resources of these, each once, in order.
fn names(grants: &[GrantRecord]) -> Vec<Name> {
    let mut names: Vec<Name> = grants.iter().map(|record| record.name.clone()).collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICKET: TicketId = TicketId(1);

    /// One whose client is awaited, as "a".
    fn takeover() -> Takeover {
        let mut takeover = Takeover::new(None, "boot");
        takeover.await_client(TICKET, "a".to_owned());
        takeover.check(|ticket| ticket == TICKET, |_| true);
        takeover
    }

    #[test]
    fn nothing_is_left_of_what_is_over() {
        let mut takeover = takeover();
        takeover.on_over(TICKET);
        takeover.check(|_| false, |_| false);
        assert_eq!(takeover.ticket("a"), None);
        assert!(takeover.take_out().eq([JournalEntry::Over { note: "a".to_owned() }]));
    }

    /// One that asked twice under one call was left behind without an alarm.
    #[test]
    fn nothing_is_left_of_a_call_that_is_given_up() {
        let mut takeover = takeover();
        takeover.resumes.extend([7, 8, 7].map(|call| (call, "r".parse().unwrap(), "a".to_owned())));
        assert!(takeover.give_up(7) && !takeover.give_up(7));
        assert_eq!(takeover.take_resumes().len(), 1);
        takeover.check(|_| true, |_| false);
    }

    #[test]
    #[should_panic(expected = "leads elsewhere")]
    fn what_is_written_down_leads_to_its_ticket() {
        let mut takeover = takeover();
        takeover.tickets.insert("a".to_owned(), TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "is not written down")]
    fn what_leads_to_a_ticket_is_written_down() {
        let mut takeover = takeover();
        takeover.tickets.insert("b".to_owned(), TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "nothing is left of TicketId(1)")]
    fn what_is_written_down_is_of_somebody() {
        takeover().check(|_| false, |_| true);
    }

    #[test]
    #[should_panic(expected = "awaited for what is not written down")]
    fn nobody_is_awaited_for_what_is_not_written_down() {
        let mut takeover = takeover();
        takeover.awaited.insert(TicketId(2));
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "not counted by host")]
    fn what_hosts_have_said_early_is_counted() {
        let mut takeover = takeover();
        takeover.said.insert(PeerId::new(2), 1);
        takeover.check(|_| true, |_| true);
    }

    #[test]
    #[should_panic(expected = "call 7 waits for what never comes")]
    fn who_waits_to_go_on_waits_for_something() {
        let mut takeover = takeover();
        takeover.resumes.push((7, "r".parse().unwrap(), "a".to_owned()));
        takeover.check(|_| true, |_| true);
    }
}
