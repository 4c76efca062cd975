//! Rounds: peers on an overlay, many resources, churn and faults. The workload of the E2E paper's §VI and of the
//! coordinator paper's §5.
//!
//! In each round, random peers request random resources, and each held resource is released with probability ½. A round
//! is a span of virtual time: its events begin at random moments of its first half, and the messages settle in the
//! second. After the last round all holders release, and the run continues until no client waits, for at most `drain`.
//! A client that still waits then is stuck. Messages after the last round are not counted.
//!
//! ```
//! use peerlock_types::Span;
//! use peerlock_protocols::sigma::{Config, Sigma};
//! use peerlock_sim::Rounds;
//!
//! let rounds = Rounds { peers: 100, resources: 5, rounds: 3, trials: 1, ..Rounds::default() };
//! let report = rounds.run(|me, replicas| Sigma::new(me, replicas, Config::REPAIRED), |_| {})?;
//! assert_eq!(report.numbers.count("asked in rounds") + report.numbers.count("skipped"), 60);
//! assert!(report.harm().is_none());
//! # Ok::<(), Box<peerlock_sim::Failure>>(())
//! ```

use std::marker::PhantomData;

use peerlock_overlay::Node;
use peerlock_overlay::chord::Chord;
use peerlock_overlay::pastry::Pastry;
use peerlock_peer::Config;
use peerlock_protocols::{Observe, Quorum, Replicas};
use peerlock_types::{Key, PeerId, Span, mix};

use crate::actor::{Catalogue, OnOverlay, Routing, Settled};
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::{Model, Network};
use crate::names;
use crate::part::{Drive, Wire};
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Burden, Exclusion, Fencing, Memory, PerRound};
use crate::workload::{InRounds, Load};
use crate::world::{Setup, World};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlayKind {
    Chord,
    Pastry,
}

names!("overlay", OverlayKind { Chord = "chord", Pastry = "pastry" });
names!("load", Load { Whole = "whole", PerPeer = "per-peer" });

/// One setting, run several times. The default is Table 1 of the E2E paper.
#[derive(Clone, Debug)]
pub struct Rounds {
    pub peers: usize,
    pub overlay: OverlayKind,
    pub resources: usize,
    /// For each resource.
    pub quorum: Quorum,
    /// Before the first round every resource is requested once, so that elections are over. Not counted.
    pub settle: Span,
    pub rounds: usize,
    pub round: Span,
    pub requests: usize,
    /// A request is skipped if another client of the peer holds the resource or waits for it.
    pub load: Load,
    /// Half as many peers fail silently in each round, and half as many join (§VI.C). Peers whose clients wait or hold
    /// are exempt.
    pub churn: usize,
    /// With churn or crashes the model must support any number of peers.
    pub network: Network,
    pub links: Links,
    /// A client that crashes takes its peer with it, and another peer replaces it.
    pub faults: Faults,
    /// The lease of votes: resets are counted within it.
    pub lease: Span,
    /// The longest time after the last round.
    pub drain: Span,
    /// Counts broken rules instead of stopping the run.
    pub count_violations: bool,
    pub trials: u32,
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
            round: Span::from_secs(10), // Our choice: half of it is some ten paths through the overlay and back.
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
    /// Runs all trials on rayon's threads, whose number does not affect the report. `progress` receives the number of
    /// trials that have ended since its last call.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        new_peer: impl Fn(PeerId, &Replicas) -> P + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        let catalogue = Catalogue::new(self.resources, self.quorum, new_peer);
        match self.overlay {
            OverlayKind::Chord => {
                trials::run(&&self.of::<Chord, P, _>(P::KINDS, catalogue), self.trials, self.seed, progress)
            }
            OverlayKind::Pastry => {
                trials::run(&&self.of::<Pastry, P, _>(P::KINDS, catalogue), self.trials, self.seed, progress)
            }
        }
    }

    /// `kinds` are those of the messages.
    pub fn drive<P: Observe<Timer: std::hash::Hash, Message: Wire>, D: Drive>(
        &self,
        kinds: &'static [&'static str],
        new_peer: impl Fn(PeerId, &Replicas) -> P + Sync,
        driver: D,
    ) -> D::Output {
        let catalogue = Catalogue::new(self.resources, self.quorum, new_peer);
        match self.overlay {
            OverlayKind::Chord => driver.drive(&&self.of::<Chord, P, _>(kinds, catalogue), self.trials, self.seed),
            OverlayKind::Pastry => driver.drive(&&self.of::<Pastry, P, _>(kinds, catalogue), self.trials, self.seed),
        }
    }

    fn of<O, P, F>(&self, kinds: &'static [&'static str], catalogue: Catalogue<F>) -> Of<'_, O, P, F> {
        Of { rounds: self, kinds, catalogue, overlay: PhantomData }
    }

    /// Peers must maintain the overlay and confirm hops, and routing may fail.
    pub(crate) fn is_rough(&self) -> bool {
        self.churn > 0 || self.faults != Faults::default()
    }

    pub(crate) fn is_lenient(&self) -> bool {
        self.is_rough() || self.count_violations
    }
}

