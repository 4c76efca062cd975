use core::fmt;
use core::iter::Sum;
use core::ops::{Add, AddAssign, Div, Mul, Sub};
use core::time::Duration;

const NANOS: f64 = 1e9;

/// Nanoseconds since the start of the run or the process, in 64 bits (584 years).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Time(u64);

/// In nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Span(u64);

impl Time {
    pub const ZERO: Self = Self(0);

    /// Arithmetic saturates here.
    pub const END: Self = Self(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// For people and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS
    }

    /// Zero if `earlier` is not.
    pub const fn since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

impl Span {
    pub const ZERO: Self = Self(0);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn from_millis(millis: u64) -> Self {
        Self(millis * 1_000_000)
    }

    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1_000_000_000)
    }

    /// Rounds to the nearest nanosecond; zero for negative numbers and NaN, the maximum for infinity.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self(libm::round(secs * NANOS) as u64)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// For people and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / NANOS
    }
}

impl Add<Span> for Time {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        self.0 += other.0;
    }
}

impl Sub for Span {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, times: u64) -> Self {
        Self(self.0 * times)
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, parts: u64) -> Self {
        Self(self.0 / parts)
    }
}

impl Sum for Span {
    fn sum<I: Iterator<Item = Self>>(spans: I) -> Self {
        Self(spans.map(|span| span.0).sum())
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.0)
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Span(self.0).fmt(f)
    }
}

/// Formats seconds with the necessary decimals, `0.2s`; with `{:#}` in the unit that a person would choose: `200ms`.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{}s", self.as_secs_f64());
        }
        let units = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];
        let whole = units.into_iter().find(|(unit, _)| self.0.is_multiple_of(*unit));
        whole.map_or(Ok(()), |(unit, name)| write!(f, "{}{name}", self.0 / unit))
    }
}

crate::debug_as_display!(Time, Span);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_arithmetic_saturates_at_zero() {
        let start = Time::ZERO + Span::from_secs(2);
        assert_eq!(start + Span::from_millis(500), Time::from_nanos(2_500_000_000));
        assert_eq!(start.since(Time::ZERO), Span::from_secs(2));
        assert_eq!(Time::ZERO.since(start), Span::ZERO);
        assert_eq!(Time::END + Span::from_secs(1), Time::END);
    }

    #[test]
    fn seconds_round_to_nanoseconds() {
        assert_eq!(Span::from_secs_f64(1.5), Span::from_millis(1500));
        assert_eq!(Span::from_secs_f64(2.6e-9), Span::from_nanos(3));
        assert_eq!(Span::from_secs_f64(-1.0), Span::ZERO);
        assert_eq!(Span::from_secs_f64(f64::NAN), Span::ZERO);
    }
}
