//! Crashes of clients with an end, and of disks with a pending write.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::cell::Cell;

use peerlock_protocols::{Grant, Never};
use peerlock_sim::actor::{Actor, Cx, Effect, Hands, Input};
use peerlock_sim::latency::Model;
use peerlock_sim::watch::{Broken, Exclusion};
use peerlock_sim::workload::{Over, Workload};
use peerlock_sim::{Client, Faults, Links, Setup, Spells, World};
use peerlock_types::{PeerId, Rng, Span, Time};

const REPORTED: Span = Span::from_secs(5);

/// A peer that grants every request at once, with an end, and writes one number after another.
struct Careless(u64);

#[derive(Debug)]
enum Order {
    Renew,
    Write,
}

impl Actor for Careless {
    type Message = Never;
    type Timer = Never;
    type Command = Order;
    /// The last synced number.
    type Note = u64;
    type Disk = u64;
    type Write = u64;
    type Structure = ();
    type Buffers = Vec<Effect<Self>>;
    const REPORTS_ENDS: bool = true;

    fn kind(message: &Never) -> Option<usize> {
        match *message {}
    }

    fn step(&mut self, input: Input<Self>, cx: Cx<'_>, out: &mut Self::Buffers) {
        let until = cx.now + REPORTED;
        match input {
            Input::Request { ticket, .. } => {
                out.push(Effect::Grant { ticket, grant: Grant { slot: 0, fencing: ticket.get() } });
                out.push(Effect::Until { ticket, until });
            }
            Input::Command(Order::Renew) => out.push(Effect::Until { ticket: peerlock_types::Ticket::new(1), until }),
            Input::Command(Order::Write) => out.push(Effect::Write(self.0 + 1)),
            Input::Written => {
                self.0 += 1;
                out.push(Effect::Note(self.0));
                out.push(Effect::Write(self.0 + 1));
            }
            _ => {}
        }
    }

    fn effects(out: &mut Self::Buffers, hands: &mut impl Hands<Self>) -> Result<(), Broken> {
        out.drain(..).try_for_each(|effect| hands.carry_out(effect))
    }

    fn write(disk: &mut u64, write: u64) {
        *disk = write;
    }

    fn tear(disk: &mut u64, write: u64, rng: &mut Rng) {
        if rng.chance(0.5) {
            *disk = write;
        }
    }
}

/// By the second.
#[derive(Clone, Copy, Debug)]
enum Act {
    Ask(u64),
    Leave,
    Renew,
    Crash,
    Write,
}

struct Script<'a> {
    acts: &'a [(u64, Act)],
    until: Span,
    safe: &'a Cell<u64>,
    /// How often an unconfirmed write was on the disk, and how often not.
    found: [u64; 2],
}

impl Workload<Careless> for Script<'_> {
    type Event = Act;
    type Watch = (Exclusion,);
    const SERVES_ALL: bool = true;

    fn start(world: &mut World<'_, Careless, Self>) -> Result<(), Broken> {
        for &(second, act) in world.load.acts {
            world.schedule(Time::ZERO + Span::from_secs(second), act);
        }
        Ok(())
    }

    fn happen(world: &mut World<'_, Careless, Self>, act: Act) -> Result<(), Broken> {
        match act {
            Act::Ask(peer) => world.ask(PeerId::new(peer), 0),
            Act::Leave => world.leave(peerlock_types::Ticket::new(1)),
            Act::Renew => world.command(PeerId::new(0), Order::Renew),
            Act::Crash => world.crash(PeerId::new(0)),
            Act::Write => world.command(PeerId::new(0), Order::Write),
        }
    }

    fn on_entered(_: &mut World<'_, Careless, Self>, _: &Client) {}

    fn on_over(_: &mut World<'_, Careless, Self>, _: &Client, _: Over) -> Result<(), Broken> {
        Ok(())
    }

    fn is_over(world: &World<'_, Careless, Self>, at: Time) -> bool {
        at > Time::ZERO + world.load.until
    }

    fn on_note(world: &mut World<'_, Careless, Self>, _: PeerId, safe: u64) -> Result<(), Broken> {
        world.load.safe.set(safe);
        Ok(())
    }

    fn on_restarted(world: &mut World<'_, Careless, Self>, peer: PeerId) -> Result<(), Broken> {
        let (disk, safe) = (*world.disk(peer), world.load.safe.get());
        if disk != safe && disk != safe + 1 {
            return Err(format!("{safe} was synced, and the disk has {disk}").into());
        }
        world.load.found[usize::from(disk == safe)] += 1;
        world.load.safe.set(disk);
        world.command(peer, Order::Write)
    }
}

fn world<'a>(peers: u64, faults: Faults, script: Script<'a>) -> World<'a, Careless, Script<'a>> {
    let setup = Setup {
        latency: Model::Constant(Span::from_secs(1)).load(2).unwrap().latency(2, 1),
        links: Links::Ordered,
        faults,
        seed: 1,
        is_lenient: true,
        disk: Span::from_millis(100),
        make: Box::new(|_, disk: &u64| Careless(*disk)),
    };
    let mut world = World::new(setup, script, (Exclusion::new(1, 1, false),));
    (0..peers).for_each(|_| _ = world.add_new());
    world
}

/// A client requests at 0 and gets an end at 5 s; then another requests elsewhere.
#[test]
fn client_holds_until_release_or_reported_end() {
    use Act::{Ask, Crash, Leave, Renew};
    for (acts, is_alone) in [
        (&[(4, Ask(1))][..], false),
        (&[(6, Ask(1))], true),
        (&[(2, Leave), (4, Ask(1))], true),
        (&[(3, Renew), (6, Ask(1))], false),
        (&[(3, Renew), (9, Ask(1))], true),
        (&[(1, Crash), (4, Ask(1))], false),
        (&[(1, Crash), (6, Ask(1))], true),
        (&[(1, Crash), (2, Leave), (4, Ask(1))], false),
        (&[(3, Renew), (4, Crash), (7, Ask(1))], false),
        (&[(1, Crash), (3, Renew), (6, Ask(1))], true),
    ] {
        for clocks in [None, Some((Span::from_secs(3), 10_000))] {
            let acts: Vec<(u64, Act)> = [(0, Ask(0))].iter().chain(acts).copied().collect();
            let safe = Cell::new(0);
            let script = Script { acts: &acts, until: Span::from_secs(100), safe: &safe, found: [0; 2] };
            let result = world(2, Faults { clocks, ..Faults::default() }, script).run();
            assert_eq!(result.is_ok(), is_alone, "{acts:?}: {result:?}");
        }
    }
}

#[test]
fn synced_writes_survive_a_crash() {
    let spells = |every, last| Some(Spells { every: Span::from_millis(every), last: Span::from_millis(last) });
    let faults = Faults { crashes: spells(2000, 100), full_disks: spells(5000, 100), ..Faults::default() };
    let safe = Cell::new(0);
    let acts = [(0, Act::Write)];
    let script = Script { acts: &acts, until: Span::from_secs(1000), safe: &safe, found: [0; 2] };
    let mut world = world(1, faults, script);
    assert_eq!(world.run(), Ok(()));
    assert!(safe.get() > 5000 && world.load.found.iter().all(|times| *times > 100), "{:?}", world.load.found);
    assert!(world.sheet(1).numbers.count("disks full") > 50);
}
