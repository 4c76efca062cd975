//! One experiment file: what is swept, what is drawn, what was published. `lab/docs/reproduce.md` explains every field.

use std::collections::BTreeMap;

use peerlock_types::Span;
use serde::Deserialize;
use toml::{Table, Value};

use crate::metric::Metric;
use crate::point::Point;

/// A value of the horizontal axis that omits its setting.
const NONE: &str = "none";

/// A figure, as its file describes it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its ID, such as `fair-k/fig3`.
    pub id: String,
    /// The file itself.
    pub source: String,
    /// Its content, parsed.
    pub file: File,
}

/// The fields of an experiment file.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct File {
    /// The figure's heading.
    pub title: String,
    /// Where the figure was published, or that it is our own.
    pub origin: String,
    /// What the figure shows, in a sentence or two.
    pub shows: String,
    /// Whether the report compares promises and results for every curve and value of the horizontal axis.
    #[serde(default)]
    pub promises: bool,
    /// The horizontal axis.
    pub x: X,
    /// Default settings of all runs.
    base: Table,
    /// Overrides for a quick run.
    #[serde(default)]
    quick: Quick,
    /// The diagrams. Each draws all curves except those in `without`.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// The curves of all panels, in the order of the legend.
    #[serde(rename = "curve")]
    pub curves: Vec<Curve>,
    /// Numbers stated in the paper.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// The horizontal axis of all panels.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct X {
    /// The label below the axis, with the unit.
    pub label: String,
    /// How values are laid out.
    pub scale: Scale,
    /// The setting that is swept. Without it, the figure shows the distribution of each peer's longest wait.
    parameter: Option<String>,
    /// The values it takes.
    #[serde(default)]
    values: Vec<Value>,
    /// Names of the values, if they are not numbers.
    #[serde(default)]
    pub names: Vec<String>,
    /// Other settings that change with the values; each list is as long as `values`.
    #[serde(default)]
    with: BTreeMap<String, Vec<Value>>,
}

/// How an axis is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly; starts at 0 on a vertical axis.
    Linear,
    /// Logarithmic.
    Log,
    /// One place for each value, in order.
    Category,
}

/// Overrides for a quick run: fewer trials, entries and values, the same shape.
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
    /// The heading.
    pub title: String,
    /// The label of the vertical axis, with the unit.
    pub label: String,
    /// How the vertical axis is laid out.
    pub scale: Scale,
    /// The metric drawn; `None` for a distribution.
    metric: Option<String>,
    /// Labels of curves that this panel does not draw.
    #[serde(default)]
    without: Vec<String>,
    /// Larger values of the horizontal axis are not run for this panel.
    until: Option<f64>,
    /// Every curve is divided by the one with this label.
    #[serde(rename = "relative-to")]
    pub relative_to: Option<String>,
    #[serde(flatten)]
    settings: Table,
}

/// One curve, drawn in every panel that does not leave it out.
#[derive(Clone, Debug, Deserialize)]
pub struct Curve {
    /// The name in the legend.
    pub label: String,
    /// Line and colour, counted from 1. Defaults to the position in the list.
    pub style: Option<usize>,
    /// The swept setting does not apply: the curve is run once and drawn level.
    #[serde(default)]
    level: bool,
    /// In a table of promises: the promise at each value of the horizontal axis.
    #[serde(default)]
    pub promises: Vec<Promise>,
    #[serde(flatten)]
    settings: Table,
}

/// What a protocol promises under a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Safety, and every live client is served.
    Both,
    /// Never more holders than slots.
    Safety,
    /// Neither. Violations are counted and reported only.
    Nothing,
}

