//! What peers say to each other, as bytes.
//!
//! One version byte, then a [`Frame`] in postcard's format; in the frame, if it carries anything, a [`Body`].

use peerlock_base::{Key, PeerId, Ticket};
use peerlock_mutex::custody;
use peerlock_mutex::token::Claim;
use peerlock_register::ClusterId;
use serde::{Deserialize, Serialize};

use crate::connections::Packet;
use crate::link::Frame;

/// Goes up when old peers cannot understand what new ones say.
const VERSION: u8 = 3;

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
    Register(Vec<u8>),
    /// After every hello, and again when anything of it has changed. May get lost.
    Greeting {
        /// The cluster that the sender belongs to, if it knows one.
        cluster: Option<ClusterId>,
        /// The sender knows none, and waits until enough such hosts have met.
        expects: bool,
        /// The one that is to found a cluster, if the sender thinks that enough have met.
        founder: Option<PeerId>,
        /// The hosts that the sender is linked with, and where it reached them.
        hosts: Vec<(PeerId, String)>,
    },
    /// Answered by `Answer` with the same number, unless there is nothing to say. May get lost.
    Ask {
        /// Which question of the sender's.
        number: u64,
        /// What is asked.
        question: Question,
    },
    /// To who asked. May get lost.
    Answer {
        /// As it was in the question.
        number: u64,
        /// What is answered.
        answer: Answer,
    },
    /// A packet of a connection between two hosts that do not reach each other, by way of a third. May get lost.
    Relay {
        /// Who says this; the third believes only the sender itself.
        from: PeerId,
        /// Who is to hear it.
        to: PeerId,
        /// The packet.
        packet: Packet,
    },
}

/// What one peer may ask another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// For the coordinator of this resource: who waits, and where are the tokens?
    Line(Key),
    /// Which clients of this resource are with you?
    Here(Key),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Question::Line`, by the coordinator.
    Line(Line),
    /// To `Question::Line`, by a coordinator that is still counting.
    Counting {
        /// Who has not answered it yet.
        missing: Vec<PeerId>,
        /// For how long it has been counting.
        millis: u64,
    },
    /// To `Question::Here`: the clients that wait or are inside here.
    Here(Vec<Client>),
}

/// Who waits for a resource, and where its tokens are, as its coordinator knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// The resource's generation.
    pub generation: u64,
    /// How many slots it has.
    pub slots: u32,
    /// Everybody who waits, oldest first.
    pub waiting: Vec<Claim>,
    /// Where each token is.
    pub seats: Vec<Seat>,
}

/// A token as its coordinator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seat {
    /// The slot that it stands for.
    pub slot: u32,
    /// Where it is, or is going.
    pub at: PeerId,
    /// Nobody uses it.
    pub free: bool,
    /// Who gets it next, as far as that is settled.
    pub next: Option<Claim>,
}

/// A client as its own peer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// By which of the peer's tickets the protocol knows it, if it does.
    pub ticket: Option<Ticket>,
    /// What the client says of itself.
    pub label: String,
    /// For how long it has been waiting, or inside.
    pub millis: u64,
    /// Slot and fencing number if it is inside.
    pub grant: Option<(u32, u64)>,
    /// How long its lease stands, in milliseconds, if it is inside.
    pub ends: Option<u64>,
    /// It does not end with its peer.
    pub detached: bool,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// Of another version than ours, or empty.
    Version(Option<u8>),
    /// Not of our format.
    Format,
}

/// A frame as bytes.
pub fn encode(frame: &Frame) -> Vec<u8> {
    to_bytes(frame, vec![VERSION])
}

/// The frame that bytes are.
pub fn decode(bytes: &[u8]) -> Result<Frame, Malformed> {
    let (&version, rest) = bytes.split_first().ok_or(Malformed::Version(None))?;
    if version != VERSION {
        return Err(Malformed::Version(Some(version)));
    }
    whole(rest)
}

/// A message as the contents of a frame.
pub fn encode_body(body: &Body) -> Vec<u8> {
    to_bytes(body, Vec::new())
}

fn to_bytes(value: &impl Serialize, start: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, start).expect("a list grows, and all that we say has a known length")
}

/// The message in a frame.
pub fn decode_body(bytes: &[u8]) -> Result<Body, Malformed> {
    whole(bytes)
}

/// Nothing may be left over.
fn whole<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok(_) | Err(_) => Err(Malformed::Format),
    }
}

#[cfg(test)]
mod tests {
    use peerlock_base::Rng;
    use peerlock_mutex::custody::News;

    use super::*;
    use crate::connections::Part;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let news = News::Request(Claim { peer: PeerId::new(7), ticket: Ticket::new(1) });
        let message = custody::Message { generation: 3, body: custody::Body::Tell(news) };
        let greeting = Body::Greeting { cluster: None, expects: true, founder: None, hosts: Vec::new() };
        let packet = Packet { number: 9, answer: 8, part: Part::Data(1, vec![3]) };
        let relay = Body::Relay { from: PeerId::new(7), to: PeerId::new(8), packet };
        for body in [Body::Part { resource: Key::of(b"r"), message }, greeting, Body::Register(vec![1, 2]), relay] {
            let frame = Frame::Data { number: 1, has: 2, body: encode_body(&body) };
            let Ok(Frame::Data { body: bytes, .. }) = decode(&encode(&frame)) else { panic!("{frame:?}") };
            assert_eq!(decode_body(&bytes), Ok(body));
        }
    }

    #[test]
    fn other_versions_leftovers_and_nothing_at_all_are_malformed() {
        let mut bytes = encode(&Frame::Ack { has: 7 });
        bytes.push(0);
        assert_eq!(decode(&bytes), Err(Malformed::Format));
        bytes[0] = VERSION + 1;
        assert_eq!(decode(&bytes), Err(Malformed::Version(Some(VERSION + 1))));
        assert_eq!(decode(&[]), Err(Malformed::Version(None)));
    }

    #[test]
    fn no_bytes_crash_the_decoder_or_make_it_allocate_more_than_they_are() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let length = rng.below(60) as usize;
            let mut bytes: Vec<u8> = (0..length).map(|_| rng.bits() as u8).collect();
            _ = decode_body(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            _ = decode(&bytes);
        }
    }
}
