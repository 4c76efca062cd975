//! Whole peers of the product under faults: clients, sessions, tokens, registry, disks and links.

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
use crate::watch::{Exclusion, Generations, Messages, Queued, Standstill, Trace};
use crate::workload::{InVisits, Visits};
use crate::world::{Setup, World};

/// More lines than a run of a few minutes has.
const MOST_LINES: usize = 1_000_000;

#[derive(Clone, Debug)]
pub struct Nodes {
    pub hosts: u64,
    /// Hosts without a data directory.
    pub guests: u64,
    /// The hosts create the cluster once all are connected; otherwise the first one does.
    pub expect: bool,
    /// Unless a resource is resized.
    pub slots: u32,
    pub session: Ttl,
    pub config: Config,
    /// The mean duration of a write; exponential.
    pub disk: Span,
    pub visits: Visits,
    /// The model must support any number of peers.
    pub network: Network,
    /// At the end, a client that requests this much later than another enters after it.
    pub clearly: Option<Span>,
    /// Lost messages break connections, which also discard duplicates.
    pub faults: Faults,
    pub trials: u32,
    pub seed: u64,
}

impl Nodes {
    /// # Errors
    /// A rule was broken.
    pub fn run(&self) -> Result<Report, Box<Failure>> {
        trials::run(self, self.trials, self.seed, |_| {})
    }

    /// Returns every event of the first trial, and its result.
    pub fn trace(&self) -> Vec<String> {
        let seed = trials::seed_of(0, self.seed);
        let mut trace = Trace::of_last(MOST_LINES);
        let mut world = self.world(seed);
        world.observe(&mut trace);
        let end = world.run();
        drop(world);
        let mut lines = trace.into_lines();
        lines.push(format!("{end:?}"));
        lines
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

    fn world(&self, seed: u64) -> World<'_, Whole, InVisits> {
        let &Self { visits, faults, session, config, disk, .. } = self;
        let resources = visits.resources;
        let slots = visits.resizes.map_or(self.slots, |(_, most)| most.max(self.slots));
        let by_force = visits.forces.is_some();
        let hosts = self.hosts + self.guests;
        let clearly = self.clearly.unwrap_or(Span::from_secs(1_000_000));
        // With resizes, the watcher does not know whether a slot is free.
        let still = if visits.resizes.is_some() { 0 } else { slots };
        let fixed = visits.resizes.is_none().then_some(slots);
        let lives = Cell::new(0_u64);
        let make = move |me: PeerId, dir: &Dir| {
            lives.set(lives.get() + 1);
            // One process in four has a longer session, so that the next one of its host has a shorter one.
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
        let rules = (
            Exclusion::new(resources, slots, by_force),
            Generations::new(resources, by_force),
            Queued::new(clearly, slots),
            Messages::of(Whole::KINDS),
            Standstill::new(resources, still),
        );
        let mut world = World::new(setup, InVisits::new(visits, seed), rules);
        for _ in 0..hosts {
            world.add_new();
        }
        world
    }

    fn resources(&self) -> usize {
        self.visits.resources
    }
}