/// A number of the paper and our claim about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Published {
    /// The quantity, in a few words: the first column of the report's table.
    pub what: String,
    /// The paper's statement, such as "about 1580 s".
    pub says: String,
    /// The number, drawn in the figure if its metric is.
    pub value: f64,
    /// The range that the paper's wording allows, if wider than `value`.
    means: Option<Range>,
    /// The panel's title. Defaults to the first panel.
    panel: Option<String>,
    /// The curve's label.
    pub curve: String,
    /// The value of the horizontal axis.
    x: Option<Value>,
    /// The metric compared with it.
    metric: String,
    /// For a ratio: the label of the curve whose metric is divided by this one's.
    pub times_less_than: Option<String>,
    /// For a bend: three values of the horizontal axis. The measured number is the slope from the second to the third
    /// divided by the slope from the first to the second.
    bend: Option<[Value; 3]>,
    /// Our claim.
    pub claim: Statement,
    /// The range in which our number must be: the published one if we claim to reproduce it, otherwise the one we
    /// found.
    #[serde(default)]
    accept: Range,
    /// The range of a quick run, if its few trials need a wider one.
    quick: Option<Range>,
    /// The number is about a value that a quick run omits.
    #[serde(default)]
    full_only: bool,
    /// Why it differs, or another remark.
    pub why: Option<String>,
}

/// A claim about a published number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statement {
    /// Our number is in the stated range, or the run fails.
    Reproduced,
    /// Our number differs; the file gives the reason and the range.
    Differs,
    /// Our number agrees, but only because of a choice that the paper leaves open.
    ByChoice,
}

/// A closed interval; a missing end is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The lower end.
    pub from: Option<f64>,
    /// The upper end.
    pub to: Option<f64>,
}

impl Range {
    /// Returns whether both ends are finite and in order.
    fn makes_sense(self) -> bool {
        let is_number = |end: Option<f64>| end.is_none_or(f64::is_finite);
        let is_backwards = self.from.zip(self.to).is_some_and(|(from, to)| from > to);
        is_number(self.from) && is_number(self.to) && !is_backwards
    }

    fn only(value: f64) -> Self {
        Self { from: Some(value), to: Some(value) }
    }

    /// Returns whether `value` is in the range.
    pub fn has(self, value: f64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }

    /// Returns whether the ranges overlap.
    pub fn meets(self, other: Self) -> bool {
        let begins_in_time = |one: Self, other: Self| one.from.zip(other.to).is_none_or(|(from, to)| from <= to);
        begins_in_time(self, other) && begins_in_time(other, self)
    }
}

/// A published number, resolved to runs.
#[derive(Clone, Debug)]
pub struct Number {
    /// The entry in the file.
    pub published: Published,
    /// The metric measured.
    pub metric: Metric,
    /// The run in which it is measured.
    pub point: Point,
    /// For a ratio: the run whose metric is divided by `point`'s.
    pub over: Option<Point>,
    /// For a bend: its three dots.
    pub bend: Option<[Dot; 3]>,
    /// The accepted range of this run, quick or full.
    pub accept: Range,
    /// Where it is drawn: panel, and place on the horizontal axis.
    pub mark: Option<(usize, f64)>,
}

impl Published {
    /// Returns the range that the paper's wording allows.
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

/// One dot of a curve: its place and the run that determines its height.
#[derive(Clone, Debug)]
pub struct Dot {
    /// The place on the horizontal axis; 0 in a distribution.
    pub x: f64,
    /// The run.
    pub point: Point,
}

/// A figure with every run resolved.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The experiment file as it was read.
    pub figure: Figure,
    /// The metric of each panel; `None` for a distribution.
    pub metrics: Vec<Option<Metric>>,
    /// By panel, then by curve; empty if the panel omits the curve.
    pub dots: Vec<Vec<Vec<Dot>>>,
    /// The published numbers.
    pub numbers: Vec<Number>,
}

