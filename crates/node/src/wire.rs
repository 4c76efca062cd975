//! What peers say to each other, as bytes.
//!
//! ```text
//!   hello    0 │ the versions that its sender understands │ Frame::Hello │ what later versions may add
//!   others   the version of this connection │ Frame │ in it, if it carries anything, a Body
//! ```
//!
//! All in postcard's format. A hello is of no version: what it begins with stays as it is for good, so that any two
//! programs understand each other's, and who knows less does not look at the rest. On a connection the newest version
//! is spoken that both understand; where there is none, both say so and hang up.

use std::time::Duration;

use peerlock_protocol::custody::{self, MOST_WAITING};
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{Key, MOST_SLOTS, PeerId, Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use crate::ClientView;
use crate::clients::{Entry, Stage};
use crate::connections::Packet;
use crate::link::Frame;
use crate::survey::QueueReport;

/// In the place of a version: a hello.
const HELLO: u16 = 0;

/// What peers say to each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// Between the parts of a resource. Must arrive.
    Part {
        /// The key of its name.
        resource: Key,
        /// What one part says to the other.
        message: custody::Message,
    },
    /// A letter about the register. May get lost.
    Registry(#[serde(with = "crate::bytes")] Vec<u8>),
    /// After every hello, and again when anything of it has changed. May get lost.
    Greeting {
        /// The cluster that the sender belongs to, if it knows one.
        cluster: Option<ClusterId>,
        /// The sender knows none, and waits until enough such hosts have met.
        expects: bool,
        /// The one that is to found a cluster, if the sender thinks that enough have met.
        founder: Option<PeerId>,
        /// Hosts that the sender is linked with, and where it reached them: those that vote, or all if it knows no
        /// cluster.
        hosts: Vec<(PeerId, String)>,
    },
    /// Answered by `Reply` with the same number, unless there is nothing to say. May get lost.
    Ask {
        /// Which question of the sender's.
        number: u64,
        /// What is asked.
        question: Question,
    },
    /// To who asked. May get lost.
    Reply {
        /// As it was in the question.
        number: u64,
        /// Of the kind that the question names.
        reply: Reply,
    },
    /// A packet of a connection between two hosts that do not reach each other, by way of a third. May get lost.
    Relay {
        /// Who says this; the third believes only the sender itself.
        from: PeerId,
        /// Who is to hear it.
        to: PeerId,
        /// What the two would say to each other on a connection of their own.
        packet: Packet,
    },
    /// The sender does not need this connection, and nothing was said on it for a while: it may end. May get lost.
    Idle,
    /// The sender has no session. Answered by a `Greeting` with those that vote. May get lost.
    Seek,
    /// From a coordinator to the host of a waiter, to see whether it can be reached. Must arrive; confirmed by the
    /// link.
    Probe,
}

/// What one peer may ask another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// For the coordinator of this resource: who waits, and where are the tokens?
    QueueReport(Key),
    /// Which clients of this resource are with you?
    Here(Key),
    /// Tell whoever is inside this resource with this fencing number to stop, if that is a client of yours.
    Revoke {
        /// The key of its name.
        resource: Key,
        /// The grant that somebody has asked for.
        fencing: u64,
    },
    /// Does anybody use this resource with you? It is to be removed.
    Used {
        /// The key of its name.
        resource: Key,
        /// If not, give up your part in it now.
        give_up: bool,
    },
}

/// Answers to [`Question`]s.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// To `Question::QueueReport`, by the coordinator.
    QueueReport(QueueReport),
    /// To `Question::QueueReport`, by a coordinator that is still counting.
    Counting {
        /// Who has not answered it yet.
        missing: Vec<PeerId>,
        /// For how long it has been counting.
        millis: u64,
    },
    /// To `Question::Here`: the clients that wait or are inside here.
    Here(Vec<Client>),
    /// To `Question::Revoke`: it was told, and has so many milliseconds at most; `None` if nobody here has that number,
    /// or not any more.
    Revoked(Option<u64>),
    /// To `Question::Used`: whether somebody waits or is inside here.
    Used(bool),
}

/// A client as its own peer knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// By which of the peer's tickets the protocol knows it, if it does.
    pub ticket: Option<Ticket>,
    /// What the client says of itself.
    pub label: String,
    /// Its process, if its peer knows it.
    pub pid: Option<u32>,
    /// For how long it has been waiting, or inside.
    pub millis: u64,
    /// Slot and fencing number if it is inside.
    pub grant: Option<(u32, u64)>,
    /// How long its lease stands, in milliseconds, if it is inside.
    pub ends: Option<u64>,
}

