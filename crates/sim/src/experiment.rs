//! Many trials of one setting: run in parallel, put together in order.

use peerlock_base::{Rng, Span};
use peerlock_mutex::Observe;
use rayon::prelude::*;
use thiserror::Error;

use crate::carrier::Links;
use crate::engine::{Simulation, Violation};
use crate::latency::{Latency, Network};
use crate::open::Tally;
use crate::statistics::{self, Summary};
use crate::watch::{Acyclic, Exclusion, Fencing, Flow, Idle, Messages, OneCoordinator, Order, Tokens, Trace, Waits};
use crate::workload::Closed;

/// How many events are shown when a rule is broken.
pub(crate) const SHOWN: usize = 24;

/// One setting, to be tried several times.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// How many peers.
    pub peers: usize,
    /// How many may be inside at a time.
    pub slots: u32,
    /// Who asks when, and stays how long.
    pub workload: Closed,
    /// How long messages take.
    pub network: Network,
    /// Whether messages may overtake each other.
    pub links: Links,
    /// How many of each peer's first entries the steady state leaves out.
    pub warm_up: u32,
    /// How many trials.
    pub trials: u32,
    /// What all chance is drawn from.
    pub seed: u64,
}

/// A rule was broken in one of the trials.
#[derive(Clone, Debug, Error)]
#[error("trial {trial} with seed {seed} broke a rule {violation}\nThe last events:\n{}", .events.join("\n"))]
pub struct Failure {
    /// Which trial, counted from 0.
    pub trial: u32,
    /// The seed of the experiment.
    pub seed: u64,
    /// What went wrong.
    pub violation: Violation,
    /// What happened just before.
    pub events: Vec<String>,
}

/// Waiting times, with the mean of each trial's longest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitSummary {
    /// Over the entries of all trials.
    pub all: Summary,
    /// The mean over the trials of the longest wait in each.
    pub mean_of_trial_max: f64,
}

/// How the longest waits of single peers are spread, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerPeerMax {
    /// The luckiest peer.
    pub min: f64,
    /// One peer in ten has at most this.
    pub p10: f64,
    /// The median.
    pub p50: f64,
    /// Nine peers in ten have at most this.
    pub p90: f64,
    /// The unluckiest peer.
    pub max: f64,
}

/// What came out of all trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// How often somebody went inside.
    pub entries: u64,
    /// Waits over the whole runs.
    pub wait: Option<WaitSummary>,
    /// Waits in steady state; `None` if the runs were too short to have one.
    pub steady: Option<WaitSummary>,
    /// The longest wait of each peer of each trial in steady state, in order.
    pub longest_of_peers: Vec<Span>,
    /// Their summary.
    pub per_peer_max: Option<PerPeerMax>,
    /// Messages by type.
    pub messages: Vec<(&'static str, u64)>,
    /// Messages and entries in steady state.
    pub steady_flow: Flow,
    /// The share of slot time in which a slot was free and somebody waited; the mean over the trials.
    pub idle_while_waiting: f64,
    /// How many went inside past somebody who had asked earlier.
    pub order_inversions: u64,
    /// Events simulated.
    pub events: u64,
    /// What only an open run has.
    pub open: Option<Tally>,
}

impl Report {
    /// Messages sent for each time somebody went inside.
    pub fn messages_per_entry(&self) -> f64 {
        let sent: u64 = self.messages.iter().map(|&(_, count)| count).sum();
        if self.entries == 0 { 0.0 } else { sent as f64 / self.entries as f64 }
    }
}

/// What one trial leaves behind.
pub(crate) struct Trial {
    pub steady: Vec<Span>,
    pub unsteady: Vec<Span>,
    pub longest: Vec<Span>,
    pub messages: Vec<u64>,
    pub flow: Flow,
    pub idle: f64,
    pub inversions: u64,
    pub events: u64,
    pub open: Option<Tally>,
}

type Rules = (Exclusion, Fencing, (Tokens, OneCoordinator, Acyclic));
type Counts = (Messages, Idle, Order, Waits);

