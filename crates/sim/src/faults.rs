//! What goes wrong in an open run.

use peerlock_base::{Rng, Span};

/// How long after asking a client crashes that is to crash while it waits: exponential, with this mean. Five mean round
/// trips of the Sigma paper's networks.
const CRASH_AFTER: Span = Span::from_secs(1);

/// What goes wrong, and how often. By default nothing does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults {
    /// The share of messages that are lost.
    pub loss: f64,
    /// The share of messages that arrive twice, each copy after a time of its own.
    pub duplication: f64,
    /// The share of clients that crash, never to be seen again: half of them some time after they asked, half as soon
    /// as they are inside.
    pub client_crash: f64,
    /// How long a replica remembers, on average; exponential. `None`: for ever.
    pub replica_life: Option<Span>,
}

/// When a client crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// It does not.
    Never,
    /// So long after asking, wherever it is by then.
    After(Span),
    /// When it has just come inside.
    Inside,
}

/// Draws faults from a stream of their own, so that they change neither the workload nor the network.
#[derive(Debug)]
pub(crate) struct Fate {
    faults: Faults,
    rng: Rng,
}

impl Fate {
    pub fn new(faults: Faults, rng: Rng) -> Self {
        Self { faults, rng }
    }

    /// How many copies of a message arrive: none, one or two.
    pub fn copies(&mut self) -> usize {
        usize::from(!self.happens(self.faults.loss)) + usize::from(self.happens(self.faults.duplication))
    }

    pub fn crash(&mut self) -> Crash {
        if !self.happens(self.faults.client_crash) {
            Crash::Never
        } else if self.rng.chance(0.5) {
            Crash::After(self.rng.exponential(CRASH_AFTER))
        } else {
            Crash::Inside
        }
    }

    /// How long a replica remembers from now on.
    pub fn life(&mut self) -> Option<Span> {
        self.faults.replica_life.map(|mean| self.rng.exponential(mean))
    }

    /// What cannot happen costs no random number.
    fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.chance(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept() {
        let faults = Faults { loss: 0.1, duplication: 0.2, client_crash: 0.3, replica_life: Some(Span::from_secs(30)) };
        let mut fate = Fate::new(faults, Rng::new(1));
        let copies: usize = (0..100_000).map(|_| fate.copies()).sum();
        assert!((109_000..111_000).contains(&copies), "{copies}");
        let crashes: Vec<Crash> = (0..100_000).map(|_| fate.crash()).filter(|crash| *crash != Crash::Never).collect();
        let inside = crashes.iter().filter(|crash| **crash == Crash::Inside).count();
        assert!((29_500..30_500).contains(&crashes.len()) && (14_500..15_500).contains(&inside), "{inside}");
        let lives: Span = (0..10_000).filter_map(|_| fate.life()).sum();
        assert!((290_000.0..310_000.0).contains(&lives.as_secs_f64()), "{lives}");
    }

    #[test]
    fn without_faults_nothing_is_drawn() {
        let mut fate = Fate::new(Faults::default(), Rng::new(1));
        assert_eq!((fate.copies(), fate.crash(), fate.life()), (1, Crash::Never, None));
        assert_eq!(fate.rng, Rng::new(1));
    }
}
