//! Small worlds in text form, such as `peers=3 slots=2 losses=1 ordered`. `PEERLOCK_CASE="…" cargo test -p
//! peerlock-explore --test NAME one_case -- --nocapture` explores any case.

use peerlock_explore::{Counterexample, Explorable, Explored, Limits, Violation, World, explore_with_hope};
use peerlock_protocols::{Quorum, Replicas};
use peerlock_types::{PeerId, Span};

pub use peerlock_explore::Outcome;

/// `own` parses keys specific to a protocol.
pub fn read(text: &str, limits: &mut Limits, mut own: impl FnMut(&str, u32) -> bool) {
    for part in text.split_whitespace() {
        let (key, value) = part.split_once('=').unwrap_or((part, "1"));
        let value: u32 = value.parse().unwrap_or_else(|_| panic!("{part} has no number"));
        if own(key, value) {
            continue;
        }
        match key {
            "slots" => limits.slots = value as usize,
            "requests" => limits.requests = value.into(),
            "clients" => limits.clients = value as usize,
            "withdrawals" => limits.withdrawals = value,
            "losses" => limits.losses = value,
            "duplications" => limits.duplications = value,
            "timeouts" => limits.timeouts = value,
            "longest-timer-ms" => limits.longest_timer = Span::from_millis(value.into()),
            "replicas" => limits.replicas = value as usize,
            "resets" => limits.resets = value,
            "suspicions" => limits.suspicions = value,
            "ordered" => limits.ordered = value == 1,
            "alike" => limits.alike = value == 1,
            "tidy" => limits.tidy = value == 1,
            _ => panic!("{part} is not a key of a case"),
        }
    }
}

pub fn typed(small: &str) -> String {
    std::env::var("PEERLOCK_CASE").unwrap_or(small.into())
}

pub fn holds(case: &str, outcome: Outcome) -> Explored {
    match outcome {
        Ok(explored) => {
            println!("{case}: {explored:?}");
            explored
        }
        Err(found) => panic!(
            "after {} steps:\n\n{found}\n\nTo see it again: PEERLOCK_CASE=\"{case}\" \
             cargo test -p peerlock-explore --test {} one_case\n",
            found.steps,
            env!("CARGO_CRATE_NAME")
        ),
    }
}

pub fn breaks(case: &str, outcome: Outcome) -> Box<Counterexample> {
    match outcome {
        Ok(explored) => panic!("{case}: no violation was found: {explored:?}"),
        Err(found) => {
            println!("{case}, {} steps:\n{found}\n", found.steps);
            found
        }
    }
}

pub fn is_two_inside(found: &Counterexample) {
    assert!(matches!(found.violation, Violation::TooManyHolders { inside: 2, slots: 1 }), "{found}");
}

pub fn is_stuck(found: &Counterexample) {
    assert!(matches!(found.violation, Violation::Stuck(_) | Violation::Hopeless(_)), "{found}");
}

pub fn is_documented(page: &str, explored: &Explored) {
    let Explored { states, steps, .. } = explored;
    let row = format!("| {states} | {steps} |");
    assert!(page.replace(',', "").contains(&row), "{states} states and {steps} steps are not in the table");
}

/// Replicas, then hops without clients, then the clients: `replicas=3 votes=2 hops=1 clients=2`.
pub struct Voting {
    pub text: String,
    pub quorum: Quorum,
    pub hops: u64,
    pub clients: u64,
    /// Each client is the hop of the next one.
    pub in_a_line: bool,
    /// Replica 1 is the hop to replica 0.
    pub by_the_other: bool,
    pub limits: Limits,
    pub reserve: u32,
}

impl Voting {
    pub fn read(text: &str, mut limits: Limits) -> Self {
        let (mut votes, mut hops, mut clients, mut reserve) = (None, 0, 1, 1);
        let (mut in_a_line, mut by_the_other) = (false, false);
        read(text, &mut limits, |key, value| {
            match key {
                "votes" => votes = Some(value),
                "hops" => hops = value.into(),
                "clients" => clients = value.into(),
                "reserve" => reserve = value,
                "in-a-line" => in_a_line = true,
                "by-the-other" => by_the_other = true,
                _ => return false,
            }
            true
        });
        let replicas = limits.replicas as u32;
        let quorum = Quorum::new(replicas, votes.unwrap_or(replicas / 2 + 1));
        limits.replicas += hops as usize;
        Self { text: text.into(), quorum, hops, clients, in_a_line, by_the_other, limits, reserve }
    }

    pub fn world<P: Explorable>(&self, peer: impl Fn(PeerId, &Replicas) -> P) -> World<P> {
        let replicas = Replicas::first(self.quorum);
        self.world_of(|id| peer(id, &replicas))
    }

    pub fn world_of<P: Explorable>(&self, peer: impl Fn(PeerId) -> P) -> World<P> {
        let peers = (0..self.limits.replicas as u64 + self.clients).map(PeerId::new);
        World::new(self.limits, peers.map(|id| (id, peer(id))))
    }

    pub fn explore<P: Explorable>(&self, world: &World<P>, most_states: usize) -> Outcome {
        explore_with_hope(world, most_states, self.reserve)
    }
}
