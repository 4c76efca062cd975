mod admin;

use std::collections::BTreeSet;

use peerlock_node::Error;
use peerlock_registry::{Conf, Config, Registry, Versions, VoterId};
use peerlock_types::{PeerId, Rng, Span, Ticket, Time};

pub use self::admin::AdminAction;
use super::{Over, Workload};
use crate::actor::Whole;
use crate::actor::whole::{Command, Note};
use crate::ledger::Client;
use crate::report::{Sheet, counts};
use crate::watch::{Broken, Exclusion, Generations, Mark, Messages, Queued, Standstill};
use crate::world::World;

/// Clients of the product's peers, with faults up to an end. Afterwards every request must be served, and one last
/// client requests each resource at some or all peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Visits {
    pub resources: usize,
    /// The mean time between two clients, in the whole cluster; this and the next are exponential.
    pub gap: Span,
    pub stay: Span,
    /// Zero to start all hosts at once.
    pub apart: Span,
    /// Hosts initially know only the first one.
    pub know_first: bool,
    pub begin: Span,
    /// The end of arrivals and faults.
    pub end: Span,
    /// The mean time between two shutdowns of a host, which is restarted.
    pub stops: Option<Span>,
    /// The mean time, and the largest number of slots.
    pub resizes: Option<(Span, u32)>,
    pub removes: Option<Span>,
    pub forces: Option<Span>,
    pub voter_changes: Option<Span>,
    /// Administrators choose at least three voters: fewer could not lose a host that becomes a voter just then.
    pub careful: bool,
    /// Arrivals pause at this number of waiting clients, so that all can be served in time.
    pub most_waiting: usize,
    /// Spread over all hosts.
    pub last_hosts: u64,
    /// Two hosts, neither of which leads the registry, are finally disconnected for good.
    pub rift: bool,
}

/// All earlier sessions and leases have expired, and every peer has another session.
const SETTLE: Span = Span::from_secs(15);
/// Between two last clients, so that the order of their requests is certain.
const APART: Span = Span::from_millis(1200);
/// Longer than `APART`, so that a queue forms.
const STAY: Span = Span::from_millis(1500);
const PATIENCE: Span = Span::from_secs(60);
const RIFT: Span = Span::from_secs(5);
const COMES: Span = Span::from_secs(2);
const OFF: Span = Span::from_secs(3);

#[derive(Debug)]
pub struct InVisits {
    visits: Visits,
    rng: Rng,
    /// A separate stream, which keeps runs without deletions unchanged.
    removals: Rng,
    started: Vec<PeerId>,
    stopping: Vec<PeerId>,
    /// The clients that have requested since the faults ended.
    patient: BTreeSet<Ticket>,
    last: Time,
    gone: Vec<PeerId>,
    /// Voters whose files were lost, or whose hosts are gone.
    wounded: Vec<VoterId>,
    phase: Phase,
    counts: Counts,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Rough,
    Settling,
    Last,
}

counts!(struct Counts {
    notified: "notified",
    not_acquired: "not acquired",
    stops: "stops",
    deaths: "deaths",
    returned: "returned",
    resumed: "resumed",
    served_last: "served last",
    resizes: "resized",
    removes: "to be removed",
    removed: "removed",
    forces: "forced",
    voter_changes: "voters set",
    rifts: "rifts",
});

#[derive(Clone, Copy, Debug)]
pub enum Event {
    Start(PeerId),
    Visit,
    AdminAction(AdminAction),
    Rift,
    Calm,
    Last(u64),
    /// A client whose process has crashed contacts the next one.
    Resume(PeerId, Ticket),
}

impl InVisits {
    pub fn new(visits: Visits, seed: u64) -> Self {
        Self {
            visits,
            rng: Rng::stream(seed, 0),
            removals: Rng::stream(seed, 95),
            started: Vec::new(),
            stopping: Vec::new(),
            patient: BTreeSet::new(),
            last: Time::END,
            gone: Vec::new(),
            wounded: Vec::new(),
            phase: Phase::Rough,
            counts: Counts::default(),
        }
    }
}

type On<'a> = World<'a, Whole, InVisits>;

fn start(world: &mut On<'_>, peer: PeerId) -> Result<(), Broken> {
    let is_patient = world.load.phase > Phase::Rough;
    let via = if world.load.visits.know_first { 1 } else { world.residents() as u64 };
    let via = (0..via).map(PeerId::new).filter(|other| *other != peer).collect();
    let dir = world.disk(peer).clone();
    world.load.started.push(peer);
    world.command(peer, Command::Start(via, Box::new(dir)))?;
    world.command(peer, Command::Patience(is_patient))
}

