//! Runs of peers on an overlay, round after round.

use peerlock_mutex::Quorum;
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Failure, Report, text};
use serde::{Deserialize, Serialize};

use super::{by_name, in_words};
use crate::{Form, Routed};

/// The settings of one run, as they stand in an experiment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rounds {
    /// Which protocol.
    #[serde(with = "by_name")]
    protocol: Routed,
    /// `printed` or `repaired`, of a protocol that has both here; repaired if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<String>,
    /// `chord` or `pastry`.
    overlay: String,
    /// How many peers.
    peers: u32,
    /// How many resources.
    resources: u32,
    /// n: how many replicas each has.
    replicas: u32,
    /// m: how many votes win; the smallest majority if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    votes: Option<u32>,
    /// How long before the first round every resource is asked for once.
    settle: String,
    /// How many rounds.
    rounds: u32,
    /// How long a round is.
    round: String,
    /// How many requests there are in a round …
    requests: u32,
    /// … in all (`whole`) or at each peer (`per-peer`).
    load: String,
    /// How many peers fail or come in each round.
    #[serde(default)]
    churn: u32,
    /// One-way delay: `uniform:20ms..100ms`.
    latency: String,
    /// How long votes are good for without renewal.
    lease: String,
    /// Broken rules are counted and do not stop the run.
    #[serde(default)]
    count_violations: bool,
    /// How many trials.
    trials: u32,
}

impl Rounds {
    /// As [`super::Settings::from_table`].
    pub fn from_table(table: toml::Table) -> Result<Self, String> {
        let settings: Self = table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        settings.form()?;
        settings.rounds(0)?;
        Ok(settings)
    }

    fn form(&self) -> Result<Form, String> {
        match &self.form {
            Some(form) if !self.protocol.has_forms() => {
                Err(format!("{} has only one form on an overlay: leave form = {form:?} out", self.protocol))
            }
            Some(form) => form.parse().map_err(in_words),
            None => Ok(Form::Repaired),
        }
    }

    fn votes(&self) -> u32 {
        self.votes.unwrap_or(self.replicas / 2 + 1)
    }

    fn rounds(&self, seed: u64) -> Result<sim::Rounds, String> {
        let (n, m) = (self.replicas, self.votes());
        if !(1..=64).contains(&n) || m > n || 2 * m <= n {
            return Err(format!("{m} votes of {n} replicas are no quorum: it takes more than half of up to 64"));
        }
        for (name, number) in [
            ("peers", self.peers),
            ("resources", self.resources),
            ("rounds", self.rounds),
            ("requests", self.requests),
            ("trials", self.trials),
        ] {
            if number == 0 {
                return Err(format!("{name} must be at least 1"));
            }
        }
        if self.churn / 2 >= self.peers {
            return Err(format!("a churn of {} leaves none of {} peers", self.churn, self.peers));
        }
        let model: Model = self.latency.parse().map_err(in_words)?;
        if self.churn > 0 && !model.is_boundless() {
            return Err(format!("{} has no place for every peer that comes", self.latency));
        }
        Ok(sim::Rounds {
            peers: self.peers as usize,
            overlay: self.overlay.parse().map_err(in_words)?,
            resources: self.resources as usize,
            quorum: Quorum::new(n, m),
            settle: text::span(&self.settle).map_err(in_words)?,
            rounds: self.rounds as usize,
            round: text::span(&self.round).map_err(in_words)?,
            requests: self.requests as usize,
            load: self.load.parse().map_err(in_words)?,
            churn: self.churn as usize,
            network: model.load(self.peers as usize).map_err(in_words)?,
            lease: text::span(&self.lease).map_err(in_words)?,
            count_violations: self.count_violations,
            trials: self.trials,
            seed,
            ..sim::Rounds::default()
        })
    }

    /// As [`super::Settings::run`].
    pub fn run(&self, seed: u64, progress: impl Fn(u64) + Sync) -> Result<Result<Report, Box<Failure>>, String> {
        let (rounds, per_trial) = (self.rounds(seed)?, self.requests_in_a_trial());
        Ok(self.protocol.run(self.form()?, &rounds, |trials| progress(trials * per_trial)))
    }