impl Experiment {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number.
    ///
    /// `peers` makes the peers of one trial, numbered from 0. `progress` is told how many trials have ended since it was
    /// told last.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        peers: impl Fn(&Latency) -> Vec<P> + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        run_all::<P>(self.trials, progress, |number| self.run_trial(number, &peers))
    }

    fn run_trial<P: Observe<Timer: std::hash::Hash>>(
        &self,
        number: u32,
        peers: &impl Fn(&Latency) -> Vec<P>,
    ) -> Result<Trial, Box<Failure>> {
        let mut simulation = self.simulation(number, peers, |rules, counts| (rules, counts));
        if let Err(violation) = simulation.run() {
            return Err(self.explain(number, peers, violation));
        }
        let events = simulation.events();
        let (_, (messages, idle, order, waits)) = simulation.watch;
        let flow = waits.flow();
        let (steady, unsteady, longest) = waits.into_parts();
        Ok(Trial {
            steady,
            unsteady,
            longest,
            messages: messages.counts().to_vec(),
            flow,
            idle: idle.fraction(),
            inversions: order.inversions(),
            events,
            open: None,
        })
    }

    /// Runs a failed trial again with a trace: the same seed gives the same run.
    fn explain<P: Observe<Timer: std::hash::Hash>>(
        &self,
        number: u32,
        peers: &impl Fn(&Latency) -> Vec<P>,
        violation: Violation,
    ) -> Box<Failure> {
        let mut again = self.simulation(number, peers, |rules, _| (Trace::of_last(SHOWN), rules));
        let same = again.run();
        debug_assert_eq!(same.as_ref(), Err(&violation), "the same seed gives the same run");
        let events = again.watch.0.lines().map(String::from).collect();
        Box::new(Failure { trial: number, seed: self.seed, violation, events })
    }

    fn simulation<P: Observe<Timer: std::hash::Hash>, W: crate::watch::Watch<P>>(
        &self,
        number: u32,
        peers: &impl Fn(&Latency) -> Vec<P>,
        watch: impl Fn(Rules, Counts) -> W,
    ) -> Simulation<P, W> {
        let seed = Rng::stream(self.seed, number.into()).bits();
        let latency = self.network.latency(self.peers, seed);
        let peers = peers(&latency);
        let structure = (Tokens::of(&peers), OneCoordinator::of(&peers), Acyclic::of(&peers));
        let rules = (Exclusion::new(self.slots), Fencing::new(self.slots), structure);
        let waits = Waits::new(self.peers, self.workload.entries, self.warm_up);
        let counts = (Messages::of::<P>(), Idle::new(self.slots), Order::default(), waits);
        Simulation::new(peers, self.workload.clone(), latency, self.links, seed, watch(rules, counts))
    }
}

/// Runs all trials, and puts what they leave behind together in their order.
pub(crate) fn run_all<P: Observe>(
    trials: u32,
    progress: impl Fn(u64) + Sync,
    run_trial: impl Fn(u32) -> Result<Trial, Box<Failure>> + Sync,
) -> Result<Report, Box<Failure>> {
    in_parallel(trials, progress, run_trial).map(put_together::<P>)
}

/// Runs all trials at once, as far as there are threads: what each leaves behind, in their order.
pub(crate) fn in_parallel<T: Send>(
    trials: u32,
    progress: impl Fn(u64) + Sync,
    run_trial: impl Fn(u32) -> Result<T, Box<Failure>> + Sync,
) -> Result<Vec<T>, Box<Failure>> {
    let ended = |number| run_trial(number).inspect(|_| progress(1));
    (0..trials).into_par_iter().map(ended).collect()
}

fn put_together<P: Observe>(trials: Vec<Trial>) -> Report {
    let count = trials.len().max(1) as f64;
    let idle_while_waiting = trials.iter().map(|trial| trial.idle).sum::<f64>() / count;
    let order_inversions = trials.iter().map(|trial| trial.inversions).sum();
    let events = trials.iter().map(|trial| trial.events).sum();
    let open = Tally::sum(trials.iter().filter_map(|trial| trial.open));
    let messages = (0..P::KINDS.len())
        .map(|kind| (P::KINDS[kind], trials.iter().map(|trial| trial.messages[kind]).sum()))
        .collect();
    let steady_flow = Flow {
        entries: trials.iter().map(|trial| trial.flow.entries).sum(),
        messages: trials.iter().map(|trial| trial.flow.messages).sum(),
    };

    let longest = |spans: &[Span]| spans.iter().copied().max();
    let steady_longest: Vec<Span> = trials.iter().filter_map(|trial| longest(&trial.steady)).collect();
    let all_longest: Vec<Span> =
        trials.iter().filter_map(|trial| longest(&trial.steady).max(longest(&trial.unsteady))).collect();

    let mut steady = Vec::new();
    let mut unsteady = Vec::new();
    let mut longest_of_peers = Vec::new();
    for mut trial in trials {
        steady.append(&mut trial.steady);
        unsteady.append(&mut trial.unsteady);
        longest_of_peers.append(&mut trial.longest);
    }
    let steady_summary = summarise(&mut steady, &steady_longest);
    let mut all = steady;
    all.append(&mut unsteady);
    longest_of_peers.sort_unstable();
    Report {
        entries: all.len() as u64,
        wait: summarise(&mut all, &all_longest),
        steady: steady_summary,
        per_peer_max: per_peer_max(&longest_of_peers),
        longest_of_peers,
        messages,
        steady_flow,
        idle_while_waiting,
        order_inversions,
        events,
        open,
    }
}

fn summarise(spans: &mut [Span], trial_longest: &[Span]) -> Option<WaitSummary> {
    Some(WaitSummary { all: Summary::of(spans)?, mean_of_trial_max: statistics::mean(trial_longest)? })
}

fn per_peer_max(sorted: &[Span]) -> Option<PerPeerMax> {
    let mut spans = sorted.to_vec();
    let min = sorted.first()?.as_secs_f64();
    let [p10, p50, p90, max] = [10, 50, 90, 100].map(|percent| statistics::quantile(&mut spans, percent));
    Some(PerPeerMax { min, p10, p50, p90, max })
}
