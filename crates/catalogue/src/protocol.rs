//! Every protocol by the name a person types.

use std::fmt;
use std::str::FromStr;

use peerlock_mutex::bv95::{self, Heuristic, Organisation};
use peerlock_sim::names;
use thiserror::Error;

use crate::near;

/// A protocol that can be simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The algorithm of the Fair-K paper.
    #[default]
    FairK,
    /// Our own form of it, one line for all slots.
    FairKLate,
    /// The baseline of the Fair-K paper, Bulgannawar and Vaidya's k trees: `bv95`, or `bv95-plain` without caching of
    /// requests, and either with `-last-held` or `-round-robin` for the choice of the tree.
    Bv95(bv95::Config),
    /// One line kept by somebody who knows everything. A bound, not a protocol.
    Ideal,
    /// Votes of replicas that queue requests and may forget.
    Sigma,
    /// Sigma as printed, but that a retry is not queued a second time. Without that, ghosts stop it.
    SigmaOnce,
    /// The client that gets the votes is in; losers give up. MinIO's dsync is this strawman in production.
    Strawman,
    /// The same, but losers try again after a random time.
    StrawmanRetry,
    /// Replicas that elect who decides, and clients that pass the token on.
    Coordinator,
    /// Hops that know the owner stop requests; the owner keeps the queue, and the token goes from owner to owner.
    E2e,
    /// Hops that requests have come by stop and keep those that follow.
    NonE2e,
    /// What the program itself runs: whole peers, with sessions and tokens in the custody of a register.
    Custody,
}

/// Which form of a protocol is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As its paper prints it.
    Printed,
    /// With the defects that we found mended.
    Repaired,
}

/// What a protocol runs among.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// A fixed number of peers, every one of which knows the others and takes part for itself.
    Peers,
    /// Replicas that everybody knows, and clients that ask them.
    Replicas,
    /// Peers that find the replicas by their keys.
    Overlay,
    /// Whole peers, with links, sessions, disks and a register among them.
    Nodes,
}

impl Protocol {
    /// All of them, by name.
    pub const ALL: &[(&str, Self)] = &[
        ("fair-k", Self::FairK),
        ("fair-k-late", Self::FairKLate),
        ("bv95", bv95(Organisation::Caching, Heuristic::Random)),
        ("bv95-last-held", bv95(Organisation::Caching, Heuristic::LastHeld)),
        ("bv95-round-robin", bv95(Organisation::Caching, Heuristic::RoundRobin)),
        ("bv95-plain", bv95(Organisation::Plain, Heuristic::Random)),
        ("bv95-plain-last-held", bv95(Organisation::Plain, Heuristic::LastHeld)),
        ("bv95-plain-round-robin", bv95(Organisation::Plain, Heuristic::RoundRobin)),
        ("ideal", Self::Ideal),
        ("sigma", Self::Sigma),
        ("sigma-once", Self::SigmaOnce),
        ("strawman", Self::Strawman),
        ("strawman-retry", Self::StrawmanRetry),
        ("coordinator", Self::Coordinator),
        ("e2e", Self::E2e),
        ("non-e2e", Self::NonE2e),
        ("custody", Self::Custody),
    ];

