//! One experiment file: what is swept, what is drawn, what was published. `docs/reproduce.md` explains every field.

use std::collections::BTreeMap;

use peerlock_base::Span;
use serde::Deserialize;
use toml::{Table, Value};

use crate::metric::Metric;
use crate::point::Point;

/// A value of the horizontal axis that leaves its setting out.
const NONE: &str = "none";

/// A figure, as its file describes it.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Such as `fair-k/fig3`.
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
    /// Where it was published, or that it is our own.
    pub origin: String,
    /// What there is to see, in a sentence or two.
    pub shows: String,
    /// Whether the report shows, for every curve and value of the horizontal axis, what was promised and what happened.
    #[serde(default)]
    pub promises: bool,
    /// The horizontal axis.
    pub x: X,
    /// Settings that hold unless something else is said.
    base: Table,
    /// What a quick run does differently.
    #[serde(default)]
    quick: Quick,
    /// The pictures side by side; each has all the curves, unless it says otherwise.
    #[serde(rename = "panel")]
    pub panels: Vec<Panel>,
    /// The curves of all panels, in the order of the legend.
    #[serde(rename = "curve")]
    pub curves: Vec<Curve>,
    /// What the paper says in numbers.
    #[serde(default)]
    pub published: Vec<Published>,
}

/// The horizontal axis of all panels.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct X {
    /// What stands below the axis, with the unit.
    pub label: String,
    /// How values are laid out.
    pub scale: Scale,
    /// The setting that is swept. Without one, the figure shows the distribution of each peer's longest wait.
    parameter: Option<String>,
    /// The values it takes.
    #[serde(default)]
    values: Vec<Value>,
    /// What the values are called, where they are no numbers.
    #[serde(default)]
    pub names: Vec<String>,
    /// Other settings that change along with the values: as many of each as there are values.
    #[serde(default)]
    with: BTreeMap<String, Vec<Value>>,
}

/// How an axis is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Evenly; starts at 0 on a vertical axis.
    Linear,
    /// Ten times as much is as far everywhere.
    Log,
    /// One place for each value, in order.
    Category,
}

/// What a quick run does differently: fewer trials, fewer entries, fewer values, the same shape.
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
    /// What stands above it.
    pub title: String,
    /// What stands beside the vertical axis, with the unit.
    pub label: String,
    /// How the vertical axis is laid out.
    pub scale: Scale,
    /// What is drawn; none for a distribution.
    metric: Option<String>,
    /// Curves that are left out, by their labels: what is left can be seen from near.
    #[serde(default)]
    without: Vec<String>,
    /// Values of the horizontal axis above this one are not run here.
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
    /// What the legend calls it.
    pub label: String,
    /// Which line and colour, counted from 1; by default its place in the list.
    pub style: Option<usize>,
    /// The setting that the horizontal axis sweeps is none of this curve's: it is run once, and its line is level.
    #[serde(default)]
    level: bool,
    /// In a table of promises: what this protocol promises at each value of the horizontal axis.
    #[serde(default)]
    pub promises: Vec<Promise>,
    #[serde(flatten)]
    settings: Table,
}

/// What a protocol promises while something goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Promise {
    /// Never too many inside, and everybody who lives is served.
    Both,
    /// Never too many inside.
    Safety,
    /// It may let in too many, and leave people waiting: only what is counted is shown.
    Nothing,
}

/// A number of the paper, and what we say about it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Published {
    /// What the number is of, in a few words: the first column of the page's table.
    pub what: String,
    /// What the paper says, in its words' sense: "about 1580 s".
    pub says: String,
    /// The number itself, drawn in the figure where its metric is.
    pub value: f64,
    /// All that its words allow, if that is more than one number.
    means: Option<Range>,
    /// Which panel, by its title; the first by default.
    panel: Option<String>,
    /// Which curve, by its label.
    pub curve: String,
    /// At which value of the horizontal axis.
    x: Option<Value>,
    /// What we measure beside it.
    metric: String,
    /// If the number is a ratio: the curve, by its label, whose metric is divided by this one's.
    pub times_less_than: Option<String>,
    /// If the number says how a curve bends: three values of the horizontal axis. What is measured is the slope from
    /// the second to the third, divided by the slope from the first to the second.
    bend: Option<[Value; 3]>,
    /// What we claim.
    pub claim: Statement,
    /// The range in which our number must be: if we claim to reproduce it, the published one as we read it; if it
    /// differs, what we have found instead.
    #[serde(default)]
    accept: Range,
    /// The same for a quick run, if its few trials need more room: that may reach to what is published.
    quick: Option<Range>,
    /// It is about a value that a quick run leaves out.
    #[serde(default)]
    full_only: bool,
    /// Why it differs; or what else the reader should know.
    pub why: Option<String>,
}

