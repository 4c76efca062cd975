//! An open workload: clients that come, ask replicas once and go; replicas that forget, and messages that get lost.

use peerlock_protocols::Observe;
use peerlock_types::{PeerId, Span, Time};

use crate::actor::Bare;
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::Network;
use crate::part::{Drive, Wire};
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Always, Costs, Fencing, Idle, Messages, Order, Resets, Watch, Window, always_seeing_instants};
use crate::workload::{OpenWorkload, Poisson};
use crate::world::{Setup, World};

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
    /// How often it is run, each time with the random numbers of its own seed.
    pub trials: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

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
        trials::run(&Of { open: self, new_peer }, self.trials, self.seed, progress)
    }

    /// Does with it whatever `driver` does.
    pub fn drive<P: Observe<Timer: std::hash::Hash, Message: Wire>, D: Drive>(
        &self,
        new_peer: impl Fn(PeerId) -> P + Sync,
        driver: D,
    ) -> D::Output {
        driver.drive(&Of { open: self, new_peer }, self.trials, self.seed)
    }
}

/// A setting with its protocol.
struct Of<'a, F> {
    open: &'a Open,
    new_peer: F,
}

/// Votes of a majority are for one.
const SLOTS: u32 = 1;

impl<P, F> Setting for Of<'_, F>
where
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId) -> P + Sync,
{
    type Actor = Bare<P>;
    type Workload = OpenWorkload;
    type Rules = (Always, Fencing);
    type Counts = (Messages, Idle, Order, Window, Resets, Costs);

    fn counts(&self) -> bool {
        self.open.count_violations
    }

    fn world<W: Watch<Bare<P>>>(
        &self,
        seed: u64,
        watch: impl FnOnce(Self::Rules, Self::Counts) -> W,
    ) -> World<'_, Bare<P>, OpenWorkload, W> {
        let &Open { replicas, workload, ref network, links, faults, lease, count_violations, .. } = self.open;
        let latency = network.latency(replicas as usize, seed);
        let always = always_seeing_instants(1, SLOTS, count_violations);
        let rules = (always, Fencing::new(1, SLOTS, count_violations));
        let window = Window::from(Time::ZERO + workload.settle);
        let (resets, costs) = (Resets::within(lease), Costs::of::<Bare<P>>(replicas));
        let counts = (Messages::of::<Bare<P>>(), Idle::new(SLOTS), Order::default(), window, resets, costs);
        let setup = Setup {
            latency,
            links,
            faults,
            seed,
            is_lenient: false,
            disk: Span::ZERO,
            make: Box::new(|peer, ()| Bare((self.new_peer)(peer))),
        };
        let mut world = World::new(setup, OpenWorkload::new(workload, lease * 2, seed), watch(rules, counts));
        for _ in 0..replicas {
            world.add_new();
        }
        world
    }
}
