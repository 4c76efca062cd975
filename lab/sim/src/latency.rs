//! Message delays: constant, random per pair or per message, measured, or Internet-like. The delay of a pair is hashed
//! from the seed and the two numbers, so that no pair is stored.

mod king;
mod matrix;

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use peerlock_types::{PeerId, Rng, Span, SpanError, mix};
use thiserror::Error;

pub use king::King;
pub use matrix::{Matrix, MatrixError, Table};

#[derive(Clone, Debug)]
pub enum Latency {
    Constant(Span),
    PerPair(PerPair),
    PerMessage { low: Span, high: Span },
    Matrix(Matrix),
    King(King),
}

impl Latency {
    #[inline]
    pub fn sample(&self, from: PeerId, to: PeerId, rng: &mut Rng) -> Span {
        match self {
            Self::Constant(delay) => *delay,
            Self::PerPair(pairs) => pairs.delay(from, to),
            Self::PerMessage { low, high } => rng.between(*low, *high),
            Self::Matrix(matrix) => matrix.delay(from, to),
            Self::King(king) => king.delay(from, to),
        }
    }

    pub fn longest(&self) -> Option<Span> {
        match self {
            Self::Constant(delay) => Some(*delay),
            Self::PerPair(pairs) => Some(pairs.low + Span::from_nanos(pairs.choices - 1)),
            Self::PerMessage { high, .. } => Some(*high),
            Self::Matrix(_) | Self::King(_) => None,
        }
    }

    /// Whether two messages on one link may take different times, so that an ordered link must track arrivals.
    pub fn varies(&self) -> bool {
        matches!(self, Self::PerMessage { low, high } if low < high)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct PerPair {
    low: Span,
    /// In nanoseconds.
    choices: u64,
    salt: u64,
}

impl PerPair {
    fn new(low: Span, high: Span, seed: u64) -> Self {
        Self { low, choices: (high - low).as_nanos() + 1, salt: mix(seed) }
    }

    #[inline]
    fn delay(&self, from: PeerId, to: PeerId) -> Span {
        let hash = pair_hash(self.salt, from, to);
        self.low + Span::from_nanos(((u128::from(hash) * u128::from(self.choices)) >> 64) as u64)
    }
}

/// `salt` is a mixed seed, so that similar seeds give unrelated values.
#[inline]
fn pair_hash(salt: u64, one: PeerId, other: PeerId) -> u64 {
    let (low, high) = (one.get().min(other.get()), one.get().max(other.get()));
    mix(salt ^ low ^ high.rotate_left(32))
}

/// A latency model as the command line names it.
///
/// ```
/// use peerlock_types::Span;
/// use peerlock_sim::latency::Model;
///
/// let model: Model = "uniform:0s..200ms".parse()?;
/// assert_eq!(model, Model::Uniform { low: Span::ZERO, high: Span::from_millis(200) });
/// let latency = model.load(100)?.latency(100, 1);
/// assert!(!latency.varies());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Model {
    /// `constant:1s`
    Constant(Span),
    /// Drawn once per pair.
    Uniform { low: Span, high: Span },
    /// Drawn for every message.
    Jitter { low: Span, high: Span },
    /// See [`King`].
    King,
    /// `matrix:FILE`
    Matrix(PathBuf),
}

impl Model {
    /// Whether the model supports any number of peers.
    pub fn is_boundless(&self) -> bool {
        !matches!(self, Self::King | Self::Matrix(_))
    }

