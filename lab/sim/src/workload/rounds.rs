use peerlock_types::{PeerId, Rng, Span, Time};

use super::{Over, Workload};
use crate::Rounds;
use crate::actor::{OverlayNote, Routing};
use crate::ledger::Client;
use crate::report::Sheet;
use crate::watch::{Broken, Burden, Exclusion, Fencing, Mark, Memory, PerRound};
use crate::world::World;

/// "With a 50% probability" (§VI).
const RELEASE: f64 = 0.5;

/// Our choice.
const JOIN_AGAIN: Span = Span::from_secs(10);

/// If nearly all peers have waiting clients there may be no victim.
const LOOK_FOR_VICTIM: u32 = 100;

/// The paper can be read both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    Whole,
    /// The load grows with the system.
    PerPeer,
}

#[derive(Debug)]
pub struct InRounds<'r> {
    plan: &'r Rounds,
    started: usize,
    drains: bool,
    joined: Vec<PeerId>,
    peers: Vec<Place>,
    failed: u64,
    came: u64,
    /// Separate streams: the protocol affects neither the requests nor the churn.
    asking: Rng,
    leaving: Rng,
    churn: Rng,
}

#[derive(Clone, Debug, Default)]
struct Place {
    joined: Option<usize>,
    /// The resources its clients wait for or hold, each at most once.
    wants: Vec<usize>,
}

#[derive(Clone, Copy, Debug)]
pub enum ToCome {
    Round,
    /// Of this peer, or of a random one.
    Ask(Option<PeerId>),
    /// Before the first round.
    AskFirst(usize),
    Fail,
    Come,
    JoinAgain(PeerId),
}

impl<'r> InRounds<'r> {
    pub fn new(plan: &'r Rounds, seed: u64) -> Self {
        Self {
            plan,
            started: 0,
            drains: false,
            joined: Vec::new(),
            peers: Vec::new(),
            failed: 0,
            came: 0,
            asking: Rng::stream(seed, 0),
            leaving: Rng::stream(seed, 4),
            churn: Rng::stream(seed, 5),
        }
    }

    fn peer(&mut self, peer: PeerId) -> &mut Place {
        if self.peers.len() <= peer.index() {
            self.peers.resize(peer.index() + 1, Place::default());
        }
        &mut self.peers[peer.index()]
    }

    fn set_joined(&mut self, peer: PeerId, is_joined: bool) {
        let (last, place) = (self.joined.len(), self.peer(peer));
        match (place.joined, is_joined) {
            (None, true) => {
                place.joined = Some(last);
                self.joined.push(peer);
            }
            (Some(at), false) => {
                place.joined = None;
                self.joined.swap_remove(at);
                if let Some(&moved) = self.joined.get(at) {
                    self.peer(moved).joined = Some(at);
                }
            }
            _ => {}
        }
    }
}

fn any(peers: &[PeerId], rng: &mut Rng) -> Option<PeerId> {
    (!peers.is_empty()).then(|| peers[rng.below(peers.len() as u64) as usize])
}

