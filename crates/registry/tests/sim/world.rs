//! Hosts, clocks, disks, the network and faults, all from one seed.

mod clients;
mod disaster;
mod faults;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::fmt::Write as _;

use peerlock_registry::disk::{Disk as _, Write};
use peerlock_registry::wire::Malformed;
use peerlock_registry::{
    ClusterId, Command, Conf, Identity, Info, Label, Member, Output, Predecessor, Refusal, SessionId, Versions,
    VoterId, election_time, file,
};
use peerlock_types::{PeerId, Rng, Span, Time};

use self::clients::{AdminCommand, Count, Grant};
use crate::disk::FakeDisk;
use crate::setting::Setting;
use crate::watch::{Violation, Watch, stamp};

/// Three election timeouts after the last fault every host must have a session.
const FAULT: Span = Span::from_secs(4);
const QUIET: Span = Span::from_secs(24);
/// All events can arrive.
const JUDGEMENT_CALM: Span = Span::from_secs(1);
const STOP: Span = Span::from_secs(1);
const CLUSTER: ClusterId = ClusterId::new(0xc1);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Wake(usize, u64),
    Bytes {
        from: usize,
        to: usize,
        bytes: Vec<u8>,
    },
    Written(usize, u64, u64),
    Start(usize),
    /// Starts again, perhaps with the next version.
    Stop(usize),
    Off(usize, u64),
    Counted(usize, u64, Count),
    CutOff,
    Disaster,
    Recover,
    Thaw(usize),
    Fail(usize, u64),
    Load(usize),
    Fault,
    /// Separates the hosts with `true` from the others.
    Part(Vec<bool>),
    Quiet,
    Judgement,
}

struct Host {
    member: Option<Member>,
    disk: FakeDisk,
    rate: u64,
    offset: Span,
    process: u64,
    frozen: bool,
    missed: Vec<Event>,
    slow_until: Time,
    disk_busy: Time,
    is_full: bool,
    gone: bool,
    cluster: ClusterId,
    asked: BTreeMap<u64, Command>,
    looks: BTreeMap<u64, (Time, Option<SessionId>)>,
    admin_commands: BTreeMap<u64, AdminCommand>,
    written: Option<(ClusterId, SessionId)>,
    /// The session in which it has queried its grants.
    looked_as: Option<SessionId>,
    grants: BTreeSet<Grant>,
    generations: BTreeMap<Label, u64>,
    /// While it stops: whether it led.
    stopping: Option<bool>,
    is_flipped: bool,
    wakes_at: Time,
}

pub struct World {
    setting: Setting,
    now: Time,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    scheduled: u64,
    hosts: Vec<Host>,
    cut: BTreeSet<(usize, usize)>,
    /// Until then messages to this host are delayed.
    held: (usize, Time, Span),
    wounded: BTreeSet<VoterId>,
    quiet: bool,
    fencing: u64,
    /// Cut off until the other voters are lost.
    survivor: Option<usize>,
    network: Rng,
    faults: Rng,
    load: Rng,
    pub watch: Watch,
    terms: BTreeSet<u64>,
    conf: Conf,
    trace: Option<String>,
}

fn peer(host: usize) -> PeerId {
    PeerId::new(host as u64 + 1)
}

