//! All runs of some figures, each done once, however many figures share it.

use crate::Error;
use crate::figure::{Claim, Figure, Number, Resolved};
use crate::metric::Measured;
use crate::settings::Settings;
use crate::store::Store;

/// What is to be run, and for which figures.
#[derive(Debug)]
pub struct Plan {
    /// The figures, with every run spelled out.
    pub figures: Vec<Resolved>,
    /// Whether this is the quick run.
    pub quick: bool,
    /// Every different run, in the order of the figures.
    points: Vec<Settings>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// So many entries are to be simulated in all.
    ToDo(u64),
    /// This point comes next.
    Point(&'a str),
    /// So many entries more have been simulated.
    Done(u64),
}

/// What came out of a plan's runs.
#[derive(Debug)]
pub struct Results {
    points: Vec<(Settings, Measured)>,
    /// How many points were there from an earlier run.
    pub resumed: usize,
}

/// What became of a published number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// We claim it, and it is in its range.
    Reproduced,
    /// We claim it, and it is not.
    Moved,
    /// We say that it differs, and why.
    Differs,
}

impl Plan {
    /// Spells out every run of `figures`.
    ///
    /// # Errors
    /// An experiment file makes no sense.
    pub fn new(figures: Vec<Figure>, quick: bool) -> Result<Self, Error> {
        let mut resolved = Vec::new();
        let mut points = Vec::new();
        for figure in figures {
            let id = figure.id.clone();
            let figure = figure.resolve(quick).map_err(|what| Error::Experiment { id, what })?;
            for dot in figure.dots.iter().flatten().flatten() {
                if !points.contains(&dot.settings) {
                    points.push(dot.settings.clone());
                }
            }
            resolved.push(figure);
        }
        Ok(Self { figures: resolved, quick, points })
    }

    /// How many different runs there are.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Does every run that `store` does not have yet, and keeps each there as soon as it is done.
    ///
    /// # Errors
    /// A protocol broke a rule, or a point cannot be written.
    pub fn run(&self, store: &Store, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Results, Error> {
        let kept: Vec<Option<Measured>> = self.points.iter().map(|settings| store.load(settings)).collect();
        let to_do = self.points.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        progress(Progress::ToDo(to_do.map(|(point, _)| point.cost()).sum()));

        let mut results = Results { points: Vec::new(), resumed: kept.iter().flatten().count() };
        for (settings, kept) in self.points.iter().zip(kept) {
            let measured = match kept {
                Some(measured) => measured,
                None => run(settings, store, progress)?,
            };
            results.points.push((settings.clone(), measured));
        }
        Ok(results)
    }
}

fn run(settings: &Settings, store: &Store, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Measured, Error> {
    let name = settings.name();
    progress(Progress::Point(&name));
    let run = settings.run(store.seed(), |cost| progress(Progress::Done(cost)));
    let measured = run
        .map_err(|what| Error::Experiment { id: name.clone(), what })?
        .map_err(|failure| Error::Broken { run: settings.command(store.seed()), failure })?;
    store.save(settings, &measured)?;
    Ok(measured)
}

impl Results {
    /// What a run measured.
    ///
    /// # Panics
    /// If it is not a run of the plan.
    pub fn of(&self, settings: &Settings) -> &Measured {
        let point = self.points.iter().find(|(point, _)| point == settings);
        &point.expect("a plan runs every point of its figures").1
    }

    /// What we measure beside a published number, and what becomes of it.
    pub fn judge(&self, number: &Number) -> (Option<f64>, Verdict) {
        let of = |settings: &Settings| number.metric.of(self.of(settings));
        let measured = match &number.over {
            None => of(&number.settings),
            Some(over) => of(over).zip(of(&number.settings)).map(|(over, own)| over / own),
        };
        let verdict = match (number.published.claim, measured) {
            (Claim::Differs, _) => Verdict::Differs,
            (Claim::Reproduced, Some(value)) if number.accept.has(value) => Verdict::Reproduced,
            (Claim::Reproduced, _) => Verdict::Moved,
        };
        (measured, verdict)
    }
}
