use peerlock_base::{PeerId, Rng, Span, Ticket, Time};
use peerlock_node::{Error, Guard, Routing};

use super::{Over, Workload};
use crate::actor::Whole;
use crate::actor::whole::{Command, Note};
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Watch};
use crate::world::World;

/// Clients of the product's own peers, which come and go for a while; then nothing goes wrong any more, and at every
/// peer one more client asks for each resource.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visits {
    /// How many resources there are.
    pub resources: usize,
    /// The mean time from one client to the next, in the whole cluster; exponential.
    pub gap: Span,
    /// How long a client stays inside on average; exponential.
    pub stay: Span,
    /// When a client at every peer asks for each resource. Peers have found each other by then.
    pub begin: Span,
    /// From then on clients come at random. Resources are founded by then, and known to everybody.
    pub founded: Span,
    /// Nobody comes any more, and nothing goes wrong any more.
    pub end: Span,
    /// Who comes and goes beside clients.
    pub churn: Churn,
    /// At the end everything still works: whoever asks last is let in.
    pub all_works: bool,
}

/// Peers that come and go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Churn {
    /// Membership does not change.
    None,
    /// Now and then one leaves in good order and another comes: the mean time between two.
    Guests(Span),
}

/// How long after the end whoever still waits may take to hear of something: longer than the longest lease, and than
/// anybody is willing to wait.
const PATIENCE: Span = Span::from_secs(100);
/// How long after the end the last clients come: whoever was cut off or frozen is back by then.
const SETTLE: Span = Span::from_secs(60);

/// [`Visits`] at work.
#[derive(Debug)]
pub struct InVisits {
    visits: Visits,
    rng: Rng,
    /// Who is in the cluster.
    joined: Vec<PeerId>,
    /// Who is on the way in.
    starting: Vec<PeerId>,
    /// Who is about to leave.
    leaving: Vec<PeerId>,
    phase: Phase,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Rough,
    Settling,
    /// The last clients have asked.
    Last,
}

#[derive(Debug, Default)]
struct Counts {
    stalled: u64,
    not_acquired: u64,
    stopped: u64,
    served_last: u64,
}

/// What comes next.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    /// This peer joins.
    Join(PeerId),
    /// A client asks for this resource at this peer.
    First(PeerId, usize),
    /// From now on clients differ.
    Founded,
    /// A client asks somewhere for something.
    Visit,
    /// A peer leaves, and another comes.
    Guest,
    /// Nothing goes wrong any more.
    Calm,
    /// The last clients come.
    Last,
}

impl InVisits {
    /// Of each seed others.
    pub fn new(visits: Visits, seed: u64) -> Self {
        let rng = Rng::stream(seed, 0);
        let (joined, starting, leaving) = (Vec::new(), Vec::new(), Vec::new());
        Self { visits, rng, joined, starting, leaving, phase: Phase::Rough, counts: Counts::default() }
    }

    fn any(&mut self, peers: &[PeerId]) -> Option<PeerId> {
        let number = self.rng.below(peers.len().max(1) as u64) as usize;
        peers.get(number).copied()
    }

    /// Those who are in and stay.
    fn staying(&self) -> Vec<PeerId> {
        self.joined.iter().copied().filter(|peer| !self.leaving.contains(peer)).collect()
    }
}

type On<'a, P, O, W> = World<'a, Whole<P, O>, InVisits, W>;

/// Joins a peer that is in, as whoever operates a cluster does; if there is none and nobody else is about to join one,
/// a new cluster begins.
fn join<P: Guard, O: Routing, W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, peer: PeerId) -> Result<(), Broken> {
    let staying = world.load.staying();
    let via = world.load.any(&staying);
    if via.is_none() && world.load.starting.iter().any(|other| *other != peer) {
        world.schedule(world.now() + Span::from_secs(1), Event::Join(peer));
        return Ok(());
    }
    world.load.starting.push(peer);
    world.command(peer, Command::Start(via.into_iter().collect()))
}

fn patience<P: Guard, O: Routing, W: Watch<Whole<P, O>>>(
    world: &mut On<'_, P, O, W>,
    is_patient: bool,
) -> Result<(), Broken> {
    let mut joined = world.load.joined.clone().into_iter();
    joined.try_for_each(|peer| world.command(peer, Command::Patience(is_patient)))
}

/// A peer that is gone, or will not come, is restarted.
fn start_again<P: Guard, O: Routing, W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>) {
    let newcomer = world.add_new();
    world.schedule(world.now(), Event::Join(newcomer));
}

impl<P: Guard, O: Routing> Workload<Whole<P, O>> for InVisits {
    type Event = Event;
    const SERVES_ALL: bool = true;

