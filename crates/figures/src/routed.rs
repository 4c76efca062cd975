//! Protocols that live on an overlay, by the name a person types.

use std::fmt;
use std::str::FromStr;

use peerlock_mutex::{Coordinator, E2e, NonE2e, Sigma, coordinator, e2e, non_e2e, sigma};
use peerlock_sim::{Failure, Report, Rounds};

use crate::{Form, UnknownProtocol};

/// A protocol whose replicas lie under keys of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Routed {
    /// `e2e`: hops that know the owner stop requests; the owner keeps the queue, and the token goes from owner to owner.
    E2e,
    /// `non-e2e`: hops that requests have come by stop and keep those that follow.
    NonE2e,
    /// `coordinator`: one of the replicas decides, and all of them and all who wait know the queue.
    Coordinator,
    /// `sigma`: every replica is asked and keeps a queue.
    Sigma,
}

impl Routed {
    /// All of them.
    pub const ALL: &[Self] = &[Self::E2e, Self::NonE2e, Self::Coordinator, Self::Sigma];

    /// Whether its printed form can be run on an overlay, too.
    pub fn has_forms(self) -> bool {
        match self {
            Self::E2e | Self::NonE2e | Self::Coordinator => true,
            Self::Sigma => false, // As printed, a client that is a replica, too, yields to itself for ever.
        }
    }

    /// Runs rounds with this protocol. `progress` is told of every trial that has ended.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(self, form: Form, rounds: &Rounds, progress: impl Fn(u64) + Sync) -> Result<Report, Box<Failure>> {
        let lease = rounds.lease;
        match self {
            Self::E2e => {
                let config = match form {
                    Form::Printed => e2e::Config::PRINTED,
                    Form::Repaired => e2e::Config::REPAIRED,
                };
                let config = e2e::Config { lease, ..config };
                rounds.run(|me, replicas| E2e::new(me, replicas, config), progress)
            }
            Self::NonE2e => {
                let config = match form {
                    Form::Printed => non_e2e::Config::PRINTED,
                    Form::Repaired => non_e2e::Config::REPAIRED,
                };
                let config = non_e2e::Config { lease, ..config };
                rounds.run(|me, replicas| NonE2e::new(me, replicas, config), progress)
            }
            Self::Coordinator => {
                let config = match form {
                    Form::Printed => coordinator::Config::PRINTED,
                    Form::Repaired => coordinator::Config::REPAIRED,
                };
                // Ten pings in a lease time, and four in a term, as by default.
                let config = coordinator::Config { lease, ping: lease / 10, term: lease * 4 / 10, ..config };
                rounds.run(|me, replicas| Coordinator::new(me, replicas, config), progress)
            }
            Self::Sigma => {
                // Nobody leaves for a round or two, and until then nobody can say how long it will take: who asks again
                // every half second would be most of what is counted.
                let retry = rounds.round / 2;
                let config = sigma::Config { lease, retry, ..sigma::Config::REPAIRED };
                rounds.run(|me, replicas| Sigma::new(me, replicas, config), progress)
            }
        }
    }
}

impl fmt::Display for Routed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::E2e => "e2e",
            Self::NonE2e => "non-e2e",
            Self::Coordinator => "coordinator",
            Self::Sigma => "sigma",
        })
    }
}

impl FromStr for Routed {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let named = Self::ALL.iter().copied().find(|routed| routed.to_string() == name);
        named.ok_or_else(|| UnknownProtocol::new(name))
    }
}
