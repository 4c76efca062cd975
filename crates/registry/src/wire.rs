//! Registry messages and their encoding.
//!
//! ```text
//!   version (2 bytes) │ cluster (16) │ a RegistryMessage in postcard's format
//! ```
//!
//! Voters use the registry's version. A question has the oldest version that its sender understands, or a newer one
//! once it has received that, and so has its answer. So processes of adjacent versions understand each other.

use peerlock_types::{Detached, EventKind, MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::command::{Command, MOST_FENCING, MOST_NAMED, MOST_NUMBER, Outcome, within};
use crate::event::Topic;
use crate::form::Message;
use crate::look::{Found, Look, MOST_HOSTS, MOST_ON_PAGE};
use crate::state::{MOST_DETACHED, Undecodable};
use crate::{ClusterId, Label, SessionId, Versions, VoterId};

/// Bytes of an accepted message. Those sent are less than half as long.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Bytes of a snapshot.
pub const MOST_SNAPSHOT: usize = 256 << 20;

/// Enough for most messages.
const USUAL: usize = 128;

/// A process that knows no voter names the hosts that it has met.
const MOST_NAMED_VOTERS: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistryMessage {
    /// Sent between voters: a message of the Raft engine.
    Voter(Box<Message>),
    /// Sent by the leader to a process whose host becomes a voter, until that replies. The process starts the file if
    /// `session` is its own. If the host has no other voter, `alone`, the process removes the file of a former one: a
    /// removed learner never receives [`Retired`](Self::Retired).
    Enlist { voter: VoterId, session: SessionId, alone: bool },
    /// Sent to a former voter that still acts as one. The receiver removes its file.
    Retired { voter: VoterId },
    /// Sent by a process to a voter. Answered by `Answer`, unless the leadership is lost meanwhile.
    Ask { number: u64, question: Question },
    /// Sent by a voter in reply to `Ask`.
    Answer { number: u64, answer: Answer },
    /// Sent by the leader to a session until it has taken effect: see [`EventKind`].
    Event { resource: Label, session: SessionId, generation: u64, kind: EventKind },
    /// Acknowledges an event other than [`EventKind::Opened`].
    EventAck { resource: Label, session: SessionId, generation: u64, topic: Topic },
    /// Sent between voters: the part of a long snapshot that begins at the byte `at` of `all`.
    Piece { message: Box<Message>, at: u32, all: u32 },
    /// Sent by the receiver of a piece other than the last, with the number of bytes received so far.
    Had { from: VoterId, to: VoterId, index: u64, bytes: u32 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// Answered by the leader once the command is applied.
    Do(Command),
    /// Answered by the leader after a round.
    Renew { session: SessionId, renewal: u64 },
    /// Answered by any voter that has applied the entry `since`, the last one known to the sender.
    Look { look: Look, since: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// The command is applied, in the entry `index`.
    Done { outcome: Outcome, index: u64 },
    /// The result of a query.
    Found(Found),
    /// The renewal is confirmed.
    Yes { session: SessionId, renewal: u64, voters: Vec<PeerId> },
    /// The session has ended.
    Over { session: SessionId },
    /// This voter does not lead, and has done nothing.
    Elsewhere { leader: Option<PeerId>, voters: Vec<PeerId> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    #[error("the message has version {0}, and this program understands {1}: upgrade the older of the two")]
    Version(u16, Versions),
    #[error("the message is of cluster {theirs}, and this host belongs to {ours}: two clusters cannot be merged")]
    Cluster { theirs: ClusterId, ours: ClusterId },
    /// Our cluster was recovered: the receiver has to stop its session and join that cluster, without its voter's file.
    #[error("the cluster was recovered as {theirs}, and this process belongs to its predecessor {ours}")]
    Recovered { theirs: ClusterId, ours: ClusterId },
    #[error("not a registry message")]
    Format,
    #[error("invalid registry message: {0}")]
    Bounds(&'static str),
}

pub fn encode(registry_message: &RegistryMessage, version: u16, cluster: ClusterId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL);
    bytes.extend(version.to_le_bytes());
    bytes.extend(cluster.get().to_le_bytes());
    to_bytes(registry_message, bytes)
}

pub(crate) fn to_bytes(value: &impl Serialize, start: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, start).expect("a Vec can grow, and every sequence has a known length")
}

pub(crate) fn encode_versioned(value: &impl Serialize, version: u16) -> Vec<u8> {
    to_bytes(value, version.to_le_bytes().to_vec())
}

/// Also returns the version.
pub(crate) fn decode_versioned<T: DeserializeOwned>(bytes: &[u8], versions: Versions) -> Result<(T, u16), Undecodable> {
    let (version, rest) = bytes.split_first_chunk().ok_or(Undecodable::Format)?;
    let version = u16::from_le_bytes(*version);
    if !versions.has(version) {
        return Err(Undecodable::Version(version));
    }
    let Ok((value, [])) = postcard::take_from_bytes(rest) else { return Err(Undecodable::Format) };
    Ok((value, version))
}

/// Also returns the version.
pub fn decode(bytes: &[u8], versions: Versions, cluster: ClusterId) -> Result<(RegistryMessage, u16), Malformed> {
    let (version, rest) = bytes.split_first_chunk().ok_or(Malformed::Format)?;
    let version = u16::from_le_bytes(*version);
    if !versions.has(version) {
        return Err(Malformed::Version(version, versions));
    }
    let (theirs, rest) = rest.split_first_chunk().ok_or(Malformed::Format)?;
    let theirs = ClusterId::new(u128::from_le_bytes(*theirs));
    if theirs.follows(cluster) {
        return Err(Malformed::Recovered { theirs, ours: cluster });
    }
    if theirs != cluster {
        return Err(Malformed::Cluster { theirs, ours: cluster });
    }
    if bytes.len() > MAX_MESSAGE {
        return Err(Malformed::Bounds("message too long"));
    }
    let Ok((registry_message, [])) = postcard::take_from_bytes::<RegistryMessage>(rest) else {
        return Err(Malformed::Format);
    };
    registry_message.check().map_err(Malformed::Bounds)?;
    Ok((registry_message, version))
}

impl RegistryMessage {
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Voter(message) => message.check(),
            Self::Piece { message, at, all } => {
                message.check()?;
                let length = message.snapshot.as_ref().map_or(0, |snapshot| snapshot.state.len());
                let is_inside = length > 0 && *at as usize + length <= *all as usize;
                within(is_inside && *all as usize <= MOST_SNAPSHOT, "piece outside of its snapshot")
            }
            Self::Ask { question: Question::Do(command), .. } => command.check(),
            Self::Ask { question: Question::Look { look: Look::Resources { most, .. }, .. }, .. } => {
                within(*most <= MOST_ON_PAGE, "page too long")
            }
            Self::Ask { question: Question::Look { look: Look::Hosts(hosts), .. }, .. } => {
                within(hosts.len() <= MOST_HOSTS, "too many hosts")
            }
            Self::Enlist { voter, .. } => within((1..MOST_NUMBER).contains(&voter.get()), "voter number out of range"),
            Self::Event { generation, kind, .. } => {
                within(*generation < MOST_GENERATION, "generation out of range")?;
                check_event(kind)
            }
            Self::EventAck { generation, .. } => within(*generation < MOST_GENERATION, "generation out of range"),
            Self::Answer { answer, .. } => answer.check(),
            Self::Ask { .. } | Self::Retired { .. } | Self::Had { .. } => Ok(()),
        }
    }
}

fn check_event(kind: &EventKind) -> Result<(), &'static str> {
    let is_grant = |grant: &Detached| grant.slot < MOST_SLOTS && grant.fencing < MOST_FENCING;
    let are_grants = |grants: &[Detached]| within(grants.iter().all(is_grant), "slot or fencing number out of range");
    match kind {
        EventKind::Opened { slots, asked, detached } => {
            within((1..=MOST_SLOTS).contains(slots), "number of slots out of range")?;
            let most = asked.len() <= MOST_NAMED && detached.len() <= MOST_DETACHED;
            within(most, "too many sessions or grants")?;
            are_grants(detached)
        }
        EventKind::Expired(grant) => are_grants(&[*grant]),
        EventKind::Evicted => Ok(()),
        EventKind::Joined { .. } | EventKind::Left { .. } => Err("an event that answers a command"),
    }
}

