//! Protocols whose peers pass tokens, by the name a person types.

use std::fmt;
use std::str::FromStr;

use peerlock_base::PeerId;
use peerlock_mutex::bv95::{Heuristic, Organisation};
use peerlock_mutex::token::Layout;
use peerlock_mutex::{Bv95, FairK, FairKLate, bv95, fair_k, fair_k_late};
use peerlock_sim::{Experiment, Failure, Ideal, Report};
use thiserror::Error;

use crate::Voting;

/// A protocol for so many peers, each of which asks again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// `fair-k`: the algorithm of the Fair-K paper.
    FairK,
    /// `fair-k-late`: our own form of it, one line for all tokens.
    FairKLate,
    /// `bv95`: the baseline of the Fair-K paper, Bulgannawar and Vaidya's k trees; `bv95-plain` without caching of
    /// requests, and either with `-last-held` or `-round-robin` for the choice of the tree.
    Bv95(bv95::Config),
    /// `ideal`: one line kept by somebody who knows everything. A bound, not a protocol.
    Ideal,
}

/// Which form of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As its paper prints it.
    Printed,
    /// With what we mended.
    Repaired,
}

impl Protocol {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::FairK,
        Self::FairKLate,
        bv95(Organisation::Caching, Heuristic::Random),
        bv95(Organisation::Caching, Heuristic::LastHeld),
        bv95(Organisation::Caching, Heuristic::RoundRobin),
        bv95(Organisation::Plain, Heuristic::Random),
        bv95(Organisation::Plain, Heuristic::LastHeld),
        bv95(Organisation::Plain, Heuristic::RoundRobin),
        Self::Ideal,
    ];

    /// Whether its printed and its mended form differ.
    pub fn has_forms(self) -> bool {
        matches!(self, Self::FairK)
    }

    /// Runs an experiment with this protocol. `progress` is told of every trial that has ended.
    ///
    /// # Errors
    /// A rule was broken.
    pub fn run(
        self,
        form: Form,
        experiment: &Experiment,
        progress: impl Fn(u64) + Sync,
    ) -> Result<Report, Box<Failure>> {
        let Experiment { peers, slots, .. } = *experiment;
        let layout = Layout::printed(peers as u64, slots);
        let ids = || (0..peers as u64).map(PeerId::new);
        match self {
            Self::FairK => {
                let config = match form {
                    Form::Printed => fair_k::Config::PRINTED,
                    Form::Repaired => fair_k::Config::REPAIRED,
                };
                experiment.run(|_| ids().map(|me| FairK::new(me, &layout, config)).collect(), progress)
            }
            Self::FairKLate => {
                let config = fair_k_late::Config::default();
                experiment.run(|_| ids().map(|me| FairKLate::new(me, &layout, config)).collect(), progress)
            }
            Self::Bv95(config) => {
                experiment.run(|_| ids().map(|me| Bv95::new(me, &layout, config)).collect(), progress)
            }
            Self::Ideal => experiment.run(|latency| Ideal::peers(peers, slots, latency), progress),
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FairK => f.write_str("fair-k"),
            Self::FairKLate => f.write_str("fair-k-late"),
            Self::Bv95(bv95::Config { organisation, heuristic }) => {
                let organisation = match organisation {
                    Organisation::Caching => "",
                    Organisation::Plain => "-plain",
                };
                let heuristic = match heuristic {
                    Heuristic::Random => "",
                    Heuristic::LastHeld => "-last-held",
                    Heuristic::RoundRobin => "-round-robin",
                };
                write!(f, "bv95{organisation}{heuristic}")
            }
            Self::Ideal => f.write_str("ideal"),
        }
    }
}

const fn bv95(organisation: Organisation, heuristic: Heuristic) -> Protocol {
    Protocol::Bv95(bv95::Config { organisation, heuristic })
}

/// No protocol has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown protocol {0:?}: use {known}", known = known().join(", "))]
pub struct UnknownProtocol(String);

impl UnknownProtocol {
    pub(crate) fn new(name: &str) -> Self {
        Self(name.into())
    }
}

fn known() -> Vec<String> {
    let closed = Protocol::ALL.iter().map(Protocol::to_string);
    closed.chain(Voting::ALL.iter().map(Voting::to_string)).collect()
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let named = Self::ALL.iter().copied().find(|protocol| protocol.to_string() == name);
        named.ok_or_else(|| UnknownProtocol(name.into()))
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Printed => "printed",
            Self::Repaired => "repaired",
        })
    }
}

/// No form has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown form {0:?}: use printed or repaired")]
pub struct UnknownForm(String);

impl FromStr for Form {
    type Err = UnknownForm;

    fn from_str(name: &str) -> Result<Self, UnknownForm> {
        match name {
            "printed" => Ok(Self::Printed),
            "repaired" => Ok(Self::Repaired),
            _ => Err(UnknownForm(name.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_found_by_its_name() {
        for &protocol in Protocol::ALL {
            assert_eq!(protocol.to_string().parse(), Ok(protocol));
        }
        let error = "fair".parse::<Protocol>().unwrap_err().to_string();
        assert!(error.starts_with("unknown protocol \"fair\": use fair-k"), "{error}");
    }
}
