//! What processes say to each other about the register, as bytes.
//!
//! ```text
//!   version (2 bytes) │ cluster (16) │ a Letter in postcard's format
//! ```
//!
//! Voters speak to each other in the register's own version; a question is put in the oldest version that its sender
//! knows, unless it has heard that the cluster's is newer, and answered in the version in which it was put. So a
//! process of this version and one of the next understand each other.

use peerlock_types::{MOST_GENERATION, MOST_SLOTS, PeerId};
use serde::{Deserialize, Serialize};

use crate::command::{Command, MOST_FENCING, MOST_NAMED, MOST_NUMBER, Outcome};
use crate::form::Message;
use crate::kind::{EventKind, Topic};
use crate::look::{Found, Look, MOST_HOSTS, MOST_ON_PAGE};
use crate::state::MOST_DETACHED;
use crate::{ClusterId, Label, SessionId, Versions, VoterId};

/// The most bytes that a letter may have. All that are sent are below half of that.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most bytes that a snapshot may have, in as many letters as it takes.
pub const MOST_SNAPSHOT: usize = 256 << 20;

/// Most letters have no more bytes.
const USUAL: usize = 128;

/// At most so many hosts are named as voters: a process that knows none names those that it has met.
const MOST_NAMED_VOTERS: usize = 64;

/// What processes say to voters, voters to processes, and voters to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RegistryMessage {
    /// What the consensus engine of one voter says to that of another.
    Voter(Box<Message>),
    /// From the leader to a process that is to become a voter: it may begin this voter's file if that is its session.
    Enlist {
        /// Whose number that is.
        voter: VoterId,
        /// For whom it was given out.
        session: SessionId,
        /// Whether the host has no other seat: whatever voter it still is, it is none any more. A learner that was
        /// dropped writes to nobody, and would not hear it.
        alone: bool,
    },
    /// To a voter that is none any more, from one that knows.
    Retired {
        /// The voter that is none any more.
        voter: VoterId,
    },
    /// Answered by `Answer` with the same number, unless the voter loses its office meanwhile.
    Ask {
        /// Which question of the asker's.
        number: u64,
        /// What is asked.
        question: Question,
    },
    /// To who asked.
    Answer {
        /// As it was in the question.
        number: u64,
        /// Of the kind that the question names.
        answer: Answer,
    },
    /// From the leader to a session, until it has done what follows: see [`EventKind`].
    Event {
        /// The resource that it is about.
        resource: Label,
        /// Whom it is meant for: another session of the same host drops it.
        session: SessionId,
        /// The resource's generation when this was decided.
        generation: u64,
        /// What was decided.
        kind: EventKind,
    },
    /// To who has told it, for all facts but [`EventKind::Opened`], which is answered by its deed.
    EventAck {
        /// As it was in the word.
        resource: Label,
        /// As it was in the word.
        session: SessionId,
        /// As it was in the word.
        generation: u64,
        /// Which word it was.
        topic: Topic,
    },
    /// From voter to voter: a part of a snapshot that is longer than a letter. Answered by `Had`, unless it is the
    /// last.
    Piece {
        /// As it would be with the whole snapshot, but with this part of it.
        message: Box<Message>,
        /// At which byte it begins.
        at: u32,
        /// How many bytes there are.
        all: u32,
    },
    /// To who has sent a piece.
    Had {
        /// Who has got it.
        from: VoterId,
        /// Who has sent it.
        to: VoterId,
        /// Of the snapshot up to this entry.
        index: u64,
        /// It has this many bytes of it, and waits for those after them.
        bytes: u32,
    },
}

/// What a process may ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// For this to be done, by an entry.
    Do(Command),
    /// Does this session still stand?
    Renew {
        /// The session that asks.
        session: SessionId,
        /// A yes names it.
        renewal: u64,
    },
    /// What is there? Answered by any voter that has applied enough.
    Look {
        /// The part of the register that is wanted.
        look: Look,
        /// The last entry that the asker knows of: what it was told must be in what it sees.
        since: u64,
    },
}

