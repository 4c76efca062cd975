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
use crate::watch::{Exclusion, Fencing, Idle, Messages, Order, Passing, Recovery, Standstill, Waits};
use crate::workload::{Closed, ClosedLoop};
use crate::world::{Setup, World};

/// Our choice.
const DISK: Span = Span::from_millis(5);

/// In sessions without a grant, plus as many mean partition lengths.
const PATIENCE: u64 = 20;

/// Whole peers in a closed loop, for comparison with the papers' protocols. Crashes are not reported to them: sessions
/// expire in the registry.
#[derive(Clone, Debug)]
pub struct Custody {
    /// The first one creates the cluster, and all others join.
    pub peers: usize,
    /// 1, 3 or 5.
    pub voters: u32,
    pub slots: u32,
    pub session: Ttl,
    pub workload: Closed,
    pub network: Network,
    pub faults: Faults,
    pub count_violations: bool,
    pub warm_up: u32,
    pub trials: u32,
    pub seed: u64,
}

impl Custody {
    /// # Errors
    /// A rule was broken.
    pub fn run(&self, progress: impl Fn(u64) + Sync) -> Result<Report, Box<Failure>> {
        trials::run(self, self.trials, self.seed, progress)
    }

    /// Returns how many peers, from the first on, need data directories so that this many vote.
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

    fn counts(&self) -> bool {
        self.count_violations
    }

    fn world(&self, seed: u64) -> World<'_, Whole, ClosedLoop> {
        let &Self { peers, slots, session, ref workload, faults, count_violations, warm_up, .. } = self;
        let rules = (
            Exclusion::new(1, slots, count_violations),
            Fencing::new(1, slots, count_violations),
            (),
            Passing::new(None),
            Messages::of(Whole::KINDS),
            None,
            Idle::new(slots),
            Order::default(),
            Waits::new(peers, 0, workload.entries, warm_up),
            Recovery::new(slots),
            Standstill::new(1, slots),
        );
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
        let parted = faults.partitions.map_or(Span::ZERO, |(_, Spells { last, .. })| last);
        let patience = (session.span() + parted) * PATIENCE;
        let load = ClosedLoop::new(workload.clone(), 0, true, seed).insisting(patience);
        let mut world = World::new(setup, load, rules);
        for _ in 0..peers {
            world.add_new();
        }
        world
    }
}
