//! Durations in the form in which people write and read them.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::Span;

/// Half of the range of [`Time`](crate::Time), so that a sum of two fits.
const LONGEST_NANOS: f64 = (u64::MAX / 2) as f64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanError {
    Malformed(String),
    Negative(String),
    TooLong(String),
}

impl core::error::Error for SpanError {}

/// Formats a duration with two significant figures, for people.
///
/// ```
/// use core::time::Duration;
/// assert_eq!(peerlock_types::roughly(Duration::from_millis(90_499)), "90 s");
/// ```
pub fn roughly(duration: Duration) -> String {
    match duration.as_secs() {
        0 => format!("{} ms", duration.as_millis()),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

impl fmt::Display for SpanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(
                f,
                "{text:?} is not a duration: write numbers with units (ms, s, m, h or d), such as 200ms, 1.5s, 1h30m \
                 or 2d"
            ),
            Self::Negative(text) => write!(f, "the duration {text:?} is negative: it must be 0s or more"),
            Self::TooLong(text) => write!(f, "the duration {text:?} is too long: the longest is 292 years"),
        }
    }
}

/// Parses a decimal number followed by `ns`, `us`, `ms`, `s`, `m` (or `min`), `h` or `d`, or several of them, the
/// longest unit first. A space may separate numbers and units, so that the output of [`roughly`] is accepted.
///
/// ```
/// use peerlock_types::Span;
/// assert_eq!("1.5s".parse(), Ok(Span::from_millis(1500)));
/// assert_eq!("1h30m".parse(), Ok(Span::from_secs(5400)));
/// assert_eq!("3 h 12 min".parse(), Ok(Span::from_secs(11_520)));
/// assert!("1.5".parse::<Span>().is_err());
/// ```
impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let malformed = || SpanError::Malformed(text.into());
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (-1.0, rest),
            None => (1.0, text),
        };
        let (mut rest, mut nanos, mut last) = (rest, 0.0, f64::INFINITY);
        if text.ends_with(' ') {
            return Err(malformed());
        }
        loop {
            let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(malformed)?;
            let (number, tail) = rest.split_at(unit_at);
            let tail = tail.strip_prefix(' ').unwrap_or(tail);
            let is_next = |c: char| c.is_ascii_digit() || c == ' ';
            let (unit, next) = tail.split_at(tail.find(is_next).unwrap_or(tail.len()));
            let unit_nanos = match unit {
                "ns" => 1.0,
                "us" => 1e3,
                "ms" => 1e6,
                "s" => 1e9,
                "m" | "min" => 60e9,
                "h" => 3600e9,
                "d" => 86_400e9,
                _ => return Err(malformed()),
            };
            if number.starts_with('.') || number.ends_with('.') || unit_nanos >= last {
                return Err(malformed());
            }
            // Only digits and points are left, so the words and exponents that Rust parses are rejected.
            nanos += number.parse::<f64>().map_err(|_| malformed())? * unit_nanos;
            (rest, last) = (next.strip_prefix(' ').unwrap_or(next), unit_nanos);
            if rest.is_empty() {
                break;
            }
        }
        match libm::round(nanos) {
            nanos if nanos > 0.0 && sign < 0.0 => Err(SpanError::Negative(text.into())),
            nanos if nanos >= LONGEST_NANOS => Err(SpanError::TooLong(text.into())),
            nanos => Ok(Self::from_nanos(nanos as u64)),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::ToString;

    use super::*;

    fn span(text: &str) -> Result<Span, SpanError> {
        text.parse()
    }

    #[test]
    fn valid_durations_parse() {
        for (text, nanos) in [
            ("1s", 1_000_000_000),
            ("200ms", 200_000_000),
            ("1.5s", 1_500_000_000),
            ("1.1s", 1_100_000_000),
            ("10us", 10_000),
            ("0.1us", 100),
            ("7ns", 7),
            ("0s", 0),
            ("5m", 300_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1m0.5s", 60_500_000_000),
            ("2d", 172_800_000_000_000),
            ("1d12h", 129_600_000_000_000),
            ("1.5d", 129_600_000_000_000),
            ("1 d 2h 3 min", 93_780_000_000_000),
            ("-0s", 0),
            ("123456.789012345s", 123_456_789_012_345),
            ("9000000000s", 9_000_000_000_000_000_000),
        ] {
            assert_eq!(span(text), Ok(Span::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "", "s", "1", "1.5", ".s", ".5s", "1.s", "1.2.3s", "NaN", "NaNs", "infs", "1e3s", "+1s", " 1s", "1s ",
            "1  s", "1h  2m", "- 1s", "1 ", " ", "1 h 2", "1\u{a0}s", "1ß", "--1s", "1w", "1h30", "30m1h", "1h1d",
            "1s1s", "1m1min", "1hm", "1h-1m",
        ] {
            assert_eq!(span(text), Err(SpanError::Malformed(text.into())), "{text}");
        }
        for text in ["-1s", "-0.5ms"] {
            assert_eq!(span(text), Err(SpanError::Negative(text.into())), "{text}");
        }
        for text in ["9223372037s", "18446744073709551616ns", &format!("1{}s", "0".repeat(400))] {
            assert_eq!(span(text), Err(SpanError::TooLong(text.into())), "{text}");
        }
    }

    #[test]
    fn printed_durations_parse() {
        for nanos in [0, 1, 999, 1_500_000_000, 86_400_000_000_001] {
            let original = Span::from_nanos(nanos);
            assert_eq!(span(&original.to_string()), Ok(original));
            assert_eq!(span(&format!("{original:#}")), Ok(original));
        }
        for seconds in [0, 1, 90, 119, 300, 7199, 7200, 11_520, 864_000] {
            let printed = roughly(Duration::from_secs(seconds));
            assert_eq!(span(&printed).map(|it| roughly(it.into())), Ok(printed.clone()), "{printed}");
        }
        for (nanos, text) in
            [(0, "0s"), (10_000_000_000, "10s"), (1_500_000_000, "1500ms"), (20_000, "20us"), (7, "7ns")]
        {
            assert_eq!(format!("{:#}", Span::from_nanos(nanos)), text);
        }
    }
}
