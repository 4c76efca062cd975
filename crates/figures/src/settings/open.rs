//! Runs of clients without number, who ask replicas for their votes; and what theory says about them.

use std::fmt;
use std::str::FromStr;

use peerlock_base::Span;
use peerlock_mutex::Quorum;
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Failure, Faults, Hold, Links, Poisson, text};
use serde::{Deserialize, Serialize};

use super::{by_name, in_words};
use crate::metric::{Measured, Theory};
use crate::{AnyProtocol, Form, UnknownProtocol, Voting};

/// The name of what is computed and not run.
pub const THEORY: &str = "theory";

/// How long votes are good for: the paper's upper bound of a stay.
const LEASE: Span = Span::from_secs(10);

/// The settings of one open run, as they stand in an experiment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Open {
    /// Which protocol, or `theory`.
    #[serde(with = "by_name")]
    protocol: Contender,
    /// As printed, or repaired; of protocols that have both.
    #[serde(with = "by_name")]
    form: Form,
    /// n: how many replicas.
    replicas: u32,
    /// m/n: which share of the votes wins.
    vote_share: f64,
    /// λ: how many clients come per second.
    arrival_rate: f64,
    /// How long a client stays inside; it leaves at once without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hold: Option<String>,
    /// One-way delay: `constant:100ms`, `uniform:0s..200ms`.
    latency: String,
    /// How long a replica lives on average; for ever without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replica_life: Option<f64>,
    /// How long it runs before anything is measured.
    settle: String,
    /// How long it is measured.
    measure: String,
    /// Broken rules are counted and do not stop the run.
    #[serde(default)]
    count_violations: bool,
    /// How many trials.
    pub trials: u32,
}

/// Who stands in a figure of open runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contender {
    Runs(Voting),
    /// No protocol: the arithmetic of quorums.
    Theory,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runs(voting) => voting.fmt(f),
            Self::Theory => f.write_str(THEORY),
        }
    }
}

impl FromStr for Contender {
    type Err = UnknownProtocol;

    fn from_str(name: &str) -> Result<Self, UnknownProtocol> {
        match name.parse() {
            _ if name == THEORY => Ok(Self::Theory),
            Ok(AnyProtocol::Open(voting)) => Ok(Self::Runs(voting)),
            Ok(AnyProtocol::Closed(_) | AnyProtocol::Routed(_)) => Err(UnknownProtocol::new(name)),
            Err(unknown) => Err(unknown),
        }
    }
}

impl Open {
    /// As [`super::Settings::from_table`].
    pub fn from_table(table: toml::Table) -> Result<Self, String> {
        let settings: Self = table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        settings.open(0)?;
        settings.theory()?;
        Ok(settings)
    }

    fn quorum(&self) -> Result<Quorum, String> {
        let (n, m) = (self.replicas, (self.vote_share * f64::from(self.replicas)).round() as u32);
        if !(1..=64).contains(&n) || m > n || 2 * m <= n {
            return Err(format!("{m} votes of {n} replicas are no quorum: it takes more than half of up to 64"));
        }
        Ok(Quorum::new(n, m))
    }

    fn model(&self) -> Result<Model, String> {
        let model: Model = self.latency.parse().map_err(in_words)?;
        if model.is_boundless() { Ok(model) } else { Err(format!("{} has no place for every client", self.latency)) }
    }

    fn open(&self, seed: u64) -> Result<sim::Open, String> {
        let quorum = self.quorum()?;
        if !(self.arrival_rate > 0.0 && self.arrival_rate.is_finite()) {
            return Err(format!("the arrival rate {} must be a number above 0", self.arrival_rate));
        }
        if self.trials == 0 {
            return Err("trials must be at least 1".into());
        }
        if self.replica_life.is_some_and(|life| !(life > 0.0 && life.is_finite())) {
            return Err("the life of a replica must be a number of seconds above 0".into());
        }
        let hold: Option<Hold> = self.hold.as_ref().map(|hold| hold.parse().map_err(in_words)).transpose()?;
        Ok(sim::Open {
            replicas: quorum.replicas(),
            workload: Poisson {
                gap: Span::from_secs_f64(1.0 / self.arrival_rate),
                hold,
                settle: text::span(&self.settle).map_err(in_words)?,
                measure: text::span(&self.measure).map_err(in_words)?,
            },
            network: self.model()?.load(quorum.replicas() as usize).map_err(in_words)?,
            links: Links::Ordered,
            faults: Faults { replica_life: self.replica_life.map(Span::from_secs_f64), ..Faults::default() },
            lease: LEASE,
            count_violations: self.count_violations,
            trials: self.trials,
            seed,
        })
    }

    /// What theory says: as many are served as come or as the latencies allow; and how likely a quorum breaks while a
    /// client stays inside.
    fn theory(&self) -> Result<Theory, String> {
        let (low, high) = match self.model()? {
            Model::Constant(delay) => (delay, delay),
            Model::Uniform { low, high } | Model::Jitter { low, high } => (low, high),
            Model::King | Model::Matrix(_) => return Err(format!("there is no theory of {}", self.latency)),
        };
        let hold: Option<Hold> = self.hold.as_ref().map(|hold| hold.parse().map_err(in_words)).transpose()?;
        let quorum = self.quorum()?;
        let forgets = self.replica_life.zip(hold).map(|(life, hold)| hold.mean() / life);
        let served = match hold {
            // One more term between two clients.
            Some(hold) => 1.0 / (1.0 / quorum.saturation(low, high) + hold.mean()),
            None => quorum.saturation(low, high),
        };
        Ok(Theory {
            throughput: self.arrival_rate.min(served),
            violations: forgets.map(|forgets| quorum.broken(forgets)),
        })
    }

