//! Fair-K with late binding in every order of events, in small worlds.
//!
//! A case that fails prints how to play it alone. The same way explores any other case, for example a larger one:
//! `PEERLOCK_CASE="peers=4 slots=2 requests=2 term=1" cargo test -p peerlock-explore --test fair_k_late one_case --
//! --nocapture`.
//!
//! **Size.** A hand-over sends three messages that nobody waits for one by one (`token`, `left`, `next`), and in an
//! unordered world each may stay under way until the end: that, not the peers' own states, is what makes these worlds
//! large. With the role moving at every entry, word of it is under way as well.
//!
//! **No run without end.** `stay`, `turn`, `report` and `epoch` only grow, so that no state can come back and a run
//! without end would not be a cycle. It would be a world with infinitely many states, though: an exploration that comes
//! to its end at all has shown that there is none.

use std::fmt;
use std::str::FromStr;

use peerlock_base::PeerId;
use peerlock_explore::{Explored, Limits, World, explore};
use peerlock_mutex::FairKLate;
use peerlock_mutex::fair_k_late::Config;
use peerlock_mutex::token::Layout;

/// More than any case below has.
const MOST_STATES: usize = 10_000_000;

/// A term after which the coordinator's role never moves in worlds as small as these.
const NEVER: u32 = 1000;

#[derive(Clone, Copy)]
struct Case {
    peers: u64,
    limits: Limits,
    config: Config,
}

