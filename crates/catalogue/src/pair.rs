use std::fmt;
use std::str::FromStr;

use peerlock_base::Span;
use peerlock_sim::{Cut, Spells};
use thiserror::Error;

/// Two values that are written with a slash between them: `60s/5s`, `0.01/2s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<A, B>(pub A, pub B);

/// How the network is partitioned, and how often: `60s/10s`, `one-way:60s/10s`, `partial:60s/10s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition(pub Cut, pub Pair<Span, Span>);

/// Not two values, or a kind of partition that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PairError {
    /// Not two values.
    #[error("{0:?} is not two values with a slash between them, such as {1}")]
    NotTwo(String, &'static str),
    /// No such partition.
    #[error("unknown partition {0:?}: use whole, one-way or partial, such as partial:60s/10s")]
    UnknownCut(String),
}

/// What a pair of these types looks like.
pub trait Example {
    /// One that could be typed.
    const EXAMPLE: &'static str;
}

impl Example for Pair<Span, Span> {
    const EXAMPLE: &'static str = "60s/5s";
}

impl Example for Pair<f64, Span> {
    const EXAMPLE: &'static str = "0.01/5s";
}

impl Example for Pair<Span, u64> {
    const EXAMPLE: &'static str = "1s/200";
}

impl Example for Pair<u32, Span> {
    const EXAMPLE: &'static str = "2/10s";
}

impl<A: FromStr, B: FromStr> FromStr for Pair<A, B>
where
    Self: Example,
{
    type Err = PairError;

    fn from_str(text: &str) -> Result<Self, PairError> {
        let both = text.split_once('/').and_then(|(one, other)| Some(Self(one.parse().ok()?, other.parse().ok()?)));
        both.ok_or_else(|| PairError::NotTwo(text.into(), Self::EXAMPLE))
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
    fn what_is_read_is_printed_alike_and_the_rest_is_refused() {
        for text in ["whole:60s/10s", "one-way:1s/200ms", "partial:5s/0s"] {
            assert_eq!(text.parse::<Partition>().unwrap().to_string(), text);
        }
        assert_eq!("60s/10s".parse::<Partition>(), "whole:60s/10s".parse());
        assert_eq!("0.25/200ms".parse::<Pair<f64, Span>>().unwrap().to_string(), "0.25/200ms");
        for (said, sentence) in [
            (
                "60s".parse::<Partition>().unwrap_err(),
                "\"60s\" is not two values with a slash between them, such as 60s/5s",
            ),
            (
                "half:1s/1s".parse::<Partition>().unwrap_err(),
                "unknown partition \"half\": use whole, one-way or partial",
            ),
            ("60/5".parse::<Pair<Span, Span>>().unwrap_err(), "\"60/5\" is not two values"),
            (
                "1s/1s".parse::<Pair<f64, Span>>().unwrap_err(),
                "\"1s/1s\" is not two values with a slash between them, such as 0.01/5s",
            ),
        ] {
            assert!(said.to_string().starts_with(sentence), "{said}");
        }
    }
}
