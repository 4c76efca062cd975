//! Protocols in which replicas vote, by the name a person types.

use std::fmt;
use std::str::FromStr;

use peerlock_mutex::{Coordinator, Quorum, Replicas, Sigma, Strawman, coordinator, sigma, strawman};
use peerlock_sim::{Failure, Open, Report};

use crate::{Form, Protocol, Routed, UnknownProtocol};

/// A protocol for clients without number, who ask replicas for their votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Voting {
    /// `sigma`: replicas that queue requests and may forget.
    Sigma,
    /// `sigma-once`: Sigma as printed, but that a retry is not queued a second time. Without that, ghosts stop it.
    SigmaOnce,
    /// `strawman`: whoever gets the votes is in; losers give up. MinIO's dsync is this strawman in production.
    Strawman,
    /// `strawman-retry`: the same, but losers try again after a random time.
    StrawmanRetry,
    /// `coordinator`: replicas that elect who decides, and clients that pass the token on.
    Coordinator,
}

impl Voting {
    /// All of them.
    pub const ALL: &[Self] = &[Self::Sigma, Self::SigmaOnce, Self::Strawman, Self::StrawmanRetry, Self::Coordinator];

    /// Whether its printed and its mended form differ.
    pub fn has_forms(self) -> bool {
        matches!(self, Self::Sigma | Self::Coordinator)
    }

    /// Runs an experiment with this protocol, where `votes` of the replicas win. `progress` is told of every trial that
    /// has ended.
    ///
    /// # Errors
    /// A rule was broken.
    ///
    /// # Panics
    /// If `votes` of the replicas are no quorum.
    pub fn run(
        self,
        form: Form,
        votes: u32,
        open: &Open,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        let replicas = Replicas::first(Quorum::new(open.replicas, votes));
        let sigma = |config: sigma::Config, progress| {
            let config = sigma::Config { lease: open.lease, ..config };
            open.run(|me| Sigma::new(me, &replicas, config), progress)
        };
        let strawman = |config: strawman::Config, progress| {
            let config = strawman::Config { lease: open.lease, ..config };
            open.run(|me| Strawman::new(me, &replicas, config), progress)
        };
        let coordinator = |config: coordinator::Config, progress| {
            let config = coordinator::Config { lease: open.lease, ..config };
            open.run(|me| Coordinator::new(me, &replicas, config), progress)
        };
        match (self, form) {
            (Self::Sigma, Form::Repaired) => sigma(sigma::Config::REPAIRED, progress),
            (Self::Sigma, Form::Printed) => sigma(sigma::Config::PRINTED, progress),
            (Self::SigmaOnce, _) => {
                sigma(sigma::Config { idempotent_requests: true, ..sigma::Config::PRINTED }, progress)
            }
            (Self::Strawman, _) => strawman(strawman::Config::GIVES_UP, progress),
            (Self::StrawmanRetry, _) => strawman(strawman::Config::BACKS_OFF, progress),
            (Self::Coordinator, Form::Repaired) => coordinator(coordinator::Config::REPAIRED, progress),
            (Self::Coordinator, Form::Printed) => coordinator(coordinator::Config::PRINTED, progress),
        }
    }
}

impl fmt::Display for Voting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sigma => "sigma",
            Self::SigmaOnce => "sigma-once",
            Self::Strawman => "strawman",
            Self::StrawmanRetry => "strawman-retry",
            Self::Coordinator => "coordinator",
        })
    }
}

/// Any protocol of the bench; which it is decides who asks when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AnyProtocol {
    /// So many peers, each of which asks again and again.
    Closed(Protocol),
    /// Clients without number, each of which asks once.
    Open(Voting),
    /// Peers on an overlay; of those that cannot do without one.
    Routed(Routed),
}

impl AnyProtocol {
    /// Whether its printed and its mended form differ.
    pub fn has_forms(self) -> bool {
        match self {
            Self::Closed(protocol) => protocol.has_forms(),
            Self::Open(protocol) => protocol.has_forms(),
            Self::Routed(protocol) => protocol.has_forms(),
        }
    }
}

impl fmt::Display for AnyProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(protocol) => protocol.fmt(f),
            Self::Open(protocol) => protocol.fmt(f),
            Self::Routed(protocol) => protocol.fmt(f),
        }
    }
}

impl FromStr for AnyProtocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        if let Some(voting) = Voting::ALL.iter().find(|voting| voting.to_string() == name) {
            return Ok(Self::Open(*voting));
        }
        name.parse().map(Self::Routed).or_else(|_: UnknownProtocol| name.parse().map(Self::Closed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_found_by_its_name() {
        for &voting in Voting::ALL {
            assert_eq!(voting.to_string().parse(), Ok(AnyProtocol::Open(voting)));
        }
        assert_eq!("bv95".parse(), Ok(AnyProtocol::Closed(Protocol::Bv95(Default::default()))));
        let error = "paxos".parse::<AnyProtocol>().unwrap_err().to_string();
        assert!(error.ends_with("ideal, sigma, sigma-once, strawman, strawman-retry, coordinator"), "{error}");
    }
}
