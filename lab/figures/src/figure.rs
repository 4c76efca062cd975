//! Experiment files. `lab/docs/reproduce.md` explains every field.

use std::collections::BTreeMap;

use peerlock_types::Span;
use serde::Deserialize;
use toml::{Table, Value};

use crate::metric::Metric;
use crate::point::Point;

/// The value of the horizontal axis that omits the setting.
const NONE: &str = "none";

#[derive(Clone, Debug)]
pub struct Figure {
    pub id: String,
    pub source: String,
    pub file: File,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct File {
    pub title: String,
    /// The publication, or that the figure is our own.
    pub origin: String,
    pub shows: String,
    /// Whether the report has a table of promises and results.
    #[serde(default)]
    pub promises: bool,
    pub x: X,
    /// Default settings of all runs.
    base: Table,
    /// Overrides for a quick run.
    #[serde(default)]
    quick: Quick,
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    #[serde(rename = "curve")]
    pub curves: Vec<Curve>,
    #[serde(default)]
    pub published: Vec<Published>,
}

/// The horizontal axis.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct X {
    pub label: String,
    pub scale: Scale,
    /// The setting that varies. Without it, the figure shows the distribution of each peer's longest wait.
    parameter: Option<String>,
    #[serde(default)]
    values: Vec<Value>,
    /// Names of the values, for categories.
    #[serde(default)]
    pub names: Vec<String>,
    /// Settings that change with the values; each list is as long as `values`.
    #[serde(default)]
    with: BTreeMap<String, Vec<Value>>,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Linear; a vertical axis starts at 0.
    Linear,
    /// Logarithmic.
    Log,
    /// One position per value, in order.
    Category,
}

/// Overrides for a quick run.
#[derive(Clone, Debug, Default, Deserialize)]
struct Quick {
    values: Option<Vec<Value>>,
    #[serde(default)]
    with: BTreeMap<String, Vec<Value>>,
    #[serde(flatten)]
    settings: Table,
}

/// One diagram of a figure.
#[derive(Clone, Debug, Deserialize)]
pub struct Panel {
    pub title: String,
    /// The label of the vertical axis.
    pub label: String,
    /// The scale of the vertical axis.
    pub scale: Scale,
    /// The metric drawn; `None` for a distribution.
    metric: Option<String>,
    /// Curves that this panel omits.
    #[serde(default)]
    without: Vec<String>,
    /// The largest value of the horizontal axis that is run for this panel.
    until: Option<f64>,
    /// The curve that divides all others.
    #[serde(rename = "relative-to")]
    pub relative_to: Option<String>,
    #[serde(flatten)]
    settings: Table,
}

/// One curve, drawn in every panel that does not omit it.
#[derive(Clone, Debug, Deserialize)]
pub struct Curve {
    pub label: String,
    pub style: Option<usize>,
    /// The varying setting does not apply: the curve is run once and drawn level.
    #[serde(default)]
    level: bool,
    #[serde(default)]
    pub promises: Vec<Promise>,
    #[serde(flatten)]
    settings: Table,
}

/// The promise of a protocol under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Safety, and that every live client is served.
    Both,
    Safety,
    /// Neither; violations are only reported.
    Nothing,
}

/// A published number and our claim about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Published {
    pub what: String,
    /// The wording of the paper, such as "about 1580 s".
    pub says: String,
    pub value: f64,
    /// The range of the wording, if wider than `value`.
    means: Option<Range>,
    /// The panel; by default the first.
    panel: Option<String>,
    pub curve: String,
    x: Option<Value>,
    metric: String,
    /// For a ratio: the curve whose metric is divided by this one's.
    pub times_less_than: Option<String>,
    /// For a bend: three values of the horizontal axis; see [`Estimate::bend`](crate::estimate::Estimate::bend).
    bend: Option<[Value; 3]>,
    pub claim: Statement,
    /// The range in which our number must be: the published one if reproduced, otherwise our own.
    #[serde(default)]
    accept: Range,
    quick: Option<Range>,
    #[serde(default)]
    full_only: bool,
    /// The reason for a difference, or a remark.
    pub why: Option<String>,
}

