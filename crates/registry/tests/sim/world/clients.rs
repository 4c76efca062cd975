use peerlock_registry::{
    Command, EventKind, Found, Label, Look, MOST_ON_PAGE, Opening, Outcome, RunEnd, SessionId, Ttl,
};
use peerlock_types::{PeerId, Span};

use super::{Event, JUDGEMENT_CALM, World, peer};
use crate::watch::Violation;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Count {
    resource: Label,
    session: SessionId,
    generation: u64,
    remaining: Vec<SessionId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdminCommand {
    Resize(u32),
    Evict(u64),
    TakeBack(u64),
    SetVoters(Option<Vec<PeerId>>),
    Forget(PeerId),
}

pub(super) type Grant = (Label, u32, u64);

impl World {
    pub(super) fn make_load(&mut self, host: usize) -> Result<(), Violation> {
        let pause = self.load.exponential(Span::from_millis(700));
        self.schedule(self.now + pause, Event::Load(host));
        let now = self.local(host);
        let draw = self.load.below(100);
        let resource = Label::new(["a", "b", "c"][self.load.below(3) as usize]).expect("a short name");
        let slots = 1 + self.load.below(3) as u32;
        let pick = self.load.bits();
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        let Some(session) = member.client().stands(now) else { return Ok(()) };
        let it = &self.hosts[host];
        let generation = it.generations.get(&resource).copied().unwrap_or(1);
        let grants = it.grants.len().max(1) as u64;
        let grant = it.grants.iter().nth((pick % grants) as usize).cloned();
        let ttl = Ttl::from_millis(1000 + pick % 9000).expect("a valid duration");
        let note = resource.clone();
        let command = match (draw, grant) {
            (0..35, _) => Command::Join { session, resource, slots },
            (35..50, _) => {
                self.fencing += 1;
                let fencing = (generation << 32) + self.fencing;
                let run = (pick & 3 == 0).then_some(RunEnd { succeeded: pick & 4 == 0, attempts: 2, at: pick % 99 });
                Command::Detach { session, resource, slot: (pick % 2) as u32, fencing, ttl, note, run }
            }
            (50..58, Some((resource, slot, fencing))) => {
                Command::Detach { session, resource, slot, fencing, ttl, note, run: None }
            }
            (58..68, Some((resource, _, fencing))) => Command::DropDetached { session, resource, fencing },
            (68..72, _) => return self.look_for(host, AdminCommand::Resize(slots), Look::Resource(resource)),
            (72..75, _) => Command::Renumber { resource, generation },
            (75..78, _) => Command::Close { session, resource, generation, remaining: Vec::new() },
            (78..80, _) => return self.look_for(host, AdminCommand::Evict(pick), Look::Resource(resource)),
            (80..82, _) => return self.look_for(host, AdminCommand::TakeBack(pick), Look::Resource(resource)),
            (82..85, _) => return self.look_at(host, Look::Cluster),
            (85..87, _) if !self.quiet => {
                let member = self.hosts[host].member.as_mut().expect("it was there");
                member.leave(now);
                return self.settle(host);
            }
            (87..92, _) if !self.quiet && self.setting.chooses => {
                let keepers = self.setting.keepers as u64;
                let chosen = (0..1 + pick % 3).map(|turn| peer(((pick >> 8) + turn).rem_euclid(keepers) as usize));
                let wanted = AdminCommand::SetVoters((pick & 128 == 0).then(|| chosen.collect()));
                return self.look_for(host, wanted, Look::Hosts(Vec::new()));
            }
            (92..95, _) => Command::Quit { session, resource, generation },
            (95..97, _) => {
                let absent = AdminCommand::Forget(peer((pick % self.hosts.len() as u64) as usize));
                return self.look_for(host, absent, Look::Hosts(Vec::new()));
            }
            _ => return Ok(()),
        };
        self.ask(host, command)
    }

    fn ask(&mut self, host: usize, command: Command) -> Result<(), Violation> {
        // Later events could not arrive before the end.
        if self.now + JUDGEMENT_CALM >= self.judgement() {
            return Ok(());
        }
        let now = self.local(host);
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        let number = member.ask(command.clone(), now);
        self.hosts[host].asked.insert(number, command);
        self.settle(host)
    }

    fn look_at(&mut self, host: usize, look: Look) -> Result<(), Violation> {
        let now = self.local(host);
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        let session = member.client().stands(now);
        let number = member.look(look, now);
        self.hosts[host].looks.insert(number, (self.now, session));
        self.settle(host)
    }

    fn look_for(&mut self, host: usize, wanted: AdminCommand, look: Look) -> Result<(), Violation> {
        let now = self.local(host);
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        let number = member.look(look, now);
        self.hosts[host].admin_commands.insert(number, wanted);
        self.settle(host)
    }

    fn on_admin_query(&mut self, host: usize, wanted: AdminCommand, found: Found) -> Result<(), Violation> {
        let command = match (wanted, found) {
            (AdminCommand::SetVoters(hosts), Found::Cluster(view)) => {
                Some(Command::SetVoters { hosts, after: view.choices })
            }
            (AdminCommand::Forget(host), Found::Cluster(view)) => Some(Command::Forget { host, after: view.choices }),
            (wanted, Found::Resources(page)) => page.resources.first().and_then(|found| {
                let (resource, generation) = (found.name.clone(), found.generation);
                let of = |pick: u64, count: usize| (pick % count.max(1) as u64) as usize;
                match wanted {
                    AdminCommand::Resize(slots) => Some(Command::Resize { resource, slots, generation }),
                    AdminCommand::Evict(pick) => {
                        let party = found.parties.get(of(pick, found.parties.len()))?;
                        Some(Command::Evict { resource, session: party.session, since: party.since })
                    }
                    AdminCommand::TakeBack(pick) => {
                        let grant = found.detached.get(of(pick, found.detached.len()))?;
                        Some(Command::TakeBack { resource, fencing: grant.fencing, session: grant.session })
                    }
                    AdminCommand::SetVoters(_) | AdminCommand::Forget(_) => None,
                }
            }),
            (_, Found::Cluster(_)) => None,
        };
        command.map_or(Ok(()), |command| self.ask(host, command))
    }

    pub(super) fn look_for_grants(&mut self, host: usize) -> Result<(), Violation> {
        let session = self.hosts[host].member.as_ref().and_then(|it| it.client().stands(self.local(host)));
        if session.is_none() || self.hosts[host].looked_as == session {
            return Ok(());
        }
        self.hosts[host].looked_as = session;
        self.look_at(
            host,
            Look::Resources { prefix: None, after: None, most: MOST_ON_PAGE, granted_by: Some(peer(host)) },
        )
    }

    pub(super) fn on_result(&mut self, host: usize, number: u64, found: Found) -> Result<(), Violation> {
        if let Some(wanted) = self.hosts[host].admin_commands.remove(&number) {
            return self.on_admin_query(host, wanted, found);
        }
        let Some((asked, asked_as)) = self.hosts[host].looks.remove(&number) else { return Ok(()) };
        match found {
            Found::Cluster(view) => self.watch.on_view(peer(host), asked_as, &view),
            Found::Resources(page) => {
                let grants = page.resources.iter().flat_map(|it| it.detached.iter().map(|grant| (&it.name, grant)));
                let own = grants.filter(|(_, grant)| grant.host == peer(host));
                self.hosts[host].grants = own.map(|(name, grant)| (name.clone(), grant.slot, grant.fencing)).collect();
                self.watch.on_grants(peer(host), asked, &page)
            }
        }
    }

    /// A coordinator takes a random time for the census, and sometimes never completes it.
    pub(super) fn on_event(
        &mut self,
        host: usize,
        resource: Label,
        session: SessionId,
        generation: u64,
        kind: &EventKind,
    ) -> Result<(), Violation> {
        self.note(|| format!("{host} receives an event of {resource}, generation {generation}: {kind:?}"));
        let is_new = self.watch.on_event(self.now, peer(host), &resource, session, generation, kind)?;
        self.hosts[host].generations.insert(resource.clone(), generation);
        if matches!(kind, EventKind::Opened { .. }) {
            self.watch.on_opened(generation, &self.beliefs())?;
        }
        if let EventKind::Opened { asked, .. } = kind
            && is_new
            && self.load.chance(0.8)
        {
            let remaining =
                asked.iter().map(|it| SessionId::new(it.number)).filter(|_| self.load.chance(0.5)).collect();
            let count = Count { resource, session, generation, remaining };
            let at = self.now + self.load.exponential(Span::from_millis(300));
            self.schedule(at, Event::Counted(host, self.hosts[host].process, count));
        }
        Ok(())
    }

    pub(super) fn on_counted(&mut self, host: usize, count: Count) -> Result<(), Violation> {
        let Count { resource, session, generation, remaining } = count;
        let stands = self.hosts[host].member.as_ref().and_then(|it| it.client().stands(self.local(host)));
        if stands != Some(session) {
            return Ok(());
        }
        self.ask(host, Command::Close { session, resource, generation, remaining })
    }

    pub(super) fn on_answered(&mut self, host: usize, number: u64, outcome: Outcome) -> Result<(), Violation> {
        self.note(|| format!("{host} receives {outcome:?}"));
        let Some(command) = self.hosts[host].asked.remove(&number) else { return Ok(()) };
        let it = &mut self.hosts[host];
        match (&command, &outcome) {
            (Command::Join { resource, .. }, Outcome::Joined { generation, .. }) => {
                it.generations.insert(resource.clone(), *generation);
            }
            (Command::Detach { resource, slot, fencing, .. }, Outcome::Done) => {
                it.grants.insert((resource.clone(), *slot, *fencing));
            }
            (Command::DropDetached { resource, fencing, .. }, Outcome::Done) => {
                it.grants.retain(|(name, _, number)| (name, number) != (resource, fencing));
            }
            _ => {}
        }
        let is_left =
            matches!((&command, &outcome), (Command::Quit { .. }, Outcome::Advanced(it)) if it.coordinator.is_none());
        self.watch.on_answer(self.now, peer(host), command, outcome.clone());
        match outcome {
            Outcome::Advanced(Opening { resource, generation, .. }) if is_left => {
                self.ask(host, Command::Remove { resource, generation })
            }
            _ => Ok(()),
        }
    }
}
