//! Fair-K in every order of events, in small worlds.
//!
//! A case that fails prints how to play it alone. The same way explores any other case, for example a larger one:
//! `PEERLOCK_CASE="peers=5 slots=1 requests=2" cargo test -p peerlock-explore --test fair_k one_case --
//! --nocapture`.

use std::fmt;
use std::str::FromStr;

use peerlock_base::PeerId;
use peerlock_explore::{Explored, Limits, Violation, World, explore};
use peerlock_mutex::FairK;
use peerlock_mutex::fair_k::{Config, Layout};

/// More than any case below has; four times as many fit in a gigabyte or two.
const MOST_STATES: usize = 10_000_000;

#[derive(Clone, Copy)]
struct Case {
    peers: u64,
    limits: Limits,
    printed: bool,
}

impl Case {
    /// One request at each peer, our form of Fair-K, unordered links.
    fn new(peers: u64, slots: usize) -> Self {
        Self { peers, limits: Limits::new(slots), printed: false }
    }

    fn requests(self, requests: u64) -> Self {
        Self { limits: Limits { requests, ..self.limits }, ..self }
    }

    fn clients(self, clients: usize) -> Self {
        Self { limits: Limits { clients, ..self.limits }, ..self }
    }

    fn withdrawals(self, withdrawals: u32) -> Self {
        Self { limits: Limits { withdrawals, ..self.limits }, ..self }
    }

    fn ordered(self) -> Self {
        Self { limits: Limits { ordered: true, ..self.limits }, ..self }
    }

    fn printed(self) -> Self {
        Self { printed: true, ..self }
    }

    fn world(&self) -> World<FairK> {
        let layout = Layout::printed(self.peers, self.limits.slots as u32);
        let config = if self.printed { Config::PRINTED } else { Config::REPAIRED };
        let peers = (0..self.peers).map(PeerId::new);
        World::new(self.limits, peers.map(|id| (id, FairK::new(id, &layout, config))))
    }

    /// No order of events breaks anything.
    fn holds(&self) -> Explored {
        match explore(&self.world(), MOST_STATES) {
            Ok(explored) => {
                println!("{self}: {explored:?}");
                explored
            }
            Err(found) => panic!(
                "after {} steps:\n\n{found}\n\nTo see it again: PEERLOCK_CASE=\"{self}\" \
                 cargo test -p peerlock-explore --test fair_k one_case\n",
                found.steps
            ),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { slots, requests, clients, withdrawals, losses, duplications, ordered, .. } = self.limits;
        write!(
            f,
            "peers={} slots={slots} requests={requests} clients={clients} withdrawals={withdrawals}",
            self.peers
        )?;
        write!(f, " losses={losses} duplications={duplications}")?;
        write!(f, "{}{}", if ordered { " ordered" } else { "" }, if self.printed { " printed" } else { "" })
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut case = Self::new(1, 1);
        for word in text.split_whitespace() {
            let (key, value) = word.split_once('=').unwrap_or((word, "1"));
            let value: u32 = value.parse().map_err(|_| format!("{word} has no number"))?;
            match key {
                "peers" => case.peers = value.into(),
                "slots" => case.limits.slots = value as usize,
                "requests" => case.limits.requests = value.into(),
                "clients" => case.limits.clients = value as usize,
                "withdrawals" => case.limits.withdrawals = value,
                "losses" => case.limits.losses = value,
                "duplications" => case.limits.duplications = value,
                "ordered" => case.limits.ordered = true,
                "printed" => case.printed = true,
                _ => return Err(format!("{word} is no part of a case")),
            }
        }
        Ok(case)
    }
}

/// The case in `PEERLOCK_CASE`, or a small one.
#[test]
fn one_case() {
    let case = std::env::var("PEERLOCK_CASE").unwrap_or("peers=2 slots=1 requests=2".into());
    case.parse::<Case>().unwrap().holds();
}

#[test]
fn a_case_can_be_typed_as_it_is_printed() {
    let text = "peers=3 slots=2 requests=4 clients=2 withdrawals=1 losses=0 duplications=1 ordered printed";
    assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
    assert!("peers=many".parse::<Case>().is_err());
    assert!("pears=3".parse::<Case>().is_err());
}

#[test]
fn four_peers_with_two_requests_each() {
    for slots in 1..=3 {
        let case = Case::new(4, slots).requests(2);
        for case in [case, case.printed(), case.ordered(), case.ordered().printed()] {
            case.holds();
        }
    }
}

#[test]
fn five_and_six_peers() {
    Case::new(6, 2).holds();
    Case::new(6, 3).holds();
    Case::new(5, 1).printed().holds();
    Case::new(5, 2).printed().holds();
    Case::new(5, 3).printed().holds();
}

#[test]
fn several_clients_at_one_peer() {
    for case in [Case::new(3, 1), Case::new(3, 2), Case::new(3, 1).printed(), Case::new(3, 2).printed()] {
        case.requests(2).clients(2).holds();
    }
    Case::new(3, 1).requests(3).clients(3).holds();
    Case::new(3, 1).requests(3).clients(3).printed().ordered().holds();
    Case::new(4, 1).requests(2).clients(2).ordered().holds();
}

#[test]
fn withdrawals() {
    for slots in [1, 2] {
        let one = Case::new(4, slots).withdrawals(4);
        let again = Case::new(3, slots).requests(2).withdrawals(6);
        let side_by_side = Case::new(3, slots).requests(2).clients(2).withdrawals(1);
        for case in [one, one.printed(), again, again.printed(), side_by_side, side_by_side.printed()] {
            case.holds();
        }
    }
}

#[test]
fn more_slots_than_peers() {
    for (peers, slots) in [(1, 3), (2, 3), (2, 5), (3, 4)] {
        let case = Case::new(peers, slots).requests(2).clients(2).withdrawals(1);
        case.holds();
        case.printed().holds();
    }
    Case::new(2, 3).requests(4).clients(4).holds();
}

#[test]
fn one_peer_alone() {
    Case::new(1, 1).requests(4).clients(3).withdrawals(2).holds();
    Case::new(1, 2).requests(4).clients(4).withdrawals(2).holds();
}

/// §3.1 asks for links that neither lose nor duplicate messages; this is what happens without.
#[test]
fn a_network_that_loses_or_duplicates_is_not_enough() {
    let broken = |case: Case| explore(&case.world(), MOST_STATES).unwrap_err().violation;
    let mut losing = Case::new(2, 1);
    losing.limits.losses = 1;
    let mut duplicating = Case::new(2, 1);
    duplicating.limits.duplications = 1;

    assert!(matches!(broken(losing), Violation::Tokens { found: 0, expected: 1 }));
    assert!(matches!(broken(duplicating), Violation::Tokens { found: 2, expected: 1 }));
}