/// Returns the voters and learners, if all their files agree, and the voter of this host. A voter that does not know
/// yet that an old majority is obsolete still needs it.
fn voters(world: &On<'_>, peer: PeerId) -> (Conf, Option<VoterId>) {
    let read = |host: PeerId| {
        let file = world.disk(host).registry.as_ref()?;
        Registry::restart(Config::default(), Versions::OURS, file, Rng::new(1), Time::ZERO).ok()
    };
    let files: Vec<Registry> = (0..world.residents() as u64).filter_map(|host| read(PeerId::new(host))).collect();
    let newest = files.iter().max_by_key(|file| file.applied()).map(|file| file.state().conf());
    let agreed = newest.filter(|conf| {
        let mut voters = files.iter().filter(|file| conf.voters.contains(&file.voter()));
        conf.outgoing.is_empty() && voters.all(|file| file.state().conf() == *conf)
    });
    let own = read(peer).map(|file| file.voter());
    (agreed.cloned().unwrap_or_default(), own)
}

fn calm(world: &mut On<'_>) -> Result<(), Broken> {
    world.injector.calm_down();
    world.injector.deliver_all();
    world.load.phase = Phase::Settling;
    for peer in world.load.started.clone() {
        world.command(peer, Command::Patience(true))?;
    }
    let hosts = (0..world.residents() as u64).map(PeerId::new);
    let down: Vec<PeerId> =
        hosts.clone().filter(|peer| !world.is_there(*peer) && !world.load.gone.contains(peer)).collect();
    for peer in down {
        let off = world.load.rng.between(Span::ZERO, OFF);
        world.restart_at(world.now() + off, peer);
    }
    let thawed = hosts.filter_map(|peer| world.thaws(peer)).fold(world.now(), Time::max);
    let last = thawed + SETTLE;
    if world.load.visits.rift {
        world.schedule(thawed + (SETTLE - RIFT), Event::Rift);
    }
    let residents = world.residents() as u64;
    let hosts = world.load.visits.last_hosts.min(residents);
    for place in 0..hosts {
        world.schedule(last + APART * place, Event::Last(place * residents / hosts));
    }
    world.load.last = last + APART * hosts;
    Ok(())
}

fn rift(world: &mut On<'_>) {
    let leads = |peer: &PeerId| world.actor(*peer).and_then(Whole::registry).is_some_and(Registry::is_leader);
    let mut others: Vec<PeerId> = world.load.started.iter().copied().filter(|peer| !leads(peer)).collect();
    if others.len() >= 2 && others.len() < world.load.started.len() {
        others.sort_unstable();
        let [one, other] = [(); 2].map(|()| others.swap_remove(world.load.rng.below(others.len() as u64) as usize));
        world.load.counts.rifts += 1;
        world.injector.rift(one, other);
    }
}

impl Workload<Whole> for InVisits {
    type Event = Event;
    type Watch = (Exclusion, Generations, Queued, Messages, Standstill);
    const SERVES_ALL: bool = true;

    fn start(world: &mut On<'_>) -> Result<(), Broken> {
        let Visits { begin, end, apart, .. } = world.load.visits;
        let hosts = world.residents() as u64;
        for host in 0..hosts {
            world.schedule(Time::ZERO + apart * host, Event::Start(PeerId::new(host)));
        }
        world.schedule(Time::ZERO + begin, Event::Visit);
        admin::begin(world);
        world.schedule(Time::ZERO + end, Event::Calm);
        Ok(())
    }

    fn happen(world: &mut On<'_>, event: Event) -> Result<(), Broken> {
        let Visits { gap, end, resources, most_waiting, .. } = world.load.visits;
        match event {
            // It may have crashed before, and restarted.
            Event::Start(peer) if world.is_there(peer) && !world.load.started.contains(&peer) => start(world, peer),
            Event::Start(_) => Ok(()),
            Event::Visit => {
                let next = world.now() + world.load.rng.exponential(gap);
                if next < Time::ZERO + end {
                    world.schedule(next, Event::Visit);
                }
                let hosts = world.residents() as u64;
                let peer = PeerId::new(world.load.rng.below(hosts));
                let resource = world.load.rng.below(resources as u64) as usize;
                let is_crowded = world.ledger.waiting() >= most_waiting;
                let asks = world.load.started.contains(&peer) && world.thaws(peer).is_none() && !is_crowded;
                if asks { world.ask(peer, resource) } else { Ok(()) }
            }
            Event::AdminAction(what) => admin::happen(world, what),
            Event::Rift => {
                rift(world);
                Ok(())
            }
            Event::Calm => calm(world),
            Event::Resume(peer, ticket) => {
                let is_it = |client: &&Client| client.ticket == ticket && world.is_orphan(ticket);
                let client = world.inside.iter().find(is_it).copied();
                let resource = client.filter(|_| world.load.started.contains(&peer)).map(|client| client.resource);
                resource.map_or(Ok(()), |resource| world.command(peer, Command::Resume(ticket, resource)))
            }
            Event::Last(host) => {
                if world.load.phase < Phase::Last {
                    world.load.phase = Phase::Last;
                    world.mark(Mark::Quiet)?;
                }
                let peer = PeerId::new(host);
                if world.load.gone.contains(&peer) {
                    return Ok(());
                }
                if !world.is_there(peer) {
                    return Err(format!("host {peer} has not come back").into());
                }
                (0..resources).try_for_each(|resource| {
                    let next = world.next_ticket();
                    world.load.patient.insert(next);
                    world.ask(peer, resource)
                })
            }
        }
    }

