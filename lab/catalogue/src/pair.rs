use std::fmt;
use std::str::FromStr;

use peerlock_sim::{Cut, Spells};
use peerlock_types::Span;
use thiserror::Error;

/// Two values separated by a slash: `60s/5s`, `0.01/2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<A, B>(pub A, pub B);

/// The kind and times of network partitions: `60s/10s`, `one-way:60s/10s`, `partial:60s/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition(pub Cut, pub Pair<Span, Span>);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PairError {
    #[error("{0:?} is not two values separated by a slash")]
    NotTwo(String),
    #[error("in {0:?}, {1}")]
    Part(String, String),
    #[error("unknown partition {0:?}: use whole, one-way, partial or pairs, such as partial:60s/10s")]
    UnknownCut(String),
}

impl<A: FromStr<Err: fmt::Display>, B: FromStr<Err: fmt::Display>> FromStr for Pair<A, B> {
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let (first, second) = text.split_once('/').ok_or_else(|| PairError::NotTwo(text.into()))?;
        let invalid = |reason: String| PairError::Part(text.into(), reason);
        let first = first.parse().map_err(|error: A::Err| invalid(error.to_string()))?;
        Ok(Self(first, second.parse().map_err(|error: B::Err| invalid(error.to_string()))?))
    }
}

impl<A: fmt::Display, B: fmt::Display> fmt::Display for Pair<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}/{:#}", self.0, self.1)
    }
}

impl FromStr for Partition {
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let (cut, spells) = text.split_once(':').unwrap_or(("whole", text));
        let cut = match cut {
            "whole" => Cut::Whole,
            "one-way" => Cut::OneWay,
            "partial" => Cut::Partial,
            "pairs" => Cut::Pairs,
            _ => return Err(PairError::UnknownCut(cut.into())),
        };
        Ok(Self(cut, spells.parse()?))
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = match self.0 {
            Cut::Whole => "whole",
            Cut::OneWay => "one-way",
            Cut::Partial => "partial",
            Cut::Pairs => "pairs",
        };
        write!(f, "{cut}:{}", self.1)
    }
}

impl From<Pair<Span, Span>> for Spells {
    fn from(Pair(every, last): Pair<Span, Span>) -> Self {
        Self { every, last }
    }
}

impl From<Spells> for Pair<Span, Span> {
    fn from(Spells { every, last }: Spells) -> Self {
        Self(every, last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_round_trip_and_errors_name_the_value() {
        for text in ["whole:60s/10s", "one-way:1s/200ms", "partial:5s/0s"] {
            assert_eq!(text.parse::<Partition>().unwrap().to_string(), text);
        }
        assert_eq!("60s/10s".parse::<Partition>(), "whole:60s/10s".parse());
        assert_eq!("0.25/200ms".parse::<Pair<f64, Span>>().unwrap().to_string(), "0.25/200ms");
        for (text, message) in [
            ("60s", "\"60s\" is not two values separated by a slash"),
            ("half:1s/1s", "unknown partition \"half\": use whole, one-way, partial or pairs"),
            ("60/5", "in \"60/5\", \"60\" is not a duration: write numbers with units"),
        ] {
            let error = text.parse::<Partition>().unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
        assert!("1s/1s".parse::<Pair<f64, Span>>().is_err());
    }
}
