//! The run or computation behind one dot of a figure.

use std::path::Path;

use peerlock_catalogue::{self as catalogue, Setting, Workload};
use peerlock_sim::Hold;
use peerlock_sim::latency::Model;

use crate::metric::{Measured, Theory};

/// The protocol of a computed point in experiment files.
const THEORY: &str = "theory";

#[derive(Clone, Debug, PartialEq)]
pub enum Point {
    Simulated(Setting),
    /// A computation: quorum arithmetic, or the order of arrival with one-message hand-over.
    Computed(Setting),
}

impl Point {
    /// Creates a point from a table of an experiment file, using `seed` if the table has none.
    ///
    /// # Errors
    /// A setting is unknown or invalid.
    pub fn from_table(mut table: toml::Table, seed: u64) -> Result<Self, String> {
        let is_computed = table.get("protocol").and_then(toml::Value::as_str) == Some(THEORY);
        if is_computed {
            let protocol = if table.contains_key("think-rate") { "fair-k-late" } else { "sigma" };
            table.insert("protocol".into(), protocol.into());
        }
        let has_seed = table.contains_key("seed");
        let setting: Setting = table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
        let setting = if has_seed { setting } else { setting.with_seed(seed) };
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

    pub fn trials(&self) -> u64 {
        match self {
            Self::Simulated(setting) => u64::from(setting.trials()),
            Self::Computed(_) => 0,
        }
    }

    pub fn pairs(&self) -> Vec<(String, String)> {
        let mut pairs = self.setting().pairs();
        if let Self::Computed(_) = self {
            pairs.retain(|(name, _)| name != "form");
            pairs.iter_mut().filter(|(name, _)| name == "protocol").for_each(|(_, protocol)| *protocol = THEORY.into());
        }
        pairs
    }

    pub fn cost(&self) -> u64 {
        match self {
            Self::Simulated(setting) => setting.cost(),
            Self::Computed(_) => 0,
        }
    }

    pub fn name(&self) -> String {
        match self {
            Self::Simulated(setting) => setting.name(),
            Self::Computed(_) => THEORY.into(),
        }
    }

    /// Returns the latency file of the run, if any, and the number of hosts.
    pub fn latencies(&self) -> Option<(&Path, usize)> {
        match self {
            Self::Simulated(setting) => match &setting.latency {
                Some(Model::Matrix(file)) => Some((file, setting.hosts())),
                _ => None,
            },
            Self::Computed(_) => None,
        }
    }

    pub fn command(&self) -> String {
        match self {
            Self::Simulated(setting) => setting.command(),
            Self::Computed(setting) => format!("{THEORY} of {}", setting.command()),
        }
    }

    /// Runs it. `progress` receives the completed cost since its last call.
    ///
    /// # Errors
    /// A latency file cannot be read, or a rule was violated.
    pub fn run(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Measured, catalogue::Error> {
        match self {
            Self::Simulated(setting) => setting.run(progress).map(Measured::from),
            Self::Computed(setting) => Ok(Measured::from(theory(setting).expect("a computed point has a theory"))),
        }
    }
}

fn theory(setting: &Setting) -> Result<Theory, String> {
    match setting.workload() {
        Workload::Open => of_quorums(setting),
        Workload::Closed => of_one_message(setting),
        Workload::Rounds => Err("no theory for rounds on an overlay".into()),
    }
}

/// Throughput is limited by arrivals or latencies; a violation is a quorum that is reset during a hold.
fn of_quorums(setting: &Setting) -> Result<Theory, String> {
    let (Some(quorum), Some(rate)) = (setting.quorum(), setting.arrival_rate) else {
        return Err("theory needs replicas and arrivals".into());
    };
    let (low, high) = match setting.latency {
        Some(Model::Constant(delay)) => (delay, delay),
        Some(Model::Uniform { low, high } | Model::Jitter { low, high }) => (low, high),
        _ => return Err("theory needs constant, uniform or jitter latency".into()),
    };
    let life = setting.replica_life.map(|life| life.as_secs_f64());
    let forgets = life.zip(setting.hold).map(|(life, hold)| hold.mean() / life);
    let served = match setting.hold {
        // The hold adds to the time between two grants.
        Some(hold) => 1.0 / (1.0 / quorum.saturation(low, high) + hold.mean()),
        None => quorum.saturation(low, high),
    };
    let violations = forgets.map(|forgets| quorum.broken(forgets));
    Ok(Theory { throughput: Some(rate.min(served)), violations, spread: None })
}

/// How much the mean wait may exceed the ideal's in exchange for order: our choice.
const EXCESS: f64 = 0.01;

/// Estimates the spread of waits if a hand-over takes one message and the mean wait stays close to the ideal's: a
/// limited number of holders can know the oldest waiter, which enters when the first of them releases. An estimate of
/// means, not a bound; derived in lab/docs/papers/fair-k-late.md.
fn of_one_message(setting: &Setting) -> Result<Theory, String> {
    let (Some(Hold::Exponential(hold)), Some(Model::Constant(message))) = (setting.hold, &setting.latency) else {
        return Err("theory needs exponential holds and constant latency".into());
    };
    let (hold, message) = (hold.as_secs_f64(), message.as_secs_f64());
    let know = (1.0 + EXCESS * (hold / message).powi(2)).min(setting.slots.map_or(1.0, f64::from));
    let entries = setting.cost() as f64 / f64::from(setting.trials());
    Ok(Theory { spread: Some(hold / know * (entries.ln() - 1.0)), ..Theory::default() })
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

    /// If a hold is 10 message delays, two holders may know the oldest waiter; if 100, 101; with one slot, one.
    #[test]
    fn theory_covers_order_with_one_message() {
        let spread = |slots, latency| {
            let text = format!(
                "protocol = 'theory'\npeers = 100\nslots = {slots}\nthink-rate = 0.5\nhold = 'exp:10s'\n\
                 latency = 'constant:{latency}'\nentries = 2000"
            );
            let point = Point::from_table(toml::from_str(&text).unwrap(), 1).unwrap();
            Metric::named("trial-spread").unwrap().of(&point.run(&|_| {}).unwrap()).unwrap()
        };
        let longest = 200_000_f64.ln() - 1.0;
        for (slots, latency, expected) in [(1, "1s", 10.0), (10, "1s", 5.0), (50, "1s", 5.0), (50, "100ms", 0.2)] {
            assert!((spread(slots, latency) - expected * longest).abs() < 1e-9, "{slots} slots, {latency}");
        }
        let constant = "protocol = 'theory'\nthink-rate = 0.5\nhold = '10s'\nlatency = 'constant:1s'";
        let refused = Point::from_table(toml::from_str(constant).unwrap(), 1).unwrap_err();
        assert!(refused.starts_with("theory needs exponential holds"), "{refused}");
    }

    #[test]
    fn computed_point_has_settings_but_no_form_and_no_cost() {
        let theory = point("").unwrap();
        assert_eq!((theory.name().as_str(), theory.cost()), ("theory", 0));
        assert_eq!(theory.pairs()[0], ("protocol".into(), "theory".into()));
        assert!(theory.pairs().iter().all(|(name, _)| name != "form"));
        assert!(theory.pairs().contains(&("seed".into(), "7".into())));
        assert_ne!(theory.command(), point("protocol = 'sigma'").unwrap().command());
    }

    #[test]
    fn invalid_settings_are_refused() {
        for (change, start) in [
            ("overlay = 'pastry'", "arrival-rate has no effect on sigma on pastry"),
            ("latency = 'king'", "latency king has a fixed number of hosts"),
            ("votes = 16", "16 votes of 32 replicas are not a quorum"),
            ("colour = 'red'", "unknown field `colour`"),
        ] {
            let error = point(change).unwrap_err();
            assert!(error.starts_with(start), "{change}: {error}");
        }
    }

    #[test]
    fn overlay_run_has_messages_grants_and_load() {
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
        let value = |name| Metric::named(name).unwrap().of(&measured);
        assert_eq!(value("whole-messages"), value("messages"), "later messages are not counted");
        assert_eq!((value("idle"), value("overtaking")), (None, None), "not measured in rounds");
    }

    /// The two counts differ by the start and the end of a run.
    #[test]
    fn messages_agree_in_steady_state_and_whole_runs() {
        for protocol in ["sigma", "custody"] {
            let table = format!("protocol = '{protocol}'\npeers = 6\nentries = 20\nwarm-up = 5\ntrials = 1");
            let point = Point::from_table(toml::from_str(&table).unwrap(), 1).unwrap();
            let measured = point.run(&|_| {}).unwrap();
            let of = |name| Metric::named(name).unwrap().of(&measured).unwrap();
            let ratio = of("messages") / of("whole-messages");
            assert!((0.8..1.1).contains(&ratio), "{protocol}: {ratio}");
        }
    }
}
