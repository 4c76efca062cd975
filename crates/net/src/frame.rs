//! Frames on a link: the length of the body (four bytes, big endian), the kind (one byte) and the body. The
//! [handshake](crate::handshake) has the version.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use bytes::Bytes;

use crate::Refusal;

const HEADER: usize = 5;
const HELLO: usize = 8 + 8 + 8 + 16 + 2;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame {
    /// Sent first by both sides.
    Hello(Hello),
    Take(u64),
    /// This connection does not become a link. Nothing follows.
    Refuse(Refusal),
    Data(Bytes),
    /// Probes the other side. Answered with `Beat`, or any later frame.
    Ask,
    Beat,
    /// The peer leaves for good. Nothing follows.
    Bye,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub incarnation: u64,
    /// The newest ended link with the other side: the incarnation of the process that numbered it, and its number.
    pub over: (u64, u64),
    pub listen: SocketAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

mod kind {
    pub const HELLO: u8 = 1;
    pub const TAKE: u8 = 2;
    pub const REFUSE: u8 = 3;
    pub const DATA: u8 = 4;
    pub const BEAT: u8 = 5;
    pub const BYE: u8 = 6;
    pub const ASK: u8 = 7;
}

/// The refusals that are sent to members; their index is sent.
const REFUSALS: [Refusal; 5] =
    [Refusal::Crowded, Refusal::Collision, Refusal::Duplicate, Refusal::Leaving, Refusal::Twin];

impl Frame {
    pub fn encode(&self, buffer: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => {
                header(buffer, HELLO, kind::HELLO);
                buffer.extend_from_slice(&hello.incarnation.to_be_bytes());
                buffer.extend_from_slice(&hello.over.0.to_be_bytes());
                buffer.extend_from_slice(&hello.over.1.to_be_bytes());
                let ip = match hello.listen.ip() {
                    IpAddr::V4(ip) => ip.to_ipv6_mapped(),
                    IpAddr::V6(ip) => ip,
                };
                buffer.extend_from_slice(&ip.octets());
                buffer.extend_from_slice(&hello.listen.port().to_be_bytes());
            }
            Self::Take(number) => {
                header(buffer, 8, kind::TAKE);
                buffer.extend_from_slice(&number.to_be_bytes());
            }
            Self::Refuse(refusal) => {
                header(buffer, 1, kind::REFUSE);
                let number = REFUSALS.iter().position(|listed| listed == refusal).unwrap_or(REFUSALS.len());
                buffer.push(number as u8);
            }
            Self::Data(bytes) => {
                header(buffer, bytes.len(), kind::DATA);
                buffer.extend_from_slice(bytes);
            }
            Self::Ask => header(buffer, 0, kind::ASK),
            Self::Beat => header(buffer, 0, kind::BEAT),
            Self::Bye => header(buffer, 0, kind::BYE),
        }
    }

    fn decode(kind: u8, body: &[u8]) -> Result<Self, Malformed> {
        match (kind, body) {
            (kind::HELLO, body) => Hello::decode(body.try_into().map_err(|_| Malformed)?).map(Self::Hello),
            (kind::TAKE, body) => Ok(Self::Take(u64::from_be_bytes(body.try_into().map_err(|_| Malformed)?))),
            (kind::REFUSE, [number]) => {
                Ok(Self::Refuse(REFUSALS.get(usize::from(*number)).copied().unwrap_or(Refusal::Broken)))
            }
            // Copied, so that a small message does not keep the large buffer alive.
            (kind::DATA, body) => Ok(Self::Data(Bytes::copy_from_slice(body))),
            (kind::ASK, []) => Ok(Self::Ask),
            (kind::BEAT, []) => Ok(Self::Beat),
            (kind::BYE, []) => Ok(Self::Bye),
            _ => Err(Malformed),
        }
    }
}

