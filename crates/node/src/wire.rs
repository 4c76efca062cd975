//! What peers say to each other, as bytes.
//!
//! One version byte, then a [`Frame`] in postcard's format; in the frame, if it carries anything, a [`Body`].

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use peerlock_base::{Key, PeerId, Ticket};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::guard::Line;
use crate::link::Frame;
use crate::{Charter, Name, paxos};

/// Goes up when old peers cannot understand what new ones say.
const VERSION: u8 = 2;

/// What members say to each other. `W` is what their overlays and protocols say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Body<W> {
    /// From overlay to overlay, and between the parts of a resource.
    Peer(W),
    /// The first after every hello.
    Greeting {
        /// Whether the sender is in: then others may join through it.
        joined: bool,
        /// The hosts that the sender is linked with, and where it reached them.
        hosts: Vec<(PeerId, String)>,
        /// Who has left, and who has what they had.
        departed: Vec<(PeerId, PeerId)>,
    },
    /// Resources that the sender knows of. Never answered.
    Charters(Vec<(Name, Charter)>),
    /// Answered by `Answer` with the same number, unless nobody can.
    Ask {
        /// Whom to answer.
        asker: PeerId,
        /// Which question of its.
        number: u64,
        /// How often it was passed on.
        hops: u8,
        /// What is asked.
        question: Question,
    },
    /// To who asked.
    Answer {
        /// As it was in the question.
        number: u64,
        /// What is answered.
        answer: Answer,
    },
    /// The sender is about to leave for good: nobody should give it anything any more.
    Leaving {
        /// Who will have what it has, as far as it knows somebody who stays.
        heir: Option<PeerId>,
    },
    /// The last that the sender says, when it has confirmed whatever it has acted on.
    Bye {
        /// Who has what it had; nobody if it knew nobody.
        heir: Option<PeerId>,
    },
}

/// What one peer may ask another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Question {
    /// For the coordinator of this resource: who waits, and where are the tokens?
    Line(Key),
    /// Which tokens and clients of this resource are with you?
    Here(Key),
    /// Shall this resource be founded?
    Found(Key, paxos::Question),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Answer {
    /// To `Question::Line`.
    Line(Line),
    /// To `Question::Found`.
    Found(paxos::Memory),
    /// To `Question::Here`.
    Here {
        /// The slots whose tokens are here.
        tokens: Vec<u32>,
        /// The clients that wait or are inside here.
        clients: Vec<Client>,
    },
}

/// A client as its own peer knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Which of the peer's tickets.
    pub ticket: Ticket,
    /// What the client says of itself.
    pub label: String,
    /// For how long it has been waiting, or inside.
    pub millis: u64,
    /// Slot and fencing number if it is inside.
    pub grant: Option<(u32, u64)>,
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
pub fn encode_body<W: Serialize>(body: &Body<W>) -> Vec<u8> {
    to_bytes(body, Vec::new())
}

fn to_bytes(value: &impl Serialize, start: Vec<u8>) -> Vec<u8> {
    postcard::to_extend(value, start).expect("a list grows, and all that we say has a known length")
}

/// The message in a frame.
pub fn decode_body<W: DeserializeOwned>(bytes: &[u8]) -> Result<Body<W>, Malformed> {
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
    use peerlock_mutex::fair_k_late::{Message, News};
    use peerlock_mutex::token::Claim;
    use peerlock_overlay::Nothing;

    type Wire = peerlock_peer::Wire<Nothing, Message>;

    use super::*;

    #[test]
    fn a_message_comes_back_as_it_was() {
        let name: Name = "x".parse().unwrap();
        let charter = Charter { slots: 3, home: PeerId::new(u64::MAX), above: u64::MAX };
        let news = News::Request(Claim { peer: PeerId::new(7), ticket: Ticket::new(1) });
        let told = Wire::Direct { resource: name.key(), message: Message::Tell { epoch: 1, news } };
        for body in [Body::Peer(told), Body::Charters(vec![(name, charter)]), Body::Bye { heir: None }] {
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
            _ = decode_body::<Wire>(&bytes);
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            _ = decode(&bytes);
        }
    }
}