    /// As [`super::Settings::cost`].
    pub fn cost(&self) -> u64 {
        u64::from(self.trials) * self.requests_in_a_trial()
    }

    fn requests_in_a_trial(&self) -> u64 {
        let askers = if self.load == "per-peer" { u64::from(self.peers) } else { 1 };
        u64::from(self.rounds) * u64::from(self.requests) * askers
    }

    /// As [`super::Settings::name`].
    pub fn name(&self) -> String {
        let form = self.form.as_ref().map(|form| format!(" ({form})")).unwrap_or_default();
        format!("{}{form} on {}, {} peers", self.protocol, self.overlay, self.peers)
    }

    /// As [`super::Settings::pairs`]; what is not set is not there.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let form = self.form().map_or_else(|_| String::new(), |form| form.to_string());
        let pairs = [
            ("protocol", Some(self.protocol.to_string())),
            ("form", self.protocol.has_forms().then_some(form)),
            ("overlay", Some(self.overlay.clone())),
            ("peers", Some(self.peers.to_string())),
            ("resources", Some(self.resources.to_string())),
            ("replicas", Some(self.replicas.to_string())),
            ("votes", Some(self.votes().to_string())),
            ("settle", Some(self.settle.clone())),
            ("rounds", Some(self.rounds.to_string())),
            ("round", Some(self.round.clone())),
            ("requests", Some(self.requests.to_string())),
            ("load", Some(self.load.clone())),
            ("churn", Some(self.churn.to_string())),
            ("latency", Some(self.latency.clone())),
            ("lease", Some(self.lease.clone())),
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
            overlay = "pastry"
            peers = 100
            resources = 5
            replicas = 10
            settle = "0s"
            rounds = 4
            round = "10s"
            requests = 10
            load = "whole"
            latency = "uniform:20ms..100ms"
            lease = "600s"
            trials = 2
            "#,
        )
        .unwrap();
        table.extend(toml::from_str::<toml::Table>(change).unwrap());
        Settings::from_table(table)
    }

    #[test]
    fn settings_become_a_command_that_does_the_same() {
        let settings = settings("count-violations = true").unwrap();
        assert_eq!(
            settings.command(7),
            "peerlock simulate --protocol sigma --overlay pastry --peers 100 --resources 5 --replicas 10 --votes 6 \
             --settle 0s --rounds 4 --round 10s --requests 10 --load whole --churn 0 --latency uniform:20ms..100ms \
             --lease 600s --count-violations --trials 2 --seed 7"
        );
        let text = toml::to_string(&settings).unwrap();
        assert_eq!(Settings::from_table(toml::from_str(&text).unwrap()).unwrap(), settings);
        assert_eq!(settings.cost(), 80);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (change, start) in [
            ("replicas = 65", "33 votes of 65 replicas are no quorum"),
            ("votes = 5", "5 votes of 10 replicas are no quorum"),
            ("requests = 0", "requests must be at least 1"),
            ("churn = 200", "a churn of 200 leaves none of 100 peers"),
            ("churn = 2\nlatency = 'king'", "king has no place for every peer that comes"),
            ("overlay = 'can'", "unknown overlay \"can\": use chord or pastry"),
            ("load = 'much'", "unknown load \"much\": use whole or per-peer"),
            ("form = 'printed'", "sigma has only one form on an overlay"),
            ("protocol = 'fair-k'", "unknown protocol \"fair-k\""),
            ("slots = 3", "unknown field `slots`"),
        ] {
            let error = settings(change).unwrap_err();
            assert!(error.starts_with(start), "{change}: {error}");
        }
    }

    #[test]
    fn a_run_has_messages_grants_and_load() {
        let measured = settings("").unwrap().run(1, |_| {}).unwrap().unwrap();
        let of = |name| Metric::named(name).unwrap().of(&measured).unwrap();
        assert!(of("sent") > 0.0 && of("grants") > 0.0);
        assert!((of("messages") - of("sent") / of("grants")).abs() < 1e-9);
        assert_eq!((of("violations"), of("stuck"), of("upkeep")), (0.0, 0.0, 0.0));
        assert!(of("load-p50") <= of("load-p99") && of("load-p99") <= of("load-max"));
        assert_eq!(measured.distribution().1.len(), 101);
    }
}
