use std::fmt;
use std::str::FromStr;

use peerlock_protocols::bv95::{self, Heuristic, Organisation};
use peerlock_sim::names;
use thiserror::Error;

use peerlock_console::near;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Protocol {
    #[default]
    FairK,
    /// Fair-K with late binding: one queue for all slots.
    FairKLate,
    /// The k trees of Bulgannawar and Vaidya, the Fair-K paper's baseline.
    Bv95(bv95::Config),
    /// One queue with global knowledge: a bound, not a protocol.
    Ideal,
    Sigma,
    /// Sigma as printed, except that a retry is queued once. Otherwise abandoned requests would block it.
    SigmaOnce,
    /// Votes without a queue; losers give up. MinIO's dsync does this.
    Strawman,
    StrawmanRetry,
    /// Replicas elect a coordinator, and clients pass on the token.
    Coordinator,
    E2e,
    NonE2e,
    /// The product's protocol, in whole peers.
    Custody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    Printed,
    /// With the defects that we found, fixed.
    Repaired,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Among {
    /// A fixed number of peers that know each other.
    Peers,
    /// Clients and replicas that all clients know.
    Replicas,
    /// Peers that locate replicas by key.
    Overlay,
    /// Whole peers with links, sessions, disks and a registry.
    Nodes,
}

impl Protocol {
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

    /// Returns its environments; the first is the default.
    pub fn among(self) -> &'static [Among] {
        match self {
            Self::FairK | Self::FairKLate | Self::Bv95(_) | Self::Ideal => &[Among::Peers],
            Self::SigmaOnce | Self::Strawman | Self::StrawmanRetry => &[Among::Replicas],
            Self::Sigma | Self::Coordinator => &[Among::Replicas, Among::Overlay],
            Self::E2e | Self::NonE2e => &[Among::Overlay],
            Self::Custody => &[Among::Nodes],
        }
    }

    pub(crate) fn help() -> String {
        let group = |(among, heading): (Among, &str)| {
            let members = Self::ALL.iter().filter(|(_, protocol)| protocol.among().contains(&among));
            let name = |(name, protocol): &(&str, Self)| match protocol.among()[0] == among {
                true => name.to_string(),
                false => format!("{name} (with --overlay)"),
            };
            format!("{heading}: {}", members.map(name).collect::<Vec<_>>().join(", "))
        };
        let groups = [
            (Among::Peers, "among peers"),
            (Among::Replicas, "with replicas (open workload, or closed loop with --peers)"),
            (Among::Overlay, "on an overlay"),
            (Among::Nodes, "whole peers"),
        ];
        format!("Protocol, {} [default: {}]", groups.map(group).join("; "), Self::default())
    }

    /// Returns whether it has both forms in this environment.
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

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("unknown protocol {name:?}: {}", suggestion(.name))]
pub struct UnknownProtocol {
    name: String,
}

fn suggestion(name: &str) -> String {
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
    Never,
    /// All peers report their state and restart.
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
        assert!(help.contains("; on an overlay: sigma (with --overlay), coordinator"), "{help}");
        assert!(help.ends_with("custody [default: fair-k]"), "{help}");
    }

    #[test]
    fn unknown_protocol_error_suggests_names() {
        for (name, message) in [
            ("fairk", "unknown protocol \"fairk\": did you mean fair-k?"),
            ("sigma-onec", "unknown protocol \"sigma-onec\": did you mean sigma-once?"),
            ("fair-k-lat", "unknown protocol \"fair-k-lat\": did you mean fair-k-late?"),
            ("paxos", "unknown protocol \"paxos\": use fair-k, fair-k-late, bv95, bv95-last-held"),
            ("", "unknown protocol \"\": use fair-k, "),
        ] {
            let error = name.parse::<Protocol>().unwrap_err().to_string();
            assert!(error.starts_with(message), "{name}: {error}");
        }
        let all = "paxos".parse::<Protocol>().unwrap_err().to_string();
        assert!(all.ends_with("strawman, strawman-retry, coordinator, e2e, non-e2e, custody"), "{all}");
    }
}
