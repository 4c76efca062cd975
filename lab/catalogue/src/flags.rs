//! A setting as it is written by users: anything may be left out.

use clap::{Args, Command};
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Hold, Links, OverlayKind};
use peerlock_types::Span;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Form, Pair, Partition, Protocol, Recovery};

const CLOSED: &str = "A fixed number of peers that think, ask, wait, stay inside, leave, and think again (closed loop)";
const OPEN: &str = "Clients that arrive at random, each of which asks the replicas once (open workload)";
const ROUNDS: &str = "Peers on an overlay that ask for many resources, round after round";
const FAULTS: &str = "What goes wrong";

/// The flags of `peerlock-lab simulate`, and the keys of an experiment file. What is left out has a default.
#[derive(Clone, Debug, Default, PartialEq, Args, Serialize, Deserialize)]
#[command(allow_negative_numbers = true)] // So that negative numbers reach the check with its error message.
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Flags {
    /// The protocol that is run; `fair-k` if it is left out. The help lists those that there are.
    #[arg(long, help = Protocol::help())]
    #[serde(with = "by_name")]
    pub protocol: Option<Protocol>,
    /// As the paper prints it, or with the defects that we found mended, of protocols that have both: printed, repaired
    /// [default: repaired]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub form: Option<Form>,
    /// How many peers [default: 100; on an overlay 6500; of custody 20]
    #[arg(long, help_heading = CLOSED)]
    pub peers: Option<u32>,
    /// How many may be inside at a time [default: 3]
    #[arg(long, help_heading = CLOSED)]
    pub slots: Option<u32>,
    /// How many replicas, up to 64; of custody voters, 1, 3 or 5 of the peers [default: 32; on an overlay 10 for each
    /// resource; of custody 3]
    #[arg(long, help_heading = OPEN)]
    pub replicas: Option<u32>,
    /// How many votes win: more than half of the replicas [default: three quarters, 24 of 32; on an overlay just more
    /// than half, 6 of 10]
    #[arg(long, help_heading = OPEN)]
    pub votes: Option<u32>,
    /// What routes messages to replicas: chord, pastry [default: pastry, where the protocol needs an overlay]
    #[arg(long, help_heading = ROUNDS)]
    #[serde(with = "by_name")]
    pub overlay: Option<OverlayKind>,
    /// How many resources [default: 65]
    #[arg(long, help_heading = ROUNDS)]
    pub resources: Option<u32>,
    /// How many backups each peer's state has, on the peers that follow it on a ring (Fair-K paper, §5), for fair-k,
    /// fair-k-late and bv95: 0 to 64 [default: no backups, and nobody acts for anybody else]
    #[arg(long, help_heading = CLOSED)]
    pub backups: Option<u32>,
    /// With --backups: whether what is lost with all its backups stays lost (never), or everybody is asked and all
    /// begin anew (broadcast) [default: broadcast]
    #[arg(long, help_heading = CLOSED)]
    #[serde(with = "by_name")]
    pub recovery: Option<Recovery>,
    /// How long a client stays inside: 10s, exp:10s or two-point:1s/100s [default: 10s; in an open workload clients
    /// leave at once]
    #[arg(long, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub hold: Option<Hold>,
    /// With a two-point hold: the share of long stays, from 0 to 1 [default: their mean is the geometric mean of the
    /// two]
    #[arg(long, value_name = "SHARE")]
    pub long_share: Option<f64>,
    /// How often a peer asks per second of thinking: λ [default: 0.5]
    #[arg(long, value_name = "RATE", help_heading = CLOSED)]
    pub think_rate: Option<f64>,
    /// How many clients arrive per second: λ [default: 3]
    #[arg(long, value_name = "RATE", help_heading = OPEN)]
    pub arrival_rate: Option<f64>,
    /// One-way delay: constant:1s, uniform:0s..200ms (per pair), jitter:0s..200ms (per message), king or matrix:FILE
    /// [default: constant:1s; in an open workload uniform:0s..200ms; on an overlay uniform:20ms..100ms]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub latency: Option<Model>,
    /// Whether messages on one link keep their order: ordered, unordered [default: ordered]
    #[arg(long)]
    #[serde(with = "by_name")]
    pub links: Option<Links>,
    /// How often each peer goes inside [default: 2000; of custody 30]
    #[arg(long, help_heading = CLOSED)]
    pub entries: Option<u32>,
    /// How long votes are good for without renewal, and of custody sessions [default: 10s; of custody 15s]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub lease: Option<Span>,
    /// How long it runs before anything is measured [default: 300s; on an overlay 0s, or longer, and then every
    /// resource is asked for once at the beginning, so that whoever has to be elected is]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub settle: Option<Span>,
    /// How long it is measured after that [default: 600s]
    #[arg(long, value_name = "TIME", help_heading = OPEN, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub measure: Option<Span>,
    /// How many rounds [default: 20]
    #[arg(long, help_heading = ROUNDS)]
    pub rounds: Option<u32>,
    /// How long a round is [default: 10s]
    #[arg(long, value_name = "TIME", help_heading = ROUNDS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub round: Option<Span>,
    /// How many requests there are in a round; each resource that is held is released with probability ½ [default: 20]
    #[arg(long, help_heading = ROUNDS)]
    pub requests: Option<u32>,
    /// Whether that is the number of requests in all or at each peer: whole, per-peer [default: whole]
    #[arg(long, help_heading = ROUNDS)]
    #[serde(with = "by_name")]
    pub load: Option<sim::Load>,
    /// How many peers join or fail in each round, half of them each [default: 0]
    #[arg(long, value_name = "PEERS", help_heading = ROUNDS)]
    pub churn: Option<u32>,
    /// How soon a client of sigma on an overlay asks again, at the soonest [default: half a round]
    #[arg(long, value_name = "TIME", help_heading = ROUNDS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub retry: Option<Span>,
    /// How long a replica lives on average before it forgets everything [default: for ever]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub replica_life: Option<Span>,
    /// The share of messages that are lost [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub loss: Option<f64>,
    /// The share of messages that arrive twice [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub duplication: Option<f64>,
    /// The share of clients that crash, half of them while they wait and half inside [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub client_crash: Option<f64>,
    /// The share of messages that are held up on their way, and for how long on average: 0.01/5s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub delay: Option<Pair<f64, Span>>,
    /// A peer crashes with all its clients, and restarts with what its disk has kept: how often one does, and for how
    /// long it is down, on average: 60s/5s
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub crash: Option<Pair<Span, Span>>,
    /// A peer crashes for good: how often one does, on average
    #[arg(long, value_name = "EVERY", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub death: Option<Span>,
    /// A peer is frozen, and handles everything at once when it thaws: how often one is, and for how long, on average:
    /// 60s/5s
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub freeze: Option<Pair<Span, Span>>,
    /// Half of the peers and the other half do not hear of each other: how often, and for how long, on average:
    /// 60s/10s; or only one way, one-way:60s/10s; or but for a third that hears and is heard by both, partial:60s/10s;
    /// or one pair of peers in four, pairs:60s/10s
    #[arg(long, value_name = "EVERY/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub partition: Option<Partition>,
    /// The share of clients that are cut off from everybody as soon as they are inside, and for how long on average:
    /// 0.1/10s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub cut_off: Option<Pair<f64, Span>>,
    /// The share of clients that withdraw, or leave early, some time after they asked [default: 0]
    #[arg(long, value_name = "SHARE", help_heading = FAULTS)]
    pub withdrawal: Option<f64>,
    /// A share of the peers crashes for good at one moment, so long after the beginning: 0.2/1000s
    #[arg(long, value_name = "SHARE/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub catastrophe: Option<Pair<f64, Span>>,
    /// After how long peers are told that another is gone, or seems to be: it has crashed, is frozen or is parted from
    /// them for longer [default: nobody is told; with --backups 5s]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub detection: Option<Span>,
    /// By how much clocks are ahead at most, and by how many parts per million they are fast or slow at most: 1s/200
    #[arg(long, value_name = "TIME/PPM", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub clocks: Option<Pair<Span, u64>>,
    /// With --replica-life: at most how many replicas forget within any interval of this length: 2/10s
    #[arg(long, value_name = "REPLICAS/TIME", help_heading = FAULTS)]
    #[serde(with = "by_name")]
    pub resets_at_most: Option<Pair<u32, Span>>,
    /// With --replica-life: how long a replica that has just forgotten is cut off from everybody, on average [default:
    /// 0s]
    #[arg(long, value_name = "TIME", help_heading = FAULTS, allow_hyphen_values = true)]
    #[serde(with = "by_name")]
    pub down_after_reset: Option<Span>,
    /// Count broken rules instead of stopping at the first
    #[arg(long, help_heading = FAULTS)]
    pub count_violations: bool,
    /// How many trials [default: 10]
    #[arg(long)]
    pub trials: Option<u32>,
    /// How many of each peer's first entries the steady state leaves out [default: 20; of custody 5]
    #[arg(long, value_name = "ENTRIES", help_heading = CLOSED)]
    pub warm_up: Option<u32>,
    /// The seed of all random numbers; the same seed gives the same result [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
}

impl Flags {
    /// Returns the given values by name, in the order of the help.
    pub(crate) fn present(&self) -> Vec<(String, Value)> {
        let all = serde_json::to_value(self).expect("flags are names, words and numbers");
        let help = Self::augment_args(Command::new("simulate"));
        let names = help.get_arguments().filter_map(|flag| flag.get_long());
        let is_there = |value: &Value| !value.is_null() && *value != Value::Bool(false);
        let pair = |name: &str| Some((name.to_string(), all.get(name).filter(|value| is_there(value))?.clone()));
        names.filter_map(pair).collect()
    }

    /// Returns the given values as typed; a switch that is on is `true`.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        let in_words = |value| match value {
            Value::String(text) => text,
            // Whole numbers without a decimal point.
            Value::Number(number) if number.is_f64() => {
                number.as_f64().map_or(String::new(), |number| number.to_string())
            }
            other => other.to_string(),
        };
        self.present().into_iter().map(|(name, value)| (name, in_words(value))).collect()
    }
}

/// Values in their textual form.
mod by_name {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<T: Display, S: Serializer>(thing: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
        match thing {
            Some(thing) => serializer.collect_str(&format_args!("{thing:#}")), // A time as 200ms, not 0.2s.
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
