//! What stands behind one dot of a figure: a run, or what theory says of it.

use peerlock_catalogue::{self as catalogue, Load, Setting};
use peerlock_sim::latency::Model;

use crate::metric::{Measured, Theory};

/// The protocol of experiment files that is computed and not run.
const THEORY: &str = "theory";

/// One run of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    /// It is simulated.
    Simulated(Setting),
    /// It is computed: quorum arithmetic for these replicas, clients and latencies.
    Computed(Setting),
}

impl Point {
    /// A point from a table of an experiment file. The file may say its own seed.
    ///
    /// # Errors
    /// A setting is unknown or makes no sense; in a sentence.
    pub fn from_table(mut table: toml::Table, seed: u64) -> Result<Self, String> {
        let is_computed = table.get("protocol").and_then(toml::Value::as_str) == Some(THEORY);
        if is_computed {
            table.insert("protocol".into(), "sigma".into());
        }
        let has_seed = table.contains_key("seed");
        let mut setting: Setting = table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        if !has_seed {
            setting.seed = seed;
        }
        if !is_computed {
            return Ok(Self::Simulated(setting));
        }
        theory(&setting)?;
        Ok(Self::Computed(setting))
    }

    fn setting(&self) -> &Setting {
        match self {
            Self::Simulated(setting) | Self::Computed(setting) => setting,
        }
    }

    /// How many trials it has; a computed point has none.
    pub fn trials(&self) -> u64 {
        match self {
            Self::Simulated(setting) => u64::from(setting.trials),
            Self::Computed(_) => 0,
        }
    }

    /// The settings as text, by name.
    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.setting().pairs();
        if let Self::Computed(_) = self {
            pairs.retain(|(name, _)| name != "form");
            pairs.iter_mut().filter(|(name, _)| name == "protocol").for_each(|(_, protocol)| *protocol = THEORY.into());
        }
        pairs
    }

    /// What a run costs: about how many clients go inside.
    pub fn cost(&self) -> u64 {
        match self {
            Self::Simulated(setting) => setting.cost(),
            Self::Computed(_) => 0,
        }
    }

    /// What a person sees while it runs.
    pub fn name(&self) -> String {
        match self {
            Self::Simulated(setting) => setting.name(),
            Self::Computed(_) => THEORY.into(),
        }
    }

    /// What it is, in full: the command that does the same run.
    pub fn command(&self) -> String {
        match self {
            Self::Simulated(setting) => setting.command(),
            Self::Computed(setting) => format!("{THEORY} of {}", setting.command()),
        }
    }

    /// Does the run. `progress` is told how much of its cost is done.
    ///
    /// # Errors
    /// A file of latencies cannot be read, or a rule was broken.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Measured, catalogue::Error> {
        match self {
            Self::Simulated(setting) => setting.run(progress).map(Measured::from),
            Self::Computed(setting) => {
                Ok(Measured::from(theory(setting).expect("a point is computed only if there is a theory of it")))
            }
        }
    }
}

/// What theory says: as many are served as come or as the latencies allow; and how likely a quorum breaks while a
/// client stays inside.
fn theory(setting: &Setting) -> Result<Theory, String> {
    let Load::Open(open) = &setting.load else { return Err("there is a theory of open workloads only".into()) };
    let (low, high) = match setting.latency {
        Model::Constant(delay) => (delay, delay),
        Model::Uniform { low, high } | Model::Jitter { low, high } => (low, high),
        Model::King | Model::Matrix(_) => return Err(format!("there is no theory of latency {}", setting.latency)),
    };
    let life = setting.faults.replica_life.map(|life| life.as_secs_f64());
    let forgets = life.zip(open.hold).map(|(life, hold)| hold.mean() / life);
    let served = match open.hold {
        // One more term between two clients.
        Some(hold) => 1.0 / (1.0 / open.voters.quorum.saturation(low, high) + hold.mean()),
        None => open.voters.quorum.saturation(low, high),
    };
    Ok(Theory {
        throughput: open.arrival_rate.min(served),
        violations: forgets.map(|forgets| open.voters.quorum.broken(forgets)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    fn point(change: &str) -> Result<Point, String> {
        let mut table: toml::Table = toml::from_str(
            r#"
            protocol = "theory"
            replicas = 32
            votes = 24
            arrival-rate = 1
            latency = "uniform:0s..200ms"
            "#,
        )
        .unwrap();
        table.extend(toml::from_str::<toml::Table>(change).unwrap());
        Point::from_table(table, 7)
    }

    #[test]
    fn theory_is_the_arithmetic_of_quorums() {
        let of = |change: &str, metric: &str| {
            Metric::named(metric).unwrap().of(&point(change).unwrap().run(&|_| {}).unwrap())
        };
        assert_eq!(of("arrival-rate = 3", "throughput"), Some(3.0));
        assert_eq!(of("arrival-rate = 30\nlatency = 'constant:100ms'", "throughput"), Some(5.0));
        assert_eq!(of("", "violations"), None);
        let broken = of("hold = '10s'\nreplica-life = '10000s'", "violations").unwrap();
        assert!((broken / 7.2995e-43 - 1.0).abs() < 1e-3, "{broken:e}");
    }

    #[test]
    fn theory_has_a_name_and_settings_but_no_form_and_no_cost() {
        let theory = point("").unwrap();
        assert_eq!((theory.name().as_str(), theory.cost()), ("theory", 0));
        assert_eq!(theory.pairs()[0], ("protocol".into(), "theory".into()));
        assert!(theory.pairs().iter().all(|(name, _)| name != "form"));
        assert!(theory.pairs().contains(&("seed".into(), "7".into())));
        assert_ne!(theory.command(), point("protocol = 'sigma'").unwrap().command());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (change, start) in [
            ("overlay = 'pastry'", "arrival-rate has no effect on sigma on pastry"),
            ("latency = 'king'", "latency king has so many hosts"),
            ("votes = 16", "16 votes of 32 replicas are no quorum"),
            ("colour = 'red'", "unknown field `colour`"),
        ] {
            let error = point(change).unwrap_err();
            assert!(error.starts_with(start), "{change}: {error}");
        }
    }

    #[test]
    fn a_run_on_an_overlay_has_messages_grants_and_load() {
        let table = r#"
            protocol = "sigma"
            overlay = "pastry"
            peers = 100
            resources = 5
            rounds = 4
            requests = 10
            lease = "600s"
            trials = 2
            "#;
        let point = Point::from_table(toml::from_str(table).unwrap(), 1).unwrap();
        let measured = point.run(&|_| {}).unwrap();
        let of = |name| Metric::named(name).unwrap().of(&measured).unwrap();
        assert!(of("sent") > 0.0 && of("grants") > 0.0);
        assert!((of("messages") - of("sent") / of("grants")).abs() < 1e-9);
        assert_eq!((of("violations"), of("stuck"), of("upkeep")), (0.0, 0.0, 0.0));
        assert!(of("load-p50") <= of("load-p99") && of("load-p99") <= of("load-max"));
        assert_eq!(measured.distribution().1.len(), 101);
    }
}