impl Case {
    /// One request at each peer, unordered links, one coordinator for good.
    fn new(peers: u64, slots: usize) -> Self {
        Self { peers, limits: Limits::new(slots), config: Config { term: NEVER, ..Config::default() } }
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

    fn departures(self, retirements: u32, suspicions: u32) -> Self {
        Self { limits: Limits { retirements, suspicions, ..self.limits }, ..self }
    }

    fn returns(self, returns: u32) -> Self {
        Self { limits: Limits { returns, ..self.limits }, ..self }
    }

    fn ordered(self) -> Self {
        Self { limits: Limits { ordered: true, ..self.limits }, ..self }
    }

    /// The coordinator's role moves after every entry.
    fn moving(self) -> Self {
        Self { config: Config { term: 1, ..self.config }, ..self }
    }

    /// Who comes next is said ahead for this many hand-overs.
    fn reach(self, reach: u32) -> Self {
        Self { config: Config { reach, ..self.config }, ..self }
    }

    fn world(&self) -> World<FairKLate> {
        let layout = Layout::printed(self.peers, self.limits.slots as u32);
        let peers = (0..self.peers).map(PeerId::new);
        World::new(self.limits, peers.map(|id| (id, FairKLate::new(id, &layout, self.config))))
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
                 cargo test -p peerlock-explore --test fair_k_late one_case\n",
                found.steps
            ),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { slots, requests, clients, withdrawals, retirements, suspicions, returns, ordered, .. } =
            self.limits;
        write!(f, "peers={} slots={slots} requests={requests} clients={clients}", self.peers)?;
        write!(f, " withdrawals={withdrawals} retirements={retirements} suspicions={suspicions}")?;
        write!(f, " returns={returns} term={}", self.config.term)?;
        if self.config.reach != Config::default().reach {
            write!(f, " reach={}", self.config.reach)?;
        }
        write!(f, "{}", if ordered { " ordered" } else { "" })
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
                "retirements" => case.limits.retirements = value,
                "suspicions" => case.limits.suspicions = value,
                "returns" => case.limits.returns = value,
                "term" => case.config.term = value,
                "reach" => case.config.reach = value,
                "ordered" => case.limits.ordered = true,
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
    let text = "peers=3 slots=2 requests=4 clients=2 withdrawals=1 retirements=2 suspicions=1 returns=1 term=1 reach=2 \
                ordered";
    assert_eq!(text.parse::<Case>().unwrap().to_string(), text);
    assert!("peers=many".parse::<Case>().is_err());
    assert!("pears=3".parse::<Case>().is_err());
}

#[test]
fn two_and_three_peers() {
    for slots in [1, 2] {
        let case = Case::new(2, slots).requests(2).clients(2);
        for case in [case, case.moving(), case.ordered(), case.ordered().moving()] {
            case.holds();
        }
        let case = Case::new(3, slots);
        for case in [case, case.moving(), case.ordered(), case.ordered().moving()] {
            case.holds();
        }
    }
    Case::new(3, 3).moving().holds();
    Case::new(3, 1).requests(2).holds();
    Case::new(3, 1).requests(2).ordered().moving().holds();
    Case::new(3, 1).requests(2).clients(2).ordered().holds();
}

#[test]
fn four_peers() {
    Case::new(4, 1).holds();
    Case::new(4, 1).ordered().moving().holds();
    Case::new(4, 2).ordered().holds();
}

#[test]
fn withdrawals() {
    for slots in [1, 2] {
        Case::new(2, slots).requests(2).withdrawals(4).holds();
        Case::new(2, slots).requests(2).clients(2).withdrawals(1).ordered().moving().holds();
        Case::new(3, slots).withdrawals(2).holds();
    }
    Case::new(2, 1).requests(2).withdrawals(1).moving().holds();
    Case::new(3, 1).withdrawals(1).moving().holds();
    Case::new(3, 2).withdrawals(1).ordered().moving().holds();
}

/// Who comes next is said so little ahead that the token comes to the end of it, with others behind.
#[test]
fn little_is_said_ahead() {
    for reach in [1, 2] {
        Case::new(4, 1).reach(reach).ordered().holds();
        Case::new(3, 1).requests(2).reach(reach).ordered().holds();
        Case::new(2, 1).requests(3).clients(2).withdrawals(1).reach(reach).ordered().holds();
        Case::new(2, 1).requests(2).clients(2).withdrawals(1).reach(reach).holds();
        Case::new(3, 1).withdrawals(2).reach(reach).holds();
        Case::new(3, 1).withdrawals(1).reach(reach).moving().holds();
        Case::new(3, 1).withdrawals(1).departures(1, 1).reach(reach).ordered().holds();
    }
}

/// Whoever leaves for good takes neither a token nor the role along, and gets in nobody's way.
///
/// On ordered links, as real ones are. Where messages overtake each other, a token can go to and fro between a holder
/// and a former client of the one who left, for as long as word of the first time is under way.
#[test]
fn retirements() {
    for slots in [1, 2] {
        let case = Case::new(2, slots).requests(2).departures(1, 0).ordered();
        for case in [case, case.moving(), case.withdrawals(1), case.moving().withdrawals(1)] {
            case.holds();
        }
        Case::new(3, slots).departures(1, 0).ordered().holds();
    }
    Case::new(3, 1).departures(2, 0).ordered().holds();
    Case::new(3, 1).requests(2).departures(1, 0).ordered().holds();
    Case::new(3, 1).departures(1, 0).withdrawals(1).ordered().moving().holds();
}

/// Whoever is taken for gone and is not comes to no harm if none of its clients waits.
#[test]
fn suspicions() {
    for slots in [1, 2] {
        let case = Case::new(2, slots).requests(2).departures(0, 2);
        for case in [case, case.moving(), case.withdrawals(1)] {
            case.holds();
        }
        Case::new(3, slots).departures(0, 1).withdrawals(1).ordered().holds();
    }
    Case::new(3, 1).departures(0, 2).ordered().moving().holds();
    Case::new(2, 1).requests(2).departures(1, 1).ordered().holds();
}

/// A token that the network gives back is not lost. On ordered links, as real ones are.
#[test]
fn returns() {
    for slots in [1, 2] {
        let case = Case::new(2, slots).requests(2).withdrawals(1).returns(2).ordered();
        case.holds();
        case.moving().holds();
        Case::new(3, slots).withdrawals(1).returns(1).ordered().holds();
    }
    Case::new(3, 1).withdrawals(1).departures(0, 1).returns(1).ordered().holds();
}

#[test]
fn more_slots_than_peers() {
    for (peers, slots) in [(1, 3), (2, 3), (2, 5)] {
        let case = Case::new(peers, slots).requests(2).clients(2).withdrawals(1).ordered();
        case.holds();
        case.moving().holds();
        case.withdrawals(0).holds();
    }
}

#[test]
fn one_peer_alone() {
    Case::new(1, 1).requests(4).clients(3).withdrawals(2).moving().holds();
    Case::new(1, 2).requests(4).clients(4).withdrawals(2).moving().holds();
}

/// Millions of states each, a minute or two in all; side by side, as tests are.
#[test]
fn large_worlds_of_four() {
    Case::new(4, 2).holds();
    Case::new(4, 2).ordered().moving().holds();
    Case::new(4, 3).holds();
}

#[test]
fn large_worlds_of_three_and_two() {
    Case::new(3, 2).requests(2).ordered().holds();
    Case::new(3, 2).withdrawals(1).moving().holds();
    Case::new(3, 1).requests(2).withdrawals(1).holds();
    Case::new(4, 1).withdrawals(2).ordered().holds();
    Case::new(2, 3).requests(2).clients(2).withdrawals(1).holds();
    Case::new(2, 3).requests(3).clients(3).ordered().holds();
}
