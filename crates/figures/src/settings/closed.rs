//! Runs of so many peers, each of which asks again and again.

use peerlock_base::Span;
use peerlock_sim::latency::Model;
use peerlock_sim::{self as sim, Experiment, Hold, Links};
use serde::{Deserialize, Serialize};

use super::{by_name, in_words};
use crate::{Form, Protocol};

/// The settings of one run, as they stand in an experiment file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Closed {
    /// Which protocol.
    #[serde(with = "by_name")]
    pub protocol: Protocol,
    /// `printed` or `repaired`, of a protocol that has both; repaired if nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    form: Option<String>,
    /// How many peers.
    pub peers: u32,
    /// How many may be inside at a time.
    pub slots: u32,
    /// How long a client stays inside: `10s`, `exp:10s`, `two-point:1s/100s`.
    pub hold: String,
    /// λ: how often a peer asks per second of thinking.
    pub think_rate: f64,
    /// One-way delay: `constant:1s`, `jitter:0s..2s`, `king`.
    pub latency: String,
    /// `ordered` or `unordered`.
    pub links: String,
    /// How often each peer goes inside.
    pub entries: u32,
    /// How many trials.
    pub trials: u32,
    /// How many of each peer's first entries the steady state leaves out.
    pub warm_up: u32,
}

impl Closed {
    /// The settings as text, by name.
    pub fn pairs(&self) -> Vec<(&'static str, String)> {
        let form =
            self.protocol.has_forms().then(|| self.form().map_or_else(|_| String::new(), |form| form.to_string()));
        let pairs = [
            ("protocol", Some(self.protocol.to_string())),
            ("form", form),
            ("peers", Some(self.peers.to_string())),
            ("slots", Some(self.slots.to_string())),
            ("hold", Some(self.hold.clone())),
            ("think-rate", Some(self.think_rate.to_string())),
            ("latency", Some(self.latency.clone())),
            ("links", Some(self.links.clone())),
            ("entries", Some(self.entries.to_string())),
            ("trials", Some(self.trials.to_string())),
            ("warm-up", Some(self.warm_up.to_string())),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Which form is run.
    ///
    /// # Errors
    /// There is no such form of this protocol; in a sentence.
    pub fn form(&self) -> Result<Form, String> {
        match &self.form {
            Some(form) if !self.protocol.has_forms() => {
                Err(format!("{} has only one form: leave form = {form:?} out", self.protocol))
            }
            Some(form) => form.parse().map_err(in_words),
            None => Ok(Form::Repaired),
        }
    }

    /// The settings of a run from a table of an experiment file.
    ///
    /// # Errors
    /// A setting is missing, unknown, or makes no sense; in a sentence.
    pub fn from_table(table: toml::Table) -> Result<Self, String> {
        let settings: Self = table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        settings.form()?;
        settings.experiment(0)?;
        Ok(settings)
    }

    /// The experiment that these settings describe.
    ///
    /// # Errors
    /// A setting makes no sense; in a sentence.
    pub fn experiment(&self, seed: u64) -> Result<Experiment, String> {
        for (name, number) in
            [("peers", self.peers), ("slots", self.slots), ("entries", self.entries), ("trials", self.trials)]
        {
            if number == 0 {
                return Err(format!("{name} must be at least 1"));
            }
        }
        if !(self.think_rate > 0.0 && self.think_rate.is_finite()) {
            return Err(format!("the think rate {} must be a number above 0", self.think_rate));
        }
        let hold: Hold = self.hold.parse().map_err(in_words)?;
        let latency: Model = self.latency.parse().map_err(in_words)?;
        let links: Links = self.links.parse().map_err(in_words)?;
        Ok(Experiment {
            peers: self.peers as usize,
            servers: 0,
            slots: self.slots,
            workload: sim::Closed { think: Span::from_secs_f64(1.0 / self.think_rate), hold, entries: self.entries },
            network: latency.load(self.peers as usize).map_err(in_words)?,
            links,
            faults: sim::Faults::default(),
            count_violations: false,
            warm_up: self.warm_up,
            trials: self.trials,
            seed,
        })
    }

    /// How often somebody goes inside in one trial: what a run costs.
    pub fn entries_in_a_trial(&self) -> u64 {
        u64::from(self.peers) * u64::from(self.entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(change: &str) -> toml::Table {
        let mut table: toml::Table = toml::from_str(
            r#"
            protocol = "fair-k"
            form = "printed"
            peers = 4
            slots = 2
            hold = "10s"
            think-rate = 1
            latency = "constant:1s"
            links = "ordered"
            entries = 5
            trials = 2
            warm-up = 1
            "#,
        )
        .unwrap();
        table.extend(toml::from_str::<toml::Table>(change).unwrap());
        table
    }

    #[test]
    fn settings_are_read_and_listed_by_name() {
        let settings = Closed::from_table(table("")).unwrap();
        let listed = toml::Table::try_from(&settings).unwrap();
        for (name, value) in settings.pairs() {
            let written = match &listed[name] {
                toml::Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // Whole numbers are written without a point in a list.
            assert_eq!(written.trim_end_matches(".0"), value, "{name}");
        }
        assert_eq!(listed.len(), settings.pairs().len());
    }

    #[test]
    fn a_form_is_listed_only_where_there_are_two() {
        let form = |change: &str, without: &str| {
            let mut table = table(change);
            table.remove(without);
            let pairs = Closed::from_table(table).unwrap().pairs();
            pairs.into_iter().find(|(name, _)| *name == "form").map(|(_, form)| form)
        };
        assert_eq!(form("", ""), Some("printed".into()));
        assert_eq!(form("", "form"), Some("repaired".into()));
        assert_eq!(form("protocol = 'ideal'", "form"), None);
    }

    #[test]
    fn settings_that_make_no_sense_are_refused() {
        for (change, start) in [
            ("peers = 0", "peers must be at least 1"),
            ("trials = 0", "trials must be at least 1"),
            ("think-rate = 0.0", "the think rate 0 must be"),
            ("hold = 'long'", "\"long\" is not a duration"),
            ("latency = 'far'", "unknown latency \"far\""),
            ("links = 'loose'", "unknown links \"loose\""),
            ("protocol = 'none'", "unknown protocol \"none\""),
            ("form = 'none'", "unknown form \"none\""),
            ("protocol = 'bv95'", "bv95 has only one form"),
            ("colour = 'red'", "unknown field `colour`"),
        ] {
            let error = Closed::from_table(table(change)).unwrap_err();
            assert!(error.starts_with(start), "{change}: {error}");
        }
        let mut short = table("");
        short.remove("hold");
        assert_eq!(Closed::from_table(short).unwrap_err(), "missing field `hold`");
    }
}
