use std::fmt;
use std::str::FromStr;

use peerlock_types::{Rng, Span, SpanError};
use thiserror::Error;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Hold {
    Constant(Span),
    Exponential(Span),
    TwoPoint { short: Span, long: Span, long_share: f64 },
}

impl Hold {
    pub fn sample(&self, rng: &mut Rng) -> Span {
        match *self {
            Self::Constant(span) => span,
            Self::Exponential(mean) => rng.exponential(mean),
            Self::TwoPoint { short, long, long_share } => {
                if rng.chance(long_share) {
                    long
                } else {
                    short
                }
            }
        }
    }

    /// In seconds.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::Constant(span) | Self::Exponential(span) => span.as_secs_f64(),
            Self::TwoPoint { short, long, long_share } => {
                short.as_secs_f64() * (1.0 - long_share) + long.as_secs_f64() * long_share
            }
        }
    }

    /// The mean is the geometric mean of the two: 1 s and 100 s mean 10 s, the same work as `10s` and `exp:10s`.
    pub fn two_point(short: Span, long: Span) -> Self {
        let (root_short, root_long) = (short.as_secs_f64().sqrt(), long.as_secs_f64().sqrt());
        Self::TwoPoint { short, long, long_share: root_short / (root_short + root_long) }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(span) => write!(f, "{span:#}"),
            Self::Exponential(mean) => write!(f, "exp:{mean:#}"),
            Self::TwoPoint { short, long, .. } => write!(f, "two-point:{short:#}/{long:#}"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HoldError {
    #[error(transparent)]
    Span(#[from] SpanError),
    #[error("{0:?} is not a hold time: write 10s, exp:10s or two-point:1s/100s")]
    Form(String),
    #[error("the hold time {0:?} is zero: a client must hold for some time")]
    Zero(String),
    #[error("the hold time {0:?} must have a short time and then a longer one, such as two-point:1s/100s")]
    Order(String),
}

impl FromStr for Hold {
    type Err = HoldError;

    fn from_str(text: &str) -> Result<Self, HoldError> {
        let form = || HoldError::Form(text.into());
        let stay = |span: &str| match span.parse()? {
            Span::ZERO => Err(HoldError::Zero(text.into())),
            span => Ok(span),
        };
        match text.split_once(':') {
            None => Ok(Self::Constant(stay(text)?)),
            Some(("exp", mean)) => Ok(Self::Exponential(stay(mean)?)),
            Some(("two-point", both)) => {
                let (short, long) = both.split_once('/').ok_or_else(form)?;
                let (short, long) = (stay(short)?, stay(long)?);
                if short < long { Ok(Self::two_point(short, long)) } else { Err(HoldError::Order(text.into())) }
            }
            Some(_) => Err(form()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hold_times_are_read() {
        assert_eq!("10s".parse(), Ok(Hold::Constant(Span::from_secs(10))));
        assert_eq!("exp:10s".parse(), Ok(Hold::Exponential(Span::from_secs(10))));
        let Ok(two_point @ Hold::TwoPoint { long_share, .. }) = "two-point:1s/100s".parse() else { panic!() };
        assert!((long_share - 1.0 / 11.0).abs() < 1e-12);
        assert!((two_point.mean() - 10.0).abs() < 1e-9);
        for text in ["10s", "exp:200ms", "two-point:1s/100s"] {
            assert_eq!(text.parse::<Hold>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn malformed_hold_times_are_refused() {
        for (text, start) in [
            ("", "\"\" is not a duration"),
            ("10", "\"10\" is not a duration"),
            ("-1s", "the duration \"-1s\" is negative"),
            ("0s", "the hold time \"0s\" is zero"),
            ("exp:0s", "the hold time \"exp:0s\" is zero"),
            ("two-point:1s", "\"two-point:1s\" is not a hold time"),
            ("two-point:9s/1s", "the hold time \"two-point:9s/1s\" must have a short time"),
            ("normal:1s", "\"normal:1s\" is not a hold time"),
        ] {
            let error = text.parse::<Hold>().unwrap_err().to_string();
            assert!(error.starts_with(start), "{text:?}: {error}");
        }
    }

    #[test]
    fn hold_samples_have_the_stated_mean() {
        for text in ["10s", "exp:10s", "two-point:1s/100s"] {
            let hold: Hold = text.parse().unwrap();
            let mut rng = Rng::new(1);
            let total: Span = (0..200_000).map(|_| hold.sample(&mut rng)).sum();
            let mean = total.as_secs_f64() / 200_000.0;
            assert!((mean / hold.mean() - 1.0).abs() < 0.02, "{text}: {mean}");
        }
    }
}
