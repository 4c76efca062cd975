use peerlock_types::{PeerId, Rng, Span, Time};

use super::{Hold, Over, Workload};
use crate::actor::Actor;
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Watch};
use crate::world::World;

/// The closed think/hold loop: a peer thinks for an exponential time, asks, waits, stays inside, leaves, and thinks
/// again, until it has been inside `entries` times (Fair-K paper, §4).
#[derive(Clone, Debug, PartialEq)]
pub struct Closed {
    /// The mean time between leaving and asking again: 1/λ.
    pub think: Span,
    /// How long a client stays inside.
    pub hold: Hold,
    /// How often each peer goes inside.
    pub entries: u32,
}

/// A [`Closed`] workload at work, for one resource.
#[derive(Debug)]
pub struct ClosedLoop {
    workload: Closed,
    /// How many peers never ask: the first ones.
    servers: usize,
    /// Clients may be sent away.
    is_lenient: bool,
    /// Who is sent away asks again.
    insists: bool,
    /// How many more times each peer will ask.
    to_come: Vec<u32>,
    thinking: usize,
    /// When somebody was last let in.
    progress: Time,
    /// The run is given up when nobody has been let in for this long: much longer than any lease, and than anybody
    /// thinks, stays or is out of reach.
    patience: Span,
    rng: Rng,
}

impl ClosedLoop {
    /// For all peers of a world but the first `servers`; each seed gives another. In a lenient one clients may be sent
    /// away.
    pub fn new(workload: Closed, servers: usize, is_lenient: bool, seed: u64) -> Self {
        // In seconds with a point: whole nanoseconds would overflow with stays of years.
        let patience = Span::from_secs_f64(3600.0 + 100.0 * (workload.think.as_secs_f64() + workload.hold.mean()));
        let (to_come, progress, rng) = (Vec::new(), Time::ZERO, Rng::stream(seed, 0));
        Self { workload, servers, is_lenient, insists: false, to_come, thinking: 0, progress, patience, rng }
    }

    /// Messages take up to `message`, and what goes wrong lasts for `faults` on average: nobody is given up for that.
    pub fn waiting_for(mut self, message: Span, faults: Span) -> Self {
        let patience = Span::from_secs_f64((1000.0 * message.as_secs_f64()).max(100.0 * faults.as_secs_f64()));
        self.patience = self.patience.max(patience);
        self
    }

    /// Who is sent away asks again, until it has been inside as often as it wants. The run is given up when nobody has
    /// been let in for `patience`; whoever is still to come then was not served.
    pub fn insisting(mut self, patience: Span) -> Self {
        (self.insists, self.patience) = (true, patience);
        self
    }

    /// A peer's process begins.
    fn begin<A: Actor, W: Watch<A>>(world: &mut World<'_, A, Self, W>, peer: PeerId) -> Result<(), Broken> {
        let commands = A::begin(peer, world.disk(peer));
        commands.into_iter().try_for_each(|command| world.command(peer, command))
    }

    /// All but the servers go inside as often as is wanted, those who live elsewhere there.
    fn everybody_asks<A: Actor, W: Watch<A>>(world: &mut World<'_, A, Self, W>) {
        let (entries, servers) = (world.load.workload.entries, world.load.servers);
        let is_client = |number: &usize| *number >= servers && !world.is_elsewhere(PeerId::new(*number as u64));
        let to_come = (0..world.residents()).map(|number| if is_client(&number) { entries } else { 0 }).collect();
        world.load.to_come = to_come;
    }

    fn think<A: Actor, W: Watch<A>>(world: &mut World<'_, A, Self, W>, peer: PeerId) {
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
    /// This peer asks.
    type Event = PeerId;
    const SERVES_ALL: bool = true;

    fn start<W: Watch<A>>(world: &mut World<'_, A, Self, W>) -> Result<(), Broken> {
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

    fn happen<W: Watch<A>>(world: &mut World<'_, A, Self, W>, peer: PeerId) -> Result<(), Broken> {
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
    fn on_entered<W: Watch<A>>(world: &mut World<'_, A, Self, W>, client: &Client) {
        world.load.progress = world.now();
        let hold = world.load.workload.hold.sample(&mut world.load.rng);
        world.leave_at(world.now() + hold, client);
    }

    fn on_over<W: Watch<A>>(world: &mut World<'_, A, Self, W>, client: &Client, over: Over) -> Result<(), Broken> {
        match over {
            Over::Lost | Over::Refused if !world.load.is_lenient => {
                return Err(format!("peer {} sends {:?} away, who was to be served", client.peer, client.ticket).into());
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

    fn on_restarted<W: Watch<A>>(world: &mut World<'_, A, Self, W>, peer: PeerId) -> Result<(), Broken> {
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
    fn is_served<W: Watch<A>>(world: &World<'_, A, Self, W>) -> bool {
        world.load.thinking == 0 && world.ledger().waiting() == 0 && world.inside().is_empty()
    }

    fn resume<W: Watch<A>>(world: &mut World<'_, A, Self, W>) {
        if let Some(own) = world.own_stream(&world.load.rng) {
            world.load.rng = own;
        }
        world.load.progress = world.now();
        Self::everybody_asks(world);
    }

    /// Faults never end by themselves, nor do the retries of a protocol that waits for what never comes, nor some
    /// protocols' upkeep.
    #[inline]
    fn is_over<W: Watch<A>>(world: &World<'_, A, Self, W>, at: Time) -> bool {
        let load = &world.load;
        let has_ended = || world.has_come_to_rest() || Self::is_served(world);
        at.since(load.progress) > load.patience || (load.is_lenient && has_ended())
    }
}
