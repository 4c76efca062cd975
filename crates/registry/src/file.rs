//! The register's file: what a voter must not forget, written one record at a time and never changed.
//!
//! ```text
//!   header   "plregstr" │ format 2 │ cluster 16 │ voter 8 │ file 8 │ zeros 6 │ sum 16
//!   record   length 4 │ number 8 │ sum of these two 8 │ a Record in postcard's format │ zeros 0–15 │ sum of all 16
//!   record   …
//! ```
//!
//! All numbers are little-endian, sums are the beginning of a SHA-256 over the header's sum and what they are for. The
//! *file* number goes up with every new file, so that what lies on the disk from an older one never passes for a record
//! of this.
//!
//! Each record is appended and synced before the next one is begun. So when a machine loses power, all records but the
//! last are whole, and the last one may be *torn*: the file ends within it, or sectors of it were never written and are
//! zeros. It was never confirmed to anybody, and is cut. Anything else that is wrong is damage: something that was
//! confirmed may be gone, so the voter does not start. It could break a promise that it has given, such as a vote.
//!
//! A voter never appends to a file that it has not begun itself: it reads the old one, writes what it says into a new
//! one, syncs that and puts it in the place of the old. The same when a file has grown long, with a snapshot instead of
//! the entries.

use peerlock_types::Key;
use serde::{Deserialize, Serialize};

use crate::form::{Entry, Hard, Snapshot};
use crate::wire::to_bytes;
use crate::{ClusterId, Versions, VoterId};

const MAGIC: &[u8; 8] = b"plregstr";
/// The format of this file, which is not the version of what is in it.
const FORMAT: u16 = 1;
const HEADER: usize = 64;
const HEAD: usize = 4 + 8 + 8;
const SUM: usize = 16;
/// What a disk writes whole or not at all.
const SECTOR: usize = 512;
/// Header and records have a multiple of this length. So whatever part of a record lies in one sector has its number or
/// its sum in it, or is all of the sector: it is not zeros if it was written.
const ALIGNED: usize = 16;

/// What one record adds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Instead of everything before.
    pub snapshot: Option<Snapshot>,
    /// From the first one's index on, instead of what was there.
    pub entries: Vec<Entry>,
    /// Instead of the one before.
    pub hard: Option<Hard>,
}

impl Record {
    /// What both records say, this one first.
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

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The cluster: a file of another one is refused.
    pub cluster: ClusterId,
    /// The voter, whose number is given out once.
    pub voter: VoterId,
    /// Which file of the voter's.
    pub file: u64,
}

/// What a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// What it begins with.
    pub header: Header,
    /// All that follows, put together: later records win.
    pub record: Record,
    /// How many bytes of a torn record were left out at its end.
    pub torn: usize,
}

/// Why a file is not used. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Not even the beginning is right.
    #[error("this is no file of a register: {0}")]
    NoRegister(&'static str),
    /// Written by a program with another format.
    #[error(
        "this register's file is of format {0}, and this program knows format {FORMAT}: it was written by a newer \
         program. Start that one again; or move the file away, and this host comes back as a new voter, as long as a \
         majority of the others is there"
    )]
    Format(u16),
    /// A record that had been confirmed is not as it was written.
    #[error(
        "record {number} at byte {at} of the register's file is damaged ({what}): what was confirmed may be lost, so \
         this voter does not start. Move the file away, and it comes back as a new voter, as long as a majority of the \
         others is there"
    )]
    Record {
        /// Which; the first is 1.
        number: u64,
        /// Where it begins.
        at: usize,
        /// What is wrong.
        what: &'static str,
    },
    /// All sums are right, and what is in it is of a version that this program does not understand.
    #[error(
        "the register in this file is of version {version}, and this program understands {ours}: start the program \
         again that has written it"
    )]
    Version {
        /// The register's.
        version: u16,
        /// The versions that this program understands.
        ours: Versions,
    },
}

/// A file that is being written: makes the bytes of each next record.
#[derive(Clone, Debug)]
pub struct Writer {
    header: Header,
    sum: [u8; SUM],
    number: u64,
    length: usize,
}

impl Writer {
    /// A new file with this as its first record, all of which has to be on the disk before it takes the place of
    /// another.
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

    /// The bytes of the next record.
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

    /// Whose file this is.
    pub fn header(&self) -> Header {
        self.header
    }

    /// How many bytes it has.
    pub fn length(&self) -> usize {
        self.length
    }
}

/// What a file says, or why it is not to be used.
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
                // It is put in place with its first record or not at all.
                return Err(Damage::Record { number, at, what: "it is not complete" });
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

/// Which cluster a file belongs to, without reading the rest of it.
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
        return Err(Damage::NoRegister("it does not begin like one"));
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
        if has_later_record(bytes, at, expected, file) || !has_unwritten(bytes, at, bytes.len()) {
            return Err(Wrong::Damaged("its head does not match its sum"));
        }
        return Err(Wrong::Torn);
    }
    if number != expected {
        return Err(Wrong::Damaged("its number is another"));
    }
    let end = whole_length(length);
    let Some(whole) = rest.get(..end) else { return Err(Wrong::Torn) };
    if sum(&[file, &whole[..end - SUM]]) != whole[end - SUM..] {
        if end == rest.len() && has_unwritten(bytes, at, bytes.len()) {
            return Err(Wrong::Torn);
        }
        return Err(Wrong::Damaged("it does not match its sum"));
    }
    let record: Record = match postcard::take_from_bytes(&whole[HEAD..HEAD + length]) {
        Ok((record, [])) => record,
        Ok(_) | Err(_) => return Err(Wrong::Damaged("it is not of our format")),
    };
    if record.entries.iter().any(|entry| entry.check().is_err()) {
        return Err(Wrong::Damaged("it has an entry that cannot be"));
    }
    Ok((record, at + end))
}

/// Whether some sector between was never written: it is zeros, as far as it is ours.
fn has_unwritten(bytes: &[u8], from: usize, to: usize) -> bool {
    let mut at = from;
    while at < to {
        let end = ((at / SECTOR + 1) * SECTOR).min(to);
        if bytes[at..end].iter().all(|byte| *byte == 0) {
            return true;
        }
        at = end;
    }
    false
}

/// Whether the head of a later record can be found anywhere behind: then this one was not the last.
fn has_later_record(bytes: &[u8], at: usize, expected: u64, file: &[u8; SUM]) -> bool {
    let window = 1 << 32;
    bytes[at..].windows(HEAD).step_by(ALIGNED).skip(1).any(|here| {
        let (length, number) = (number(&here[..4]) as usize, number(&here[4..12]) as u64);
        (expected + 1..expected + window).contains(&number) && head(file, length, number) == here
    })
}

/// How long a record with this much data is.
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