/// Answers to questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// It was applied, and nothing of this will be lost.
    Done {
        /// What came of it.
        outcome: Outcome,
        /// The entry that it was part of.
        index: u64,
    },
    /// What was to be looked at.
    Found(Found),
    /// The session stands, and stood after the renewal was sent.
    Yes {
        /// The session that was renewed.
        session: SessionId,
        /// The number of the renewal that this answers.
        renewal: u64,
        /// Where the voters are.
        voters: Vec<PeerId>,
    },
    /// The session is over.
    Over {
        /// The session that is over.
        session: SessionId,
    },
    /// Ask another one. Nothing was done.
    Elsewhere {
        /// The leader, as far as it is known.
        leader: Option<PeerId>,
        /// Where the voters are.
        voters: Vec<PeerId>,
    },
}

/// Why bytes are not a letter for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// Of a version that we do not understand.
    #[error("it is of version {0} of the register, and this program understands {1}: upgrade the older of the two")]
    Version(u16, Versions),
    /// Of another cluster.
    #[error("it belongs to the cluster {theirs}, and this is {ours}: two clusters that were founded apart stay apart")]
    Cluster {
        /// The sender's.
        theirs: ClusterId,
        /// The receiver's.
        ours: ClusterId,
    },
    /// Of our own cluster, which somebody has recovered after the loss of a majority of its voters. Who hears this has
    /// to stop its session and to come back as a member of that one, without its voter's file.
    #[error("the cluster was recovered and is {theirs} now, and this process belongs to what it was before, {ours}")]
    Recovered {
        /// The sender's.
        theirs: ClusterId,
        /// The receiver's.
        ours: ClusterId,
    },
    /// Not of our format.
    #[error("it is no letter of a register")]
    Format,
    /// Of our format, and out of bounds.
    #[error("it has {0}")]
    Bounds(&'static str),
}

/// A letter as bytes of this version.
pub fn encode(registry_message: &RegistryMessage, version: u16, cluster: ClusterId) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(USUAL);
    bytes.extend(version.to_le_bytes());
    bytes.extend(cluster.get().to_le_bytes());
    to_bytes(registry_message, bytes)
}

/// What this value is in bytes, behind those.
pub(crate) fn to_bytes(value: &impl Serialize, start: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, start).expect("a list grows, and all that we say has a known length")
}

/// The letter that bytes are, and its version.
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
        return Err(Malformed::Bounds("too many bytes"));
    }
    let Ok((registry_message, [])) = postcard::take_from_bytes(rest) else { return Err(Malformed::Format) };
    match &registry_message {
        RegistryMessage::Voter(message) => message.check().map_err(Malformed::Bounds)?,
        RegistryMessage::Piece { message, at, all } => {
            message.check().map_err(Malformed::Bounds)?;
            let length = message.snapshot.as_ref().map_or(0, |snapshot| snapshot.state.len());
            if length == 0 || *at as usize + length > *all as usize || *all as usize > MOST_SNAPSHOT {
                return Err(Malformed::Bounds("a piece that cannot be"));
            }
        }
        RegistryMessage::Ask { question: Question::Do(command), .. } => command.check().map_err(Malformed::Bounds)?,
        RegistryMessage::Ask { question: Question::Look { look: Look::Resources { most, .. }, .. }, .. }
            if *most > MOST_ON_PAGE =>
        {
            return Err(Malformed::Bounds("too long a page"));
        }
        RegistryMessage::Ask { question: Question::Look { look: Look::Hosts(hosts), .. }, .. }
            if hosts.len() > MOST_HOSTS =>
        {
            return Err(Malformed::Bounds("too many hosts"));
        }
        RegistryMessage::Event { generation, .. } | RegistryMessage::EventAck { generation, .. }
            if *generation >= MOST_GENERATION =>
        {
            return Err(Malformed::Bounds("too many generations"));
        }
        RegistryMessage::Enlist { voter, .. } if !(1..MOST_NUMBER).contains(&voter.get()) => {
            return Err(Malformed::Bounds("a voter that cannot be"));
        }
        RegistryMessage::Event { kind, .. } => check_event(kind).map_err(Malformed::Bounds)?,
        RegistryMessage::Answer { answer, .. } => answer.check().map_err(Malformed::Bounds)?,
        RegistryMessage::Ask { .. }
        | RegistryMessage::Enlist { .. }
        | RegistryMessage::Retired { .. }
        | RegistryMessage::EventAck { .. }
        | RegistryMessage::Had { .. } => {}
    }
    Ok((registry_message, version))
}

