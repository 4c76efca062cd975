//! JSON encoding of durations and peers, with `#[serde(with = "json")]`.
//!
//! A duration is whole milliseconds, in a field that ends in `_ms`. A peer is a string of decimal digits, since its
//! number exceeds the integers of JavaScript.

use std::time::Duration;

use peerlock_types::PeerId;
use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A type with its own encoding in JSON.
pub trait Written: Sized {
    /// The serialized type.
    type Form: Serialize + DeserializeOwned;
    /// Converts to the serialized type.
    fn written(&self) -> Self::Form;
    /// Converts from the serialized type. The error names the expected format.
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
        form.parse().map(Self::new).map_err(|_| "a peer must be a string of decimal digits")
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

impl<T: Written> Written for Vec<T> {
    type Form = Vec<T::Form>;

    fn written(&self) -> Self::Form {
        self.iter().map(T::written).collect()
    }

    fn read(form: Self::Form) -> Result<Self, &'static str> {
        form.into_iter().map(T::read).collect()
    }
}

/// Serializes a value in its own encoding.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Written, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    value.written().serialize(serializer)
}

/// Deserializes a value from its own encoding.
///
/// # Errors
/// Those of the deserializer, and a value of the wrong format.
pub fn deserialize<'de, T: Written, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    T::read(T::Form::deserialize(deserializer)?).map_err(D::Error::custom)
}
