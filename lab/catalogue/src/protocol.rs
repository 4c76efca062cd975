//! The names of all protocols.

use std::fmt;
use std::str::FromStr;

use peerlock_protocols::bv95::{self, Heuristic, Organisation};
use peerlock_sim::names;
use thiserror::Error;

use peerlock_console::near;

/// A protocol that can be simulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// The algorithm of the Fair-K paper.
    #[default]
    FairK,
    /// Our variant of it, with one queue for all slots.
    FairKLate,
    /// The baseline of the Fair-K paper, Bulgannawar and Vaidya's k trees: `bv95`, or `bv95-plain` without caching of
    /// requests, each also with `-last-held` or `-round-robin` for the choice of the tree.
    Bv95(bv95::Config),
    /// One queue with global knowledge. A bound, not a protocol.
    Ideal,
    /// Votes of replicas that queue requests and may forget.
    Sigma,
    /// Sigma as printed, except that a retry is not queued a second time. Otherwise abandoned requests would block it.
    SigmaOnce,
    /// The client that gets the votes acquires; losers give up. MinIO's dsync is this strawman in production.
    Strawman,
    /// The strawman with retries after a random time.
    StrawmanRetry,
    /// Replicas elect a coordinator, and clients pass the token on.
    Coordinator,
    /// Hops that know the owner stop requests. The owner keeps the queue, and the token moves from owner to owner.
    E2e,
    /// Hops stop and store requests that follow earlier ones.
    NonE2e,
    /// The product's protocol: whole peers, with sessions and tokens in the custody of a registry.
    Custody,
}

/// The form of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// As the paper prints it.
    Printed,
    /// With the defects that we found fixed.
    Repaired,
}

/// The environment of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// A fixed number of peers, each of which knows all others and requests for itself.
    Peers,
    /// Replicas that every client knows, and clients.
    Replicas,
    /// Peers that find the replicas by their keys.
    Overlay,
    /// Whole peers, with links, sessions, disks and a registry.
    Nodes,
}

impl Protocol {
    /// All protocols by name.
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

    /// Returns the environments in which it runs; the first is the default.
    pub fn among(self) -> &'static [Among] {
        match self {
            Self::FairK | Self::FairKLate | Self::Bv95(_) | Self::Ideal => &[Among::Peers],
            Self::SigmaOnce | Self::Strawman | Self::StrawmanRetry => &[Among::Replicas],
            Self::Sigma | Self::Coordinator => &[Among::Replicas, Among::Overlay],
            Self::E2e | Self::NonE2e => &[Among::Overlay],
            Self::Custody => &[Among::Nodes],
        }
    }

    /// Returns the help text of `--protocol`: all protocols by environment.
    pub(crate) fn help() -> String {
        let group = |(among, peer): (Among, &str)| {
            let there = Self::ALL.iter().filter(|(_, protocol)| protocol.among().contains(&among));
            let name = |(name, protocol): &(&str, Self)| match protocol.among()[0] == among {
                true => name.to_string(),
                false => format!("{name} (there with --overlay)"),
            };
            format!("{}: {}", peer, there.map(name).collect::<Vec<_>>().join(", "))
        };
        let groups = [
            (Among::Peers, "among a fixed number of peers"),
            (Among::Replicas, "for clients that ask replicas, in an open workload or with --peers in a closed loop"),
            (Among::Overlay, "for peers on an overlay"),
            (Among::Nodes, "whole peers as this program runs them"),
        ];
        format!("Which protocol, {} [default: {}]", groups.map(group).join("; "), Self::default())
    }

    /// Returns whether its printed form can run there beside the repaired one.
    pub(crate) fn has_forms(self, among: Among) -> bool {
        match self {
            Self::FairK | Self::Coordinator | Self::E2e | Self::NonE2e => true,
            // As printed, a client that is also a replica yields to itself forever.
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
        f.write_str(named.expect("every protocol is in ALL").0)
    }
}

/// The protocol is unknown.
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

/// The reaction to the loss of a state with all its backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Recovery {
    /// None: the state stays lost.
    Never,
    /// All peers report their state and start again.
    Broadcast,
}

names!("recovery", Recovery { Never = "never", Broadcast = "broadcast" });
names!("form", Form { Printed = "printed", Repaired = "repaired" });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocol_name_round_trips() {
        for &(name, protocol) in Protocol::ALL {
            assert_eq!((name.parse(), protocol.to_string()), (Ok(protocol), name.to_string()));
        }
    }

    #[test]
    fn protocol_help_lists_each_environment() {
        let help = Protocol::help();
        let words: Vec<&str> = help.split([' ', ',', ';', ':']).collect();
        for (name, protocol) in Protocol::ALL {
            assert_eq!(words.iter().filter(|word| *word == name).count(), protocol.among().len(), "{name}: {help}");
        }
        assert!(help.contains("; for peers on an overlay: sigma (there with --overlay), coordinator"), "{help}");
        assert!(help.ends_with("custody [default: fair-k]"), "{help}");
    }

    #[test]
    fn unknown_protocol_error_suggests_names() {
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