impl World {
    pub fn new(setting: Setting, traced: bool) -> Self {
        let rng = &mut Rng::stream(setting.seed, 2);
        let count = setting.keepers + setting.others;
        let hosts = (0..count)
            .map(|_| Host {
                member: None,
                disk: FakeDisk::default(),
                rate: 1_000_000 - setting.ppm + rng.below(2 * setting.ppm + 1),
                offset: Span::from_secs(rng.below(100)),
                process: 0,
                frozen: false,
                missed: Vec::new(),
                slow_until: Time::ZERO,
                disk_busy: Time::ZERO,
                is_full: false,
                gone: false,
                cluster: CLUSTER,
                asked: BTreeMap::new(),
                looks: BTreeMap::new(),
                looked_as: None,
                grants: BTreeSet::new(),
                generations: BTreeMap::new(),
                admin_commands: BTreeMap::new(),
                written: None,
                stopping: None,
                is_flipped: false,
                wakes_at: Time::END,
            })
            .collect();
        let mut world = Self {
            setting,
            now: Time::ZERO,
            events: BinaryHeap::new(),
            scheduled: 0,
            hosts,
            cut: BTreeSet::new(),
            held: (0, Time::ZERO, Span::ZERO),
            wounded: BTreeSet::new(),
            quiet: false,
            fencing: 0,
            survivor: None,
            network: Rng::stream(setting.seed, 3),
            faults: Rng::stream(setting.seed, 4),
            load: Rng::stream(setting.seed, 5),
            watch: Watch::new(setting.mutation),
            terms: BTreeSet::new(),
            conf: Conf::default(),
            trace: traced.then(String::new),
        };
        for host in 0..count {
            let at = if host == 0 { Time::ZERO } else { Time::ZERO + rng.between(Span::ZERO, Span::from_millis(1500)) };
            world.schedule(at, Event::Start(host));
            world.schedule(at + Span::from_millis(500), Event::Load(host));
        }
        for host in (0..count).filter(|_| setting.upgrades || setting.stops) {
            let at = Time::ZERO + rng.between(FAULT, QUIET);
            world.schedule(at, Event::Stop(host));
        }
        if setting.recovers {
            world.plan_disaster();
        }
        world.schedule(Time::ZERO + FAULT, Event::Fault);
        world.schedule(Time::ZERO + QUIET, Event::Quiet);
        world.schedule(world.judgement(), Event::Judgement);
        world
    }

    fn judgement(&self) -> Time {
        Time::ZERO + QUIET + election_time(&self.setting.config()) * 3
    }

