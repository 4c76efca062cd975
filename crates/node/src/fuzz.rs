//! A member that makes no sense, for tests: it knows the secret and the format, and builds every kind of message there
//! is, with values that it has heard and with extreme ones.
//!
//! ```text
//!   heard   ──Tree──► numbers and texts by the names of their fields ──┐
//!              └────► a message like it, with some of them changed     ├─► bytes on the wire
//!   nothing ──draw──► any value of a type ─────────────────────────────┘
//! ```
//!
//! Both ways follow the types by serde, so that a new kind of message is forged without a line here.

mod draw;
mod tree;

use std::collections::BTreeMap;

use peerlock_registry::wire::{self as messages, RegistryMessage};
use peerlock_registry::{ClusterId, Versions};
use peerlock_types::Rng;
use serde::de::DeserializeOwned;

use self::draw::Draw;
use self::tree::Tree;
use crate::link::Frame;
use crate::wire::{Body, decode, decode_body, encode};

/// At most so many values are remembered under each name, and so many messages.
const MAX_RECEIVED: usize = 64;
/// The lists of one message have at most so many parts: about as many as fit.
const MOST_PARTS: usize = 50_000;
/// What makes trouble where somebody counts on: ends of ranges, of whatever type they are cut to.
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

/// Where values come from.
struct Chance {
    rng: Rng,
    numbers: BTreeMap<&'static str, Vec<u128>>,
    texts: Vec<String>,
    /// How many parts the lists of one message may still have.
    room: usize,
}

impl Chance {
    fn one_in(&mut self, many: u64) -> bool {
        self.rng.below(many) == 0
    }

    fn pick<T: Clone>(rng: &mut Rng, of: &[T]) -> Option<T> {
        of.get(rng.below(of.len().max(1) as u64) as usize).cloned()
    }

    /// A value for a field of this name: most often one that was heard there, or next to one.
    fn number(&mut self, name: &str) -> u128 {
        let last_received = self.numbers.get(name).and_then(|last_received| Self::pick(&mut self.rng, last_received));
        match (self.rng.below(10), last_received) {
            (0..6, Some(last_received)) => last_received,
            (6, Some(last_received)) => last_received.wrapping_add(1),
            (7, Some(last_received)) => last_received.wrapping_sub(1),
            (0..4, None) => u128::from(self.rng.below(4)),
            (4 | 8, _) => u128::from(self.rng.bits()) >> self.rng.below(64),
            _ => Self::pick(&mut self.rng, &EXTREMES).unwrap_or_default(),
        }
    }

    fn text(&mut self) -> String {
        let last_received = Self::pick(&mut self.rng, &self.texts);
        match (self.rng.below(8), last_received) {
            (0..6, Some(last_received)) => last_received,
            (6, _) => "x".repeat(self.rng.below(400) as usize),
            _ => format!("forged-{}", self.rng.below(1 << 20)),
        }
    }

    /// How long a list is: short, and now and then as long as fits into a message.
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

/// The member.
pub struct Fuzzer {
    chance: Chance,
    cluster: ClusterId,
    /// What others have said, to be said again with changes.
    bodies: Vec<Tree>,
    messages: Vec<Tree>,
    /// It speaks as if it were the register: of votes, of what was decided, of who votes.
    is_register: bool,
    /// The resource that it leaves alone.
    spares: Option<(u128, String)>,
    /// How many messages of which kind it has made.
    made: BTreeMap<&'static str, u64>,
}

impl Fuzzer {
    /// A member of the cluster that it hears of first. The same seed and the same that is heard give the same bytes.
    pub fn new(seed: u64) -> Self {
        let chance = Chance { rng: Rng::new(seed), numbers: BTreeMap::new(), texts: Vec::new(), room: 0 };
        let (bodies, messages, made) = <_>::default();
        Self { chance, cluster: ClusterId::new(0), bodies, messages, is_register: true, spares: None, made }
    }

    /// It says nothing in the register's name, and nothing about the resource of this name: then everybody else has to
    /// be served there as if nothing were.
    #[must_use]
    pub fn sparing(self, name: &crate::Name) -> Self {
        Self { is_register: false, spares: Some((name.key().get(), name.to_string())), ..self }
    }

    /// How many messages of which kind it has made.
    pub fn made(&self) -> &BTreeMap<&'static str, u64> {
        &self.made
    }

    /// Remembers what goes over its connections.
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
                self.chance.learn(&tree);
                Chance::retain_some(&mut self.chance.rng, &mut self.messages, tree);
            }
            Ok(body) => {
                let tree = Tree::of(&body);
                self.chance.learn(&tree);
                Chance::retain_some(&mut self.chance.rng, &mut self.bodies, tree);
            }
            Err(_) => {}
        }
    }

    /// The next of its messages, as bytes of a connection on which both have said hello.
    pub fn frame(&mut self) -> Vec<u8> {
        let frame = match self.chance.rng.below(400) {
            // These end the connection.
            0 => {
                self.count("frames");
                self.draw::<Frame>()
            }
            1 => {
                self.count("noise");
                let length = self.chance.rng.below(100);
                return (0..length).map(|_| self.chance.rng.bits() as u8).collect();
            }
            _ => Frame::Loose { body: self.body() },
        };
        encode(&frame, 1, Versions::OURS)
    }

    fn body(&mut self) -> Vec<u8> {
        for _ in 0..100 {
            self.chance.room = MOST_PARTS;
            if self.chance.one_in(2) {
                let tree = self.like(|it| &it.messages, |it| Tree::of(&it.draw::<RegistryMessage>()));
                if self.is_meant(&tree) && (self.is_register || tree.is_variant(&["Ask", "Heard"])) {
                    self.count("letters");
                    let mut registry_message = 1u16.to_le_bytes().to_vec();
                    registry_message.extend(self.cluster.get().to_le_bytes());
                    tree.encode(&mut registry_message);
                    return Tree::of(&Body::Registry(registry_message)).bytes();
                }
            } else {
                let tree = self.like(|it| &it.bodies, |it| Tree::of(&it.draw::<Body>()));
                if self.is_meant(&tree) && !tree.is_variant(&["Register"]) {
                    self.count("bodies");
                    return tree.bytes();
                }
            }
        }
        Vec::new()
    }

    /// One that was heard, with changes, or a new one.
    fn like(&mut self, last_received: impl Fn(&Self) -> &Vec<Tree>, new: impl Fn(&mut Self) -> Tree) -> Tree {
        let many = last_received(self).len() as u64;
        if many == 0 || self.chance.one_in(2) {
            return new(self);
        }
        let which = self.chance.rng.below(many) as usize;
        let mut tree = last_received(self)[which].clone();
        for _ in 0..self.chance.rng.below(4) {
            tree.change(&mut self.chance);
        }
        tree
    }

    /// Whether it is about anything but what is spared.
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
            // Refused where a type checks what it is made of.
            if let Ok(value) = T::deserialize(Draw { chance: &mut self.chance, name: "" }) {
                return value;
            }
        }
    }
}
