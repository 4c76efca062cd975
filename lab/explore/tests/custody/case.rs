use std::fmt;
use std::str::FromStr;

use peerlock_explore::{Counterexample, Explored, FaultLimits, Limits, RegistryMutation, World, explore};
use peerlock_protocols::Custody;
use peerlock_protocols::custody::{Config, Rule};
use peerlock_protocols::registry::Session;
use peerlock_types::PeerId;

/// Some 8 GB.
const MOST_STATES: usize = 40_000_000;

const NUMBERS: u64 = 100;

#[derive(Clone, Copy)]
pub struct Case {
    pub peers: u64,
    pub limits: Limits,
    pub faults: FaultLimits,
    pub has_register: bool,
    pub config: Config,
}

impl Case {
    pub fn world(&self) -> World<Custody> {
        let slots = self.limits.slots as u32;
        let faults = self.has_register.then_some(self.faults);
        let parties = if self.has_register { self.faults.parties as u64 } else { self.peers };
        let peer = |id: PeerId| {
            let me = Session { peer: id, number: 0 };
            match id.get() < parties {
                true => Custody::founded(me, self.config, PeerId::new(0), slots),
                false => Custody::new(me, self.config),
            }
        };
        // The check for void messages is valid only with all rules.
        let tidy = self.limits.tidy && self.config.without.is_none();
        World::new(Limits { faults, tidy, ..self.limits }, (0..self.peers).map(PeerId::new).map(|id| (id, peer(id))))
    }

    pub fn without(self, rule: Rule) -> Self {
        Self { config: Config { without: Some(rule), ..self.config }, ..self }
    }

    pub fn with(self, mutation: RegistryMutation) -> Self {
        Self { faults: FaultLimits { mutation: Some(mutation), ..self.faults }, ..self }
    }

    pub fn explore(&self) -> Result<Explored, Box<Counterexample>> {
        explore(&self.world(), MOST_STATES)
    }

    pub fn holds(&self) -> Explored {
        let start = std::time::Instant::now();
        match self.explore() {
            Ok(explored) => {
                println!("{self}: {explored:?} in {:.1} s", start.elapsed().as_secs_f64());
                explored
            }
            Err(found) => panic!(
                "after {} steps:\n\n{found}\n\nTo see it again: PEERLOCK_CASE=\"{self}\" \
                 cargo test -p peerlock-explore --test custody one_case\n",
                found.steps
            ),
        }
    }
}

pub fn case(text: &str) -> Case {
    text.parse().expect("a case as it is printed")
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Limits { slots, requests, clients, withdrawals, unreachable, timeouts, ordered, tidy, .. } = self.limits;
        write!(f, "peers={} slots={slots}", self.peers)?;
        let mut say = |key: &str, value: u64, usual: u64| match value == usual {
            true => Ok(()),
            false => write!(f, " {key}={value}"),
        };
        say("requests", requests, 1)?;
        say("clients", clients as u64, 1)?;
        say("withdrawals", withdrawals.into(), 0)?;
        say("unreachable", unreachable.into(), 0)?;
        say("timeouts", timeouts.into(), 0)?;
        say("numbers", self.config.numbers, NUMBERS)?;
        say("reach", self.config.reach.into(), Config::default().reach.into())?;
        say("ahead", self.config.always_ahead.into(), 0)?;
        say("ordered", ordered.into(), 0)?;
        say("untidy", (!tidy).into(), 0)?;
        if self.has_register {
            let FaultLimits {
                parties,
                stops,
                sessions,
                takeovers,
                forces,
                forgets,
                removes,
                detached,
                renewals,
                repeats,
                resizes,
                any_coordinator,
                ..
            } = self.faults;
            say("parties", parties as u64, u64::MAX)?;
            say("stops", stops.into(), 0)?;
            say("sessions", sessions.into(), 0)?;
            say("takeovers", takeovers.into(), 0)?;
            say("forces", forces.into(), 0)?;
            say("forgets", forgets.into(), 0)?;
            say("removes", removes.into(), 0)?;
            say("detached", detached.into(), 0)?;
            say("renewals", renewals.into(), 0)?;
            say("repeats", repeats.into(), 0)?;
            say("resize", resizes[0].into(), 0)?;
            say("then", resizes[1].into(), 0)?;
            say("any", any_coordinator.into(), 0)?;
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let config = Config { numbers: NUMBERS, batch: None, ..Config::default() };
        let (limits, faults) = (Limits { tidy: true, ..Limits::new(1) }, FaultLimits::default());
        let mut case = Self { peers: 1, limits, faults, has_register: false, config };
        for part in text.split_whitespace() {
            let (key, value) = part.split_once('=').unwrap_or((part, "1"));
            let value: u32 = value.parse().map_err(|_| format!("{part} has no number"))?;
            let Case { limits, faults, .. } = &mut case;
            match key {
                "peers" => case.peers = value.into(),
                "slots" => limits.slots = value as usize,
                "requests" => limits.requests = value.into(),
                "clients" => limits.clients = value as usize,
                "withdrawals" => limits.withdrawals = value,
                "unreachable" => limits.unreachable = value,
                "timeouts" => limits.timeouts = value,
                "numbers" => case.config.numbers = value.into(),
                "reach" => case.config.reach = value,
                "ahead" => case.config.always_ahead = value == 1,
                "ordered" => limits.ordered = value == 1,
                "untidy" => limits.tidy = value != 1,
                "parties" => (faults.parties, case.has_register) = (value as usize, true),
                "stops" => faults.stops = value,
                "sessions" => faults.sessions = value,
                "takeovers" => faults.takeovers = value,
                "forces" => faults.forces = value,
                "forgets" => faults.forgets = value,
                "removes" => faults.removes = value,
                "detached" => faults.detached = value,
                "renewals" => faults.renewals = value,
                "repeats" => faults.repeats = value,
                "resize" => faults.resizes[0] = value,
                "then" => faults.resizes[1] = value,
                "any" => faults.any_coordinator = value == 1,
                _ => return Err(format!("{part} is no part of a case")),
            }
        }
        if case.limits.timeouts > 0 {
            case.config.batch = Config::default().batch;
        }
        Ok(case)
    }
}