/// A claim about a published number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statement {
    /// Our number is in the published range.
    Reproduced,
    /// Our number differs, for a stated reason.
    Differs,
    /// Our number agrees because of a choice that the paper leaves open.
    ByChoice,
}

/// A closed interval; a missing end is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    pub from: Option<f64>,
    pub to: Option<f64>,
}

impl Range {
    /// Returns whether both ends are finite and in order.
    fn is_valid(self) -> bool {
        let is_number = |end: Option<f64>| end.is_none_or(f64::is_finite);
        let is_backwards = self.from.zip(self.to).is_some_and(|(from, to)| from > to);
        is_number(self.from) && is_number(self.to) && !is_backwards
    }

    fn only(value: f64) -> Self {
        Self { from: Some(value), to: Some(value) }
    }

    pub fn has(self, value: f64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }

    pub fn meets(self, other: Self) -> bool {
        let starts_before_end = |a: Self, b: Self| a.from.zip(b.to).is_none_or(|(from, to)| from <= to);
        starts_before_end(self, other) && starts_before_end(other, self)
    }
}

#[derive(Clone, Debug)]
pub struct Number {
    pub published: Published,
    pub metric: Metric,
    pub point: Point,
    pub over: Option<Point>,
    pub bend: Option<[Dot; 3]>,
    pub accept: Range,
    /// The panel and the position on the horizontal axis, if it is drawn.
    pub mark: Option<(usize, f64)>,
}

impl Published {
    pub fn means(&self) -> Range {
        self.means.unwrap_or(Range::only(self.value))
    }
}

impl Number {
    /// Returns the unit of the published and the measured number.
    pub fn unit(&self) -> &'static str {
        if self.over.is_some() || self.bend.is_some() { "times" } else { self.metric.unit }
    }
}

#[derive(Clone, Debug)]
pub struct Dot {
    /// The position on the horizontal axis; 0 in a distribution.
    pub x: f64,
    pub point: Point,
}

#[derive(Clone, Debug)]
pub struct Resolved {
    pub figure: Figure,
    pub metrics: Vec<Option<Metric>>,
    /// By panel and curve; empty if the panel omits the curve.
    pub dots: Vec<Vec<Vec<Dot>>>,
    pub numbers: Vec<Number>,
}