    pub fn load(&self, peers: usize) -> Result<Network, MatrixError> {
        let table = match self {
            Self::Matrix(file) => Some(Arc::new(Table::read(file, peers)?)),
            _ => None,
        };
        Ok(Network { model: self.clone(), table })
    }
}

/// Each trial draws its own hosts and pairs.
#[derive(Clone, Debug)]
pub struct Network {
    model: Model,
    table: Option<Arc<Table>>,
}

impl Network {
    pub fn latency(&self, peers: usize, seed: u64) -> Latency {
        match (&self.model, &self.table) {
            (Model::Constant(delay), _) => Latency::Constant(*delay),
            (Model::Uniform { low, high }, _) => Latency::PerPair(PerPair::new(*low, *high, seed)),
            (Model::Jitter { low, high }, _) => Latency::PerMessage { low: *low, high: *high },
            (Model::Matrix(_), Some(table)) => Latency::Matrix(table.draw(peers, seed)),
            (Model::King, _) => Latency::King(King::new(peers, seed)),
            (Model::Matrix(_), None) => unreachable!("a matrix is loaded with its table"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ModelError {
    #[error("unknown latency {0:?}: use constant:1s, uniform:0s..200ms, jitter:0s..200ms, king or matrix:FILE")]
    Unknown(String),
    #[error("in latency {latency:?}, {reason}")]
    Span { latency: String, reason: SpanError },
    #[error("latency {0:?} needs a range: write the shortest and the longest delay, such as 0s..200ms")]
    NoRange(String),
    #[error("latency {0:?} has its range backwards: write the shorter delay first, such as 0s..200ms")]
    Backwards(String),
    #[error("latency {0:?} is zero: the longest delay must be more than 0s")]
    Zero(String),
    #[error("latency {0:?} names no file: write matrix:FILE")]
    NoFile(String),
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant(delay) => write!(f, "constant:{delay:#}"),
            Self::Uniform { low, high } => write!(f, "uniform:{low:#}..{high:#}"),
            Self::Jitter { low, high } => write!(f, "jitter:{low:#}..{high:#}"),
            Self::King => f.write_str("king"),
            Self::Matrix(file) => write!(f, "matrix:{}", file.display()),
        }
    }
}

impl FromStr for Model {
    type Err = ModelError;

    fn from_str(text: &str) -> Result<Self, ModelError> {
        match text.split_once(':') {
            None if text == "king" => Ok(Self::King),
            Some(("constant", delay)) => Ok(Self::Constant(longest(text, delay)?)),
            Some(("uniform", bounds)) => range(text, bounds).map(|(low, high)| Self::Uniform { low, high }),
            Some(("jitter", bounds)) => range(text, bounds).map(|(low, high)| Self::Jitter { low, high }),
            Some(("matrix", "")) => Err(ModelError::NoFile(text.into())),
            Some(("matrix", file)) => Ok(Self::Matrix(file.into())),
            _ => Err(ModelError::Unknown(text.into())),
        }
    }
}

fn range(latency: &str, bounds: &str) -> Result<(Span, Span), ModelError> {
    let (low, high) = bounds.split_once("..").ok_or_else(|| ModelError::NoRange(latency.into()))?;
    let (low, high) = (span(latency, low)?, longest(latency, high)?);
    if low > high { Err(ModelError::Backwards(latency.into())) } else { Ok((low, high)) }
}

/// Without any delay, a run could loop forever at one moment.
fn longest(latency: &str, delay: &str) -> Result<Span, ModelError> {
    match span(latency, delay)? {
        Span::ZERO => Err(ModelError::Zero(latency.into())),
        delay => Ok(delay),
    }
}

fn span(latency: &str, delay: &str) -> Result<Span, ModelError> {
    delay.parse().map_err(|reason| ModelError::Span { latency: latency.into(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Span {
        Span::from_millis(millis)
    }

    fn peer(number: u64) -> PeerId {
        PeerId::new(number)
    }

    fn build(model: &str, peers: usize, seed: u64) -> Latency {
        model.parse::<Model>().unwrap().load(peers).unwrap().latency(peers, seed)
    }

    #[test]
    fn latency_models_are_parsed() {
        for (text, model) in [
            ("constant:1s", Model::Constant(ms(1000))),
            ("uniform:0s..200ms", Model::Uniform { low: ms(0), high: ms(200) }),
            ("uniform:5ms..5ms", Model::Uniform { low: ms(5), high: ms(5) }),
            ("jitter:500ms..1500ms", Model::Jitter { low: ms(500), high: ms(1500) }),
            ("king", Model::King),
            ("matrix:a:b c.txt", Model::Matrix("a:b c.txt".into())),
        ] {
            assert_eq!(model.to_string(), text);
            assert_eq!(text.parse(), Ok(model));
        }
    }

    #[test]
    fn malformed_latency_models_are_refused() {
        for (text, sentence) in [
            ("", "unknown latency \"\""),
            ("fast", "unknown latency \"fast\": use constant:1s, uniform:"),
            ("Constant:1s", "unknown latency"),
            ("king:1", "unknown latency"),
            ("king:", "unknown latency"),
            ("constant", "unknown latency"),
            ("constant:", "in latency \"constant:\", \"\" is not a duration"),
            ("constant:-1s", "in latency \"constant:-1s\", the duration \"-1s\" is negative"),
            ("constant:NaN", "\"NaN\" is not a duration"),
            ("constant:99999999999s", "is too long"),
            ("constant:0s", "is zero"),
            ("uniform:1s", "needs a range"),
            ("uniform:0s-1s", "needs a range"),
            ("uniform:0s..0s", "is zero"),
            ("uniform:..1s", "\"\" is not a duration"),
            ("uniform:0s...1s", "\".1s\" is not a duration"),
            ("jitter:2s..1s", "backwards"),
            ("jitter:0s..", "\"\" is not a duration"),
            ("matrix:", "names no file"),
            ("matrix", "unknown latency"),
        ] {
            let said = text.parse::<Model>().unwrap_err().to_string();
            assert!(said.contains(sentence), "{text}: {said}");
        }
    }

    #[test]
    fn pair_delay_is_symmetric_and_constant() {
        let mut rng = Rng::new(1);
        for model in ["uniform:10ms..200ms", "king"] {
            let (latency, again) = (build(model, 60, 7), build(model, 60, 7));
            let other = build(model, 60, 8);
            let mut same_as_other = 0;
            for (a, b) in (0..60).flat_map(|a| (0..a).map(move |b| (peer(a), peer(b)))) {
                let delay = latency.sample(a, b, &mut rng);
                assert_eq!(delay, latency.sample(b, a, &mut rng), "{model} {a} {b}");
                assert_eq!(delay, latency.sample(a, b, &mut rng), "{model} {a} {b}");
                assert_eq!(delay, again.sample(a, b, &mut rng), "{model} {a} {b}");
                same_as_other += usize::from(delay == other.sample(a, b, &mut rng));
            }
            assert!(same_as_other < 5, "{model}: another seed, the same delays");
            assert!(!latency.varies());
        }
        assert_eq!(rng, Rng::new(1), "what belongs to a pair takes no random number");
    }

    #[test]
    fn delays_per_pair_fill_their_range_evenly() {
        let latency = build("uniform:100ms..200ms", 0, 3);
        let mut tenths = [0u32; 10];
        for (a, b) in (0..300).flat_map(|a| (0..a).map(move |b| (a, b))) {
            let delay = latency.sample(peer(a), peer(b), &mut Rng::new(0));
            assert!((ms(100)..=ms(200)).contains(&delay), "{delay}");
            tenths[((delay - ms(100)).as_nanos() / 10_000_000).min(9) as usize] += 1;
        }
        // 44,850 pairs: 4,485 a tenth, with a standard deviation of 64.
        assert!(tenths.iter().all(|n| (4_200..4_770).contains(n)), "{tenths:?}");
    }

    #[test]
    fn uniform_delays_reach_both_ends() {
        let latency = build("uniform:3ns..5ns", 0, 3);
        let mut found: Vec<u64> =
            (1..200).map(|b| latency.sample(peer(0), peer(b), &mut Rng::new(0)).as_nanos()).collect();
        found.sort_unstable();
        found.dedup();
        assert_eq!(found, [3, 4, 5]);
    }

    #[test]
    fn jitter_differs_per_message() {
        let latency = build("jitter:10ms..20ms", 2, 1);
        assert!(latency.varies());
        assert!(!build("jitter:10ms..10ms", 2, 1).varies());
        let mut rng = Rng::new(1);
        let delays: Vec<Span> = (0..1000).map(|_| latency.sample(peer(0), peer(1), &mut rng)).collect();
        assert!(delays.iter().all(|delay| (ms(10)..=ms(20)).contains(delay)));
        assert!(delays.windows(2).all(|two| two[0] != two[1]));
        let mean = delays.iter().copied().sum::<Span>() / 1000;
        assert!((Span::from_nanos(14_700_000)..Span::from_nanos(15_300_000)).contains(&mean), "{mean}");
    }

    #[test]
    fn constant_latency_never_varies() {
        let latency = build("constant:1s", 2, 1);
        assert_eq!(latency.sample(peer(0), peer(1), &mut Rng::new(1)), ms(1000));
        assert!(!latency.varies());
    }
}
