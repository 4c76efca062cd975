//! What is left when a majority of the voters' files is gone for good: one of them, made the only one.
//!
//! This is for people, with the process stopped, and only if the majority does not come back. What was confirmed by it
//! and had not reached this file is lost. The rest is as safe as it can be made:
//!
//! - *Two histories never mix.* The recovered register is another cluster: its id is one that follows
//!   ([`ClusterId::recovered`]), and every letter and every file carries the id. Raising the voter's number alone would
//!   not do: two of three old voters that come back would be a majority among themselves, and say yes to the same
//!   processes under the same name. Who meets a letter of an id that follows its own knows that somebody has decided
//!   this ([`Malformed::Recovered`](crate::wire::Malformed)), stops, and comes back as a member of the new one; an old
//!   voter's file is of no use there.
//! - *Nothing is granted while an old session may be in use.* All sessions that this file contains stay valid until the
//!   new leader has counted them out, from its election on, so that their processes have stopped. Those that the lost
//!   voters have opened since are unknown. They expire when their duration has passed since the last renewal that the
//!   lost leader confirmed. So the recovered register announces no generation before its *quarantine* has passed: the
//!   longest duration of all sessions that the file has ever recorded, and at least [`LEAST_QUARANTINE`]. A session
//!   that is longer than all of them and that only the lost voters recorded is not covered.
//! - *Numbers go on.* Sessions, voters and generations that the lost voters have given out since are not known, so all
//!   three go on from beyond them, and fencing numbers with the generations; also those of resources that this file
//!   does not know.

use peerlock_types::{PeerId, Span};

use crate::file::{self, Damage, Header, Record, Writer};
use crate::form::{Entry, EntryKind, Hard, Snapshot};
use crate::leases::patience;
use crate::registry::decode_batch;
use crate::state::{State, Undecodable};
use crate::{ClusterId, Config, Ttl, Versions, VoterId};

/// The quarantine after a recovery is no shorter. Our choice: the default duration of a session, so that hosts with the
/// default are covered also if the file has recorded shorter sessions only.
pub const LEAST_QUARANTINE: Ttl = match Ttl::from_millis(15_000) {
    Ok(ttl) => ttl,
    Err(_) => panic!("fifteen seconds can be a duration"),
};

/// The register as it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// To be written instead of the old file.
    pub file: Vec<u8>,
    /// What the cluster is called from now on.
    pub cluster: ClusterId,
    /// The only voter.
    pub voter: VoterId,
    /// Its host, on which this file has to lie.
    pub host: PeerId,
    /// How much it knew: of several files the one with the highest term, and of these the longest, is to be taken.
    pub last: (u64, u64),
    /// For how long nothing is granted after its agent has started.
    pub quarantine: Span,
}

/// Which cluster a voter's file belongs to, and how many bytes a crash has torn off its end: whether a program of these
/// versions can start with it, before anything is done.
///
/// # Errors
/// What is wrong with it.
pub fn inspect(bytes: &[u8], versions: Versions) -> Result<(ClusterId, usize), Damage> {
    let file::Contents { header, record, torn } = file::read(bytes)?;
    let state = record.snapshot.map(|snapshot| State::decode(&snapshot.state, versions)).transpose();
    let mut commands = record.entries.iter().filter(|it| it.kind == EntryKind::Commands && !it.data.is_empty());
    let entries = commands.try_for_each(|entry| decode_batch(&entry.data, versions).map(|_| ()));
    match state.and(entries) {
        Ok(_) => Ok((header.cluster, torn)),
        Err(why) => Err(damage(why, versions)),
    }
}

/// Returns the state that a voter's file leads to when all of its entries are applied, confirmed or not.
///
/// # Errors
/// What is wrong with the file.
pub fn last_state(bytes: &[u8], versions: Versions) -> Result<State, Damage> {
    let record = file::read(bytes)?.record;
    let snapshot = record.snapshot.ok_or(Damage::NoRegister("its voter has not learnt anything yet"))?;
    apply_all(&snapshot, &record.entries, versions).map(|(state, _)| state)
}

/// The state after all entries, and the term and index of the last of them.
fn apply_all(snapshot: &Snapshot, entries: &[Entry], versions: Versions) -> Result<(State, (u64, u64)), Damage> {
    let damage = |why| damage(why, versions);
    let mut state = State::decode(&snapshot.state, versions).map_err(damage)?;
    let mut last = (snapshot.term, snapshot.index);
    // All of them: what was confirmed is among them, and whether the others were no longer matters.
    for entry in entries {
        last = (entry.term, entry.index);
        match entry.kind {
            EntryKind::Commands if entry.data.is_empty() => {}
            EntryKind::Commands => {
                let commands = decode_batch(&entry.data, versions).map_err(damage)?.0;
                commands.into_iter().for_each(|command| _ = state.apply(entry.term, command));
            }
            // Who votes is decided elsewhere.
            EntryKind::Change => {}
        }
    }
    Ok((state, last))
}

pub(crate) fn damage(why: Undecodable, versions: Versions) -> Damage {
    match why {
        Undecodable::Version(version) => Damage::Version { version, ours: versions },
        Undecodable::Format => Damage::NoRegister("its records are right, and do not fit together"),
    }
}

/// Makes the voter whose file this is the only one. Nothing is changed but by writing what comes of it. `chance` is
/// another number each time.
pub fn recover(bytes: &[u8], versions: Versions, chance: u64) -> Result<Recovered, Damage> {
    recover_within(bytes, versions, chance, LEAST_QUARANTINE)
}

/// The same with another least quarantine, for simulations in which no session is longer than that.
///
/// # Errors
/// See [`recover`].
pub fn recover_within(bytes: &[u8], versions: Versions, chance: u64, least: Ttl) -> Result<Recovered, Damage> {
    let contents = file::read(bytes)?;
    let Record { snapshot, entries, hard } = contents.record;
    let Some(snapshot) = snapshot else {
        return Err(Damage::NoRegister("its voter has not learnt anything yet"));
    };
    let (mut state, last) = apply_all(&snapshot, &entries, versions)?;
    let Some(host) = state.voter_records().get(&contents.header.voter).map(|voter_record| voter_record.host) else {
        return Err(Damage::NoRegister("its voter has no seat in what it says"));
    };
    let voter = state.recover(host, chance, least);
    let quarantine = state.quarantine().map_or(Span::ZERO, |ttl| patience(ttl.span(), Config::default().slack));
    let term = last.0.max(hard.unwrap_or_default().term) + 1;
    let index = last.1 + 1;
    let snapshot = Some(Snapshot { index, term, state: state.encode() });
    let record = Record { snapshot, entries: Vec::new(), hard: Some(Hard { term, vote: 0, commit: index }) };
    let cluster = state.cluster();
    let (_, file) = Writer::begin(Header { cluster, voter, file: 1 }, &record);
    Ok(Recovered { file, cluster, voter, host, last, quarantine })
}