    fn on_entered(world: &mut On<'_>, client: &Client) {
        let is_last = world.load.phase == Phase::Last;
        let mean = world.load.visits.stay;
        let stay = if is_last { STAY } else { world.load.rng.exponential(mean) };
        world.load.counts.served_last += u64::from(is_last);
        world.leave_at(world.now() + stay, client);
    }

    fn on_over(_: &mut On<'_>, _: &Client, _: Over) -> Result<(), Broken> {
        Ok(())
    }

    /// All are served or notified, or it took too long: then the watchers report the unserved ones.
    fn is_over(world: &On<'_>, at: Time) -> bool {
        let last = world.load.last;
        let done = world.ledger.waiting() == 0 && world.inside.is_empty();
        (at > last && done) || at > last + PATIENCE
    }

    fn on_down(world: &mut On<'_>, peer: PeerId) {
        world.load.started.retain(|started| *started != peer);
        world.load.stopping.retain(|stopping| *stopping != peer);
    }

    /// A majority of the voters' files must survive. So one is lost at a time, and none while the voters change or
    /// before the cluster exists.
    fn may_lose(world: &On<'_>, peer: PeerId) -> bool {
        let (Conf { voters, learners, .. }, own) = voters(world, peer);
        let is_whole = |voter: &VoterId| !world.load.wounded.contains(voter);
        (own.is_none() && !voters.is_empty()) || (voters.len() >= 3 && voters.iter().chain(&learners).all(is_whole))
    }

    fn on_losing(world: &mut On<'_>, peer: PeerId) {
        let (_, own) = voters(world, peer);
        world.load.wounded.extend(own);
    }

    fn on_death(world: &mut On<'_>, peer: PeerId) -> Result<(), Broken> {
        world.load.counts.deaths += 1;
        world.load.gone.push(peer);
        Ok(())
    }

    fn on_restarted(world: &mut On<'_>, peer: PeerId) -> Result<(), Broken> {
        let inside: Vec<Ticket> =
            world.inside.iter().filter(|client| client.peer == peer).map(|client| client.ticket).collect();
        for ticket in inside {
            let (comes, after) = (world.load.rng.chance(0.7), world.load.rng.between(Span::ZERO, COMES));
            if comes {
                world.schedule(world.now() + after, Event::Resume(peer, ticket));
            }
        }
        start(world, peer)
    }

    fn on_note(world: &mut On<'_>, peer: PeerId, note: Note) -> Result<(), Broken> {
        match note {
            Note::Joined | Note::Notice(_) => Ok(()),
            Note::Removed => {
                world.load.counts.removed += 1;
                Ok(())
            }
            Note::Left => {
                world.crash(peer)?;
                let off = world.load.rng.between(Span::ZERO, OFF);
                let off = if world.load.phase == Phase::Rough { off } else { Span::ZERO };
                world.restart_at(world.now() + off, peer);
                Ok(())
            }
            Note::Notified(ticket, error) => on_event(world, peer, ticket, &error),
            Note::Returned(ticket) | Note::Resumed(ticket) => {
                world.adopt(ticket);
                let client = world.inside.iter().find(|client| client.ticket == ticket).copied();
                let load = &mut world.load;
                let is_resumed = matches!(note, Note::Resumed(_));
                *(if is_resumed { &mut load.counts.resumed } else { &mut load.counts.returned }) += 1;
                // Half of the others let the grant expire.
                let leaves = is_resumed || load.rng.chance(0.5);
                let stay = load.rng.exponential(load.visits.stay);
                if let Some(client) = client.filter(|_| leaves) {
                    world.leave_at(world.now() + stay, &client);
                }
                Ok(())
            }
            Note::OtherCluster(error) => Err(format!("host {peer}: the cluster was founded twice: {error}").into()),
        }
    }

    fn fill(&self, sheet: &mut Sheet) {
        self.counts.named().into_iter().for_each(|(name, count)| sheet.numbers.sum(name, count));
        sheet.numbers.most("last came, ms", self.last.since(Time::ZERO).as_nanos() / 1_000_000);
    }
}

fn on_event(world: &mut On<'_>, peer: PeerId, ticket: Ticket, error: &Error) -> Result<(), Broken> {
    if world.load.patient.contains(&ticket) {
        return Err(format!("host {peer} refuses {ticket:?}, which must be served: {error}").into());
    }
    match error {
        Error::NotAcquired { .. } => world.load.counts.not_acquired += 1,
        _ => world.load.counts.notified += 1,
    }
    Ok(())
}
