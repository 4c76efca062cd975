use std::marker::PhantomData;

use peerlock_protocols::Observe;
use peerlock_types::{PeerId, Span};

use crate::actor::Bare;
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::{Latency, Network};
use crate::part::{Drive, Wire};
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{
    Burden, Exclusion, Fencing, Idle, Messages, Order, Passing, Recovery, Standstill, Structure, Waits,
};
use crate::workload::{Closed, ClosedLoop};
use crate::world::{Setup, World};

#[derive(Clone, Debug)]
pub struct Experiment {
    pub peers: usize,
    /// The first peers never request and serve the others as replicas.
    pub servers: usize,
    pub slots: u32,
    pub workload: Closed,
    pub network: Network,
    pub links: Links,
    /// Resets hit the servers, or all peers if there are none.
    pub faults: Faults,
    /// Counts broken rules, refused and unserved requests instead of stopping the run.
    pub count_violations: bool,
    /// How many of each peer's first entries the steady state omits.
    pub warm_up: u32,
    pub trials: u32,
    pub seed: u64,
}

impl Experiment {
    /// Runs all trials on rayon's threads, whose number does not affect the report. `progress` receives the number of
    /// trials that have ended since its last call.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run<P: Observe<Timer: std::hash::Hash>>(
        &self,
        peers: impl Fn(&Latency) -> Vec<P> + Sync,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        let setting = Of { experiment: self, kinds: P::KINDS, peers, protocol: PhantomData };
        trials::run(&setting, self.trials, self.seed, progress)
    }

    /// `kinds` are those of the messages.
    pub fn drive<P: Observe<Timer: std::hash::Hash, Message: Wire>, D: Drive>(
        &self,
        kinds: &'static [&'static str],
        peers: impl Fn(&Latency) -> Vec<P> + Sync,
        driver: D,
    ) -> D::Output {
        driver.drive(&Of { experiment: self, kinds, peers, protocol: PhantomData }, self.trials, self.seed)
    }
}

struct Of<'a, P, F> {
    experiment: &'a Experiment,
    kinds: &'static [&'static str],
    peers: F,
    protocol: PhantomData<fn() -> P>,
}

impl<P, F> Setting for Of<'_, P, F>
where
    P: Observe<Timer: std::hash::Hash>,
    F: Fn(&Latency) -> Vec<P> + Sync,
{
    type Actor = Bare<P>;
    type Workload = ClosedLoop;

    fn counts(&self) -> bool {
        self.experiment.count_violations
    }

    fn world(&self, seed: u64) -> World<'_, Bare<P>, ClosedLoop> {
        let &Experiment { peers, servers, slots, ref workload, links, faults, count_violations, warm_up, .. } =
            self.experiment;
        let latency = self.experiment.network.latency(peers, seed);
        let residents = (self.peers)(&latency);
        let is_lenient = count_violations || faults != Faults::default();
        let structure = if is_lenient { Structure::none() } else { Structure::of(&residents) };
        let longest = latency.longest();
        let most_passes = residents.first().and_then(P::most_passes).filter(|_| !is_lenient);
        let rules = (
            Exclusion::new(1, slots, count_violations).seeing_instants(),
            Fencing::new(1, slots, count_violations),
            structure,
            Passing::new(longest).at_most(most_passes),
            Messages::of(self.kinds),
            Some(Burden::default()),
            Idle::new(slots),
            Order::default(),
            Waits::new(peers, servers, workload.entries, warm_up),
            Recovery::new(slots),
            Standstill::new(1, slots),
        );
        let again = latency.clone();
        let setup = Setup {
            latency,
            links,
            faults,
            seed,
            is_lenient,
            disk: Span::ZERO,
            make: Box::new(move |peer: PeerId, ()| Bare((self.peers)(&again).swap_remove(peer.index()))),
        };
        let load = ClosedLoop::new(workload.clone(), servers, is_lenient, seed)
            .waiting_for(longest.unwrap_or(Span::ZERO), faults.longest_spell());
        let mut world = World::new(setup, load, rules);
        for peer in residents {
            world.add(Bare(peer));
        }
        world
    }
}
