//! Rounds: whole peers on an overlay, many resources, churn and faults.
//!
//! The workload of the E2E paper's §VI and of the coordinator paper's §5: a round is "the amount of work done by the nodes
//! in the network", so many requests by random peers for random resources, and each resource that somebody has is released
//! with probability ½. Rounds here are spans of virtual time: what belongs to a round begins at random moments of its
//! first half, and the second half lets the messages settle.
//!
//! After the last round nobody asks any more, everybody leaves, and the run goes on until nobody waits, or for `drain` at
//! most. Whoever still waits then is stuck. What is sent after the last round is not counted.
//!
//! ```
//! use peerlock_base::Span;
//! use peerlock_mutex::sigma::{Config, Sigma};
//! use peerlock_sim::Rounds;
//! let rounds = Rounds { peers: 100, resources: 5, rounds: 3, trials: 1, ..Rounds::default() };
//! let report = rounds.run(|me, replicas| Sigma::new(me, replicas, Config::REPAIRED), |_| {})?;
//! assert_eq!(report.asked() + report.skipped(), 60);
//! assert!(report.harm().is_none());
//! # Ok::<(), Box<peerlock_sim::Failure>>(())
//! ```

mod engine;
mod hosts;
mod memory;
mod report;

use std::fmt;
use std::str::FromStr;

use peerlock_base::{Key, PeerId, Rng, Span};
use peerlock_mutex::{Observe, Quorum, Replicas};
use peerlock_overlay::Overlay;
use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_peer as peer;
use thiserror::Error;

use crate::carrier::Links;
use crate::engine::Violation;
use crate::experiment::{Failure, SHOWN, in_parallel};
use crate::faults::Faults;
use crate::latency::{Model, Network};
use crate::watch::{Trace, Watch};
use engine::Swarm;
pub use report::{Harm, Received, Round, RoundsReport, Trouble};

/// Who finds the owner of a key, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayKind {
    /// See [`peerlock_overlay::chord`].
    Chord,
    /// See [`peerlock_overlay::pastry`].
    Pastry,
}

/// How many ask in a round: the paper can be read both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many in the whole system, at random peers.
    Whole,
    /// So many at each peer.
    PerPeer,
}

/// There is no such overlay, or no such load.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown {what} {name:?}: use {known}")]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: &'static str,
}

impl fmt::Display for OverlayKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Chord => "chord",
            Self::Pastry => "pastry",
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole => "whole",
            Self::PerPeer => "per-peer",
        })
    }
}

impl FromStr for OverlayKind {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name {
            "chord" => Ok(Self::Chord),
            "pastry" => Ok(Self::Pastry),
            _ => Err(UnknownName { what: "overlay", name: name.into(), known: "chord or pastry" }),
        }
    }
}

impl FromStr for Load {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        match name {
            "whole" => Ok(Self::Whole),
            "per-peer" => Ok(Self::PerPeer),
            _ => Err(UnknownName { what: "load", name: name.into(), known: "whole or per-peer" }),
        }
    }
}

/// One setting, to be tried several times. By default Table 1 of the E2E paper.
#[derive(Clone, Debug)]
pub struct Rounds {
    /// How many peers there are at the beginning, settled.
    pub peers: usize,
    /// What they route by.
    pub overlay: OverlayKind,
    /// How many resources.
    pub resources: usize,
    /// How many logical replicas each has, and how many votes win.
    pub quorum: Quorum,
    /// How long before the first round every resource is asked for once, so that whoever has to be elected is; not at all if
    /// zero. What is sent meanwhile is not counted.
    pub settle: Span,
    /// How many rounds.
    pub rounds: usize,
    /// How long a round is.
    pub round: Span,
    /// How many requests there are in a round …
    pub requests: usize,
    /// … in all or at each peer. A peer does not ask for what one of its clients has or waits for: that request is
    /// skipped.
    pub load: Load,
    /// The rate of churn (§VI.C): half as many peers fail silently in each round, and half as many come. Peers whose
    /// clients wait or are inside do not fail by this.
    pub churn: usize,
    /// How long messages take. With churn or crashes it must have a place for any number of peers.
    pub network: Network,
    /// Whether messages may overtake each other.
    pub links: Links,
    /// What else goes wrong. A client that crashes takes its peer with it, and another peer comes for it; every peer's
    /// memory of what it keeps for others has a life of its own.
    pub faults: Faults,
    /// How long the protocol's votes are good for without renewal: what is forgotten is counted within it.
    pub lease: Span,
    /// How long the run goes on after the last round until nobody waits any more, at most.
    pub drain: Span,
    /// Broken rules are counted instead of stopping the run: two inside, fencing numbers that do not increase, requests
    /// that are never served, and, where nothing goes wrong, messages that make no sense.
    pub count_violations: bool,
    /// How many trials.
    pub trials: u32,
    /// What all chance is drawn from.
    pub seed: u64,
}

