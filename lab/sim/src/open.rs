use peerlock_protocols::Observe;
use peerlock_types::{PeerId, Span, Time};

use crate::actor::Bare;
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::Network;
use crate::part::{Drive, Wire};
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Costs, Exclusion, Fencing, Idle, Messages, Order, Resets, Window};
use crate::workload::{OpenWorkload, Poisson};
use crate::world::{Setup, World};

/// A protocol with replicas and one slot, and clients that request once and depart.
#[derive(Clone, Debug)]
pub struct Open {
    /// Peers 0 to n − 1. Every client is a further peer.
    pub replicas: u32,
    pub workload: Poisson,
    pub network: Network,
    pub links: Links,
    pub faults: Faults,
    /// A client that is done answers messages for twice as long, and resets are counted within it.
    pub lease: Span,
    pub count_violations: bool,
    pub trials: u32,
    pub seed: u64,
}

impl Open {
    /// As [`Experiment::run`](crate::Experiment::run).
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        new_peer: impl Fn(PeerId) -> P + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        trials::run(&Of { open: self, kinds: P::KINDS, new_peer }, self.trials, self.seed, progress)
    }

    /// `kinds` are those of the messages.
    pub fn drive<P: Observe<Timer: std::hash::Hash, Message: Wire>, D: Drive>(
        &self,
        kinds: &'static [&'static str],
        new_peer: impl Fn(PeerId) -> P + Sync,
        driver: D,
    ) -> D::Output {
        driver.drive(&Of { open: self, kinds, new_peer }, self.trials, self.seed)
    }
}

struct Of<'a, F> {
    open: &'a Open,
    kinds: &'static [&'static str],
    new_peer: F,
}

/// A majority of votes elects one client.
const SLOTS: u32 = 1;

impl<P, F> Setting for Of<'_, F>
where
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(PeerId) -> P + Sync,
{
    type Actor = Bare<P>;
    type Workload = OpenWorkload;

    fn counts(&self) -> bool {
        self.open.count_violations
    }

    fn world(&self, seed: u64) -> World<'_, Bare<P>, OpenWorkload> {
        let &Open { replicas, workload, ref network, links, faults, lease, count_violations, .. } = self.open;
        let latency = network.latency(replicas as usize, seed);
        let rules = (
            Exclusion::new(1, SLOTS, count_violations).seeing_instants(),
            Fencing::new(1, SLOTS, count_violations),
            Messages::of(self.kinds),
            Idle::new(SLOTS),
            Order::default(),
            Window::from(Time::ZERO + workload.settle),
            Resets::within(lease),
            Costs::of(self.kinds, replicas),
        );
        let setup = Setup {
            latency,
            links,
            faults,
            seed,
            is_lenient: false,
            disk: Span::ZERO,
            make: Box::new(|peer, ()| Bare((self.new_peer)(peer))),
        };
        let mut world = World::new(setup, OpenWorkload::new(workload, lease * 2, seed), rules);
        for _ in 0..replicas {
            world.add_new();
        }
        world
    }
}
