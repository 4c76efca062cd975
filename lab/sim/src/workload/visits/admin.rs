use peerlock_types::{PeerId, Rng, Span, Time};

use super::{Event, OFF, On, Visits};
use crate::actor::whole::Command;
use crate::watch::Broken;

#[derive(Clone, Copy, Debug)]
pub enum AdminAction {
    Stop,
    Force,
    Voters,
    Resize,
    Remove,
}

fn every(visits: Visits, what: AdminAction) -> Option<Span> {
    match what {
        AdminAction::Stop => visits.stops,
        AdminAction::Force => visits.forces,
        AdminAction::Voters => visits.voter_changes,
        AdminAction::Resize => visits.resizes.map(|(every, _)| every),
        AdminAction::Remove => visits.removes,
    }
}

fn chance<'a>(world: &'a mut On<'_>, what: AdminAction) -> &'a mut Rng {
    if matches!(what, AdminAction::Remove) { &mut world.load.removals } else { &mut world.load.rng }
}

pub(super) fn begin(world: &mut On<'_>) {
    let all = [AdminAction::Stop, AdminAction::Force, AdminAction::Voters, AdminAction::Resize, AdminAction::Remove];
    all.into_iter().for_each(|what| next(world, what));
}

fn next(world: &mut On<'_>, what: AdminAction) {
    let Visits { begin, end, .. } = world.load.visits;
    let Some(every) = every(world.load.visits, what) else { return };
    let next = world.now().max(Time::ZERO + begin) + chance(world, what).exponential(every);
    if next < Time::ZERO + end {
        world.schedule(next, Event::AdminAction(what));
    }
}

/// Performs an action at a random host, if that is up and not frozen.
pub(super) fn happen(world: &mut On<'_>, what: AdminAction) -> Result<(), Broken> {
    next(world, what);
    let Visits { end, resources, resizes, .. } = world.load.visits;
    let (command, count): (_, fn(&mut super::Counts) -> &mut u64) = match what {
        AdminAction::Stop => (Command::Drain, |counts| &mut counts.stops),
        AdminAction::Resize => {
            let most = resizes.map_or(1, |(_, most)| most);
            let slots = 1 + world.load.rng.below(u64::from(most)) as u32;
            let resource = world.load.rng.below(resources as u64) as usize;
            (Command::Resize(resource, slots), |counts| &mut counts.resizes)
        }
        AdminAction::Remove => {
            let resource = world.load.removals.below(resources as u64) as usize;
            (Command::Remove(resource), |counts| &mut counts.removes)
        }
        AdminAction::Force => {
            let victim = PeerId::new(world.load.rng.below(world.residents() as u64));
            let resource = world.load.rng.below(resources as u64) as usize;
            (Command::Force(resource, victim), |counts| &mut counts.forces)
        }
        AdminAction::Voters => (Command::Voters(chosen(world)), |counts| &mut counts.voter_changes),
    };
    let started = world.load.started.len().max(1) as u64;
    let number = chance(world, what).below(started) as usize;
    let started = world.load.started.get(number).copied();
    let Some(peer) = started.filter(|peer| world.thaws(*peer).is_none()) else { return Ok(()) };
    if matches!(what, AdminAction::Stop) {
        // It takes a while, and must end before the last clients request.
        let is_late = world.now() + OFF > Time::ZERO + end;
        if is_late || world.load.stopping.contains(&peer) {
            return Ok(());
        }
        world.load.stopping.push(peer);
    }
    *count(&mut world.load.counts) += 1;
    world.command(peer, command)
}

/// In any state, with or without a disk; or leaves the choice to the registry.
fn chosen(world: &mut On<'_>) -> Option<Vec<PeerId>> {
    let count = [0, 1, 3, 3, 5][world.load.rng.below(5) as usize];
    let mut hosts: Vec<PeerId> = (0..world.residents() as u64).map(PeerId::new).collect();
    if world.load.visits.careful && (count < 3 || count > hosts.len()) {
        return None;
    }
    while hosts.len() > count.max(1) {
        hosts.swap_remove(world.load.rng.below(hosts.len() as u64) as usize);
    }
    (count > 0).then_some(hosts)
}