impl Default for Rounds {
    fn default() -> Self {
        let latency = Model::Uniform { low: Span::from_millis(20), high: Span::from_millis(100) }; // Our choice.
        Self {
            peers: 6500,
            overlay: OverlayKind::Pastry,
            resources: 65,
            quorum: Quorum::new(10, 6), // The smallest majority: the paper's "majority of replica votes".
            settle: Span::ZERO,
            rounds: 20,
            round: Span::from_secs(10), // Our choice: half of it is some ten ways through the overlay and back.
            requests: 20,
            load: Load::Whole,
            churn: 0,
            network: latency.load(0).expect("a uniform latency needs no file"),
            links: Links::Ordered,
            faults: Faults::default(),
            lease: Span::from_secs(10),
            drain: Span::from_secs(600),
            count_violations: false,
            trials: 10,
            seed: 1,
        }
    }
}

impl Rounds {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number.
    ///
    /// `new_peer` makes a peer's part in the protocol of one resource, from its number and the resource's replicas.
    /// `progress` is told how many trials have ended since it was told last.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        new_peer: impl Fn(PeerId, &Replicas) -> P + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<RoundsReport, Box<Failure>> {
        let catalogue = Catalogue::new(self.resources, self.quorum, new_peer);
        let trials = in_parallel(self.trials, progress, |number| match self.overlay {
            OverlayKind::Chord => self.run_trial::<Chord, P, _>(number, &catalogue),
            OverlayKind::Pastry => self.run_trial::<Pastry, P, _>(number, &catalogue),
        })?;
        Ok(trials.into_iter().reduce(RoundsReport::plus).unwrap_or_default())
    }

    /// Whether anything can go wrong, so that peers must look after the overlay and confirm hops.
    fn is_rough(&self) -> bool {
        self.churn > 0 || self.faults != Faults::default()
    }

    fn run_trial<O: Placed, P: Observe<Timer: std::hash::Hash>, F: Fn(PeerId, &Replicas) -> P>(
        &self,
        number: u32,
        catalogue: &Catalogue<F>,
    ) -> Result<RoundsReport, Box<Failure>> {
        let swarm = self.swarm::<O, P, F, _>(number, catalogue, ());
        swarm.run().0.map_err(|violation| self.explain::<O, P, F>(number, catalogue, violation))
    }

    /// Runs a failed trial again with a trace: the same seed gives the same run.
    fn explain<O: Placed, P: Observe<Timer: std::hash::Hash>, F: Fn(PeerId, &Replicas) -> P>(
        &self,
        number: u32,
        catalogue: &Catalogue<F>,
        violation: Violation,
    ) -> Box<Failure> {
        let again = self.swarm::<O, P, F, _>(number, catalogue, Trace::of_last(SHOWN));
        let (same, trace) = again.run();
        debug_assert_eq!(same.as_ref().err(), Some(&violation), "the same seed gives the same run");
        let events = trace.lines().map(String::from).collect();
        Box::new(Failure { trial: number, seed: self.seed, violation, events })
    }

    fn swarm<'a, O: Placed, P, F, W>(
        &'a self,
        number: u32,
        catalogue: &'a Catalogue<F>,
        watch: W,
    ) -> Swarm<'a, O, P, F, W>
    where
        P: Observe<Timer: std::hash::Hash>,
        F: Fn(PeerId, &Replicas) -> P,
        W: Watch<P>,
    {
        let seed = Rng::stream(self.seed, number.into()).bits();
        Swarm::new(self, catalogue, self.network.latency(self.peers, seed), seed, watch)
    }
}

/// An overlay with its defaults.
trait Placed: Overlay {
    const CONFIG: peerlock_overlay::Config;
}

impl Placed for Chord {
    const CONFIG: peerlock_overlay::Config = peerlock_overlay::Config::CHORD;
}

impl Placed for Pastry {
    const CONFIG: peerlock_overlay::Config = peerlock_overlay::Config::PASTRY;
}

/// The resources that there are: "/resource/0" and so on.
struct Catalogue<F> {
    /// By key, so that they are found.
    resources: Vec<(Key, Replicas)>,
    new_peer: F,
}

impl<F> Catalogue<F> {
    fn new(resources: usize, quorum: Quorum, new_peer: F) -> Self {
        let resource = |number| {
            let name = format!("/resource/{number}");
            (Key::of(name.as_bytes()), Replicas::on_overlay(&name, quorum))
        };
        let mut resources: Vec<(Key, Replicas)> = (0..resources).map(resource).collect();
        resources.sort_by_key(|resource| resource.0);
        Self { resources, new_peer }
    }

    /// A resource's place in the list.
    fn find(&self, resource: Key) -> Option<usize> {
        self.resources.binary_search_by_key(&resource, |resource| resource.0).ok()
    }
}

impl<P, F: Fn(PeerId, &Replicas) -> P> peer::Resources<P> for &Catalogue<F> {
    fn open(&self, me: PeerId, resource: Key) -> Option<P> {
        self.find(resource).map(|at| (self.new_peer)(me, &self.resources[at].1))
    }
}
