use std::collections::VecDeque;

use peerlock_types::{PeerId, Rng, Span, Time};

use super::{Hold, Over, Workload};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Costs, Exclusion, Fencing, Idle, Messages, Order, Resets, Window};
use crate::world::World;

/// Clients that request once each, at random moments, independent of the earlier ones (Sigma paper, §5).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Poisson {
    /// The mean: 1/λ.
    pub gap: Span,
    /// `None`: clients release at once.
    pub hold: Option<Hold>,
    pub settle: Span,
    pub measure: Span,
}

/// Every client is its own peer, beside the replicas.
#[derive(Debug)]
pub struct OpenWorkload {
    workload: Poisson,
    /// How long a client that is done still answers messages.
    linger: Span,
    leaving: VecDeque<(Time, PeerId)>,
    rng: Rng,
    /// If the processes of one run draw the same clients but not the same hold times.
    stays: Option<Rng>,
}

impl OpenWorkload {
    pub fn new(workload: Poisson, linger: Span, seed: u64) -> Self {
        Self { workload, linger, leaving: VecDeque::new(), rng: Rng::stream(seed, 0), stays: None }
    }

    fn next_client<A: Actor>(world: &mut World<'_, A, Self>) {
        let gap = world.load.rng.exponential(world.load.workload.gap);
        world.schedule(world.now() + gap, ());
    }
}

impl<A: Actor> Workload<A> for OpenWorkload {
    type Event = ();
    type Watch = (Exclusion, Fencing, Messages, Idle, Order, Window, Resets, Costs);
    const SERVES_ALL: bool = false;

    fn start(world: &mut World<'_, A, Self>) -> Result<(), Broken> {
        world.load.stays = world.own_stream(&world.load.rng);
        Self::next_client(world);
        for replica in 0..world.residents() {
            world.resets_from_now(PeerId::new(replica as u64));
        }
        Ok(())
    }

    fn happen(world: &mut World<'_, A, Self>, (): ()) -> Result<(), Broken> {
        while let Some(&(until, gone)) = world.load.leaving.front()
            && until <= world.now()
        {
            world.load.leaving.pop_front();
            world.forget(gone);
        }
        Self::next_client(world);
        let client = world.add_visitor();
        world.ask(client, 0)
    }

    fn on_entered(world: &mut World<'_, A, Self>, client: &Client) {
        let OpenWorkload { workload, rng, stays, .. } = &mut world.load;
        let hold = workload.hold.map_or(Span::ZERO, |hold| hold.sample(stays.as_mut().unwrap_or(rng)));
        world.leave_at(world.now() + hold, client);
    }

    fn on_over(world: &mut World<'_, A, Self>, client: &Client, over: Over) -> Result<(), Broken> {
        if over != Over::Crashed {
            let until = world.now() + world.load.linger;
            world.load.leaving.push_back((until, client.peer));
        }
        Ok(())
    }

    fn is_served(world: &World<'_, A, Self>) -> bool {
        Self::is_over(world, world.now())
    }

    fn fill(&self, sheet: &mut Sheet) {
        sheet.numbers.sum("nanoseconds measured", self.workload.measure.as_nanos());
    }

    #[inline]
    fn is_over(world: &World<'_, A, Self>, at: Time) -> bool {
        let Poisson { settle, measure, .. } = world.load.workload;
        at >= Time::ZERO + settle + measure
    }
}