struct Of<'a, O, P, F> {
    rounds: &'a Rounds,
    kinds: &'static [&'static str],
    catalogue: Catalogue<F>,
    overlay: PhantomData<fn() -> (O, P)>,
}

/// A position differs between trials.
fn node(peer: PeerId, seed: u64) -> Node {
    let high = mix(seed ^ mix(peer.get()));
    Node { key: Key::new(u128::from(high) << 64 | u128::from(mix(high))), peer }
}

fn settled<O: Settled>(peers: usize, seed: u64) -> impl Iterator<Item = O> {
    let mut nodes: Vec<Node> = (0..peers as u64).map(|peer| node(PeerId::new(peer), seed)).collect();
    nodes.sort_unstable();
    let mut places: Vec<usize> = (0..nodes.len()).collect();
    places.sort_unstable_by_key(|&place| nodes[place].peer);
    places.into_iter().map(move |place| O::converged(&nodes, place, O::CONFIG))
}

/// A majority of votes elects one client.
const SLOTS: u32 = 1;

impl<'a, O, P, F> Setting for &'a Of<'a, O, P, F>
where
    O: Settled,
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId, &Replicas) -> P + Sync,
{
    type Actor = OnOverlay<'a, O, P, F>;
    type Workload = InRounds<'a>;

    fn counts(&self) -> bool {
        self.rounds.count_violations
    }

    fn world(&self, seed: u64) -> World<'_, Self::Actor, InRounds<'a>> {
        let (rounds, catalogue) = (self.rounds, &self.catalogue);
        let &Rounds { resources, lease, count_violations, .. } = rounds;
        let config = if rounds.is_rough() { Config::CONFIRMED } else { Config::RELIABLE };
        let peers: Vec<_> =
            settled(rounds.peers, seed).map(|overlay| OnOverlay::new(overlay, catalogue, config)).collect();
        let latency = rounds.network.latency(rounds.peers, seed);
        let ranges = peers.iter().map(Routing::range).collect();
        let rules = (
            Exclusion::new(resources, SLOTS, count_violations).seeing_instants(),
            Fencing::new(resources, SLOTS, count_violations),
            Memory::new(catalogue.replicas(), ranges, lease),
            PerRound::of(self.kinds),
            Burden::default(),
        );
        let setup = Setup {
            latency,
            links: rounds.links,
            faults: rounds.faults,
            seed,
            is_lenient: rounds.is_lenient(),
            disk: Span::ZERO,
            make: Box::new(move |peer, ()| OnOverlay::new(O::new(node(peer, seed), O::CONFIG), catalogue, config)),
        };
        let mut world = World::new(setup, InRounds::new(rounds, seed), rules);
        for peer in peers {
            world.add(peer);
        }
        world
    }

    fn resources(&self) -> usize {
        self.rounds.resources
    }

    fn bound(&self) -> u32 {
        self.rounds.quorum.intersection()
    }
}