impl<A: Routing> Workload<A> for InRounds<'_> {
    type Event = ToCome;
    type Watch = (Exclusion, Fencing, Memory, PerRound, Burden);
    const SERVES_ALL: bool = true;

    fn start(world: &mut World<'_, A, Self>) -> Result<(), Broken> {
        let plan = world.load.plan;
        // All processes of a run draw the same requests, but each its own releases. With churn, membership is known
        // only locally: each process handles its share of a round's events.
        if let Some(own) = world.own_stream(&world.load.leaving) {
            world.load.leaving = own;
        }
        if plan.churn > 0
            && let Some((asking, churn)) = world.own_stream(&world.load.asking).zip(world.own_stream(&world.load.churn))
        {
            (world.load.asking, world.load.churn) = (asking, churn);
        }
        for peer in (0..world.residents() as u64).map(PeerId::new) {
            let is_known = plan.churn == 0 && world.is_elsewhere(peer);
            let is_joined = is_known || world.actor(peer).is_some_and(|peer| peer.range().is_some());
            world.load.set_joined(peer, is_joined);
            if plan.is_rough() {
                let (timer, every) = A::upkeep();
                let after = world.load.churn.between(Span::ZERO, every);
                world.set_timer(peer, timer, after);
                world.resets_from_now(peer);
            }
        }
        if plan.settle > Span::ZERO {
            for resource in (0..plan.resources).filter(|&number| has_turn(world, number)).collect::<Vec<_>>() {
                world.schedule(Time::ZERO, ToCome::AskFirst(resource));
            }
        }
        world.schedule(Time::ZERO + plan.settle, ToCome::Round);
        Ok(())
    }

    fn happen(world: &mut World<'_, A, Self>, event: ToCome) -> Result<(), Broken> {
        let load = &mut world.load;
        match event {
            ToCome::Round => next_round(world),
            ToCome::Ask(peer) => {
                let Some(peer) = peer.or_else(|| any(&load.joined, &mut load.asking)) else { return Ok(()) };
                match world.thaws(peer) {
                    None => return ask(world, peer),
                    Some(at) => world.schedule(at, ToCome::Ask(Some(peer))),
                }
                Ok(())
            }
            ToCome::AskFirst(resource) => match any(&load.joined, &mut load.asking) {
                Some(peer) => ask_for(world, peer, resource),
                None => Ok(()),
            },
            ToCome::Fail => fail_any(world),
            ToCome::Come => come(world),
            ToCome::JoinAgain(peer) => join(world, peer),
        }
    }

    fn on_entered(world: &mut World<'_, A, Self>, client: &Client) {
        if world.load.drains || world.load.started == 0 {
            world.leave_at(world.now(), client);
        }
    }

    fn on_over(world: &mut World<'_, A, Self>, client: &Client, _over: Over) -> Result<(), Broken> {
        world.load.peer(client.peer).wants.retain(|&resource| resource != client.resource);
        Ok(())
    }

    fn on_down(world: &mut World<'_, A, Self>, peer: PeerId) {
        world.load.set_joined(peer, false);
    }

    fn on_death(world: &mut World<'_, A, Self>, _peer: PeerId) -> Result<(), Broken> {
        come(world)
    }

    fn on_restarted(world: &mut World<'_, A, Self>, peer: PeerId) -> Result<(), Broken> {
        join(world, peer)
    }

    fn on_note(world: &mut World<'_, A, Self>, peer: PeerId, note: OverlayNote) -> Result<(), Broken> {
        match note {
            OverlayNote::Owns(range) => world.load.set_joined(peer, range.is_some()),
            OverlayNote::Undelivered(_) if world.load.plan.is_lenient() => {}
            OverlayNote::Undelivered(key) => {
                return Err(format!("a message to the owner of {key} could not be routed from peer {peer}").into());
            }
        }
        Ok(())
    }

    fn is_over(world: &World<'_, A, Self>, at: Time) -> bool {
        let &Rounds { settle, rounds, round, drain, .. } = world.load.plan;
        at > Time::ZERO + settle + round * rounds as u64 + drain || Self::is_served(world)
    }

    fn is_served(world: &World<'_, A, Self>) -> bool {
        world.load.drains && world.ledger.waiting() == 0 && world.inside.is_empty()
    }

    /// Restarted peers serve as replicas only.
    fn resume(world: &mut World<'_, A, Self>) {
        world.load.drains = true;
        for peer in (0..world.residents() as u64).map(PeerId::new) {
            let is_elsewhere = world.is_elsewhere(peer);
            world.load.set_joined(peer, is_elsewhere);
        }
    }

    fn counts(&self) -> Vec<u64> {
        vec![self.failed, self.came]
    }

    fn add_counts(&mut self, counts: &[u64]) {
        if let [failed, came] = counts {
            self.failed += failed;
            self.came += came;
        }
    }

    fn fill(&self, sheet: &mut Sheet) {
        sheet.numbers.sum("failed", self.failed);
        sheet.numbers.sum("came", self.came);
    }
}

type Swarm<'a, 'r, A> = World<'a, A, InRounds<'r>>;

/// With churn each item of a round belongs to one process, and rotates with every round.
fn has_turn<A: Routing>(world: &Swarm<'_, '_, A>, number: usize) -> bool {
    world.load.plan.churn == 0 || world.has_turn(number + world.load.started)
}

