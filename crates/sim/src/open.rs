//! Open runs: clients without number, replicas that forget, messages that get lost.

mod clients;
mod engine;

use peerlock_base::{PeerId, Rng, Span, Time};
use peerlock_mutex::Observe;

use crate::carrier::Links;
use crate::engine::Violation;
use crate::experiment::{Failure, Report, SHOWN, Trial, run_all};
use crate::faults::Faults;
use crate::latency::Network;
use crate::watch::{Cost, Costs, Exclusion, Fencing, Idle, Messages, Order, Resets, Trace, Watch, Window};
use crate::workload::Poisson;
use engine::OpenSimulation;

/// One setting of a protocol with replicas and one slot, to be tried several times.
#[derive(Clone, Debug)]
pub struct Open {
    /// How many replicas: peers 0 to n − 1. Every client is a peer of its own after them.
    pub replicas: u32,
    /// When clients come, and how long they stay inside.
    pub workload: Poisson,
    /// How long messages take. It must have a place for any number of peers.
    pub network: Network,
    /// Whether messages may overtake each other.
    pub links: Links,
    /// What goes wrong.
    pub faults: Faults,
    /// How long the protocol's votes are good for without renewal. A client that has finished answers for twice as
    /// long, and resets are counted within it.
    pub lease: Span,
    /// Two inside at a time, and fencing numbers that do not increase, are counted instead of stopping the run.
    pub count_violations: bool,
    /// How many trials.
    pub trials: u32,
    /// What all chance is drawn from.
    pub seed: u64,
}

/// What only an open run has; sums over all trials.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How long it was measured.
    pub measured: Span,
    /// How many went inside meanwhile.
    pub entries: u64,
    /// How many clients came in all.
    pub came: u64,
    /// How many were sent away.
    pub refused: u64,
    /// How many lost their grant while they were inside.
    pub lost: u64,
    /// How many crashed.
    pub crashed: u64,
    /// How often a replica was reset.
    pub resets: u64,
    /// The most replicas that were reset within one lease time, in any trial.
    pub most_resets: u32,
    /// How many were let in while somebody was inside.
    pub violations: u64,
    /// How many got a fencing number no larger than an earlier one.
    pub fencing_back: u64,
    /// How many replicas there are.
    pub replicas: u32,
    /// The client whose messages are most in relation to the bound of its place, of any trial.
    pub worst: Cost,
    /// The most YIELDs that a client sent, in any trial.
    pub most_yields: u64,
}

impl Tally {
    /// The messages of the worst client over the bound of its place, [`Cost::bound`].
    pub fn worst_of_bound(&self) -> f64 {
        self.worst.messages as f64 / self.worst.bound(self.replicas)
    }

    /// Entries per second while it was measured.
    pub fn throughput(&self) -> f64 {
        self.entries as f64 / self.measured.as_secs_f64()
    }

    pub(crate) fn sum(tallies: impl IntoIterator<Item = Self>) -> Option<Self> {
        tallies.into_iter().reduce(|one, other| Self {
            measured: one.measured + other.measured,
            entries: one.entries + other.entries,
            came: one.came + other.came,
            refused: one.refused + other.refused,
            lost: one.lost + other.lost,
            crashed: one.crashed + other.crashed,
            resets: one.resets + other.resets,
            most_resets: one.most_resets.max(other.most_resets),
            violations: one.violations + other.violations,
            fencing_back: one.fencing_back + other.fencing_back,
            replicas: one.replicas,
            worst: if one.worst_of_bound() < other.worst_of_bound() { other.worst } else { one.worst },
            most_yields: one.most_yields.max(other.most_yields),
        })
    }
}

type Rules = (Exclusion, Fencing);
type Counts = (Messages, Idle, Order, Window, Resets, Costs);

impl Open {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number.
    ///
    /// `new_peer` makes a peer, replica or client, from its number. `progress` is told how many trials have ended since
    /// it was told last.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        new_peer: impl Fn(PeerId) -> P + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        run_all::<P>(self.trials, progress, |number| self.run_trial(number, &new_peer))
    }

    fn run_trial<P: Observe<Timer: std::hash::Hash>>(
        &self,
        number: u32,
        new_peer: &impl Fn(PeerId) -> P,
    ) -> Result<Trial, Box<Failure>> {
        let mut simulation = self.simulation(number, new_peer, |rules, counts| (rules, counts));
        if let Err(violation) = simulation.run() {
            return Err(self.explain(number, new_peer, violation));
        }
        let (events, fates) = (simulation.events(), simulation.fates);
        let ((exclusion, fencing), (messages, idle, order, window, resets, costs)) = simulation.watch;
        let flow = window.flow();
        let (steady, unsteady) = window.into_parts();
        let tally = Tally {
            measured: self.workload.measure,
            entries: flow.entries,
            came: fates.came,
            refused: fates.refused,
            lost: fates.lost,
            crashed: fates.crashed,
            resets: resets.count(),
            most_resets: resets.most(),
            violations: exclusion.violations(),
            fencing_back: fencing.violations(),
            replicas: self.replicas,
            worst: costs.worst(),
            most_yields: costs.most_yields(),
        };
        Ok(Trial {
            steady,
            unsteady,
            longest: Vec::new(), // Every client asks once.
            messages: messages.counts().to_vec(),
            flow,
            idle: idle.fraction(),
            inversions: order.inversions(),
            events,
            open: Some(tally),
        })
    }

    /// Runs a failed trial again with a trace: the same seed gives the same run.
    fn explain<P: Observe<Timer: std::hash::Hash>>(
        &self,
        number: u32,
        new_peer: &impl Fn(PeerId) -> P,
        violation: Violation,
    ) -> Box<Failure> {
        let mut again = self.simulation(number, new_peer, |rules, _| (Trace::of_last(SHOWN), rules));
        let same = again.run();
        debug_assert_eq!(same.as_ref(), Err(&violation), "the same seed gives the same run");
        let events = again.watch.0.lines().map(String::from).collect();
        Box::new(Failure { trial: number, seed: self.seed, violation, events })
    }

    fn simulation<'a, P, W, F>(
        &self,
        number: u32,
        new_peer: &'a F,
        watch: impl Fn(Rules, Counts) -> W,
    ) -> OpenSimulation<P, W, &'a F>
    where
        P: Observe<Timer: std::hash::Hash>,
        W: Watch<P>,
        F: Fn(PeerId) -> P,
    {
        const SLOTS: u32 = 1; // Votes of a majority are for one.
        let seed = Rng::stream(self.seed, number.into()).bits();
        let latency = self.network.latency(self.replicas as usize, seed);
        let rules = match self.count_violations {
            true => (Exclusion::counting(SLOTS), Fencing::counting(SLOTS)),
            false => (Exclusion::new(SLOTS), Fencing::new(SLOTS)),
        };
        let window = Window::from(Time::ZERO + self.workload.settle);
        let (resets, costs) = (Resets::within(self.lease), Costs::of::<P>(self.replicas));
        let counts = (Messages::of::<P>(), Idle::new(SLOTS), Order::default(), window, resets, costs);
        OpenSimulation::new(self, latency, seed, new_peer, watch(rules, counts))
    }
}
