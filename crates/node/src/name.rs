//! Names of resources, and the limit of slots.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use peerlock_types::{Key, is_hidden};
use serde::{Deserialize, Serialize};

use crate::Error;

/// The name of a resource: 1 to 255 bytes of visible UTF-8. Control characters, zero-width and bidirectional formatting
/// characters are refused, as is white space at the ends.
///
/// ```
/// use peerlock_node::Name;
/// assert_eq!("nightly-backup".parse::<Name>()?.as_str(), "nightly-backup");
/// assert!("two\nlines".parse::<Name>().is_err());
/// # Ok::<(), peerlock_node::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    text: Arc<str>,
    /// The hash of the name, computed once since every operation needs it.
    key: Key,
}

pub use peerlock_types::MOST_SLOTS;

const MOST_BYTES: usize = 255;

impl Name {
    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the key by which peers identify the resource.
    pub fn key(&self) -> Key {
        self.key
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(name: String) -> Result<Self, Error> {
        let why = match name.len() {
            0 => "it is empty",
            1..=MOST_BYTES if name.contains(is_hidden) => "it has a character that cannot be seen",
            1..=MOST_BYTES if name.trim() != name => "it begins or ends with white space",
            1..=MOST_BYTES => return Ok(Self { key: Key::of(name.as_bytes()), text: name.into() }),
            _ => "it is longer than 255 bytes",
        };
        Err(Error::BadName { name, why: why.to_owned() })
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        name.to_owned().try_into()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.text.as_ref().to_owned()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Name").field(&self.text).finish()
    }
}

/// Checks a number of slots.
///
/// # Errors
/// [`Error::BadSlots`] if it is out of range.
pub fn check_slots(slots: u32) -> Result<u32, Error> {
    if (1..=MOST_SLOTS).contains(&slots) { Ok(slots) } else { Err(Error::BadSlots { slots }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_validity() {
        for (name, good) in [
            ("a", true),
            ("nightly backup / Köln ☂", true),
            ("", false),
            ("a\0b", false),
            ("tab\t", false),
            ("\u{85}", false),
            ("back\u{200b}up", false),
            ("\u{202e}pukcab", false),
            ("two\u{2028}lines", false),
            (" backup", false),
            ("backup\u{a0}", false),
            (&"x".repeat(255), true),
            (&"x".repeat(256), false),
            (&"ü".repeat(127), true),
            (&"ü".repeat(128), false),
        ] {
            assert_eq!(name.parse::<Name>().is_ok(), good, "{name:?}");
        }
    }

    #[test]
    fn slots_range() {
        for (slots, good) in [(0, false), (1, true), (MOST_SLOTS, true), (MOST_SLOTS + 1, false)] {
            assert_eq!(check_slots(slots).is_ok(), good, "{slots}");
        }
    }
}
