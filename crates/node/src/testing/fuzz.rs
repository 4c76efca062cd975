//! A fuzzing member for tests: it knows the secret and the format, and sends every kind of message, with received and
//! with extreme values. Both ways follow the types by serde, so a new kind of message is covered automatically.
//!
//! ```text
//!   received ──Tree──► numbers and texts by the names of their fields ──┐
//!                 └──► a message like it, with some of them changed     ├─► bytes on the wire
//!   nothing  ──draw──► any value of a type ─────────────────────────────┘
//! ```

mod draw;
mod tree;

use std::collections::BTreeMap;

use peerlock_registry::wire::{self as messages, RegistryMessage};
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::Rng;
use serde::de::DeserializeOwned;

use self::draw::Draw;
use self::tree::Tree;
use crate::links::link::Frame;
use crate::wire::{Body, decode, decode_body, encode};

const MAX_RECEIVED: usize = 64;
/// About as many as fit into a message.
const MOST_PARTS: usize = 50_000;
const EXTREMES: [u128; 16] = [
    0,
    1,
    2,
    1023,
    1024,
    u16::MAX as u128,
    (1 << 31) - 1,
    1 << 31,
    u32::MAX as u128,
    1 << 32,
    (1 << 47) - 1,
    1 << 48,
    (1 << 63) - 1,
    1 << 63,
    u64::MAX as u128,
    u128::MAX,
];

struct Randomness {
    rng: Rng,
    numbers: BTreeMap<&'static str, Vec<u128>>,
    texts: Vec<String>,
    room: usize,
}

impl Randomness {
    fn one_in(&mut self, many: u64) -> bool {
        self.rng.below(many) == 0
    }

    fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> Option<T> {
        of.get(rng.below(of.len().max(1) as u64) as usize).cloned()
    }

    fn number(&mut self, name: &str) -> u128 {
        let received = self.numbers.get(name).and_then(|received| Self::pick(&mut self.rng, received));
        match (self.rng.below(10), received) {
            (0..6, Some(received)) => received,
            (6, Some(received)) => received.wrapping_add(1),
            (7, Some(received)) => received.wrapping_sub(1),
            (0..4, None) => u128::from(self.rng.below(4)),
            (4 | 8, _) => u128::from(self.rng.bits()) >> self.rng.below(64),
            _ => Self::pick(&mut self.rng, &EXTREMES).unwrap_or_default(),
        }
    }

    fn text(&mut self) -> String {
        let received = Self::pick(&mut self.rng, &self.texts);
        match (self.rng.below(8), received) {
            (0..6, Some(received)) => received,
            (6, _) => "x".repeat(self.rng.below(400) as usize),
            _ => format!("forged-{}", self.rng.below(1 << 20)),
        }
    }

    /// Returns a short length, and rarely one that fills a message.
    fn length(&mut self) -> usize {
        let wanted = match self.rng.below(200) {
            0 => self.rng.below(50_000),
            1..5 => self.rng.below(2_000),
            5..100 => self.rng.below(4),
            _ => 1,
        };
        let length = self.room.min(wanted as usize);
        self.room -= length;
        length
    }

    fn retain_some<T>(rng: &mut Rng, retained: &mut Vec<T>, new: T) {
        match retained.len() < MAX_RECEIVED {
            true => retained.push(new),
            false => retained[rng.below(MAX_RECEIVED as u64) as usize] = new,
        }
    }

    fn learn(&mut self, tree: &Tree) {
        let Self { rng, numbers, texts, .. } = self;
        tree.visit(&mut |part| match part {
            Tree::Number { name, value, .. } => Self::retain_some(rng, numbers.entry(name).or_default(), *value),
            Tree::Text(text) if text.len() < 300 => Self::retain_some(rng, texts, text.clone()),
            _ => {}
        });
    }
}

/// The fuzzing member.
pub struct Fuzzer {
    random: Randomness,
    cluster: ClusterId,
    bodies: Vec<Tree>,
    messages: Vec<Tree>,
    is_register: bool,
    spares: Option<(u128, String)>,
    made: BTreeMap<&'static str, u64>,
}

impl Fuzzer {
    /// Creates a member of the first cluster that it receives a message of.
    pub fn new(seed: u64) -> Self {
        let random = Randomness { rng: Rng::new(seed), numbers: BTreeMap::new(), texts: Vec::new(), room: 0 };
        let (bodies, messages, made) = <_>::default();
        Self { random, cluster: ClusterId::new(0), bodies, messages, is_register: true, spares: None, made }
    }

