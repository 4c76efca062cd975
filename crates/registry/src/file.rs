//! A voter's file: append-only, one synced record at a time.
//!
//! ```text
//!   header   "plregstr" │ format 2 │ cluster 16 │ voter 8 │ file 8 │ zeros 6 │ sum 16
//!   record   length 4 │ number 8 │ sum of these two 8 │ a Record in postcard's format │ zeros 0–15 │ sum of all 16
//!   record   …
//! ```
//!
//! Numbers are little-endian. A sum is the beginning of a SHA-256 over the header's sum and the covered bytes. The
//! *file* number increases with every new file, so that remains of an older one are never taken for a record.
//!
//! Each record is synced before the next one is started, so after a power loss only the last can be *torn*: the file
//! ends within it, or some of its sectors were never written and are zeros. It was never confirmed, and is cut off.
//! Anything else is damage: something confirmed, such as a vote, may be lost, so the voter does not start.
//!
//! A voter never appends to a file of an earlier process. It writes the content into a new file, syncs that, and
//! renames it over the old one; and so with a snapshot when the file has grown long.

use peerlock_types::Key;
use serde::{Deserialize, Serialize};

use crate::form::{Entry, Hard, Snapshot};
use crate::wire::to_bytes;
use crate::{ClusterId, Versions, VoterId};

const MAGIC: &[u8; 8] = b"plregstr";
/// Independent of the version of the content.
const FORMAT: u16 = 1;
const HEADER: usize = 64;
const HEAD: usize = 4 + 8 + 8;
const SUM: usize = 16;
/// Written completely or not at all.
const SECTOR: usize = 512;
/// Header and records are multiples of this. So the part of a record in any sector contains its number or its sum, or
/// fills the sector: it is not all zeros if it was written.
const ALIGNED: usize = 16;

/// Later records supersede earlier ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Replaces everything before.
    pub snapshot: Option<Snapshot>,
    /// Replace entries from the first one's index on.
    pub entries: Vec<Entry>,
    pub hard: Option<Hard>,
}

impl Record {
    pub fn merge(&mut self, later: Self) {
        if let Some(snapshot) = later.snapshot {
            self.entries.clear();
            self.snapshot = Some(snapshot);
        }
        if let Some(first) = later.entries.first() {
            self.entries.retain(|entry| entry.index < first.index);
        }
        self.entries.extend(later.entries);
        self.hard = later.hard.or(self.hard);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub cluster: ClusterId,
    pub voter: VoterId,
    pub file: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    pub header: Header,
    pub record: Record,
    /// Bytes of the torn record that was cut off.
    pub torn: usize,
}

/// Why a file cannot be used. The file is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Not a registry file, or inconsistent.
    #[error(
        "this is not a usable registry file: {0}. Move the file away, and this host becomes a new voter while a \
         majority of the others is available"
    )]
    NoRegister(&'static str),
    #[error(
        "the registry file has format {0}, and this program reads format {FORMAT}: a newer program wrote it. Start \
         that program again; or move the file away, and this host becomes a new voter while a majority of the others \
         is available"
    )]
    Format(u16),
    #[error(
        "record {number} at byte {at} of the registry file is damaged ({what}): confirmed data may be lost, so this \
         voter does not start. Move the file away, and this host becomes a new voter while a majority of the others \
         is available"
    )]
    Record { number: u64, at: usize, what: &'static str },
    #[error(
        "the registry in this file has version {version}, and this program understands {ours}: start the program that \
         wrote it"
    )]
    Version { version: u16, ours: Versions },
}

#[derive(Clone, Debug)]
pub struct Writer {
    header: Header,
    sum: [u8; SUM],
    number: u64,
    length: usize,
}

impl Writer {
    /// Sync the bytes before the file replaces another.
    pub fn begin(header: Header, record: &Record) -> (Self, Vec<u8>) {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend(header.cluster.get().to_le_bytes());
        bytes.extend(header.voter.get().to_le_bytes());
        bytes.extend(header.file.to_le_bytes());
        bytes.resize(HEADER - SUM, 0);
        let sum = sum(&[&bytes]);
        bytes.extend(sum);
        let mut writer = Self { header, sum, number: 0, length: bytes.len() };
        bytes.extend(writer.append(record));
        (writer, bytes)
    }

    pub fn append(&mut self, record: &Record) -> Vec<u8> {
        let payload = to_bytes(record, Vec::new());
        self.number += 1;
        let mut bytes = head(&self.sum, payload.len(), self.number).to_vec();
        bytes.extend(&payload);
        bytes.resize(whole_length(payload.len()) - SUM, 0);
        bytes.extend(sum(&[&self.sum, &bytes]));
        self.length += bytes.len();
        bytes
    }

    pub fn header(&self) -> Header {
        self.header
    }

    pub fn length(&self) -> usize {
        self.length
    }
}

