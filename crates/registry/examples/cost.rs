//! Measures writes to a registry file, compared to bare ones, and the messages until a process has its session.
//!
//! ```sh
//! cargo run -p peerlock-registry --example cost [DIRECTORY]      # the development profile is optimized, too
//! ```

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use peerlock_registry::disk::{Disk as _, FileDisk};
use peerlock_registry::wire::{Question, RegistryMessage};
use peerlock_registry::{
    ClusterId, Command, Config, Effect, Identity, Incarnation, Info, Label, Member, Output, Registry, SessionId, Ttl,
    Versions,
};
use peerlock_types::{PeerId, Rng, Span, Time};

const CLUSTER: ClusterId = ClusterId::new(1 << 70);
const WRITES: u64 = 300;
/// Much longer than all other delays, so that the result counts messages.
const LATENCY: Span = Span::from_millis(400);

fn main() -> io::Result<()> {
    let dir = std::env::args().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = dir.join(format!("peerlock-registry-cost-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    // Alternating, so that the disk is in the same state.
    let rounds: Vec<[f64; 3]> =
        (0..9).map(|_| Ok([bare(&dir)?, registry(&dir, 1)?, registry(&dir, 64)?])).collect::<io::Result<_>>()?;
    let median = |of: fn(&[f64; 3]) -> f64| {
        let mut all: Vec<f64> = rounds.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    println!("128 bytes appended and synced: {:.0} per second", median(|it| it[0]));
    let (single, many) = (median(|it| it[1] / it[0]), median(|it| it[2] / it[0]));
    println!("commands, one after another:   {:.0} per second, {single:.2} times the bare writes", median(|it| it[1]));
    println!("commands, 64 at a time:        {:.0} per second, {many:.1} times the bare writes", median(|it| it[2]));
    let mut alone = (0..9).map(|_| found(&dir)).collect::<io::Result<Vec<f64>>>()?;
    alone.sort_by(f64::total_cmp);
    println!("from creation to a session:    {:.1} ms, and up to 50 ms for the round", alone[alone.len() / 2]);
    fs::remove_dir_all(&dir)?;
    println!("consecutive messages until a new process may use its session: {:.1}", opening());
    Ok(())
}

fn info() -> Info {
    let name = Label::new("host").expect("a short name");
    Info { name, addresses: Vec::new(), versions: Versions::OURS, keeps: true }
}

fn ttl() -> Ttl {
    Ttl::from_millis(15_000).expect("a valid duration")
}

fn bare(dir: &Path) -> io::Result<f64> {
    let mut file = File::create(dir.join("bare"))?;
    let started = Instant::now();
    for _ in 0..WRITES {
        file.write_all(&[7; 128])?;
        file.sync_data()?;
    }
    Ok(WRITES as f64 / started.elapsed().as_secs_f64())
}

fn registry(dir: &Path, at_once: u64) -> io::Result<f64> {
    let host = PeerId::new(1);
    let mut disk = FileDisk::new(dir.join("registry"));
    let mut now = Time::ZERO;
    let mut registry = Registry::found(Config::default(), CLUSTER, host, info(), Rng::new(1), now);
    for _ in 0..60 {
        now = now + Span::from_millis(50);
        registry.tick(now);
        settle(&mut registry, &mut disk, now)?;
    }
    let started = Instant::now();
    let commands = WRITES * at_once.min(8);
    let mut last = None;
    for number in 1..=commands {
        let command = Command::Open {
            host,
            nonce: number,
            incarnation: Incarnation { process: number, opening: 0 },
            ttl: ttl(),
            info: info(),
            voter: None,
            replaces: last,
            takes: Vec::new(),
        };
        last = Some(SessionId::new(number));
        let question = Question::Do(command);
        registry.on_registry_message(host, RegistryMessage::Ask { number, question }, 1, now);
        if number % at_once == 0 {
            settle(&mut registry, &mut disk, now)?;
        }
    }
    settle(&mut registry, &mut disk, now)?;
    assert_eq!(registry.state().sessions().keys().next_back(), last.as_ref(), "every command was applied");
    Ok(commands as f64 / started.elapsed().as_secs_f64())
}

/// Milliseconds of writing from a cluster's creation to its first session.
fn found(dir: &Path) -> io::Result<f64> {
    let mut disk = FileDisk::new(dir.join("founded"));
    let identity =
        Identity { cluster: CLUSTER, host: PeerId::new(1), process: 1, info: info(), ttl: ttl(), predecessor: None };
    let started = Instant::now();
    let mut now = Time::ZERO;
    let mut member = Member::found(identity, Config::default(), Rng::new(1), now);
    while member.client().stands(now).is_none() {
        member.wake(now);
        let mut outputs = member.take_outputs();
        while !outputs.is_empty() {
            for output in outputs {
                if let Output::Write { number, write } = output {
                    disk.write(&write)?;
                    member.on_written(number, now);
                }
            }
            outputs = member.take_outputs();
        }
        now = now + Span::from_millis(50);
    }
    Ok(started.elapsed().as_secs_f64() * 1000.0)
}

fn settle(registry: &mut Registry, disk: &mut FileDisk, now: Time) -> io::Result<()> {
    loop {
        let effects = registry.effects();
        if effects.is_empty() {
            return Ok(());
        }
        for effect in effects {
            if let Effect::Write { number, write } = effect {
                disk.write(&write)?;
                registry.on_written(number, now);
            }
        }
    }
}

enum Event {
    Wake(usize),
    Bytes(usize, usize, Vec<u8>),
}

/// Messages until a new process of a cluster with three voters has its session.
fn opening() -> f64 {
    let mut members: Vec<Member> = Vec::new();
    // Suits such a slow network.
    let config = Config { election_ticks: 200, ..Config::default() };
    let identity = |host: u64| Identity {
        cluster: CLUSTER,
        host: PeerId::new(host),
        process: 1,
        info: info(),
        ttl: ttl(),
        predecessor: None,
    };
    members.push(Member::found(identity(1), config, Rng::new(1), Time::ZERO));
    for host in [2, 3] {
        members.push(Member::new(identity(host), config, vec![PeerId::new(1)], Rng::new(host), Time::ZERO));
    }
    let mut events = BinaryHeap::from([Reverse((Time::ZERO, 0, 0))]);
    let mut bodies = vec![Event::Wake(0)];
    let schedule = |events: &mut BinaryHeap<_>, bodies: &mut Vec<Event>, at: Time, event: Event| {
        bodies.push(event);
        events.push(Reverse((at, bodies.len(), bodies.len() - 1)));
    };
    for host in 1..3 {
        schedule(&mut events, &mut bodies, Time::ZERO, Event::Wake(host));
    }
    let begin = Time::ZERO + Span::from_secs(120);
    while let Some(Reverse((now, _, at))) = events.pop() {
        if now >= begin && members.len() == 3 {
            members.push(Member::new(identity(4), config, vec![PeerId::new(1)], Rng::new(4), now));
            schedule(&mut events, &mut bodies, now, Event::Wake(3));
        }
        let host = match std::mem::replace(&mut bodies[at], Event::Wake(0)) {
            Event::Wake(host) => {
                members[host].wake(now);
                host
            }
            Event::Bytes(from, to, bytes) => {
                _ = members[to].on_bytes(PeerId::new(from as u64 + 1), &bytes, now);
                to
            }
        };
        let mut outputs = members[host].take_outputs();
        while !outputs.is_empty() {
            for output in outputs {
                match output {
                    Output::Send(to, bytes) => {
                        let to = to.get() as usize - 1;
                        schedule(&mut events, &mut bodies, now + LATENCY, Event::Bytes(host, to, bytes));
                    }
                    Output::Write { number, .. } => members[host].on_written(number, now),
                    _ => {}
                }
            }
            outputs = members[host].take_outputs();
        }
        if members.len() == 4 && members[3].client().stands(now).is_some() {
            return now.since(begin).as_secs_f64() / LATENCY.as_secs_f64();
        }
        let next = members[host].next().max(now + Span::from_millis(1));
        schedule(&mut events, &mut bodies, next, Event::Wake(host));
    }
    f64::NAN
}