    /// Sends no messages of voters or leaders, and none about this resource.
    #[must_use]
    pub fn sparing(self, name: &crate::Name) -> Self {
        Self { is_register: false, spares: Some((name.key().get(), name.to_string())), ..self }
    }

    /// Returns the number of messages by kind.
    pub fn made(&self) -> &BTreeMap<&'static str, u64> {
        &self.made
    }

    /// Learns from a received frame.
    pub fn receive(&mut self, bytes: &[u8]) {
        let body = match decode(bytes, Versions::OURS) {
            Ok((Frame::Hello { cluster: Some(cluster), .. }, _)) => return self.cluster = cluster,
            Ok((Frame::Data { body, .. } | Frame::Loose { body }, _)) => body,
            Ok(_) | Err(_) => return,
        };
        match decode_body(&body) {
            Ok(Body::Registry(bytes)) => {
                let Ok((registry_message, _)) = messages::decode(&bytes, Versions::OURS, self.cluster) else { return };
                let tree = Tree::of(&registry_message);
                self.random.learn(&tree);
                Randomness::retain_some(&mut self.random.rng, &mut self.messages, tree);
            }
            Ok(body) => {
                let tree = Tree::of(&body);
                self.random.learn(&tree);
                Randomness::retain_some(&mut self.random.rng, &mut self.bodies, tree);
            }
            Err(_) => {}
        }
    }

    /// Returns the next frame, for a connection on which both sides have sent a hello.
    pub fn frame(&mut self) -> Vec<u8> {
        let frame = match self.random.rng.below(400) {
            0 => {
                self.count("frames");
                self.draw::<Frame>()
            }
            1 => {
                self.count("noise");
                let length = self.random.rng.below(100);
                return (0..length).map(|_| self.random.rng.bits() as u8).collect();
            }
            _ => Frame::Loose { body: self.body() },
        };
        encode(&frame, 1, Versions::OURS)
    }

    fn body(&mut self) -> Vec<u8> {
        for _ in 0..100 {
            self.random.room = MOST_PARTS;
            if self.random.one_in(2) {
                let tree = self.like(|it| &it.messages, |it| Tree::of(&it.draw::<RegistryMessage>()));
                if self.is_meant(&tree) && (self.is_register || tree.is_variant(&["Ask", "EventAck"])) {
                    self.count("registry");
                    let mut registry_message = 1u16.to_le_bytes().to_vec();
                    registry_message.extend(self.cluster.get().to_le_bytes());
                    tree.encode(&mut registry_message);
                    return Tree::of(&Body::Registry(registry_message)).bytes();
                }
            } else {
                let tree = self.like(|it| &it.bodies, |it| Tree::of(&it.draw::<Body>()));
                if self.is_meant(&tree) && !tree.is_variant(&["Registry"]) {
                    self.count("bodies");
                    return tree.bytes();
                }
            }
        }
        Vec::new()
    }

    fn like(&mut self, received: impl Fn(&Self) -> &Vec<Tree>, new: impl Fn(&mut Self) -> Tree) -> Tree {
        let many = received(self).len() as u64;
        if many == 0 || self.random.one_in(2) {
            return new(self);
        }
        let which = self.random.rng.below(many) as usize;
        let mut tree = received(self)[which].clone();
        for _ in 0..self.random.rng.below(4) {
            tree.change(&mut self.random);
        }
        tree
    }

    fn is_meant(&self, tree: &Tree) -> bool {
        let Some((key, name)) = &self.spares else { return true };
        let mut is_spared = false;
        tree.visit(&mut |part| {
            is_spared |= match part {
                Tree::Number { name: "Key", value, .. } => value == key,
                Tree::Text(text) => text == name,
                _ => false,
            };
        });
        !is_spared
    }

    fn count(&mut self, kind: &'static str) {
        *self.made.entry(kind).or_default() += 1;
    }

    fn draw<T: DeserializeOwned>(&mut self) -> T {
        loop {
            // Refused where a type checks its fields.
            if let Ok(value) = T::deserialize(Draw { random: &mut self.random, name: "" }) {
                return value;
            }
        }
    }
}