impl Hello {
    fn decode(body: &[u8; HELLO]) -> Result<Self, Malformed> {
        let (incarnation, rest) = body.split_first_chunk().ok_or(Malformed)?;
        let (over_in, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (over, rest) = rest.split_first_chunk().ok_or(Malformed)?;
        let (ip, rest) = rest.split_first_chunk::<16>().ok_or(Malformed)?;
        let port = rest.try_into().map_err(|_| Malformed)?;
        Ok(Self {
            incarnation: u64::from_be_bytes(*incarnation),
            over: (u64::from_be_bytes(*over_in), u64::from_be_bytes(*over)),
            listen: SocketAddr::new(Ipv6Addr::from(*ip).to_canonical(), u16::from_be_bytes(port)),
        })
    }
}

fn header(buffer: &mut Vec<u8>, length: usize, kind: u8) {
    let length = u32::try_from(length).expect("messages longer than the limit, itself below 4 GiB, are never queued");
    buffer.extend_from_slice(&length.to_be_bytes());
    buffer.push(kind);
}

/// Splits bytes into frames. Buffers at most one frame beyond the last chunk.
#[derive(Debug)]
pub(crate) struct Decoder {
    longest: usize,
    buffer: Vec<u8>,
    taken: usize,
}

impl Decoder {
    pub fn new(longest: usize) -> Self {
        // A small limit must not keep peers out.
        Self { longest: longest.max(HELLO), buffer: Vec::new(), taken: 0 }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        if self.buffer.is_empty() {
            self.buffer.shrink_to(64 * 1024);
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next complete frame. An error is final.
    pub fn next(&mut self) -> Result<Option<Frame>, Malformed> {
        let rest = &self.buffer[self.taken..];
        let Some(([a, b, c, d, kind], rest)) = rest.split_first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
        if length > self.longest {
            return Err(Malformed);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let frame = Frame::decode(*kind, body)?;
        self.taken += HEADER + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use peerlock_types::Rng;

    use super::*;

    fn hello() -> Hello {
        Hello { incarnation: u64::MAX - 1, over: (3, 7), listen: "10.0.0.7:7400".parse().unwrap() }
    }

    fn samples() -> Vec<Frame> {
        let mut frames = vec![
            Frame::Hello(hello()),
            Frame::Hello(Hello { listen: "[::]:1".parse().unwrap(), ..hello() }),
            Frame::Take(u64::MAX),
            Frame::Data(Bytes::new()),
            Frame::Data(Bytes::from_static(&[0xff; 300])),
            Frame::Ask,
            Frame::Beat,
            Frame::Bye,
        ];
        frames.extend(REFUSALS.map(Frame::Refuse));
        frames
    }

    fn bytes(frames: &[Frame]) -> Vec<u8> {
        let mut buffer = Vec::new();
        frames.iter().for_each(|frame| frame.encode(&mut buffer));
        buffer
    }

    fn all(decoder: &mut Decoder) -> Result<Vec<Frame>, Malformed> {
        let mut frames = Vec::new();
        while let Some(frame) = decoder.next()? {
            frames.push(frame);
        }
        Ok(frames)
    }

    #[test]
    fn frames_survive_any_chunking() {
        let sent = samples();
        let stream = bytes(&sent);
        for size in 1..stream.len() {
            let mut decoder = Decoder::new(300);
            let mut got = Vec::new();
            for chunk in stream.chunks(size) {
                decoder.push(chunk);
                got.extend(all(&mut decoder).unwrap());
            }
            assert_eq!(got, sent, "chunks of {size}");
        }
    }

    #[test]
    fn invalid_frame_is_an_error() {
        let longest = 300u32;
        for (what, stream) in [
            ("one too long", [&(longest + 1).to_be_bytes()[..], &[kind::DATA]].concat()),
            ("4 GiB", vec![0xff, 0xff, 0xff, 0xff, kind::DATA]),
            ("kind 0", vec![0, 0, 0, 0, 0]),
            ("kind 8", vec![0, 0, 0, 0, 8]),
            ("a beat with a body", vec![0, 0, 0, 1, kind::BEAT, 0]),
            ("a question with a body", vec![0, 0, 0, 1, kind::ASK, 0]),
            ("a goodbye with a body", vec![0, 0, 0, 1, kind::BYE, 0]),
            ("a short number", vec![0, 0, 0, 1, kind::TAKE, 0]),
            ("a refusal without a reason", vec![0, 0, 0, 0, kind::REFUSE]),
            ("an empty hello", vec![0, 0, 0, 0, kind::HELLO]),
            ("a hello that is too long", [&[0, 0, 0, HELLO as u8 + 1, kind::HELLO][..], &[2; HELLO + 1]].concat()),
        ] {
            let mut decoder = Decoder::new(longest as usize);
            decoder.push(&stream);
            assert_eq!(decoder.next(), Err(Malformed), "{what}");
        }
        let mut decoder = Decoder::new(longest as usize);
        decoder.push(&[0, 0, 0, 1, kind::REFUSE, 200]);
        assert_eq!(decoder.next(), Ok(Some(Frame::Refuse(Refusal::Broken))), "a reason of a later version");
    }

    #[test]
    fn fuzzed_bytes_neither_panic_nor_grow_the_decoder() {
        let longest = 400;
        let mut rng = Rng::new(11);
        let (mut broken, mut whole) = (0, 0);
        for _ in 0..20_000 {
            let mut stream = bytes(&samples());
            for _ in 0..rng.below(4) {
                let place = rng.below(stream.len() as u64) as usize;
                match rng.below(4) {
                    0 => stream[place] ^= 1 << rng.below(8),
                    1 => stream.truncate(place.max(1)),
                    2 => stream.extend_from_within(place..),
                    _ => stream.extend((0..rng.below(64)).map(|_| rng.bits() as u8).collect::<Vec<_>>()),
                }
            }
            let size = 1 + rng.below(64) as usize;
            let mut decoder = Decoder::new(longest);
            for chunk in stream.chunks(size) {
                decoder.push(chunk);
                match all(&mut decoder) {
                    Ok(frames) => {
                        whole += frames.len();
                        let mut again = Decoder::new(longest);
                        again.push(&bytes(&frames));
                        let known = |frame: &Frame| *frame != Frame::Refuse(Refusal::Broken);
                        let (again, frames) = (all(&mut again).unwrap(), frames);
                        assert!(again.iter().filter(|f| known(f)).eq(frames.iter().filter(|f| known(f))));
                    }
                    Err(Malformed) => {
                        broken += 1;
                        break;
                    }
                }
                assert!(decoder.buffer.len() - decoder.taken <= HEADER + longest + size);
            }
        }
        assert!(broken > 1_000 && whole > 50_000, "the fuzzing must reach both: {broken} broken, {whole} whole");
    }
}