pub fn read(bytes: &[u8]) -> Result<Contents, Damage> {
    let (header, sum) = read_header(bytes)?;
    let mut contents = Contents { header, record: Record::default(), torn: 0 };
    let (mut at, mut number) = (HEADER, 1);
    while at < bytes.len() {
        match read_record(bytes, at, number, &sum) {
            Ok((record, end)) => {
                contents.record.merge(record);
                (at, number) = (end, number + 1);
            }
            Err(Wrong::Torn) if number == 1 => {
                // A file is renamed into place only with a complete first record.
                return Err(Damage::Record { number, at, what: "it is incomplete" });
            }
            Err(Wrong::Torn) => {
                contents.torn = bytes.len() - at;
                return Ok(contents);
            }
            Err(Wrong::Damaged(what)) => return Err(Damage::Record { number, at, what }),
        }
    }
    if number == 1 {
        return Err(Damage::Record { number, at, what: "it is missing" });
    }
    Ok(contents)
}

pub fn cluster_of(bytes: &[u8]) -> Result<ClusterId, Damage> {
    read_header(bytes).map(|(header, _)| header.cluster)
}

enum Wrong {
    Torn,
    Damaged(&'static str),
}

fn read_header(bytes: &[u8]) -> Result<(Header, [u8; SUM]), Damage> {
    let header = bytes.get(..HEADER).ok_or(Damage::NoRegister("it is too short"))?;
    if !header.starts_with(MAGIC) {
        return Err(Damage::NoRegister("it does not begin with `plregstr`"));
    }
    let format = number(&header[8..10]) as u16;
    if sum(&[&header[..HEADER - SUM]]) != header[HEADER - SUM..] {
        return Err(Damage::NoRegister("its header is damaged"));
    }
    if format != FORMAT {
        return Err(Damage::Format(format));
    }
    let mut sum = [0; SUM];
    sum.copy_from_slice(&header[HEADER - SUM..]);
    let cluster = ClusterId::new(number(&header[10..26]));
    let (voter, file) = (number(&header[26..34]) as u64, number(&header[34..42]) as u64);
    Ok((Header { cluster, voter: VoterId::new(voter), file }, sum))
}

fn read_record(bytes: &[u8], at: usize, expected: u64, file: &[u8; SUM]) -> Result<(Record, usize), Wrong> {
    let rest = &bytes[at..];
    let Some(head_here) = rest.get(..HEAD) else { return Err(Wrong::Torn) };
    let (length, number) = (number(&head_here[..4]) as usize, number(&head_here[4..12]) as u64);
    if head(file, length, number) != head_here {
        if has_later_record(bytes, at, expected, file) || !has_unwritten(bytes, at) {
            return Err(Wrong::Damaged("checksum mismatch in its head"));
        }
        return Err(Wrong::Torn);
    }
    if number != expected {
        return Err(Wrong::Damaged("unexpected record number"));
    }
    let end = whole_length(length);
    let Some(whole) = rest.get(..end) else { return Err(Wrong::Torn) };
    if sum(&[file, &whole[..end - SUM]]) != whole[end - SUM..] {
        if end == rest.len() && has_unwritten(bytes, at) {
            return Err(Wrong::Torn);
        }
        return Err(Wrong::Damaged("checksum mismatch"));
    }
    let record: Record = match postcard::take_from_bytes(&whole[HEAD..HEAD + length]) {
        Ok((record, [])) => record,
        Ok(_) | Err(_) => return Err(Wrong::Damaged("it cannot be decoded")),
    };
    if record.entries.iter().any(|entry| entry.check().is_err()) {
        return Err(Wrong::Damaged("it contains an invalid entry"));
    }
    Ok((record, at + end))
}

/// Some sector from here on is zeros.
fn has_unwritten(bytes: &[u8], from: usize) -> bool {
    let rest = &bytes[from..];
    let (first, sectors) = rest.split_at(rest.len().min(SECTOR - from % SECTOR));
    [first].into_iter().chain(sectors.chunks(SECTOR)).any(|sector| sector.iter().all(|byte| *byte == 0))
}

fn has_later_record(bytes: &[u8], at: usize, expected: u64, file: &[u8; SUM]) -> bool {
    let window = 1 << 32;
    bytes[at..].windows(HEAD).step_by(ALIGNED).skip(1).any(|here| {
        let (length, number) = (number(&here[..4]) as usize, number(&here[4..12]) as u64);
        (expected + 1..expected + window).contains(&number) && head(file, length, number) == here
    })
}

fn whole_length(payload: usize) -> usize {
    (HEAD + payload + SUM).next_multiple_of(ALIGNED)
}

fn head(file: &[u8; SUM], length: usize, number: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4..12].copy_from_slice(&number.to_le_bytes());
    let sum = sum(&[file, &head[..12]]);
    head[12..].copy_from_slice(&sum[..8]);
    head
}

fn sum(parts: &[&[u8]]) -> [u8; SUM] {
    Key::of(&parts.concat()).get().to_le_bytes()
}

fn number(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

#[cfg(test)]
mod tests;