fn next_round<A: Routing>(world: &mut Swarm<'_, '_, A>) -> Result<(), Broken> {
    let (now, plan) = (world.now(), world.load.plan);
    let here: Vec<PeerId> = world.load.joined.iter().copied().filter(|&peer| !world.is_elsewhere(peer)).collect();
    if world.load.started == plan.rounds {
        world.mark(Mark::Drain(&here))?;
        return drain(world);
    }
    world.mark(Mark::Round(&here))?;
    world.load.started += 1;
    world.schedule(now + plan.round, ToCome::Round);

    for client in holders(world) {
        if world.load.leaving.chance(RELEASE) {
            let at = now + moment(&mut world.load.leaving, plan.round);
            world.leave_at(at, &client);
        }
    }
    for number in 0..plan.churn / 2 {
        if !has_turn(world, number) {
            continue;
        }
        for event in [ToCome::Fail, ToCome::Come] {
            let at = now + moment(&mut world.load.churn, plan.round);
            world.schedule(at, event);
        }
    }
    let askers = match plan.load {
        Load::Whole => vec![None],
        Load::PerPeer => world.load.joined.iter().copied().map(Some).collect(),
    };
    for asker in askers {
        for number in 0..plan.requests {
            if asker.is_none() && !has_turn(world, number) {
                continue;
            }
            let at = now + moment(&mut world.load.asking, plan.round);
            world.schedule(at, ToCome::Ask(asker));
        }
    }
    Ok(())
}

fn drain<A: Routing>(world: &mut Swarm<'_, '_, A>) -> Result<(), Broken> {
    world.load.drains = true;
    world.injector.calm_down();
    holders(world).into_iter().try_for_each(|client| world.leave(client.ticket))
}

/// In an order independent of their entry.
fn holders<A: Routing>(world: &Swarm<'_, '_, A>) -> Vec<Client> {
    let mut holders = world.inside.to_vec();
    holders.sort_unstable_by_key(|client| (client.peer, client.ticket));
    holders
}

fn ask<A: Routing>(world: &mut Swarm<'_, '_, A>, peer: PeerId) -> Result<(), Broken> {
    let resource = world.load.asking.below(world.load.plan.resources as u64) as usize;
    if !world.is_there(peer) {
        return Ok(()); // It was present at the beginning of the round.
    }
    if world.load.peer(peer).wants.contains(&resource) {
        return world.mark(Mark::Skipped);
    }
    ask_for(world, peer, resource)
}

fn ask_for<A: Routing>(world: &mut Swarm<'_, '_, A>, peer: PeerId, resource: usize) -> Result<(), Broken> {
    if world.is_there(peer) {
        world.load.peer(peer).wants.push(resource);
    }
    world.ask(peer, resource)
}

/// §VI.C: "Requesters are not churned in our experiments."
fn fail_any<A: Routing>(world: &mut Swarm<'_, '_, A>) -> Result<(), Broken> {
    for _ in 0..LOOK_FOR_VICTIM {
        let victim = any(&world.load.joined, &mut world.load.churn);
        if let Some(peer) = victim.filter(|&peer| world.load.peer(peer).wants.is_empty()) {
            world.load.failed += 1;
            return world.crash(peer);
        }
    }
    Ok(())
}

fn come<A: Routing>(world: &mut Swarm<'_, '_, A>) -> Result<(), Broken> {
    world.load.came += 1;
    let peer = world.add_new();
    world.resets_from_now(peer);
    join(world, peer)
}

fn join<A: Routing>(world: &mut Swarm<'_, '_, A>, peer: PeerId) -> Result<(), Broken> {
    if !world.is_there(peer) || world.load.peer(peer).joined.is_some() {
        return Ok(());
    }
    world.schedule(world.now() + JOIN_AGAIN, ToCome::JoinAgain(peer));
    match any(&world.load.joined, &mut world.load.churn) {
        Some(via) => world.command(peer, via),
        None => Ok(()),
    }
}

/// In the first half of a round: its messages settle in the second.
fn moment(rng: &mut Rng, round: Span) -> Span {
    rng.between(Span::ZERO, round / 2)
}
