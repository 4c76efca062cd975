//! Recovery from a permanent loss of quorum: makes one voter's file the only one.
//!
//! An administrator uses it with the process stopped, and only if the majority does not return. Entries that were
//! committed and had not reached this file are lost. The rest is as safe as possible:
//!
//! - *Two histories never mix.* The recovered registry is another cluster: its ID succeeds the old one
//!   ([`ClusterId::recovered`]), and every message and file contains the ID. A higher voter number would not suffice:
//!   two of three old voters that return would be a majority, and would confirm sessions of the same name for the same
//!   processes. A process that receives a message of a succeeding ID learns of the recovery
//!   ([`Malformed::Recovered`](crate::wire::Malformed)), stops, and joins the new cluster without its voter's file.
//! - *Nothing is granted while an old session may be in use.* All sessions in this file stay valid until the new leader
//!   has counted their time from its election on, so that their processes have stopped. Sessions that the lost voters
//!   have opened since are unknown. They expire when their duration has passed since the last renewal that the lost
//!   leader confirmed. So the recovered registry announces no generation before its *quarantine* has passed: the
//!   longest duration of all sessions that the file has ever recorded, and at least [`LEAST_QUARANTINE`]. A session
//!   that is longer than all of them and that only the lost voters recorded is not covered.
//! - *Numbers continue.* Sessions, voters and generations that the lost voters have allocated since are unknown. So all
//!   three continue beyond them, and fencing numbers with the generations; also for resources that this file does not
//!   contain.

use peerlock_types::{PeerId, Span};

use crate::file::{self, Damage, Header, Record, Writer};
use crate::form::{Entry, EntryKind, Hard, Snapshot};
use crate::leases::patience;
use crate::registry::decode_batch;
use crate::state::{State, Undecodable};
use crate::{ClusterId, Config, Ttl, Versions, VoterId};

/// Minimum quarantine after a recovery. Our choice: the default session duration, so that such sessions are covered
/// even if the file has recorded shorter ones only.
pub const LEAST_QUARANTINE: Ttl = match Ttl::from_millis(15_000) {
    Ok(ttl) => ttl,
    Err(_) => panic!("15 s is a valid duration"),
};

/// A recovered registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The file that replaces the old one.
    pub file: Vec<u8>,
    /// The new ID of the cluster.
    pub cluster: ClusterId,
    /// The only voter.
    pub voter: VoterId,
    /// Its host, which must have this file.
    pub host: PeerId,
    /// Term and index of the last entry. Of several files recover the one with the highest.
    pub last: (u64, u64),
    /// How long nothing is granted after the agent has started.
    pub quarantine: Span,
}

/// Checks whether a program of these versions can start with a voter's file. Returns its cluster and the length of a
/// torn record at its end.
///
/// # Errors
/// Why the file cannot be used.
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

/// Returns the state after all entries of a voter's file, committed or not.
///
/// # Errors
/// Why the file cannot be used.
pub fn last_state(bytes: &[u8], versions: Versions) -> Result<State, Damage> {
    let record = file::read(bytes)?.record;
    let snapshot = record.snapshot.ok_or(Damage::NoRegister("its voter has not received a snapshot yet"))?;
    apply_all(&snapshot, &record.entries, versions).map(|(state, _)| state)
}

/// Returns the state after all entries, and term and index of the last one.
fn apply_all(snapshot: &Snapshot, entries: &[Entry], versions: Versions) -> Result<(State, (u64, u64)), Damage> {
    let damage = |why| damage(why, versions);
    let mut state = State::decode(&snapshot.state, versions).map_err(damage)?;
    let mut last = (snapshot.term, snapshot.index);
    // All of them: they include the committed ones, and the others are decided by this.
    for entry in entries {
        last = (entry.term, entry.index);
        match entry.kind {
            EntryKind::Commands if entry.data.is_empty() => {}
            EntryKind::Commands => {
                let commands = decode_batch(&entry.data, versions).map_err(damage)?.0;
                commands.into_iter().for_each(|command| _ = state.apply(entry.term, command));
            }
            // The recovered configuration is set separately.
            EntryKind::Change => {}
        }
    }
    Ok((state, last))
}

pub(crate) fn damage(why: Undecodable, versions: Versions) -> Damage {
    match why {
        Undecodable::Version(version) => Damage::Version { version, ours: versions },
        Undecodable::Format => Damage::NoRegister("its records are intact but inconsistent"),
    }
}

/// Makes the voter of this file the only one. Nothing changes until the result is written. `chance` is a random number.
pub fn recover(bytes: &[u8], versions: Versions, chance: u64) -> Result<Recovered, Damage> {
    recover_within(bytes, versions, chance, LEAST_QUARANTINE)
}

/// Like [`recover`], with another minimum quarantine, for simulations without longer sessions.
///
/// # Errors
/// See [`recover`].
pub fn recover_within(bytes: &[u8], versions: Versions, chance: u64, least: Ttl) -> Result<Recovered, Damage> {
    let contents = file::read(bytes)?;
    let Record { snapshot, entries, hard } = contents.record;
    let Some(snapshot) = snapshot else {
        return Err(Damage::NoRegister("its voter has not received a snapshot yet"));
    };
    let (mut state, last) = apply_all(&snapshot, &entries, versions)?;
    let Some(host) = state.voter_records().get(&contents.header.voter).map(|voter_record| voter_record.host) else {
        return Err(Damage::NoRegister("its state does not contain its own voter"));
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
