//! How durations and peers are written in JSON, with `#[serde(with = "json")]`.
//!
//! A duration is whole milliseconds, in a field that ends in `_ms`. A peer is the decimal digits of its number, which
//! has more of them than a number of JavaScript keeps.

use std::time::Duration;

use peerlock_types::PeerId;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What has a form of its own in JSON.
pub trait Written: Sized {
    /// A type that serde knows, such as a number or a string.
    type Form: Serialize + DeserializeOwned;
    /// What goes into JSON.
    fn written(&self) -> Self::Form;
    /// As it was written; the error says what should stand there.
    fn read(form: Self::Form) -> Result<Self, &'static str>;
}

impl Written for Duration {
    type Form = u64;

    fn written(&self) -> u64 {
        u64::try_from(self.as_millis()).unwrap_or(u64::MAX)
    }

    fn read(form: u64) -> Result<Self, &'static str> {
        Ok(Self::from_millis(form))
    }
}

impl Written for PeerId {
    type Form = String;

    fn written(&self) -> String {
        self.to_string()
    }

    fn read(form: String) -> Result<Self, &'static str> {
        form.parse().map(Self::new).map_err(|_| "a peer is the digits of its number")
    }
}

impl<T: Written> Written for Option<T> {
    type Form = Option<T::Form>;

    fn written(&self) -> Self::Form {
        self.as_ref().map(T::written)
    }

    fn read(form: Self::Form) -> Result<Self, &'static str> {
        form.map(T::read).transpose()
    }
}

/// Writes a value in its own form: the half of `#[serde(with = "json")]` that serializes.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Written, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.written().serialize(serializer)
}

/// Reads a value from its own form: the half of `#[serde(with = "json")]` that deserializes.
///
/// # Errors
/// Those of the deserializer, and if it is not what should stand there.
pub fn deserialize<'de, T: Written, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(T::Form::deserialize(deserializer)?).map_err(D::Error::custom)
}