    pub fn run(&mut self) -> Result<(), Violation> {
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            self.now = at;
            self.watch.counts.events += 1;
            if event == Event::Judgement {
                return if self.setting.is_judged { self.judge() } else { Ok(()) };
            }
            self.handle(event)?;
        }
        Ok(())
    }

    pub fn trace(&self) -> &str {
        self.trace.as_deref().unwrap_or_default()
    }

    fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            _ = writeln!(trace, "{} {}", stamp(self.now), text());
        }
    }

    fn schedule(&mut self, at: Time, event: Event) {
        self.scheduled += 1;
        self.events.push(Reverse((at, self.scheduled, event)));
    }

    fn local(&self, host: usize) -> Time {
        let Host { rate, offset, .. } = self.hosts[host];
        Time::ZERO + offset + Span::from_nanos((u128::from(self.now.as_nanos()) * u128::from(rate) / 1_000_000) as u64)
    }

    /// When a host's clock first shows this time.
    fn real(&self, host: usize, local: Time) -> Time {
        let Host { rate, offset, .. } = self.hosts[host];
        let since = local.since(Time::ZERO + offset).as_nanos();
        Time::from_nanos((u128::from(since) * 1_000_000).div_ceil(u128::from(rate)) as u64).max(self.now)
    }

    fn handle(&mut self, event: Event) -> Result<(), Violation> {
        let concerns = match &event {
            Event::Wake(host, process)
            | Event::Written(host, process, _)
            | Event::Fail(host, process)
            | Event::Off(host, process)
            | Event::Counted(host, process, _) => {
                if self.hosts[*host].process != *process {
                    return Ok(());
                }
                Some(*host)
            }
            Event::Bytes { to, .. } => Some(*to),
            Event::Load(host) => Some(*host),
            Event::Start(_)
            | Event::Stop(_)
            | Event::CutOff
            | Event::Disaster
            | Event::Recover
            | Event::Thaw(_)
            | Event::Fault
            | Event::Part(_)
            | Event::Quiet
            | Event::Judgement => None,
        };
        if let Some(host) = concerns.filter(|host| self.hosts[*host].frozen) {
            self.hosts[host].missed.push(event);
            return Ok(());
        }
        match event {
            Event::Start(host) => self.start(host)?,
            Event::Fail(host, _) => self.crash(host),
            Event::Stop(host) => return self.begin_stop(host),
            Event::Off(host, _) => self.end_stop(host),
            Event::Counted(host, _, count) => return self.on_counted(host, count),
            Event::CutOff => self.cut_off(),
            Event::Disaster => self.lose_majority(),
            Event::Recover => return self.recover(),
            Event::Fault => self.begin_fault(),
            Event::Part(with_it) if !self.quiet => self.part(|host| with_it[host]),
            Event::Part(_) => {}
            Event::Quiet => self.make_quiet(),
            Event::Thaw(host) => {
                self.hosts[host].frozen = false;
                for missed in std::mem::take(&mut self.hosts[host].missed) {
                    self.handle(missed)?;
                }
            }
            Event::Wake(host, _) => {
                let now = self.local(host);
                self.hosts[host].wakes_at = Time::END;
                if let Some(member) = &mut self.hosts[host].member {
                    member.wake(now);
                    return self.settle(host);
                }
            }
            Event::Bytes { from, to, bytes } => {
                let now = self.local(to);
                if let Some(member) = &mut self.hosts[to].member {
                    let received = member.on_bytes(peer(from), &bytes, now);
                    // A node with a session ignores it.
                    let has_session = member.client().stands(now).is_some();
                    if let Err(Malformed::Recovered { theirs, .. }) = received
                        && !has_session
                    {
                        self.note(|| format!("{to} learns that the cluster was recovered"));
                        self.stop(to);
                        self.hosts[to].cluster = theirs;
                        return self.start(to);
                    }
                    return self.settle(to);
                }
            }
            Event::Written(host, _, number) => {
                let now = self.local(host);
                self.hosts[host].disk.finish();
                if let Some(member) = &mut self.hosts[host].member {
                    member.on_written(number, now);
                    return self.settle(host);
                }
            }
            Event::Load(host) => return self.make_load(host),
            Event::Judgement => {}
        }
        Ok(())
    }

    fn settle(&mut self, host: usize) -> Result<(), Violation> {
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        for output in member.take_outputs() {
            match output {
                Output::Refused(why) => {
                    self.note(|| format!("{host} is refused: {why}"));
                    if matches!(why, Refusal::Version(_)) {
                        self.stop(host);
                        return self.start(host);
                    }
                }
                Output::Send(to, bytes) => self.send(host, to.get() as usize - 1, bytes),
                Output::Write { number, write } => {
                    if let Write::Replace(bytes) = &write {
                        self.watch.on_file(bytes)?;
                    }
                    self.write(host, number, write);
                }
                Output::Found(number, found) => self.on_result(host, number, found)?,
                Output::Event { resource, session, generation, kind } => {
                    self.on_event(host, resource, session, generation, &kind)?;
                }
                Output::Answered(number, outcome) => self.on_answered(host, number, outcome)?,
            }
        }
        if let Some(session) = self.hosts[host].member.as_ref().and_then(|it| it.client().session()) {
            self.hosts[host].written = Some((self.hosts[host].cluster, session));
        }
        self.look(host)?;
        self.look_for_grants(host)?;
        if self.hosts[host].stopping.is_some() && self.hosts[host].member.as_ref().is_some_and(Member::has_stopped) {
            self.watch.counts.stops += 1;
            self.watch.counts.resigned += u64::from(self.hosts[host].stopping == Some(true));
            self.end_stop(host);
        }
        let Some(member) = &self.hosts[host].member else { return Ok(()) };
        let at = self.real(host, member.next());
        if at < self.hosts[host].wakes_at {
            self.hosts[host].wakes_at = at;
            self.schedule(at, Event::Wake(host, self.hosts[host].process));
        }
        Ok(())
    }

    fn beliefs(&self) -> Vec<(PeerId, u64, SessionId)> {
        let beliefs = (0..self.hosts.len()).filter_map(|host| {
            let session = self.hosts[host].member.as_ref()?.client().stands(self.local(host))?;
            Some((peer(host), self.hosts[host].process, session))
        });
        beliefs.collect()
    }

    fn look(&mut self, host: usize) -> Result<(), Violation> {
        let beliefs = self.beliefs();
        let Some(member) = &self.hosts[host].member else { return Ok(()) };
        if let Some(registry) = member.registry().filter(|registry| registry.is_leader()) {
            let term = registry.term();
            let conf = registry.state().conf();
            if let Some(trace) = &mut self.trace
                && self.conf != *conf
            {
                _ = writeln!(trace, "{} {conf:?}", stamp(self.now));
                self.conf = conf.clone();
            }
            if self.terms.insert(term) {
                self.watch.counts.elections += 1;
                if let Some(trace) = &mut self.trace {
                    _ = writeln!(trace, "{} {host} leads in term {term}", stamp(self.now));
                }
            }
        }
        self.watch.look(self.now, peer(host), member, &beliefs)
    }

    fn send(&mut self, from: usize, to: usize, bytes: Vec<u8>) {
        let is_lost = !self.quiet && self.network.chance(self.setting.loss);
        let copies = 1 + usize::from(!self.quiet && self.network.chance(self.setting.duplication));
        for _ in 0..copies {
            let mut delay = self.network.between(Span::from_nanos(200_000), Span::from_millis(4));
            if !self.quiet && self.network.chance(self.setting.late) {
                delay += self.network.between(Span::ZERO, self.setting.late_by);
            }
            let (held, until, late_by) = self.held;
            if to == held && self.now < until {
                delay += late_by;
            }
            let is_alone = self.survivor.is_some_and(|it| it == from || it == to);
            if !is_lost && !is_alone && !self.cut.contains(&(from, to)) {
                self.note(|| format!("{from} → {to}  {} bytes", bytes.len()));
                self.schedule(self.now + delay, Event::Bytes { from, to, bytes: bytes.clone() });
            }
        }
    }

    fn write(&mut self, host: usize, number: u64, write: Write) {
        self.note(|| format!("{host} writes {number}"));
        self.hosts[host].disk.begin(write);
        if std::mem::take(&mut self.hosts[host].is_full) {
            self.watch.counts.full += 1;
            self.schedule(self.now, Event::Fail(host, self.hosts[host].process));
            return;
        }
        let mut delay = self.network.between(Span::from_nanos(100_000), Span::from_millis(5));
        if self.now < self.hosts[host].slow_until {
            delay += self.network.between(Span::ZERO, Span::from_secs(2));
        }
        let done = self.now.max(self.hosts[host].disk_busy) + delay;
        self.hosts[host].disk_busy = done;
        self.schedule(done, Event::Written(host, self.hosts[host].process, number));
    }

    fn predecessor(&self, host: usize) -> Option<Predecessor> {
        let Host { written, cluster, generations, .. } = &self.hosts[host];
        let (_, session) = (*written).filter(|(of, _)| host < self.setting.keepers && of == cluster)?;
        Some(Predecessor { session, names: generations.keys().take(2).cloned().collect() })
    }

    fn start(&mut self, host: usize) -> Result<(), Violation> {
        if self.hosts[host].gone || self.hosts[host].member.is_some() {
            return Ok(());
        }
        self.hosts[host].process += 1;
        let process = self.hosts[host].process;
        let now = self.local(host);
        let rng = Rng::stream(self.setting.seed, 1000 + host as u64 * 1000 + process);
        let identity = Identity {
            cluster: self.hosts[host].cluster,
            host: peer(host),
            process,
            info: Info {
                name: Label::new(format!("host-{host}")).expect("a short name"),
                addresses: Vec::new(),
                versions: self.versions(host),
                keeps: host < self.setting.keepers,
            },
            ttl: self.setting.ttl(),
            predecessor: self.predecessor(host),
        };
        let config = self.setting.config();
        let contacts: Vec<PeerId> = (0..self.setting.keepers).filter(|it| *it != host).map(peer).collect();
        let file = self.hosts[host].disk.load().expect("a fake disk can be read");
        let is_old = |file: &Vec<u8>| file::cluster_of(file).is_ok_and(|it| self.hosts[host].cluster.follows(it));
        let file = file.filter(|file| !is_old(file));
        let is_founder = host == 0 && process == 1;
        let member = match file {
            _ if is_founder => Member::found(identity, config, rng, now),
            None => Member::new(identity, config, contacts, rng, now),
            Some(file) => match Member::restart(identity.clone(), config, contacts.clone(), &file, rng.clone(), now) {
                Ok(member) if !self.hosts[host].is_flipped => member,
                Ok(_) => return Err(Violation::Unnoticed(peer(host))),
                Err(damage) if !self.hosts[host].is_flipped => {
                    return Err(Violation::Refused(peer(host), damage.to_string()));
                }
                Err(damage) => {
                    self.note(|| format!("{host}: {damage}"));
                    self.hosts[host].disk.lose();
                    Member::new(identity, config, contacts, rng, now)
                }
            },
        };
        self.hosts[host].is_flipped = false;
        self.note(|| format!("{host} starts, process {process}"));
        self.hosts[host].member = Some(member);
        let it = &mut self.hosts[host];
        it.asked.clear();
        it.looks.clear();
        it.grants.clear();
        (it.looked_as, it.stopping) = (None, None);
        self.hosts[host].wakes_at = Time::END;
        self.settle(host)
    }

    fn versions(&self, host: usize) -> Versions {
        Versions { min: 1, max: if self.setting.upgrades && self.hosts[host].process > 1 { 2 } else { 1 } }
    }

    fn begin_stop(&mut self, host: usize) -> Result<(), Violation> {
        let now = self.local(host);
        let Some(member) = &mut self.hosts[host].member else { return Ok(()) };
        let leads = member.registry().is_some_and(|it| it.is_leader() && it.state().conf().voters.len() > 1);
        member.stop(now);
        self.watch.counts.led += u64::from(leads);
        self.note(|| format!("{host} stops"));
        self.hosts[host].stopping = Some(leads);
        self.schedule(self.now + STOP, Event::Off(host, self.hosts[host].process));
        self.settle(host)
    }

    fn end_stop(&mut self, host: usize) {
        self.note(|| format!("{host} has stopped"));
        self.stop(host);
        self.schedule(self.now + Span::from_millis(200), Event::Start(host));
    }

    fn make_quiet(&mut self) {
        self.note(|| "quiet".to_owned());
        self.quiet = true;
        self.cut.clear();
        for host in 0..self.hosts.len() {
            self.hosts[host].slow_until = self.now;
            self.hosts[host].is_full = false;
            if self.hosts[host].frozen {
                self.schedule(self.now, Event::Thaw(host));
            }
            self.schedule(self.now, Event::Start(host));
        }
    }

    fn judge(&mut self) -> Result<(), Violation> {
        for host in (0..self.hosts.len()).filter(|host| !self.hosts[*host].gone) {
            let Some(member) = &self.hosts[host].member else { return Err(Violation::NoSession(peer(host))) };
            if member.client().stands(self.local(host)).is_none() {
                return Err(Violation::NoSession(peer(host)));
            }
        }
        let voters = self.hosts.iter().filter_map(|host| host.member.as_ref()?.registry());
        // There may be no leader, or a former one that has not learned of its successor.
        let leader = voters.max_by_key(|it| (it.is_leader(), it.term(), it.applied()));
        let Some(leader) = leader else { return Err(Violation::Lost("all voters".to_owned())) };
        let beliefs =
            self.hosts.iter().enumerate().filter_map(|(host, it)| {
                it.member.as_ref().and_then(|member| member.client().stands(self.local(host)))
            });
        self.watch.check_deliveries(self.now, leader.state(), &beliefs.collect())?;
        if let Some(chosen) = leader.state().chosen()
            && *chosen != leader.state().voter_hosts().into_iter().collect()
        {
            return Err(Violation::SetVoters(format!("{chosen:?}: {:?}", leader.state().voter_records())));
        }
        let is_healed = |voter: &&VoterId| !leader.state().voter_records().contains_key(voter);
        self.watch.counts.wounds = self.wounded.len() as u64;
        self.watch.counts.healed = self.wounded.iter().filter(is_healed).count() as u64;
        self.watch.look_for_confirmed(leader)
    }
}