impl Answer {
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Done { outcome, index } => {
                within(*index < MOST_NUMBER, "index out of range")?;
                let Outcome::Joined { generation, slots, .. } = outcome else { return Ok(()) };
                let is_good = *generation < MOST_GENERATION && (1..=MOST_SLOTS).contains(slots);
                within(is_good, "number of slots or generation out of range")
            }
            Self::Yes { voters, .. } | Self::Elsewhere { voters, .. } => {
                within(voters.len() <= MOST_NAMED_VOTERS, "too many voters")
            }
            Self::Found(_) | Self::Over { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::{Rng, Session};

    use super::*;
    use crate::Label;
    use crate::form::{Entry, EntryKind, Kind, MOST_ENTRY, Snapshot};

    const CLUSTER: ClusterId = ClusterId::new(7);

    fn append() -> Message {
        let entry = |index| Entry { index, term: 3, kind: EntryKind::Commands, data: vec![1], context: Vec::new() };
        Message {
            kind: Kind::Append,
            from: VoterId::new(1),
            to: VoterId::new(2),
            term: 3,
            log_term: 2,
            index: 4,
            commit: 4,
            commit_term: 0,
            reject: false,
            reject_hint: 0,
            context: Vec::new(),
            entries: vec![entry(5), entry(6)],
            snapshot: None,
        }
    }

    fn back(registry_message: &RegistryMessage) -> Result<(RegistryMessage, u16), Malformed> {
        decode(&encode(registry_message, 1, CLUSTER), Versions::OURS, CLUSTER)
    }

    fn look(most: u32) -> RegistryMessage {
        let look = Look::Resources { prefix: None, after: None, most, granted_by: None };
        RegistryMessage::Ask { number: 1, question: Question::Look { look, since: 3 } }
    }

    fn sent(generation: u64, grants: usize) -> RegistryMessage {
        let (resource, session) = (Label::new("x").unwrap(), SessionId::new(3));
        let detached = vec![Detached { slot: 0, fencing: 1 << 32 }; grants];
        let kind = EventKind::Opened { slots: 1, asked: vec![Session { peer: PeerId::new(2), number: 3 }], detached };
        RegistryMessage::Event { resource, session, generation, kind }
    }

    fn received(generation: u64) -> RegistryMessage {
        let (resource, session) = (Label::new("x").unwrap(), SessionId::new(3));
        RegistryMessage::EventAck { resource, session, generation, topic: Topic::Evicted }
    }

    #[test]
    fn message_round_trips() {
        let join = Command::Join { session: SessionId::new(3), resource: Label::new("x").unwrap(), slots: 2 };
        for registry_message in [
            RegistryMessage::Voter(Box::new(append())),
            RegistryMessage::Ask { number: 1, question: Question::Do(join) },
            RegistryMessage::Answer {
                number: 1,
                answer: Answer::Elsewhere { leader: None, voters: vec![PeerId::new(9)] },
            },
            look(1000),
            sent(7, 1),
            received(7),
        ] {
            assert_eq!(back(&registry_message), Ok((registry_message, 1)));
        }
    }

    #[test]
    fn other_versions_and_clusters_are_refused() {
        let registry_message = RegistryMessage::Retired { voter: VoterId::new(1) };
        let older = decode(&encode(&registry_message, 2, CLUSTER), Versions::OURS, CLUSTER).unwrap_err();
        assert_eq!(
            older.to_string(),
            "the message has version 2, and this program understands 1: upgrade the older of the two"
        );
        let other = decode(&encode(&registry_message, 1, ClusterId::new(8)), Versions::OURS, CLUSTER).unwrap_err();
        assert!(other.to_string().contains("00000000000000000000000000000008"), "{other}");
        assert!(other.to_string().contains("00000000000000000000000000000007"), "{other}");
    }

    #[test]
    fn invariants_of_the_engine_are_checked() {
        type Wrong = fn(&mut Message);
        let snapshot = |term| Some(Snapshot { index: 4, term, state: Vec::new() });
        let table: [Wrong; 11] = [
            |it| it.term = 1 << 50,
            |it| it.from = VoterId::new(0),
            |it| it.entries[1].index = 8,
            |it| it.entries[0].term = 1,
            |it| it.entries[1].term = 4,
            |it| it.entries[0].data = vec![0; MOST_ENTRY + 1],
            |it| it.context = vec![0; 65],
            |it| it.kind = Kind::Heartbeat,
            |it| it.kind = Kind::Snapshot,
            // To the engine, the term of an unknown index is 0, which would end the process.
            |it| (it.log_term, it.index, it.entries) = (0, 1 << 40, Vec::new()),
            |it| (it.log_term, it.index, it.entries) = (1, 0, Vec::new()),
        ];
        for (case, wrong) in table.into_iter().enumerate() {
            let mut message = append();
            wrong(&mut message);
            assert!(matches!(back(&RegistryMessage::Voter(Box::new(message))), Err(Malformed::Bounds(_))), "{case}");
        }
        for (term, is_right) in [(3, true), (4, false)] {
            let message = Message { kind: Kind::Snapshot, entries: Vec::new(), snapshot: snapshot(term), ..append() };
            assert_eq!(back(&RegistryMessage::Voter(Box::new(message))).is_ok(), is_right, "a snapshot of term {term}");
        }
        for (voter, is_right) in [(0, false), (1, true), (MOST_NUMBER, false)] {
            let (voter, session) = (VoterId::new(voter), SessionId::new(3));
            assert_eq!(back(&RegistryMessage::Enlist { voter, session, alone: false }).is_ok(), is_right, "{voter}");
        }
        let slots = Command::Resize { resource: Label::new("x").unwrap(), slots: 0, generation: 1 };
        let ask = RegistryMessage::Ask { number: 1, question: Question::Do(slots) };
        assert!(matches!(back(&ask), Err(Malformed::Bounds(_))));
        let opened = |slots, grant| {
            let (slot, fencing) = grant;
            let detached = vec![Detached { slot, fencing }];
            let kind = EventKind::Opened { slots, asked: Vec::new(), detached };
            RegistryMessage::Event {
                resource: Label::new("x").unwrap(),
                session: SessionId::new(3),
                generation: 7,
                kind,
            }
        };
        let joined = |generation, slots| {
            let coordinator = (SessionId::new(3), PeerId::new(1));
            let outcome = Outcome::Joined { generation, coordinator, opened: false, slots };
            RegistryMessage::Answer { number: 1, answer: Answer::Done { outcome, index: 1 } }
        };
        assert!(back(&opened(1024, (1023, 1))).is_ok() && back(&joined(1, 1024)).is_ok());
        for registry_message in [
            opened(u32::MAX, (0, 1)),
            opened(0, (0, 1)),
            opened(1, (1024, 1)),
            opened(1, (0, u64::MAX)),
            joined(u64::MAX, 1),
            joined(1, u32::MAX),
        ] {
            assert!(matches!(back(&registry_message), Err(Malformed::Bounds(_))), "{registry_message:?}");
        }
        for registry_message in [look(1001), sent(1 << 29, 1), sent(7, MOST_DETACHED + 1), received(1 << 29)] {
            assert!(matches!(back(&registry_message), Err(Malformed::Bounds(_))), "{registry_message:?}");
        }
    }

    #[test]
    fn message_of_a_recovered_cluster_is_recognized() {
        let registry_message = RegistryMessage::Retired { voter: VoterId::new(1) };
        let later = CLUSTER.recovered(7).recovered(1 << 40);
        let received = decode(&encode(&registry_message, 1, later), Versions::OURS, CLUSTER).unwrap_err();
        assert_eq!(received, Malformed::Recovered { theirs: later, ours: CLUSTER });
        let late = decode(&encode(&registry_message, 1, CLUSTER), Versions::OURS, later).unwrap_err();
        assert_eq!(late, Malformed::Cluster { theirs: CLUSTER, ours: later });
    }

    #[test]
    fn arbitrary_bytes_do_not_panic_the_decoder() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let length = rng.below(80) as usize;
            let mut bytes = encode(&RegistryMessage::Retired { voter: VoterId::new(1) }, 1, CLUSTER);
            bytes.truncate(18);
            bytes.extend((0..length).map(|_| rng.bits() as u8));
            _ = decode(&bytes, Versions::OURS, CLUSTER);
        }
    }
}
