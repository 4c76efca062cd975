use std::fmt;

use peerlock_types::Span;
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(u64);

        impl $name {
            pub const fn new(number: u64) -> Self {
                Self(number)
            }

            pub const fn get(self) -> u64 {
                self.0
            }

            pub const fn next(self) -> Self {
                Self(self.0 + 1)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0)
            }
        }

        peerlock_types::debug_as_display!($name);
    };
}

number! {
    /// A session. Numbered from 1 and never reused.
    SessionId, "s"
}

number! {
    /// A voter: one file on one disk. Numbered from 1 and never reused: a host that has lost its file becomes another
    /// voter.
    VoterId, "v"
}

/// A cluster. Two clusters refuse each other's messages.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterId(u128);

impl ClusterId {
    pub const fn new(number: u128) -> Self {
        Self(number)
    }

    pub const fn get(self) -> u128 {
        self.0
    }

    /// Returns the ID after a recovery. Random, since two files of one cluster may be recovered.
    pub const fn recovered(self, chance: u64) -> Self {
        Self(self.0.wrapping_add(1 + (chance % ((1 << 15) - 1)) as u128))
    }

    /// Returns whether this is `other` after recoveries. Random IDs are never this close.
    pub const fn follows(self, other: Self) -> bool {
        let later = self.0.wrapping_sub(other.0);
        0 < later && later < 1 << 32
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

peerlock_types::debug_as_display!(ClusterId);

/// A name of a resource, a host or an address: 1 to 255 bytes of UTF-8 without control characters.
///
/// ```
/// use peerlock_registry::Label;
/// assert_eq!(Label::new("nightly-backup")?.as_str(), "nightly-backup");
/// assert!(Label::new("two\nlines").is_err());
/// # Ok::<(), &'static str>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Label(String);

impl Label {
    const MOST_BYTES: usize = 255;

    pub fn new(text: impl Into<String>) -> Result<Self, &'static str> {
        let text = text.into();
        match text.len() {
            0 => Err("it is empty"),
            1..=Self::MOST_BYTES if text.chars().any(char::is_control) => Err("it has a control character"),
            1..=Self::MOST_BYTES => Ok(Self(text)),
            _ => Err("it is longer than 255 bytes"),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<Label> for String {
    fn from(label: Label) -> Self {
        label.0
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The duration of a lease: whole milliseconds, from a tenth of a second to thirty days.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Ttl(u64);

impl Ttl {
    pub(crate) const LEAST: u64 = 100;
    pub(crate) const MOST: u64 = 30 * 24 * 60 * 60 * 1000;

    pub const fn from_millis(millis: u64) -> Result<Self, &'static str> {
        match millis {
            Self::LEAST..=Self::MOST => Ok(Self(millis)),
            _ => Err("it is not between a tenth of a second and thirty days"),
        }
    }

    pub const fn span(self) -> Span {
        Span::from_millis(self.0)
    }
}

impl TryFrom<u64> for Ttl {
    type Error = &'static str;

    fn try_from(millis: u64) -> Result<Self, Self::Error> {
        Self::from_millis(millis)
    }
}

impl From<Ttl> for u64 {
    fn from(ttl: Ttl) -> Self {
        ttl.0
    }
}

/// The versions of files, messages and commands that a process understands. The registry has one of them at a time,
/// which an entry increases when every voter and session understands the next. Afterwards an older process is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Versions {
    pub min: u16,
    pub max: u16,
}

impl Versions {
    pub const OURS: Self = Self { min: 1, max: 1 };

    pub const fn has(self, version: u16) -> bool {
        self.min <= version && version <= self.max
    }

    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.min == self.max { write!(f, "{}", self.min) } else { write!(f, "{} to {}", self.min, self.max) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_ttls_are_checked_on_decoding() {
        let decoded = |text: &str| postcard::from_bytes::<Label>(&postcard::to_allocvec(text).unwrap());
        for (text, good) in [
            ("a", true),
            ("Köln ☂", true),
            ("", false),
            ("a\0", false),
            (&"x".repeat(255), true),
            (&"x".repeat(256), false),
        ] {
            assert_eq!(decoded(text).is_ok(), good, "{text:?}");
        }
        for (millis, good) in [(0, false), (99, false), (100, true), (Ttl::MOST, true), (Ttl::MOST + 1, false)] {
            let bytes = postcard::to_allocvec(&millis).unwrap();
            assert_eq!(postcard::from_bytes::<Ttl>(&bytes).is_ok(), good, "{millis}");
        }
    }

    #[test]
    fn common_version_is_the_newest_of_both() {
        let of = |min, max| Versions { min, max };
        for (a, b, common) in [
            (of(1, 1), of(1, 1), Some(1)),
            (of(1, 1), of(1, 2), Some(1)),
            (of(1, 2), of(2, 3), Some(2)),
            (of(1, 3), of(2, 2), Some(2)),
            (of(1, 1), of(2, 2), None),
            (of(1, 2), of(3, 4), None),
        ] {
            assert_eq!((a.common(b), b.common(a)), (common, common), "{a} and {b}");
        }
    }
}