    /// What it can run among; the first is taken if nothing is said.
    pub fn among(self) -> &'static [Among] {
        match self {
            Self::FairK | Self::FairKLate | Self::Bv95(_) | Self::Ideal => &[Among::Peers],
            Self::SigmaOnce | Self::Strawman | Self::StrawmanRetry => &[Among::Replicas],
            Self::Sigma | Self::Coordinator => &[Among::Replicas, Among::Overlay],
            Self::E2e | Self::NonE2e => &[Among::Overlay],
            Self::Custody => &[Among::Nodes],
        }
    }

    /// What `--help` says of `--protocol`: all of them, by what they run among.
    pub(crate) fn help() -> String {
        let group = |(among, who): (Among, &str)| {
            let there = Self::ALL.iter().filter(|(_, protocol)| protocol.among().contains(&among));
            let name = |(name, protocol): &(&str, Self)| match protocol.among()[0] == among {
                true => name.to_string(),
                false => format!("{name} (there with --overlay)"),
            };
            format!("{}: {}", who, there.map(name).collect::<Vec<_>>().join(", "))
        };
        let groups = [
            (Among::Peers, "among a fixed number of peers"),
            (Among::Replicas, "for clients that ask replicas, in an open workload or with --peers in a closed loop"),
            (Among::Overlay, "for peers on an overlay"),
            (Among::Nodes, "whole peers as this program runs them"),
        ];
        format!("Which protocol, {} [default: {}]", groups.map(group).join("; "), Self::default())
    }

    /// Whether its printed form can be run there beside the repaired one.
    pub(crate) fn has_forms(self, among: Among) -> bool {
        match self {
            Self::FairK | Self::Coordinator | Self::E2e | Self::NonE2e => true,
            // As printed, a client that is a replica, too, yields to itself for ever.
            Self::Sigma => among != Among::Overlay,
            _ => false,
        }
    }
}

const fn bv95(organisation: Organisation, heuristic: Heuristic) -> Protocol {
    Protocol::Bv95(bv95::Config { organisation, heuristic })
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = Self::ALL.iter().find(|(_, protocol)| protocol == self);
        f.write_str(named.expect("whatever can be asked for by name is in ALL").0)
    }
}

/// No protocol has this name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown protocol {name:?}: {}", meant(.name))]
pub struct UnknownProtocol {
    name: String,
}

fn meant(name: &str) -> String {
    let names = Protocol::ALL.iter().map(|(name, _)| *name);
    match near(name, names.clone())[..] {
        [one] => format!("did you mean {one}?"),
        _ => format!("use {}", names.collect::<Vec<_>>().join(", ")),
    }
}

impl FromStr for Protocol {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        let named = Self::ALL.iter().find(|(known, _)| *known == name);
        named.map(|(_, protocol)| *protocol).ok_or_else(|| UnknownProtocol { name: name.into() })
    }
}

/// What is done about what is lost with all its backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// It stays lost.
    Never,
    /// Everybody is asked, and all begin anew.
    Broadcast,
}

names!("recovery", Recovery { Never = "never", Broadcast = "broadcast" });
names!("form", Form { Printed = "printed", Repaired = "repaired" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_is_found_by_its_name() {
        for &(name, protocol) in Protocol::ALL {
            assert_eq!((name.parse(), protocol.to_string()), (Ok(protocol), name.to_string()));
        }
    }

    #[test]
    fn the_help_has_every_protocol_where_it_runs() {
        let help = Protocol::help();
        let words: Vec<&str> = help.split([' ', ',', ';', ':']).collect();
        for (name, protocol) in Protocol::ALL {
            assert_eq!(words.iter().filter(|word| *word == name).count(), protocol.among().len(), "{name}: {help}");
        }
        assert!(help.contains("; for peers on an overlay: sigma (there with --overlay), coordinator"), "{help}");
        assert!(help.ends_with("custody [default: fair-k]"), "{help}");
    }

    #[test]
    fn an_unknown_name_is_refused_with_what_may_be_meant() {
        for (name, sentence) in [
            ("fairk", "unknown protocol \"fairk\": did you mean fair-k?"),
            ("sigma-onec", "unknown protocol \"sigma-onec\": did you mean sigma-once?"),
            ("fair-k-lat", "unknown protocol \"fair-k-lat\": did you mean fair-k-late?"),
            ("paxos", "unknown protocol \"paxos\": use fair-k, fair-k-late, bv95, bv95-last-held"),
            ("", "unknown protocol \"\": use fair-k, "),
        ] {
            let error = name.parse::<Protocol>().unwrap_err().to_string();
            assert!(error.starts_with(sentence), "{name}: {error}");
        }
        let all = "paxos".parse::<Protocol>().unwrap_err().to_string();
        assert!(all.ends_with("strawman, strawman-retry, coordinator, e2e, non-e2e, custody"), "{all}");
    }
}
