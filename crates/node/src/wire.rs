//! Messages between peers, and their encoding.
//!
//! ```text
//!   hello    0 │ the versions that its sender understands │ Frame::Hello │ additions of later versions
//!   others   the version of this connection │ Frame │ in it, if it has a payload, a Body
//! ```
//!
//! All in the postcard format. A hello has no version and its first fields never change, so that any two programs can
//! decode each other's. A connection uses the newest version that both sides understand. If there is none, both log
//! this and hang up.

use std::time::Duration;

use peerlock_protocol::custody::{self, MOST_WAITING};
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::{Key, MOST_SLOTS, PeerId, Span, Ticket, Time};
use serde::{Deserialize, Serialize};

use crate::ClientView;
use crate::clients::Entry;
use crate::links::link::{Frame, Lives};
use crate::query::QueueReport;

const HELLO: u16 = 0;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body {
    /// A message of custody for one resource. Reliable.
    Part {
        resource: Key,
        message: custody::Message,
    },
    /// A message of the registry. Unreliable.
    Registry(#[serde(with = "crate::bytes")] Vec<u8>),
    /// Sent after every hello, and whenever a field changes. Unreliable.
    Greeting {
        cluster: Option<ClusterId>,
        /// The sender waits for enough hosts to create a cluster (`--expect`) …
        expects: bool,
        /// … and names this one as the creator.
        founder: Option<PeerId>,
        /// Hosts linked with the sender: the voters, or all if it knows no cluster.
        hosts: Vec<(PeerId, String)>,
    },
    /// A query. Answered by `Reply` with the same number, if at all. Both unreliable.
    Ask {
        number: u64,
        question: Question,
    },
    Reply {
        number: u64,
        reply: Reply,
    },
    /// A frame of the link between two hosts that cannot connect to each other. Unreliable.
    Relay {
        /// The sender; the relaying host forwards it only if it comes from this host.
        from: PeerId,
        to: PeerId,
        lives: Lives,
        #[serde(with = "crate::bytes")]
        frame: Vec<u8>,
    },
    /// The sender does not need this connection. Unreliable.
    Idle,
    /// Sent by a peer without a session. Answered by a `Greeting`. Unreliable.
    Seek,
    /// Sent by a coordinator to the host of a waiter, whose link acknowledges it. Reliable.
    Probe,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// To the coordinator: report the queue and the location of each token.
    QueueReport(Key),
    /// Report your clients of this resource.
    Here(Key),
    /// If your client holds this grant, ask it to stop.
    Revoke { resource: Key, fencing: u64 },
    /// Report whether your clients use this resource, which is to be deleted.
    Used {
        resource: Key,
        /// If it is unused, quit it.
        give_up: bool,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    QueueReport(QueueReport),
    /// To `QueueReport`, from a coordinator whose census is not complete.
    Counting {
        missing: Vec<PeerId>,
        millis: u64,
    },
    Here(Vec<Client>),
    /// Milliseconds until the notified client's lease ends, if it has that grant.
    Revoked(Option<u64>),
    Used(bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    pub ticket: Option<Ticket>,
    pub label: String,
    pub pid: Option<u32>,
    /// Milliseconds of waiting, or holding.
    pub millis: u64,
    /// Slot and fencing number of a holder …
    pub grant: Option<(u32, u64)>,
    /// … and milliseconds until its lease ends.
    pub ends: Option<u64>,
}

impl Client {
    pub fn of(entry: &Entry, now: Time) -> Self {
        let held = entry.held();
        let long = held.map_or(now.since(entry.asked), |(_, since, _)| since.until(now));
        let ends = held.filter(|_| !entry.returned).map(|(.., lease)| lease.deadline());
        let millis = |span: Span| span.as_nanos() / 1_000_000;
        Self {
            ticket: entry.alias(),
            label: entry.wanted.label.clone(),
            pid: entry.wanted.pid.filter(|_| !entry.is_detached()),
            millis: millis(long),
            grant: held.map(|(grant, ..)| (grant.slot, grant.fencing)),
            ends: ends.map(|ends| millis(ends.max(now).since(now))),
        }
    }

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

/// Why bytes were rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The sender supports only these versions, and this program none of them.
    Version(Versions),
    /// Not in the expected format.
    Format,
    /// A field is out of bounds.
    Bounds(&'static str),
}

/// The maximum size of a message. The network's limit is higher, for the framing.
pub const MOST_BYTES: usize = (1 << 20) - 1024;
/// Bytes of a message, which may be relayed in two others.
pub const MOST_BODY: usize = MOST_BYTES - 256;
/// Waiters in a report. `MOST_BYTES_HERE` limits a list of clients.
pub const MAX_LISTED: usize = 16_384;
const MOST_BYTES_HERE: usize = 512 << 10;
/// Hosts in a greeting, and missing parties.
const MOST_GREETED: usize = 4096;
const MOST_MISSING: usize = 16_384;
/// `AROUND` bounds the framing; most messages are below `USUAL`.
const AROUND: usize = 64;
const USUAL: usize = 256;
const MOST_ADDRESS: usize = 255;

impl Body {
    fn check(&self) -> Result<(), &'static str> {
        let within = |good, why| if good { Ok(()) } else { Err(why) };
        match self {
            Self::Part { message, .. } => message.check(),
            Self::Greeting { hosts, .. } => {
                let is_one = |(_, address): &(PeerId, String)| address.len() <= MOST_ADDRESS;
                within(hosts.len() <= MOST_GREETED && hosts.iter().all(is_one), "hosts out of bounds")
            }
            Self::Reply { reply: Reply::QueueReport(queue), .. } => {
                let QueueReport { slots, waiting, behind, locations, .. } = queue;
                let is_line = waiting.len() <= MAX_LISTED && behind.len() <= MOST_WAITING;
                within(
                    is_line && *slots <= MOST_SLOTS && locations.len() <= MOST_SLOTS as usize,
                    "a queue out of bounds",
                )
            }
            Self::Reply { reply: Reply::Counting { missing, .. }, .. } => {
                within(missing.len() <= MOST_MISSING, "missing parties out of bounds")
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

pub fn that_fit(clients: impl Iterator<Item = Client>) -> Vec<Client> {
    let mut bytes = 0;
    let fits = move |client: &Client| {
        bytes += 64 + client.label.len();
        bytes <= MOST_BYTES_HERE
    };
    clients.take_while(fits).collect()
}

/// A hello is the same for all versions, and names ours.
pub fn encode(frame: &Frame, version: u16, ours: Versions) -> Vec<u8> {
    match frame {
        Frame::Hello { .. } => to_bytes(&(HELLO, ours, frame), AROUND),
        Frame::Ack { .. } => to_bytes(&(version, frame), AROUND),
        Frame::Data { body, .. } | Frame::Loose { body } => to_bytes(&(version, frame), AROUND + body.len()),
    }
}

/// For a hello, the version is the one to use on its connection.
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

/// Returns the cluster that a hello names; `None` if this is no hello.
pub fn hello_cluster(bytes: &[u8]) -> Option<Option<ClusterId>> {
    match decode(bytes, Versions { min: 1, max: u16::MAX }) {
        Ok((Frame::Hello { cluster, .. }, _)) => Some(cluster),
        Ok(_) | Err(_) => None,
    }
}

pub fn encode_body(body: &Body) -> Vec<u8> {
    to_bytes(body, USUAL)
}

fn to_bytes(value: &impl Serialize, room: usize) -> Vec<u8> {
    postcard::to_extend(value, Vec::with_capacity(room)).expect("a vector grows, and all sequences have a known length")
}

pub fn decode_body(bytes: &[u8]) -> Result<Body, Malformed> {
    let body: Body = whole(bytes)?;
    body.check().map_err(Malformed::Bounds)?;
    Ok(body)
}

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
    use crate::links::link::Life;

    #[test]
    fn message_round_trips() {
        let update = Update::Request(Claim { peer: PeerId::new(7), ticket: Ticket::new(1) });
        let message = custody::Message { generation: 3, body: custody::Body::Update(update) };
        let greeting = Body::Greeting { cluster: None, expects: true, founder: None, hosts: Vec::new() };
        let lives = Lives { sender: Life { process: 9, part: 8 }, receiver: None };
        let relay = Body::Relay { from: PeerId::new(7), to: PeerId::new(8), lives, frame: vec![3] };
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

    #[test]
    fn payload_is_encoded_as_length_and_bytes() {
        let data = Frame::Data { number: 7, has: 8, body: vec![200, 3] };
        assert_eq!(encode(&data, 1, Versions::OURS), [1, 1, 7, 8, 2, 200, 3]);
        assert_eq!(encode(&Frame::Loose { body: vec![200, 3] }, 1, Versions::OURS), [1, 3, 2, 200, 3]);
        assert_eq!(encode_body(&Body::Registry(vec![200, 3])), [1, 2, 200, 3]);
    }

    #[test]
    fn bad_version_extra_bytes_and_empty_frame_are_malformed() {
        let ours = Versions::OURS;
        let mut bytes = encode(&Frame::Ack { has: 7 }, 1, ours);
        bytes.push(0);
        assert_eq!(decode(&bytes, ours), Err(Malformed::Format));
        bytes[0] = 2;
        assert_eq!(decode(&bytes, ours), Err(Malformed::Version(Versions { min: 2, max: 2 })));
        assert_eq!(decode(&[], ours), Err(Malformed::Format));
    }

    /// A program that changes these bytes cannot be decoded by any other.
    #[test]
    fn hello_is_decoded_by_every_version_and_may_grow() {
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

    /// Each of these would end a process, or keep it busy forever.
    #[test]
    fn out_of_bounds_numbers_are_rejected_when_decoded() {
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
    fn random_bytes_do_not_crash_the_decoder() {
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