/// What we claim of a published number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statement {
    /// Our number lies in the stated range, or the run fails.
    Reproduced,
    /// It does not, and the file says why, and in which range it is instead.
    Differs,
    /// It lies where the paper has it, but only because of something that the paper leaves open and we have chosen.
    ByChoice,
}

/// From here to there, both included; a missing end is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The lower end.
    pub from: Option<f64>,
    /// The upper end.
    pub to: Option<f64>,
}

impl Range {
    /// Whether its ends are numbers, and in this order.
    fn makes_sense(self) -> bool {
        let is_number = |end: Option<f64>| end.is_none_or(f64::is_finite);
        let is_backwards = self.from.zip(self.to).is_some_and(|(from, to)| from > to);
        is_number(self.from) && is_number(self.to) && !is_backwards
    }

    /// This and nothing else.
    fn only(value: f64) -> Self {
        Self { from: Some(value), to: Some(value) }
    }

    /// Whether `value` lies in the range.
    pub fn has(self, value: f64) -> bool {
        self.from.is_none_or(|from| value >= from) && self.to.is_none_or(|to| value <= to)
    }

    /// Whether anything lies in both.
    pub fn meets(self, other: Self) -> bool {
        let begins_in_time = |one: Self, other: Self| one.from.zip(other.to).is_none_or(|(from, to)| from <= to);
        begins_in_time(self, other) && begins_in_time(other, self)
    }
}

/// A published number with everything that its words stand for.
#[derive(Clone, Debug)]
pub struct Number {
    /// What the file says.
    pub published: Published,
    /// What is measured.
    pub metric: Metric,
    /// In which run.
    pub point: Point,
    /// If the number is a ratio, the run whose metric is divided by that run's.
    pub over: Option<Point>,
    /// If the number says how a curve bends, where on the axis and in which runs.
    pub bend: Option<[Dot; 3]>,
    /// The range that is claimed in this run, quick or full.
    pub accept: Range,
    /// Where it would be drawn: which panel, at which place of the horizontal axis.
    pub mark: Option<(usize, f64)>,
}

impl Published {
    /// All that the paper's words allow.
    pub fn means(&self) -> Range {
        self.means.unwrap_or(Range::only(self.value))
    }
}

impl Number {
    /// The unit of what is published and measured.
    pub fn unit(&self) -> &'static str {
        if self.over.is_some() || self.bend.is_some() { "times" } else { self.metric.unit }
    }
}

/// One dot of a curve: where, and the run that tells how high.
#[derive(Clone, Debug)]
pub struct Dot {
    /// Its place on the horizontal axis; 0 in a distribution.
    pub x: f64,
    /// The run that is simulated for it.
    pub point: Point,
}

/// A figure with every run spelled out.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The experiment file as it was read.
    pub figure: Figure,
    /// What each panel draws; none for a distribution.
    pub metrics: Vec<Option<Metric>>,
    /// By panel, then by curve; none where a panel leaves a curve out.
    pub dots: Vec<Vec<Vec<Dot>>>,
    /// The published numbers.
    pub numbers: Vec<Number>,
}

impl File {
    /// A table of promises has a place for each, quickly or in full.
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

    /// What changes along with the values does so in a quick run, too.
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
    /// What is wrong with it, in a sentence.
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

    /// Spells out every run, with `seed` where the file says none.
    ///
    /// # Errors
    /// What is wrong with the file, in a sentence.
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

    /// The values of the horizontal axis: where each stands, and which settings it brings.
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

/// Where a value stands on an axis; a time in seconds.
fn number(value: &Value) -> Option<f64> {
    let time = || value.as_str()?.parse::<Span>().ok().map(Span::as_secs_f64);
    value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64)).or_else(time)
}