impl File {
    /// Checks that every curve has one promise per value, in quick and full runs.
    fn check_promises(&self) -> Result<(), String> {
        if !self.promises {
            return Ok(());
        }
        for curve in &self.curves {
            let (promises, values) = (curve.promises.len(), self.x.values.len());
            if promises != values {
                return Err(format!("curve {:?} has {promises} promises for {values} values", curve.label));
            }
        }
        if self.x.scale != Scale::Category {
            return Err("a table of promises needs the scale \"category\"".into());
        }
        match self.panels.first() {
            Some(panel) if !panel.without.is_empty() || panel.until.is_some() => {
                Err(format!("panel {:?} of a table of promises must not omit anything", panel.title))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a quick run also overrides the settings that change with the values.
    fn check_quick(&self) -> Result<(), String> {
        let Quick { values, with, .. } = &self.quick;
        let missing = self.x.with.keys().find(|name| values.is_some() && !with.contains_key(*name));
        match (missing, with.keys().next()) {
            (Some(name), _) => Err(format!("quick has other values, but none of {name} for them")),
            (None, Some(name)) if values.is_none() => Err(format!("quick has {name}, but no values")),
            _ => Ok(()),
        }
    }
}

impl Figure {
    /// Reads an experiment file.
    ///
    /// # Errors
    /// Describes the first mistake in the file.
    pub fn parse(id: &str, source: &str) -> Result<Self, String> {
        let file: File = toml::from_str(source).map_err(|error| error.to_string())?;
        if file.panels.iter().any(|panel| panel.metric.is_none() != file.x.parameter.is_none()) {
            return Err("a panel has a metric if and only if the horizontal axis has a parameter".into());
        }
        let is_there = |label: &String| file.curves.iter().any(|curve| curve.label == *label);
        for panel in &file.panels {
            if let Some(label) = panel.without.iter().find(|label| !is_there(label)) {
                return Err(format!("there is no curve {label:?} to omit"));
            }
            if let Some(label) =
                panel.relative_to.iter().find(|label| !is_there(label) || panel.without.contains(label))
            {
                return Err(format!("there is no curve {label:?} to divide by"));
            }
        }
        file.check_promises()?;
        file.check_quick()?;
        let panels: Vec<&str> = file.panels.iter().map(|panel| panel.title.as_str()).collect();
        let curves: Vec<&str> = file.curves.iter().map(|curve| curve.label.as_str()).collect();
        for (names, kind) in [(panels, "panel"), (curves, "curve")] {
            if names.is_empty() {
                return Err(format!("there is no {kind}"));
            }
            if let Some(at) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
                return Err(format!("two {kind}s are called {:?}", names[at]));
            }
        }
        Ok(Self { id: id.into(), source: source.into(), file })
    }

    /// Resolves the runs, with `seed` unless the file has one.
    ///
    /// # Errors
    /// Describes the first mistake in the file.
    pub fn resolve(self, quick: bool, seed: u64) -> Result<Resolved, String> {
        let steps = self.steps(quick)?;
        let mut metrics = Vec::new();
        let mut dots = Vec::new();
        for panel in &self.file.panels {
            metrics.push(panel.metric.as_deref().map(Metric::named).transpose()?);
            let mut curves = Vec::new();
            for curve in &self.file.curves {
                let run = |(x, step): &(f64, Table)| {
                    let quick = if quick { &self.file.quick.settings } else { &Table::new() };
                    let step = if curve.level { &Table::new() } else { step };
                    let settings = merged([&self.file.base, quick, &panel.settings, &curve.settings, step]);
                    let point = Point::from_table(settings, seed)
                        .map_err(|what| format!("panel {:?}, curve {:?}: {what}", panel.title, curve.label))?;
                    Ok(Dot { x: *x, point })
                };
                let is_left_out = panel.without.contains(&curve.label);
                let is_run = |(x, _): &&(f64, Table)| !is_left_out && panel.until.is_none_or(|until| *x <= until);
                curves.push(steps.iter().filter(is_run).map(run).collect::<Result<Vec<_>, String>>()?);
            }
            if curves.iter().all(Vec::is_empty) {
                return Err(format!("panel {:?} has no runs", panel.title));
            }
            dots.push(curves);
        }
        let numbers = self.file.published.iter().filter(|published| !(quick && published.full_only));
        let numbers = numbers.map(|published| self.number(published, quick, &metrics, &dots));
        let numbers = numbers.collect::<Result<_, _>>()?;
        Ok(Resolved { figure: self, metrics, dots, numbers })
    }

    /// Returns the position and settings of each value of the horizontal axis.
    fn steps(&self, quick: bool) -> Result<Vec<(f64, Table)>, String> {
        let File { x, quick: quickly, .. } = &self.file;
        let Some(parameter) = &x.parameter else { return Ok(vec![(0.0, Table::new())]) };
        let (values, with) = match &quickly.values {
            Some(values) if quick => (values, &quickly.with),
            _ => (&x.values, &x.with),
        };
        let mut steps = Vec::new();
        for (at, value) in values.iter().enumerate() {
            let place = match (x.scale, number(value)) {
                (Scale::Category, _) => at as f64,
                (_, Some(place)) => place,
                (_, None) => return Err(format!("{value} is not a number: use the scale \"category\"")),
            };
            let mut step = Table::new();
            step.insert(parameter.clone(), value.clone());
            for (name, along) in with {
                if along.len() != values.len() {
                    let fewer = if along.len() < values.len() { "fewer" } else { "more" };
                    return Err(format!("{name} has {fewer} values than {parameter}"));
                }
                step.insert(name.clone(), along[at].clone());
            }
            step.retain(|_, value| value.as_str() != Some(NONE));
            steps.push((place, step));
        }
        if x.scale == Scale::Category && x.names.len() != values.len() {
            return Err(format!("{} values have {} names", values.len(), x.names.len()));
        }
        Ok(steps)
    }

    fn number(
        &self,
        published: &Published,
        quick: bool,
        metrics: &[Option<Metric>],
        dots: &[Vec<Vec<Dot>>],
    ) -> Result<Number, String> {
        let wrong = |why: &str| format!("the published number {:?} {why}", published.what);
        let panel = match &published.panel {
            None => 0,
            Some(title) => {
                let panel = self.file.panels.iter().position(|panel| panel.title == *title);
                panel.ok_or_else(|| wrong(&format!("names an unknown panel {title:?}")))?
            }
        };
        let place_of = |value: &Value| number(value).ok_or_else(|| wrong("has an x that is not a number"));
        let place = match (&published.x, &published.bend) {
            (None, None) => 0.0,
            (Some(value), _) | (None, Some([value, ..])) => place_of(value)?,
        };
        let run_at = |label: &str, place: f64| {
            let curve = self.file.curves.iter().position(|curve| curve.label == label);
            let curve = curve.ok_or_else(|| wrong(&format!("names an unknown curve {label:?}")))?;
            let dot = dots[panel][curve].iter().find(|dot| dot.x == place);
            dot.cloned().ok_or_else(|| wrong(&format!("is at x = {place}, which is not run")))
        };
        let run = |label: &str| run_at(label, place).map(|dot| dot.point);
        let over = published.times_less_than.as_deref().map(run).transpose()?;
        let bend = match &published.bend {
            Some([from, by, to]) => {
                let dot = |value| run_at(&published.curve, place_of(value)?);
                Some([dot(from)?, dot(by)?, dot(to)?])
            }
            None => None,
        };
        let metric = Metric::named(&published.metric)?;
        let accept = published.quick.filter(|_| quick).unwrap_or(published.accept);
        if !accept.is_valid() || !published.means().is_valid() {
            return Err(wrong("has an empty or infinite range"));
        }
        let (is_open, is_there) = (accept == Range::default(), published.accept.meets(published.means()));
        match published.claim {
            Statement::Reproduced if is_open => Err(wrong("is claimed without a range")),
            Statement::Differs if published.why.is_none() => Err(wrong("differs without a reason")),
            Statement::Differs if is_open => Err(wrong("differs without a range")),
            Statement::Differs if is_there => Err(wrong("differs, but its range includes the published number")),
            Statement::ByChoice if published.why.is_none() => Err(wrong("agrees by choice, without a reason")),
            Statement::ByChoice if is_open => Err(wrong("agrees by choice, without a range")),
            Statement::ByChoice if !is_there => {
                Err(wrong("agrees by choice, but its range excludes the published number"))
            }
            _ => {
                let is_plain = over.is_none() && bend.is_none() && self.file.panels[panel].relative_to.is_none();
                let drawn = is_plain && metrics[panel].is_some_and(|drawn| drawn.name == metric.name);
                Ok(Number {
                    published: published.clone(),
                    metric,
                    point: run(&published.curve)?,
                    over,
                    bend,
                    accept,
                    mark: drawn.then_some((panel, place)),
                })
            }
        }
    }
}

fn merged<'a>(tables: impl IntoIterator<Item = &'a Table>) -> Table {
    let mut merged = Table::new();
    for table in tables {
        merged.extend(table.clone());
    }
    merged
}

/// Converts a value to a position on an axis, times in seconds.
fn number(value: &Value) -> Option<f64> {
    let time = || value.as_str()?.parse::<Span>().ok().map(Span::as_secs_f64);
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).or_else(time)
}