impl File {
    /// Checks that every curve has one promise per value, in quick and full runs.
    fn check_promises(&self) -> Result<(), String> {
        if !self.promises {
            return Ok(());
        }
        for curve in &self.curves {
            let (said, asked) = (curve.promises.len(), self.x.values.len());
            if said != asked {
                return Err(format!("{said} promises of {:?} are for {asked} values", curve.label));
            }
        }
        if self.x.scale != Scale::Category {
            return Err("promises are about what has a name: use the scale \"category\"".into());
        }
        match self.panels.first() {
            Some(panel) if !panel.without.is_empty() || panel.until.is_some() => {
                Err(format!("promises are looked at in panel {:?}: it must leave nothing out", panel.title))
            }
            _ => Ok(()),
        }
    }

    /// Checks that a quick run also overrides the settings that change with the values.
    fn check_quick(&self) -> Result<(), String> {
        let Quick { values, with, .. } = &self.quick;
        let missing = self.x.with.keys().find(|name| values.is_some() && !with.contains_key(*name));
        match (missing, with.keys().next()) {
            (Some(name), _) => Err(format!("quick has other values, but does not say which of {name} go with them")),
            (None, Some(name)) if values.is_none() => Err(format!("quick has no values that {name} could go with")),
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
                return Err(format!("there is no curve {label:?} to leave out"));
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

    /// Resolves every run, using `seed` if the file has none.
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
                return Err(format!("nothing is run in panel {:?}", panel.title));
            }
            dots.push(curves);
        }
        let numbers = self.file.published.iter().filter(|published| !(quick && published.full_only));
        let numbers = numbers.map(|published| self.number(published, quick, &metrics, &dots));
        let numbers = numbers.collect::<Result<_, _>>()?;
        Ok(Resolved { figure: self, metrics, dots, numbers })
    }

    /// The values of the horizontal axis: the place of each, and its settings.
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
                (_, None) => return Err(format!("{value} is no number: use the scale \"category\"")),
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
        let wrong = |what: &str| format!("the published number {:?} {what}", published.what);
        let panel = match &published.panel {
            None => 0,
            Some(title) => {
                let panel = self.file.panels.iter().position(|panel| panel.title == *title);
                panel.ok_or_else(|| wrong(&format!("names the panel {title:?}, which is not there")))?
            }
        };
        let place_of = |value: &Value| number(value).ok_or_else(|| wrong("has an x that is no number"));
        let place = match (&published.x, &published.bend) {
            (None, None) => 0.0,
            (Some(value), _) | (None, Some([value, ..])) => place_of(value)?,
        };
        let run_at = |label: &str, place: f64| {
            let curve = self.file.curves.iter().position(|curve| curve.label == label);
            let curve = curve.ok_or_else(|| wrong(&format!("names the curve {label:?}, which is not there")))?;
            let dot = dots[panel][curve].iter().find(|dot| dot.x == place);
            dot.cloned().ok_or_else(|| wrong(&format!("is at x = {place}, where nothing is run")))
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
        if !accept.makes_sense() || !published.means().makes_sense() {
            return Err(wrong("has a range that nothing can be in, or without an end that is a number"));
        }
        let (is_open, is_there) = (accept == Range::default(), published.accept.meets(published.means()));
        match published.claim {
            Statement::Reproduced if is_open => Err(wrong("is claimed without a range to be in")),
            Statement::Differs if published.why.is_none() => Err(wrong("differs, and nobody says why")),
            Statement::Differs if is_open => Err(wrong("differs, and nobody says what it is instead")),
            Statement::Differs if is_there => Err(wrong("differs, but may be where the paper has it")),
            Statement::ByChoice if published.why.is_none() => Err(wrong("is there by choice, and nobody says which")),
            Statement::ByChoice if is_open => Err(wrong("is there by choice, without a range to be in")),
            Statement::ByChoice if !is_there => Err(wrong("is there by choice, but not where the paper has it")),
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

/// Converts a value to a place on an axis; a time in seconds.
fn number(value: &Value) -> Option<f64> {
    let time = || value.as_str()?.parse::<Span>().ok().map(Span::as_secs_f64);
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).or_else(time)
}
