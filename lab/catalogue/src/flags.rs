//! A setting as users write it: every value is optional.

use clap::{Args, Command};
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Hold, Links, OverlayKind};
use peerlock_types::Span;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Form, Pair, Partition, Protocol, Recovery};

const CLOSED: &str = "Closed loop (a fixed number of peers that think, request, wait, hold and release)";
const OPEN: &str = "Open workload (clients arrive at random and request once from the replicas)";
const ROUNDS: &str = "Rounds (peers on an overlay request many resources)";
const FAULTS: &str = "Faults";

/// The flags of `peerlock-lab simulate` and the keys of an experiment file.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[command(allow_negative_numbers = true)] // So that negative numbers reach the check with its error message.
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Flags {
    /// The protocol.
    #[arg(long, help = Protocol::help())]
    #[serde(with = "by_name")]
    pub protocol: Option<Protocol>,
    /// As the paper prints it, or with its defects fixed: printed, repaired [default: repaired]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub form: Option<Form>,
    /// Number of peers [default: 100; rounds 6500; custody 20]
    #[arg(long, help_heading = CLOSED)]
    pub peers: Option<u32>,
    /// Number of slots [default: 3]
    #[arg(long, help_heading = CLOSED)]
    pub slots: Option<u32>,
    /// Number of replicas, at most 64; for custody the voters: 1, 3 or 5 [default: 32; rounds 10; custody 3]
    #[arg(long, help_heading = OPEN)]
    pub replicas: Option<u32>,
    /// Votes that win: a majority of the replicas [default: three quarters, 24 of 32; rounds 6 of 10]
    #[arg(long, help_heading = OPEN)]
    pub votes: Option<u32>,
    /// Overlay that routes messages to replicas: chord, pastry [default: pastry, for protocols that need one]
    #[arg(long, help_heading = ROUNDS)]
    #[serde(with = "by_name")]
    pub overlay: Option<OverlayKind>,
    /// Number of resources [default: 65]
    #[arg(long, help_heading = ROUNDS)]
    pub resources: Option<u32>,
    /// Copies of a peer's state on the next peers of a ring, for fair-k, fair-k-late, bv95: 0 to 64 [default: none]
    #[arg(long, help_heading = CLOSED)]
    pub backups: Option<u32>,
    /// With --backups, if all copies are lost: never, broadcast (query all peers and restart) [default: broadcast]
    #[arg(long, help_heading = CLOSED)]
    #[serde(with = "by_name")]
    pub recovery: Option<Recovery>,
    /// Hold time: 10s, exp:10s or two-point:1s/100s [default: 10s; in an open workload none]
    #[arg(long, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub hold: Option<Hold>,
    /// Share of long holds in a two-point hold [default: such that the mean is the geometric mean of the two]
    #[arg(long, value_name = "SHARE")]
    pub long_share: Option<f64>,
    /// Requests of a peer per second of thinking: λ [default: 0.5]
    #[arg(long, value_name = "RATE", help_heading = CLOSED)]
    pub think_rate: Option<f64>,
    /// Clients that arrive per second: λ [default: 3]
    #[arg(long, value_name = "RATE", help_heading = OPEN)]
    pub arrival_rate: Option<f64>,
    /// One-way delay: constant:1s, uniform:0s..200ms (per pair), jitter:0s..200ms (per message), king or matrix:FILE
    /// [default: constant:1s; open workload and custody uniform:0s..200ms; rounds uniform:20ms..100ms]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub latency: Option<Model>,
    /// Order of the messages of a link: ordered, unordered [default: ordered]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub links: Option<Links>,
    /// Acquisitions of each peer [default: 2000; custody 30]
    #[arg(long, help_heading = CLOSED)]
    pub entries: Option<u32>,
    /// Lease of votes; for custody the session length [default: 10s; custody 15s]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub lease: Option<Span>,
    /// Time before measurement; in rounds each resource is requested once in it [default: 300s; rounds 0s]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub settle: Option<Span>,
    /// Measured time [default: 600s]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub measure: Option<Span>,
    /// Number of rounds [default: 20]
    #[arg(long, help_heading = ROUNDS)]
    pub rounds: Option<u32>,
    /// Length of a round [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = ROUNDS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub round: Option<Span>,
    /// Requests in a round; each held resource is released with probability ½ [default: 20]
    #[arg(long, help_heading = ROUNDS)]
    pub requests: Option<u32>,
    /// Whether --requests counts the whole system or each peer: whole, per-peer [default: whole]
    #[arg(long, help_heading = ROUNDS)]
    #[serde(with = "by_name")]
    pub load: Option<sim::Load>,
    /// Peers that fail or join in each round, half of them each [default: 0]
    #[arg(long, value_name = "PEERS", help_heading = ROUNDS)]
    pub churn: Option<u32>,
    /// Shortest time between retries of a client of sigma [default: half a round]
    #[arg(long, value_name = "TIME", help_heading = ROUNDS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub retry: Option<Span>,
    /// Reset replicas: mean time until a replica loses its memory [default: none]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub replica_life: Option<Span>,
    /// Share of lost messages [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub loss: Option<f64>,
    /// Share of messages that arrive twice [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub duplication: Option<f64>,
    /// Share of clients that crash, half of them while waiting and half while holding [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub client_crash: Option<f64>,
    /// Share of delayed messages and mean delay: 0.01/5s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub delay: Option<Pair<f64, Span>>,
    /// Crash peers with their clients, and restart them from disk: mean interval and mean downtime, 60s/5s
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub crash: Option<Pair<Span, Span>>,
    /// Crash peers permanently: mean interval
    #[arg(long, value_name = "EVERY", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub death: Option<Span>,
    /// Pause peers, which handle all input on resumption: mean interval and mean length, 60s/5s
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub freeze: Option<Pair<Span, Span>>,
    /// Partition the peers: mean interval and mean length, 60s/10s; also one-way:…, partial:…, pairs:…
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub partition: Option<Partition>,
    /// Disconnect clients when they acquire: share and mean length, 0.1/10s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub cut_off: Option<Pair<f64, Span>>,
    /// Share of clients that withdraw, or release early [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub withdrawal: Option<f64>,
    /// Crash a share of the peers permanently and at once, after this time: 0.2/1000s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub catastrophe: Option<Pair<f64, Span>>,
    /// Time until the failure detector reports an unreachable peer [default: no reports; with --backups 5s]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub detection: Option<Span>,
    /// Largest clock offset, and largest drift in parts per million: 1s/200
    #[arg(long, value_name = "TIME/PPM", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub clocks: Option<Pair<Span, u64>>,
    /// With --replica-life: most replicas that are reset within any such interval, 2/10s
    #[arg(long, value_name = "REPLICAS/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub resets_at_most: Option<Pair<u32, Span>>,
    /// With --replica-life: mean time for which a replica is disconnected after a reset [default: 0s]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub down_after_reset: Option<Span>,
    /// Count violations instead of stopping at the first
    #[arg(long, help_heading = FAULTS)]
    pub count_violations: bool,
    /// Number of trials [default: 10]
    #[arg(long)]
    pub trials: Option<u32>,
    /// First acquisitions of each peer, which the steady state omits [default: 20; custody 5]
    #[arg(long, value_name = "ENTRIES", help_heading = CLOSED)]
    pub warm_up: Option<u32>,
    /// Seed of all random numbers; the same seed gives the same result [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
}

impl Flags {
    /// Returns the given values in the order of the help.
    pub(crate) fn present(&self) -> Vec<(String, Value)> {
        let all = serde_json::to_value(self).expect("flags are strings, numbers and booleans");
        let help = Self::augment_args(Command::new("simulate"));
        let names = help.get_arguments().filter_map(|flag| flag.get_long());
        let is_there = |value: &Value| !value.is_null() && *value != Value::Bool(false);
        let pair = |name: &str| Some((name.to_string(), all.get(name).filter(|value| is_there(value))?.clone()));
        names.filter_map(pair).collect()
    }

    /// Returns the given values as text, by name, in the order of the help; `true` for a switch.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let as_text = |value| match value {
            Value::String(text) => text,
            // Whole numbers without a decimal point.
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map_or(String::new(), |number| number.to_string())
            }
            other => other.to_string(),
        };
        self.present().into_iter().map(|(name, value)| (name, as_text(value))).collect()
    }
}

/// Serializes values as text.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => serializer.collect_str(&format_args!("{value:#}")), // A time as 200ms, not 0.2s.
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        let text = Option::<String>::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom)).transpose()
    }
}
