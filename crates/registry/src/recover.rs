//! Recovery from a permanent loss of quorum: makes one voter's file the only one.
//!
//! Run it with the process stopped, and only if the majority does not return. Committed entries that had not reached
//! this file are lost.
//!
//! - *Two histories never mix.* The recovered registry is another cluster: its ID succeeds the old one
//!   ([`ClusterId::recovered`]), and is in every message and file. Otherwise two of three old voters that return would
//!   be a majority, and would confirm sessions with the same numbers. A process that receives a succeeding ID
//!   ([`Malformed::Recovered`](crate::wire::Malformed)) stops, and joins the new cluster without its voter's file.
//! - *Nothing is granted while an old session may be in use.* The new leader counts out the sessions in this file.
//!   Those that the lost voters opened since are unknown. So no generation is announced during a *quarantine* of the
//!   longest duration that the file has ever recorded, and at least [`LEAST_QUARANTINE`]. A longer session that only
//!   the lost voters recorded is not covered.
//! - *Numbers continue* beyond the sessions, voters and generations that the lost voters may have allocated, and
//!   fencing numbers with the generations, also for resources that this file lacks.

use peerlock_types::{PeerId, Span};

use crate::file::{self, Damage, Header, Record, Writer};
use crate::form::{Entry, EntryKind, Hard, Snapshot};
use crate::leases::patience;
use crate::registry::decode_commands;
use crate::state::{State, Undecodable};
use crate::{ClusterId, Config, Ttl, Versions, VoterId};

/// Our choice: the default session duration.
pub const LEAST_QUARANTINE: Ttl = match Ttl::from_millis(15_000) {
    Ok(ttl) => ttl,
    Err(_) => panic!("15 s is a valid duration"),
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    pub file: Vec<u8>,
    pub cluster: ClusterId,
    pub voter: VoterId,
    pub host: PeerId,
    /// Term and index of the last entry. Of several files recover the one with the highest.
    pub last: (u64, u64),
    pub quarantine: Span,
}

/// Checks whether a program of these versions can start with a file. Returns its cluster and the length of a torn
/// record.
pub fn inspect(bytes: &[u8], versions: Versions) -> Result<(ClusterId, usize), Damage> {
    let file::Contents { header, record, torn } = file::read(bytes)?;
    let state = record.snapshot.map(|snapshot| State::decode(&snapshot.state, versions)).transpose();
    let mut commands = record.entries.iter().filter(|it| it.kind == EntryKind::Commands && !it.data.is_empty());
    let entries = commands.try_for_each(|entry| decode_commands(&entry.data, versions).map(drop));
    match state.and(entries) {
        Ok(_) => Ok((header.cluster, torn)),
        Err(why) => Err(damage(why, versions)),
    }
}

pub fn last_state(bytes: &[u8], versions: Versions) -> Result<State, Damage> {
    let record = file::read(bytes)?.record;
    let snapshot = record.snapshot.ok_or(Damage::NoRegister("its voter has not received a snapshot yet"))?;
    apply_all(&snapshot, &record.entries, versions).map(|(state, _)| state)
}

fn apply_all(snapshot: &Snapshot, entries: &[Entry], versions: Versions) -> Result<(State, (u64, u64)), Damage> {
    let damage = |why| damage(why, versions);
    let mut state = State::decode(&snapshot.state, versions).map_err(damage)?;
    let mut last = (snapshot.term, snapshot.index);
    // This decides the uncommitted ones.
    for entry in entries {
        last = (entry.term, entry.index);
        match entry.kind {
            EntryKind::Commands if entry.data.is_empty() => {}
            EntryKind::Commands => {
                let commands = decode_commands(&entry.data, versions).map_err(damage)?;
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

/// Makes a voter the only one, once the result is written. `chance` is random.
pub fn recover(bytes: &[u8], versions: Versions, chance: u64) -> Result<Recovered, Damage> {
    recover_within(bytes, versions, chance, LEAST_QUARANTINE)
}

/// Recovers with another minimum, for simulations without longer sessions.
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