    fn start<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>) -> Result<(), Broken> {
        let Visits { begin, founded, end, resources, churn, .. } = world.load.visits;
        let peers = world.residents() as u64;
        for peer in (0..peers).map(PeerId::new) {
            let at = Time::ZERO + Span::from_millis(100) * peer.get();
            world.schedule(at, Event::Join(peer));
        }
        for (peer, resource) in (0..peers).flat_map(|peer| (0..resources).map(move |resource| (peer, resource))) {
            world.schedule(Time::ZERO + begin, Event::First(PeerId::new(peer), resource));
        }
        world.schedule(Time::ZERO + founded, Event::Founded);
        world.schedule(Time::ZERO + founded, Event::Visit);
        if churn != Churn::None {
            world.schedule(Time::ZERO + founded, Event::Guest);
        }
        world.schedule(Time::ZERO + end, Event::Calm);
        world.schedule(Time::ZERO + end + SETTLE, Event::Last);
        Ok(())
    }

    fn happen<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, event: Event) -> Result<(), Broken> {
        let Visits { gap, end, resources, churn, .. } = world.load.visits;
        match event {
            Event::Join(peer) => join(world, peer),
            Event::First(peer, resource) => world.ask(peer, resource),
            Event::Founded => patience(world, false),
            Event::Visit => {
                let next = world.now() + world.load.rng.exponential(gap);
                if next < Time::ZERO + end {
                    world.schedule(next, Event::Visit);
                }
                let staying = world.load.staying();
                let resource = world.load.rng.below(resources as u64) as usize;
                match world.load.any(&staying) {
                    // Clients of a frozen peer cannot ask.
                    Some(peer) if world.thaws(peer).is_none() => world.ask(peer, resource),
                    Some(_) | None => Ok(()),
                }
            }
            Event::Guest => {
                let Churn::Guests(every) = churn else { return Ok(()) };
                let next = world.now() + world.load.rng.exponential(every);
                if next < Time::ZERO + end {
                    world.schedule(next, Event::Guest);
                }
                let staying = world.load.staying();
                // One at a time, and never the last two.
                if staying.len() < 3 || !world.load.leaving.is_empty() {
                    return Ok(());
                }
                let Some(peer) = world.load.any(&staying) else { return Ok(()) };
                world.load.leaving.push(peer);
                start_again(world);
                world.command(peer, Command::Leave)
            }
            Event::Calm => {
                world.calm_down();
                world.load.phase = Phase::Settling;
                patience(world, true)
            }
            Event::Last => {
                world.load.phase = Phase::Last;
                for peer in world.load.staying() {
                    for resource in 0..resources {
                        world.ask(peer, resource)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn on_entered<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, client: &Client) {
        let mean = world.load.visits.stay;
        let stay = world.load.rng.exponential(mean);
        world.load.counts.served_last += u64::from(world.load.phase == Phase::Last);
        world.leave_at(world.now() + stay, client);
    }

    fn on_over<W: Watch<Whole<P, O>>>(_: &mut On<'_, P, O, W>, _: &Client, _: Over) -> Result<(), Broken> {
        Ok(())
    }

    /// Everybody has been served or told, or it took too long: then the watchers say who was forgotten.
    fn is_over<W: Watch<Whole<P, O>>>(world: &On<'_, P, O, W>, at: Time) -> bool {
        let last = Time::ZERO + world.load.visits.end + SETTLE;
        let done = world.ledger().waiting() == 0 && world.inside().is_empty();
        world.load.phase == Phase::Last && (done || at > last + PATIENCE)
    }

    fn on_down<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, peer: PeerId) {
        world.load.joined.retain(|joined| *joined != peer);
        world.load.starting.retain(|starting| *starting != peer);
        world.load.leaving.retain(|leaving| *leaving != peer);
    }

    fn on_restarted<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, peer: PeerId) -> Result<(), Broken> {
        join(world, peer)
    }

    fn on_note<W: Watch<Whole<P, O>>>(world: &mut On<'_, P, O, W>, peer: PeerId, note: Note) -> Result<(), Broken> {
        match note {
            Note::Joined => {
                world.load.joined.push(peer);
                world.load.starting.retain(|starting| *starting != peer);
                let is_rough =
                    world.load.phase == Phase::Rough && world.now() >= Time::ZERO + world.load.visits.founded;
                world.command(peer, Command::Patience(!is_rough))?;
            }
            // Whom it should join has gone meanwhile.
            Note::NotJoined => {
                world.crash(peer)?;
                start_again(world);
            }
            Note::Left => world.crash(peer)?,
            Note::Told(ticket, error) => return on_told(world, peer, ticket, &error),
        }
        Ok(())
    }

    fn tell(&self, sheet: &mut Sheet) {
        let Counts { stalled, not_acquired, stopped, served_last } = self.counts;
        sheet.numbers.sum("stalled", stalled);
        sheet.numbers.sum("not acquired", not_acquired);
        sheet.numbers.sum("stopped", stopped);
        sheet.numbers.sum("served last", served_last);
    }
}

/// A client was told why it is not let in, or not inside any more.
fn on_told<P: Guard, O: Routing, W: Watch<Whole<P, O>>>(
    world: &mut On<'_, P, O, W>,
    peer: PeerId,
    ticket: Ticket,
    error: &Error,
) -> Result<(), Broken> {
    let last = Time::ZERO + world.load.visits.end + SETTLE;
    let is_last = world.ledger().get(ticket).is_some_and(|client| client.asked >= last);
    let load = &mut world.load;
    if load.visits.all_works && is_last {
        return Err(format!("peer {peer} sends {ticket:?} away, who was to be served: {error}"));
    }
    match error {
        Error::Stalled { .. } => load.counts.stalled += 1,
        Error::NotAcquired { .. } => load.counts.not_acquired += 1,
        Error::Stopped => load.counts.stopped += 1,
        _ => {}
    }
    Ok(())
}