impl Client {
    /// One of ours, as we tell of it.
    pub fn of(entry: &Entry, now: Time) -> Self {
        let (long, grant, ends) = match entry.stage {
            Stage::Held { grant, since, lease } => {
                let ends = Some(lease.deadline()).filter(|_| !entry.returned);
                (since.until(now), Some((grant.slot, grant.fencing)), ends)
            }
            Stage::Waiting { .. } | Stage::Entering { .. } => (now.since(entry.asked), None, None),
        };
        let millis = |span: Span| span.as_nanos() / 1_000_000;
        Self {
            ticket: entry.alias(),
            label: entry.wanted.label.clone(),
            pid: entry.wanted.pid.filter(|_| !entry.is_detached()),
            millis: millis(long),
            grant,
            ends: ends.map(|ends| millis(ends.max(now).since(now))),
        }
    }

    /// As it is shown, wherever it is.
    pub fn view(&self) -> ClientView {
        ClientView {
            label: self.label.clone(),
            age: Duration::from_millis(self.millis),
            fencing: self.grant.map(|(_, fencing)| fencing),
            ends: self.ends.map(Duration::from_millis),
            pid: self.pid,
        }
    }
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Of a program that understands these versions, none of which is ours.
    Version(Versions),
    /// Not of our format.
    Format,
    /// Of our format, and out of bounds.
    Bounds(&'static str),
}

/// The longest that a message may be. The network takes a little more: what is around it has to fit, too.
pub const MOST_BYTES: usize = (1 << 20) - 1024;
/// Of a longer line only so many are told, and of clients as many as have room in so many bytes.
pub const MAX_LISTED: usize = 16_384;
const MOST_BYTES_HERE: usize = 512 << 10;
/// At most so many hosts are named in a greeting, and as many are missing as there can be members.
const MOST_GREETED: usize = 4096;
const MOST_MISSING: usize = 16_384;
/// No frame has more than so many bytes around what it carries, but for a hello of later versions; and most messages
/// have fewer than that many.
const AROUND: usize = 64;
const USUAL: usize = 256;
/// An address has at most so many bytes.
const MOST_ADDRESS: usize = 255;

impl Body {
    /// Whether it is within its bounds, or what is not.
    fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        match self {
            Self::Part { message, .. } => message.check(),
            Self::Greeting { hosts, .. } => {
                let is_one = |(_, address): &(PeerId, String)| address.len() <= MOST_ADDRESS;
                within(hosts.len() <= MOST_GREETED && hosts.iter().all(is_one), "hosts that cannot be")
            }
            Self::Reply { reply: Reply::QueueReport(queue), .. } => {
                let QueueReport { slots, waiting, behind, locations, .. } = queue;
                let is_line = waiting.len() <= MAX_LISTED && behind.len() <= MOST_WAITING;
                within(
                    is_line && *slots <= MOST_SLOTS && locations.len() <= MOST_SLOTS as usize,
                    "a line that cannot be",
                )
            }
            Self::Reply { reply: Reply::Counting { missing, .. }, .. } => {
                within(missing.len() <= MOST_MISSING, "more missing than there can be")
            }
            Self::Reply { reply: Reply::Here(_) | Reply::Revoked(_) | Reply::Used(_), .. }
            | Self::Registry(_)
            | Self::Ask { .. }
            | Self::Relay { .. }
            | Self::Idle
            | Self::Seek
            | Self::Probe => Ok(()),
        }
    }
}

/// As many of these as have room in a message.
pub fn that_fit(clients: impl Iterator<Item = Client>) -> Vec<Client> {
    let mut bytes = 0;
    let fits = move |client: &Client| {
        bytes += 64 + client.label.len();
        bytes <= MOST_BYTES_HERE
    };
    clients.take_while(fits).collect()
}

/// A frame as bytes, on a connection of this version; a hello is the same on all, and says which ones we understand.
pub fn encode(frame: &Frame, version: u16, ours: Versions) -> Vec<u8> {
    match frame {
        Frame::Hello { .. } => to_bytes(&(HELLO, ours, frame), AROUND),
        Frame::Ack { .. } => to_bytes(&(version, frame), AROUND),
        Frame::Data { body, .. } | Frame::Loose { body } => to_bytes(&(version, frame), AROUND + body.len()),
    }
}

