//! A given run, followed by an exploration from its end, for states too far from the start to search.

use peerlock_explore::{Action, Counterexample, Explorable, Explored, Packet, Trace, World};
use peerlock_protocols::Effect;
use peerlock_types::{PeerId, Ticket};

pub struct Stage<P: Explorable> {
    pub world: World<P>,
    pub trace: Trace,
}

impl<P: Explorable> Stage<P> {
    pub fn new(world: World<P>) -> Self {
        Self { world, trace: Trace::default() }
    }

    fn step(&mut self, action: &Action<P::Timer>) {
        let mut effects: Vec<Effect<P::Message, P::Timer>> = Vec::new();
        let violation = self.trace.step(&mut self.world, action, &mut effects);
        assert_eq!(violation, None, "a stage must have no violation:\n{}", self.trace);
    }

    fn find(&self, from: u64, to: u64, kind: &str) -> usize {
        let (from, to) = (PeerId::new(from), PeerId::new(to));
        let is_it = |packet: &Packet<P::Message>| {
            packet.from == from && packet.to == to && P::KINDS[P::kind(&packet.message)] == kind
        };
        self.world.packets().position(is_it).unwrap_or_else(|| panic!("no {kind} from {from} to {to}:\n{}", self.trace))
    }

    pub fn request(&mut self, peer: u64) {
        self.step(&Action::Request(peer as usize));
    }

    pub fn withdraw(&mut self, peer: u64, ticket: u64) {
        self.step(&Action::Withdraw(peer as usize, Ticket::new(ticket)));
    }

    pub fn deliver(&mut self, from: u64, to: u64, kind: &str) {
        self.step(&Action::Deliver(self.find(from, to, kind)));
    }

    pub fn lose(&mut self, from: u64, to: u64, kind: &str) {
        self.step(&Action::Lose(self.find(from, to, kind)));
    }

    pub fn duplicate(&mut self, from: u64, to: u64, kind: &str) {
        self.step(&Action::Duplicate(self.find(from, to, kind)));
    }

    pub fn wake(&mut self, peer: u64) {
        let mut actions = Vec::new();
        self.world.actions(&mut actions);
        let timer = actions.into_iter().find(|action| matches!(action, Action::Fire(at, _) if *at as u64 == peer));
        self.step(&timer.expect("a timer of that peer is pending"));
    }

    pub fn reset(&mut self, peer: u64) {
        self.step(&Action::Reset(peer as usize));
    }

    pub fn pass(&mut self) {
        let mut actions = Vec::new();
        self.world.actions(&mut actions);
        assert!(actions.contains(&Action::Pass), "a timer is due, or no time is left:\n{}", self.trace);
        self.step(&Action::Pass);
    }

    /// Expires all timers of these peers that are due.
    pub fn fire(&mut self, peers: impl IntoIterator<Item = u64>) {
        for peer in peers {
            let mut actions = Vec::new();
            self.world.actions(&mut actions);
            let due = |action: &&Action<P::Timer>| matches!(action, Action::Fire(at, _) if *at as u64 == peer);
            actions.iter().filter(due).for_each(|action| self.step(action));
        }
    }

    pub fn holds(&self, outcome: Result<Explored, Box<Counterexample>>) -> Explored {
        match outcome {
            Ok(explored) => {
                println!("{}--- from here on: {explored:?}", self.trace);
                explored
            }
            Err(found) => panic!("{}--- from here on: {} steps\n{found}\n", self.trace, found.steps),
        }
    }

    pub fn breaks(&self, outcome: Result<Explored, Box<Counterexample>>) -> Box<Counterexample> {
        match outcome {
            Ok(explored) => panic!("{}--- from here on no violation was found: {explored:?}", self.trace),
            Err(found) => {
                println!("{}--- from here on: {} steps\n{found}\n", self.trace, found.steps);
                found
            }
        }
    }

    pub fn lose_all(&mut self) {
        self.world.forget_messages();
        self.trace.push("… and all messages under way are lost");
    }
}