    /// As [`super::Settings::run`].
    pub fn run(&self, seed: u64, progress: impl Fn(u64) + Sync) -> Result<Result<Measured, Box<Failure>>, String> {
        match self.protocol {
            Contender::Theory => Ok(Ok(Measured::from(self.theory()?))),
            Contender::Runs(voting) => {
                let (open, per_trial) = (self.open(seed)?, self.clients_in_a_trial());
                let votes = self.quorum()?.votes();
                let report = voting.run(self.form, votes, &open, |trials| progress(trials * per_trial));
                Ok(report.map(Measured::from))
            }
        }
    }

    /// About how many come in one trial; nobody where nothing is run.
    pub fn clients_in_a_trial(&self) -> u64 {
        let secs = |span| text::span(span).map_or(0.0, Span::as_secs_f64);
        match self.protocol {
            Contender::Theory => 0,
            Contender::Runs(_) => (self.arrival_rate * (secs(&self.settle) + secs(&self.measure))).ceil() as u64,
        }
    }

    /// As [`super::Settings::name`].
    pub fn name(&self) -> String {
        format!("{} ({}), {} per second", self.protocol, self.form, self.arrival_rate)
    }

    /// As [`super::Settings::pairs`]; what is not set is not there.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let votes = self.quorum().map_or(0, Quorum::votes);
        let has_forms = matches!(self.protocol, Contender::Runs(voting) if voting.has_forms());
        let pairs = [
            ("protocol", Some(self.protocol.to_string())),
            ("form", has_forms.then(|| self.form.to_string())),
            ("replicas", Some(self.replicas.to_string())),
            ("votes", Some(votes.to_string())),
            ("arrival-rate", Some(self.arrival_rate.to_string())),
            ("hold", self.hold.clone()),
            ("latency", Some(self.latency.clone())),
            ("replica-life", self.replica_life.map(|life| format!("{life}s"))),
            ("settle", Some(self.settle.clone())),
            ("measure", Some(self.measure.clone())),
            ("count-violations", self.count_violations.then(|| "true".into())),
            ("trials", Some(self.trials.to_string())),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::metric::Metric;
    use crate::settings::Settings;

    fn settings(change: &str) -> Result<Settings, String> {
        let mut table: toml::Table = toml::from_str(
            r#"
            protocol = "sigma"
            form = "repaired"
            replicas = 8
            vote-share = 0.75
            arrival-rate = 1
            latency = "uniform:0s..200ms"
            settle = "10s"
            measure = "50s"
            trials = 2
            "#,
        )
        .unwrap();
        table.extend(toml::from_str::<toml::Table>(change).unwrap());
        Settings::from_table(table)
    }

    #[test]
    fn settings_become_a_command_that_does_the_same() {
        let settings = settings("replica-life = 30\nhold = '1s'\ncount-violations = true").unwrap();
        assert_eq!(
            settings.command(7),
            "peerlock simulate --protocol sigma --form repaired --replicas 8 --votes 6 --arrival-rate 1 --hold 1s \
             --latency uniform:0s..200ms --replica-life 30s --settle 10s --measure 50s --count-violations --trials 2 \
             --seed 7"
        );
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(toml::from_str::<Settings>(&text).unwrap(), settings);
        assert_eq!(settings.cost(), 120);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (change, start) in [
            ("replicas = 65", "49 votes of 65 replicas are no quorum"),
            ("vote-share = 0.5", "4 votes of 8 replicas are no quorum"),
            ("vote-share = 1.2", "10 votes of 8 replicas are no quorum"),
            ("arrival-rate = 0", "the arrival rate 0 must be"),
            ("trials = 0", "trials must be at least 1"),
            ("replica-life = 0", "the life of a replica must be"),
            ("hold = 'long'", "\"long\" is not a duration"),
            ("settle = 'soon'", "\"soon\" is not a duration"),
            ("latency = 'king'", "king has no place for every client"),
            ("peers = 3", "unknown field `peers`"),
        ] {
            let error = settings(change).unwrap_err();
            assert!(error.starts_with(start), "{change}: {error}");
        }
    }

    #[test]
    fn theory_is_the_arithmetic_of_quorums() {
        let of = |change: &str, metric: &str| {
            let settings = settings(&format!("protocol = 'theory'\nreplicas = 32\n{change}")).unwrap();
            Metric::named(metric).unwrap().of(&settings.run(1, |_| {}).unwrap().unwrap())
        };
        assert_eq!(of("arrival-rate = 3", "throughput"), Some(3.0));
        assert_eq!(of("arrival-rate = 30\nlatency = 'constant:100ms'", "throughput"), Some(5.0));
        assert_eq!(of("", "violations"), None);
        let broken = of("hold = '10s'\nreplica-life = 10000", "violations").unwrap();
        assert!((broken / 7.2995e-43 - 1.0).abs() < 1e-3, "{broken:e}");
    }
}
