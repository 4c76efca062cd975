//! The product's own peers, whole: clients, sessions, tokens, register, disks and links, under faults.

use std::cell::Cell;

use peerlock_node::{Config, Ttl};
use peerlock_types::{PeerId, Span};

use crate::actor::Whole;
use crate::actor::whole::{Dir, NodeSetting, Role};
use crate::carrier::Links;
use crate::faults::Faults;
use crate::latency::Network;
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Always, Generations, Messages, Queued, Standstill, Trace, Watch, always};
use crate::workload::{InVisits, Visits};
use crate::world::{Setup, World};

/// More lines than a run of a few minutes has.
const MOST_LINES: usize = 1_000_000;

/// One setting of whole nodes, to be tried several times.
#[derive(Clone, Debug)]
pub struct Nodes {
    /// How many hosts with a data folder.
    pub hosts: u64,
    /// How many further ones without.
    pub guests: u64,
    /// A cluster is founded when all hosts have met that have a folder; else the first one founds it.
    pub expect: bool,
    /// How many slots each resource has, unless people change that.
    pub slots: u32,
    /// How long a session stands after a renewal.
    pub session: Ttl,
    /// How patient nodes are.
    pub config: Config,
    /// How long a write to the disk takes on average; exponential.
    pub disk: Span,
    /// Which clients come when.
    pub visits: Visits,
    /// How long messages take. It must have a place for any number of peers.
    pub network: Network,
    /// In the end, who asks this much later than another is let in after it; `None` where asking may take any time.
    pub clearly: Option<Span>,
    /// What goes wrong. Lost messages break connections, and those that come twice are told apart there.
    pub faults: Faults,
    /// How often it is run, each time with the random numbers of its own seed.
    pub trials: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Nodes {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        trials::run(self, self.trials, self.seed, |_| {})
    }

    /// Every event of the first trial, a line each, and how it ended. The same seed gives the same bytes.
    pub fn trace(&self) -> Vec<String> {
        let seed = trials::seed_of(0, self.seed);
        let mut world = self.world(seed, |rules, _| (Trace::of_last(MOST_LINES), rules));
        let end = world.run();
        let lines = world.watch.0.lines().map(String::from);
        lines.chain([format!("{end:?}")]).collect()
    }

    fn role(&self, host: PeerId) -> Role {
        match host.get() {
            host if host >= self.hosts => Role::Guest,
            0 if !self.expect => Role::Founder,
            _ => Role::Joiner { expect: self.expect.then_some(self.hosts as usize) },
        }
    }
}

fn twice(session: Ttl) -> Ttl {
    Ttl::from_millis(session.span().as_nanos() / 500_000).unwrap_or(session)
}

impl Setting for Nodes {
    type Actor = Whole;
    type Workload = InVisits;
    type Rules = (Always, Generations, Queued);
    type Counts = (Messages, Standstill);

    fn world<W: Watch<Whole>>(
        &self,
        seed: u64,
        watch: impl FnOnce(Self::Rules, Self::Counts) -> W,
    ) -> World<'_, Whole, InVisits, W> {
        let &Self { visits, faults, session, config, disk, .. } = self;
        let resources = visits.resources;
        let slots = visits.resizes.map_or(self.slots, |(_, most)| most.max(self.slots));
        let by_force = visits.forces.is_some();
        let hosts = self.hosts + self.guests;
        let clearly = self.clearly.unwrap_or(Span::from_secs(1_000_000));
        let rules =
            (always(resources, slots, by_force), Generations::new(resources, by_force), Queued::new(clearly, slots));
        // Where people change the number of slots, nobody knows whether one is free.
        let still = if visits.resizes.is_some() { 0 } else { slots };
        let fixed = visits.resizes.is_none().then_some(slots);
        let lives = Cell::new(0_u64);
        let make = move |me: PeerId, dir: &Dir| {
            lives.set(lives.get() + 1);
            // One in four is started with a longer session, so that the next one of its host is to have a shorter one.
            let session = if lives.get().is_multiple_of(4) { twice(session) } else { session };
            Whole::new(me, self.role(me), dir, lives.get(), seed, NodeSetting { slots: fixed, session, config })
        };
        let setup = Setup {
            latency: self.network.latency(hosts as usize, seed),
            links: Links::Ordered,
            faults,
            seed,
            is_lenient: true,
            disk,
            make: Box::new(make),
        };
        let counts = (Messages::of::<Whole>(), Standstill::new(resources, still));
        let mut world = World::new(setup, InVisits::new(visits, seed), watch(rules, counts));
        for _ in 0..hosts {
            world.add_new();
        }
        world
    }

    fn resources(&self) -> usize {
        self.visits.resources
    }
}
