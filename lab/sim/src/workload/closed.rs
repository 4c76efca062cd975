use peerlock_types::{PeerId, Rng, Span, Time};

use super::{Hold, Over, Workload};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Burden, Exclusion, Fencing, Idle, Messages, Order, Passing, Recovery, Standstill, Waits};
use crate::world::World;

/// The closed think/hold loop, until each peer has had `entries` grants (Fair-K paper, §4).
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// The mean, exponential: 1/λ.
    pub think: Span,
    pub hold: Hold,
    pub entries: u32,
}

#[derive(Debug)]
pub struct ClosedLoop {
    workload: Closed,
    /// The first peers never request.
    servers: usize,
    /// Clients may be refused.
    is_lenient: bool,
    /// Refused clients request again.
    insists: bool,
    to_come: Vec<u32>,
    thinking: usize,
    progress: Time,
    /// The run is given up after this long without a grant: much longer than any lease, think time, hold time or fault.
    patience: Span,
    rng: Rng,
}

impl ClosedLoop {
    pub fn new(workload: Closed, servers: usize, is_lenient: bool, seed: u64) -> Self {
        // In floating-point seconds: nanoseconds would overflow with hold times of years.
        let patience = Span::from_secs_f64(3600.0 + 100.0 * (workload.think.as_secs_f64() + workload.hold.mean()));
        let (to_come, progress, rng) = (Vec::new(), Time::ZERO, Rng::stream(seed, 0));
        Self { workload, servers, is_lenient, insists: false, to_come, thinking: 0, progress, patience, rng }
    }

    /// Extends the patience to delays up to `message` and faults that last for `faults` on average.
    pub fn waiting_for(mut self, message: Span, faults: Span) -> Self {
        let patience = Span::from_secs_f64((1000.0 * message.as_secs_f64()).max(100.0 * faults.as_secs_f64()));
        self.patience = self.patience.max(patience);
        self
    }

    /// Makes refused clients request again. The requests left after `patience` without a grant count as unserved.
    pub fn insisting(mut self, patience: Span) -> Self {
        (self.insists, self.patience) = (true, patience);
        self
    }

    fn begin<A: Actor>(world: &mut World<'_, A, Self>, peer: PeerId) -> Result<(), Broken> {
        let commands = A::begin(peer, world.disk(peer));
        commands.into_iter().try_for_each(|command| world.command(peer, command))
    }

    fn everybody_asks<A: Actor>(world: &mut World<'_, A, Self>) {
        let (entries, servers) = (world.load.workload.entries, world.load.servers);
        let is_client = |number: &usize| *number >= servers && !world.is_elsewhere(PeerId::new(*number as u64));
        let to_come = (0..world.residents()).map(|number| if is_client(&number) { entries } else { 0 }).collect();
        world.load.to_come = to_come;
    }

    fn think<A: Actor>(world: &mut World<'_, A, Self>, peer: PeerId) {
        let (now, load) = (world.now(), &mut world.load);
        let to_come = &mut load.to_come[peer.index()];
        if *to_come > 0 {
            *to_come -= 1;
            load.thinking += 1;
            let think = load.rng.exponential(load.workload.think);
            world.schedule(now + think, peer);
        }
    }
}

impl<A: Actor> Workload<A> for ClosedLoop {
    type Event = PeerId;
    type Watch =
        (Exclusion, Fencing, A::Structure, Passing, Messages, Option<Burden>, Idle, Order, Waits, Recovery, Standstill);
    const SERVES_ALL: bool = true;

    fn start(world: &mut World<'_, A, Self>) -> Result<(), Broken> {
        if let Some(own) = world.own_stream(&world.load.rng) {
            world.load.rng = own;
        }
        Self::everybody_asks(world);
        let servers = world.load.servers;
        for number in 0..world.residents() {
            let peer = PeerId::new(number as u64);
            Self::begin(world, peer)?;
            Self::think(world, peer);
            if number < servers || servers == 0 {
                world.resets_from_now(peer);
            }
        }
        Ok(())
    }

    fn happen(world: &mut World<'_, A, Self>, peer: PeerId) -> Result<(), Broken> {
        match world.thaws(peer) {
            Some(at) => world.schedule(at, peer),
            None => {
                world.load.thinking -= 1;
                return world.ask(peer, 0);
            }
        }
        Ok(())
    }

    #[inline]
    fn on_entered(world: &mut World<'_, A, Self>, client: &Client) {
        world.load.progress = world.now();
        let hold = world.load.workload.hold.sample(&mut world.load.rng);
        world.leave_at(world.now() + hold, client);
    }

    fn on_over(world: &mut World<'_, A, Self>, client: &Client, over: Over) -> Result<(), Broken> {
        match over {
            Over::Lost | Over::Refused if !world.load.is_lenient => {
                return Err(format!("peer {} refuses {:?}, which must be served", client.peer, client.ticket).into());
            }
            Over::Crashed => {}
            Over::Refused if world.load.insists => {
                world.load.to_come[client.peer.index()] += 1;
                Self::think(world, client.peer);
            }
            Over::Left | Over::Lost | Over::Refused | Over::Withdrawn => Self::think(world, client.peer),
        }
        Ok(())
    }

    fn on_restarted(world: &mut World<'_, A, Self>, peer: PeerId) -> Result<(), Broken> {
        Self::begin(world, peer)?;
        Self::think(world, peer);
        Ok(())
    }

    fn fill(&self, sheet: &mut Sheet) {
        if self.insists {
            sheet.harm[0].stuck += self.thinking as u64;
        }
    }

    #[inline]
    fn is_served(world: &World<'_, A, Self>) -> bool {
        world.load.thinking == 0 && world.ledger.waiting() == 0 && world.inside.is_empty()
    }

    fn resume(world: &mut World<'_, A, Self>) {
        if let Some(own) = world.own_stream(&world.load.rng) {
            world.load.rng = own;
        }
        world.load.progress = world.now();
        Self::everybody_asks(world);
    }

    /// Random faults never end by themselves, nor do retries for lost messages and some protocols' maintenance.
    #[inline]
    fn is_over(world: &World<'_, A, Self>, at: Time) -> bool {
        let load = &world.load;
        let has_ended = || world.has_come_to_rest || Self::is_served(world);
        at.since(load.progress) > load.patience || (load.is_lenient && has_ended())
    }
}