/// The frame that bytes are, and which version it is of; a hello is of the one that is to be spoken on its connection.
pub fn decode(bytes: &[u8], ours: Versions) -> Result<(Frame, u16), Malformed> {
    let (version, rest) = part(bytes)?;
    if version == HELLO {
        let (theirs, rest) = part::<Versions>(rest)?;
        let version = ours.common(theirs).ok_or(Malformed::Version(theirs))?;
        return match part(rest)? {
            (hello @ Frame::Hello { .. }, _added) => Ok((hello, version)),
            _ => Err(Malformed::Format),
        };
    }
    if !ours.has(version) {
        return Err(Malformed::Version(Versions { min: version, max: version }));
    }
    Ok((whole(rest)?, version))
}

/// Returns the cluster that the first frame of a connection names, if it names one; `None` if this is no such frame.
pub fn hello_cluster(bytes: &[u8]) -> Option<Option<ClusterId>> {
    match decode(bytes, Versions { min: 1, max: u16::MAX }) {
        Ok((Frame::Hello { cluster, .. }, _)) => Some(cluster),
        Ok(_) | Err(_) => None,
    }
}

/// A message as the contents of a frame.
pub fn encode_body(body: &Body) -> Vec<u8> {
    to_bytes(body, USUAL)
}

/// A value as bytes, for which there is room for so many at first.
fn to_bytes(value: &impl Serialize, room: usize) -> Vec<u8> {
    postcard::to_extend(value, Vec::with_capacity(room)).expect("a list grows, and all that we say has a known length")
}

/// The message in a frame.
pub fn decode_body(bytes: &[u8]) -> Result<Body, Malformed> {
    let body: Body = whole(bytes)?;
    body.check().map_err(Malformed::Bounds)?;
    Ok(body)
}

/// Nothing may be left over.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match part(bytes)? {
        (value, []) => Ok(value),
        _ => Err(Malformed::Format),
    }
}

fn part<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<(T, &'a [u8]), Malformed> {
    postcard::take_from_bytes(bytes).map_err(|_| Malformed::Format)
}

#[cfg(test)]
mod tests {
    use peerlock_protocol::custody::Update;
    use peerlock_protocol::token::Claim;
    use peerlock_types::Rng;

