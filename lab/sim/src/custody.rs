//! Custody in a closed loop: the product's own peers, beside what papers have.

use std::cell::Cell;

use peerlock_node::{Config, Ttl};
use peerlock_types::{PeerId, Span};

use crate::actor::Whole;
use crate::actor::whole::{Dir, NodeSetting, Role};
use crate::carrier::Links;
use crate::faults::{Faults, Spells};
use crate::latency::Network;
use crate::report::Report;
use crate::trials::{self, Failure, Setting};
use crate::watch::{Always, Fencing, Idle, Messages, Order, Recovery, Standstill, Waits, Watch, always};
use crate::workload::{Closed, ClosedLoop};
use crate::world::{Setup, World};

/// A write to a disk takes this long on average: our choice.
const DISK: Span = Span::from_millis(5);

/// Where nobody has been let in for so many sessions, and as many times as long as a partition lasts on average, nobody
/// will be.
const PATIENCE: u64 = 20;

/// One setting of whole peers in a closed loop for one resource, to be tried several times. They are told nothing of
/// who is gone: sessions end in the register.
#[derive(Clone, Debug)]
pub struct Custody {
    /// How many peers. The first one founds the cluster, and all others join.
    pub peers: usize,
    /// How many of them keep the register: 1, 3 or 5.
    pub voters: u32,
    /// How many may be inside at a time.
    pub slots: u32,
    /// How long a session stands after a renewal.
    pub session: Ttl,
    /// Who asks when, and stays how long.
    pub workload: Closed,
    /// How long messages take.
    pub network: Network,
    /// What goes wrong.
    pub faults: Faults,
    /// Broken rules are counted instead of stopping the run.
    pub count_violations: bool,
    /// How many of each peer's first entries the steady state leaves out.
    pub warm_up: u32,
    /// How often it is run, each time with the random numbers of its own seed.
    pub trials: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

impl Custody {
    /// Runs all trials, on as many threads as rayon has; the report does not depend on their number. `progress` is told
    /// how many trials have ended since it was told last.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(&self, progress: impl Fn(u64) + Sync) -> Result<Report, Box<Failure>> {
        trials::run(self, self.trials, self.seed, progress)
    }

    /// How many peers, the first ones, have data folders, so that this many of them vote: as the register decides
    /// itself, one for one or two of them, three for three to six, five for more.
    pub const fn keepers(voters: u32) -> usize {
        match voters {
            0..=1 => 1,
            2..=3 => 3,
            _ => 7,
        }
    }

    fn role(&self, host: PeerId) -> Role {
        match host.index() {
            0 => Role::Founder,
            host if host < Self::keepers(self.voters) => Role::Joiner { expect: None },
            _ => Role::Guest,
        }
    }
}

impl Setting for Custody {
    type Actor = Whole;
    type Workload = ClosedLoop;
    type Rules = (Always, Fencing);
    type Counts = (Messages, Idle, Order, Waits, Recovery, Standstill);

    fn counts(&self) -> bool {
        self.count_violations
    }

    fn world<W: Watch<Whole>>(
        &self,
        seed: u64,
        watch: impl FnOnce(Self::Rules, Self::Counts) -> W,
    ) -> World<'_, Whole, ClosedLoop, W> {
        let &Self { peers, slots, session, ref workload, faults, count_violations, warm_up, .. } = self;
        let rules = (always(1, slots, count_violations), Fencing::new(1, slots, count_violations));
        let waits = Waits::new(peers, 0, workload.entries, warm_up);
        let (recovery, standstill) = (Recovery::new(slots), Standstill::new(1, slots));
        let counts = (Messages::of::<Whole>(), Idle::new(slots), Order::default(), waits, recovery, standstill);
        let lives = Cell::new(0);
        let setting = NodeSetting { slots: Some(slots), session, config: Config::default() };
        let make = move |me: PeerId, dir: &Dir| {
            lives.set(lives.get() + 1);
            Whole::new(me, self.role(me), dir, lives.get(), seed, setting)
        };
        let setup = Setup {
            latency: self.network.latency(peers, seed),
            links: Links::Ordered,
            faults,
            seed,
            is_lenient: true,
            disk: DISK,
            make: Box::new(make),
        };
        // A partition lasts as long as chance will have it, and whoever is cut off is served after it.
        let parted = faults.partitions.map_or(Span::ZERO, |(_, Spells { last, .. })| last);
        let patience = (session.span() + parted) * PATIENCE;
        let load = ClosedLoop::new(workload.clone(), 0, true, seed).insisting(patience);
        let mut world = World::new(setup, load, watch(rules, counts));
        for _ in 0..peers {
            world.add_new();
        }
        world
    }
}