fn check_event(kind: &EventKind) -> Result<(), &'static str> {
    let is_grant = |slot: u32, fencing: u64| slot < MOST_SLOTS && fencing < MOST_FENCING;
    match kind {
        EventKind::Opened { slots, .. } if !(1..=MOST_SLOTS).contains(slots) => Err("a number of slots that cannot be"),
        EventKind::Opened { asked, detached, .. } if asked.len() > MOST_NAMED || detached.len() > MOST_DETACHED => {
            Err("too many sessions or grants")
        }
        EventKind::Opened { detached, .. } if !detached.iter().all(|(slot, fencing)| is_grant(*slot, *fencing)) => {
            Err("a grant that cannot be")
        }
        EventKind::Expired { slot, fencing } if !is_grant(*slot, *fencing) => Err("a grant that cannot be"),
        EventKind::Opened { .. } | EventKind::Expired { .. } | EventKind::Expelled => Ok(()),
    }
}

impl Answer {
    fn check(&self) -> Result<(), &'static str> {
        match self {
            Self::Done { index, .. } if *index >= MOST_NUMBER => Err("an index that cannot be"),
            Self::Done { outcome: Outcome::Joined { generation, slots, .. }, .. }
                if *generation >= MOST_GENERATION || !(1..=MOST_SLOTS).contains(slots) =>
            {
                Err("a resource that cannot be")
            }
            Self::Yes { voters, .. } | Self::Elsewhere { voters, .. } if voters.len() > MOST_NAMED_VOTERS => {
                Err("too many voters")
            }
            Self::Done { .. } | Self::Found(_) | Self::Yes { .. } | Self::Over { .. } | Self::Elsewhere { .. } => {
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Rng;

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
        let detached = vec![(0, 1 << 32); grants];
        let kind = EventKind::Opened { slots: 1, asked: vec![(session, PeerId::new(2))], detached };
        RegistryMessage::Event { resource, session, generation, kind }
    }

    fn received(generation: u64) -> RegistryMessage {
        let (resource, session) = (Label::new("x").unwrap(), SessionId::new(3));
        RegistryMessage::EventAck { resource, session, generation, topic: Topic::Expelled }
    }

    #[test]
    fn a_letter_comes_back_as_it_was() {
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
    fn other_versions_and_clusters_are_refused_with_a_sentence() {
        let registry_message = RegistryMessage::Retired { voter: VoterId::new(1) };
        let older = decode(&encode(&registry_message, 2, CLUSTER), Versions::OURS, CLUSTER).unwrap_err();
        assert_eq!(
            older.to_string(),
            "it is of version 2 of the register, and this program understands 1: upgrade the older of the two"
        );
        let other = decode(&encode(&registry_message, 1, ClusterId::new(8)), Versions::OURS, CLUSTER).unwrap_err();
        assert!(other.to_string().contains("00000000000000000000000000000008"), "{other}");
        assert!(other.to_string().contains("00000000000000000000000000000007"), "{other}");
    }

    #[test]
    fn what_the_engine_takes_for_granted_is_checked() {
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
            // The engine ended the process for it: what it does not have is of term 0 to it.
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
            let kind = EventKind::Opened { slots, asked: Vec::new(), detached: vec![grant] };
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
    fn who_belongs_to_what_the_cluster_was_before_it_was_recovered_hears_so() {
        let registry_message = RegistryMessage::Retired { voter: VoterId::new(1) };
        let later = CLUSTER.recovered(7).recovered(1 << 40);
        let received = decode(&encode(&registry_message, 1, later), Versions::OURS, CLUSTER).unwrap_err();
        assert_eq!(received, Malformed::Recovered { theirs: later, ours: CLUSTER });
        let late = decode(&encode(&registry_message, 1, CLUSTER), Versions::OURS, later).unwrap_err();
        assert_eq!(late, Malformed::Cluster { theirs: CLUSTER, ours: later });
    }

    #[test]
    fn no_bytes_crash_the_decoder_or_make_it_allocate_more_than_they_are() {
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
