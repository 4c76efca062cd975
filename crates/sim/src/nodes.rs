//! The product's own peers, whole: clients, leases, membership, founding and links, under faults.

use std::cell::Cell;

use peerlock_base::{PeerId, Span};
use peerlock_node::{Guard, Routing};

use crate::actor::Whole;
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::Network;
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Exclusion, Fencing, Trace, Watch};
use crate::workload::{InVisits, Visits};
use crate::world::{Setup, World};

/// More lines than a run of a few minutes has.
const MOST_LINES: usize = 1_000_000;

/// One setting of whole nodes, to be tried several times.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// How many peers at first.
    pub peers: u64,
    /// How many slots each resource has.
    pub slots: u32,
    /// Which clients come when.
    pub visits: Visits,
    /// How long messages take. It must have a place for any number of peers.
    pub network: Network,
    /// What goes wrong. Lost messages break connections, and those that come twice are told apart there.
    pub faults: Faults,
    /// How many trials.
    pub trials: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Nodes {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Guard, O: Routing>(&self) -> Result<Report, Box<Failure>> {
        trials::run(&Of::<P, O>(self, std::marker::PhantomData), self.trials, self.seed, |_| {})
    }

    /// Every event of the first trial, a line each, and how it ended. The same seed gives the same bytes.
    pub fn trace<P: Guard, O: Routing>(&self) -> Vec<String> {
        let setting = Of::<P, O>(self, std::marker::PhantomData);
        let mut world = setting.world(trials::seed_of(0, self.seed), |rules, ()| (Trace::of_last(MOST_LINES), rules));
        let end = world.run();
        let lines = world.watch.0.lines().map(String::from);
        lines.chain([format!("{end:?}")]).collect()
    }
}

/// A setting with its protocol and overlay.
struct Of<'a, P, O>(&'a Nodes, std::marker::PhantomData<fn() -> (P, O)>);

impl<P: Guard, O: Routing> Setting for Of<'_, P, O> {
    type Actor = Whole<P, O>;
    type Workload = InVisits;
    type Rules = (Exclusion, Fencing);
    type Counts = ();

    fn world<W: Watch<Whole<P, O>>>(
        &self,
        seed: u64,
        watch: impl FnOnce(Self::Rules, Self::Counts) -> W,
    ) -> World<'_, Whole<P, O>, InVisits, W> {
        let &Nodes { peers, slots, visits, ref network, faults, .. } = self.0;
        let resources = visits.resources;
        let rules = (Exclusion::new(resources, slots, false), Fencing::new(resources, slots, false));
        let lives = Cell::new(0);
        let make = move |me: PeerId, (): &()| {
            lives.set(lives.get() + 1);
            Whole::new(me, lives.get(), seed, slots)
        };
        let setup = Setup {
            latency: network.latency(peers as usize, seed),
            links: Links::Ordered,
            faults,
            seed,
            is_lenient: true,
            disk: Span::ZERO,
            make: Box::new(make),
        };
        let mut world = World::new(setup, InVisits::new(visits, seed), watch(rules, ()));
        for _ in 0..peers {
            world.add_new();
        }
        world
    }

    fn resources(&self) -> usize {
        self.0.visits.resources
    }
}