    use super::*;
    use crate::Purpose;
    use crate::connections::Segment;
    use crate::link::Life;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let update = Update::Request(Claim { peer: PeerId::new(7), ticket: Ticket::new(1) });
        let message = custody::Message { generation: 3, body: custody::Body::Update(update) };
        let greeting = Body::Greeting { cluster: None, expects: true, founder: None, hosts: Vec::new() };
        let packet = Packet { number: 9, answer: 8, segment: Segment::Data(1, vec![3]) };
        let relay = Body::Relay { from: PeerId::new(7), to: PeerId::new(8), packet };
        for body in [Body::Part { resource: Key::of(b"r"), message }, greeting, Body::Registry(vec![1, 2]), relay] {
            let frame = Frame::Data { number: 1, has: 2, body: encode_body(&body) };
            let back = decode(&encode(&frame, 1, Versions::OURS), Versions::OURS);
            let Ok((Frame::Data { body: bytes, .. }, 1)) = back else { panic!("{frame:?}") };
            let purpose = match body {
                Body::Part { .. } => Purpose::Resource,
                Body::Registry(_) => Purpose::Registry,
                _ => Purpose::Link,
            };
            assert_eq!(crate::purpose(&encode(&frame, 1, Versions::OURS)), purpose);
            assert_eq!(decode_body(&bytes), Ok(body));
        }
    }

    /// As a list of numbers would be, which they once were.
    #[test]
    fn what_a_frame_carries_is_its_length_and_then_the_bytes() {
        let data = Frame::Data { number: 7, has: 8, body: vec![200, 3] };
        assert_eq!(encode(&data, 1, Versions::OURS), [1, 1, 7, 8, 2, 200, 3]);
        assert_eq!(encode(&Frame::Loose { body: vec![200, 3] }, 1, Versions::OURS), [1, 3, 2, 200, 3]);
        assert_eq!(encode_body(&Body::Registry(vec![200, 3])), [1, 2, 200, 3]);
    }

    #[test]
    fn other_versions_leftovers_and_nothing_at_all_are_malformed() {
        let ours = Versions::OURS;
        let mut bytes = encode(&Frame::Ack { has: 7 }, 1, ours);
        bytes.push(0);
        assert_eq!(decode(&bytes, ours), Err(Malformed::Format));
        bytes[0] = 2;
        assert_eq!(decode(&bytes, ours), Err(Malformed::Version(Versions { min: 2, max: 2 })));
        assert_eq!(decode(&[], ours), Err(Malformed::Format));
    }

    /// The bytes of a hello as they were in the first version: a program that changes them is understood by nobody.
    #[test]
    fn a_hello_is_understood_by_every_version_and_may_grow() {
        let life = Life { process: 7, part: 1 };
        let hello = Frame::Hello { life, has: None, cluster: Some(ClusterId::new(9)) };
        let next = Versions { min: 1, max: 2 };
        let mut bytes = encode(&hello, 1, next);
        assert_eq!(bytes, [0, 1, 2, 0, 7, 1, 0, 1, 9]);
        bytes.extend([1, 2, 3]);
        assert_eq!(decode(&bytes, Versions::OURS), Ok((hello.clone(), 1)));
        assert_eq!(decode(&bytes, next), Ok((hello.clone(), 2)));
        let last = Versions { min: 3, max: 4 };
        assert_eq!(decode(&encode(&hello, 3, last), next), Err(Malformed::Version(last)));
        let data = encode(&Frame::Data { number: 1, has: 0, body: Vec::new() }, 1, next);
        assert_eq!(decode(&[&[0, 1, 1], &data[1..]].concat(), next), Err(Malformed::Format), "no hello");
    }

    /// Each of these has ended a process, or kept it busy for good.
    #[test]
    fn what_is_counted_on_from_is_checked_where_it_is_decoded() {
        use custody::Body as Said;
        use peerlock_protocol::custody::{Answer as Counted, Following, Report};
        use peerlock_protocol::registry::Session;
        use peerlock_protocol::token::Token;
        let part = |generation, body| {
            let message = custody::Message { generation, body };
            decode_body(&encode_body(&Body::Part { resource: Key::of(b"r"), message }))
        };
        let claim = Claim { peer: PeerId::new(7), ticket: Ticket::new(1) };
        let session = Session { peer: PeerId::new(7), number: 1 };
        let token = |slot, fencing| Said::Token {
            to: Ticket::new(1),
            token: Token { slot, fencing },
            stay: 1,
            following: Following::default(),
        };
        let left = |stay| Said::Update(Update::Left { slot: 0, stay, to: claim, turn: 0 });
        let answer = |tokens: usize, waiting: usize| {
            let report = Report { token: Token { slot: 0, fencing: 1 }, in_use: false };
            let waiting = vec![(Ticket::new(1), None); waiting];
            Said::Answer(Counted { session, tokens: vec![report; tokens], waiting })
        };
        let next = |claims| {
            let following = Following { turn: 0, claims: vec![claim; claims], more: false };
            Said::Next { slot: 0, stay: 1, following, replaces: false }
        };
        for (good, bad) in [
            (part(1, token(1023, 1)), part(1, token(1024, 1))),
            (part(1, token(0, 1 << 61)), part(1, token(0, u64::MAX))),
            (part((1 << 29) - 1, left(1)), part(u64::MAX, left(1))),
            (part(1, left(1 << 61)), part(1, left(u64::MAX))),
            (part(1, Said::Census { session, slots: 1024 }), part(1, Said::Census { session, slots: u32::MAX })),
            (part(1, answer(1024, MOST_WAITING)), part(1, answer(1025, 0))),
            (part(1, answer(0, 0)), part(1, answer(0, MOST_WAITING + 1))),
            (part(1, next(64)), part(1, next(65))),
        ] {
            assert!(good.is_ok(), "{good:?}");
            assert!(matches!(bad, Err(Malformed::Bounds(_))), "{bad:?}");
        }
        let greeting = |hosts, length| {
            let hosts = vec![(PeerId::new(1), "x".repeat(length)); hosts];
            decode_body(&encode_body(&Body::Greeting { cluster: None, expects: false, founder: None, hosts }))
        };
        assert!(greeting(4096, 20).is_ok() && greeting(4097, 1).is_err() && greeting(1, 256).is_err());
    }

    #[test]
    fn no_bytes_crash_the_decoder_or_make_it_allocate_more_than_they_are() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let length = rng.below(60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
            _ = decode_body(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first %= 2;
            }
            _ = decode(&bytes, Versions::OURS);
        }
    }
}
