use core::fmt;

use sha2::{Digest as _, Sha256};

use crate::PeerId;

/// A point on the ring of all 2¹²⁸ keys, on which peers and resource names are placed.
///
/// "Clockwise" is towards larger keys; the largest is followed by 0.
///
/// ```
/// use peerlock_types::{Key, PeerId};
/// let backup = Key::of(b"nightly-backup");
/// assert_ne!(backup, Key::of_peer(PeerId::new(7)));
/// assert_eq!(backup.to_string().len(), Key::DIGITS);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Key(u128);

impl Key {
    pub const DIGITS: usize = 32;

    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    pub const fn get(self) -> u128 {
        self.0
    }

    /// The first half of the SHA-256 of a name.
    pub fn of(name: &[u8]) -> Self {
        Self::from_hash(Sha256::new_with_prefix(name))
    }

    pub fn of_peer(peer: PeerId) -> Self {
        // The prefix separates peers from names of eight bytes.
        Self::from_hash(Sha256::new_with_prefix(b"peer ").chain_update(peer.get().to_be_bytes()))
    }

    fn from_hash(hash: Sha256) -> Self {
        Self(hash.finalize().iter().take(16).fold(0, |number, byte| number << 8 | u128::from(*byte)))
    }

    /// Clockwise.
    pub const fn distance(self, to: Self) -> u128 {
        to.0.wrapping_sub(self.0)
    }

    /// The shorter of the two distances.
    pub fn gap(self, other: Self) -> u128 {
        self.distance(other).min(other.distance(self))
    }

    pub const fn plus(self, distance: u128) -> Self {
        Self(self.0.wrapping_add(distance))
    }

    /// Clockwise, rounded towards here.
    pub const fn halfway(self, to: Self) -> Self {
        self.plus(self.distance(to) / 2)
    }

    /// Returns whether this key lies clockwise between `after` (excluded) and `last` (included).
    ///
    /// From a key to itself the interval is the whole ring.
    pub const fn is_within(self, after: Self, last: Self) -> bool {
        // Counting from just behind `after` makes `after` itself the farthest key.
        let start = after.plus(1);
        start.distance(self) <= start.distance(last)
    }

    /// Hexadecimal, counted from the left and from 0.
    pub fn digit(self, place: usize) -> u8 {
        assert!(place < Self::DIGITS, "a key has {} digits, not {place}", Self::DIGITS);
        (self.0 >> (4 * (Self::DIGITS - 1 - place))) as u8 & 0xf
    }

    /// The common prefix, in hexadecimal digits.
    pub const fn shared_digits(self, other: Self) -> usize {
        (self.0 ^ other.0).leading_zeros() as usize / 4
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

crate::debug_as_display!(Key);

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::*;

    const MAX: u128 = u128::MAX;

    #[test]
    fn distances_wrap_around_zero() {
        for (from, to, clockwise, shorter) in [
            (0, 0, 0, 0),
            (3, 10, 7, 7),
            (10, 3, MAX - 6, 7),
            (MAX, 0, 1, 1),
            (0, MAX, MAX, 1),
            (0, 1 << 127, 1 << 127, 1 << 127),
        ] {
            let (from, to) = (Key::new(from), Key::new(to));
            assert_eq!((from.distance(to), from.gap(to)), (clockwise, shorter), "{from} to {to}");
            assert_eq!(from.plus(clockwise), to);
        }
    }

    #[test]
    fn interval_excludes_start_and_includes_end() {
        for (key, after, last, within) in [
            (5, 3, 10, true),
            (10, 3, 10, true),
            (3, 3, 10, false),
            (11, 3, 10, false),
            (11, 10, 3, true),
            (0, 10, 3, true),
            (MAX, 10, 3, true),
            (5, 10, 3, false),
            (7, 7, 7, true),
            (0, 7, 7, true),
            (0, MAX, 0, true),
            (MAX, MAX, 0, false),
        ] {
            assert_eq!(Key::new(key).is_within(Key::new(after), Key::new(last)), within, "{key} in ({after}, {last}]");
        }
    }

    #[test]
    fn middle_is_clockwise_between() {
        for (from, to, middle) in [(2, 8, 5), (2, 9, 5), (MAX, 1, 0), (MAX - 1, 3, 0), (4, 4, 4), (4, 5, 4)] {
            assert_eq!(Key::new(from).halfway(Key::new(to)), Key::new(middle), "{from} to {to}");
        }
    }

    #[test]
    fn digits_are_counted_from_the_left() {
        let key = Key::new(0x0123_4567_89ab_cdef_0000_0000_0000_000a);
        assert_eq!(key.to_string(), "0123456789abcdef000000000000000a");
        for (place, digit) in [(0, 0), (1, 1), (15, 15), (16, 0), (31, 10)] {
            assert_eq!(key.digit(place), digit, "{place}");
        }
        for (other, shared) in [
            (key.get(), 32),
            (key.get() ^ 1, 31),
            (key.get() ^ 0x10, 30),
            (key.get() ^ 1 << 127, 0),
            (key.get() ^ 1 << 124, 0),
            (key.get() ^ 1 << 123, 1),
        ] {
            assert_eq!(key.shared_digits(Key::new(other)), shared, "{other:x}");
        }
    }

    /// Peers must agree on it. Of "abc" (FIPS 180-4).
    #[test]
    fn key_of_a_name_is_pinned() {
        assert_eq!(Key::of(b"abc").to_string(), "ba7816bf8f01cfea414140de5dae2223");
    }
}
