//! All runs of some figures, each done once, however many figures share it.

use peerlock_catalogue as catalogue;

use crate::Error;
use crate::estimate::Estimate;
use crate::figure::{Claim, Dot, Figure, Number, Resolved};
use crate::metric::Measured;
use crate::point::Point;
use crate::store::Store;

/// What is to be run, and for which figures.
#[derive(Debug)]
pub struct Plan {
    /// The figures, with every run spelled out.
    pub figures: Vec<Resolved>,
    /// Whether this is the quick run.
    pub quick: bool,
    /// Every different run, in the order of the figures.
    points: Vec<Point>,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    /// How many entries are to be simulated in all.
    ToDo(u64),
    /// This point comes next.
    Point(&'a str),
    /// How many more entries have been simulated.
    Done(u64),
}

/// What came out of a plan's runs.
#[derive(Debug)]
pub struct Results {
    points: Vec<(Point, Measured)>,
    /// How many points were there from an earlier run.
    pub resumed: usize,
}

/// What became of a published number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// We claim it, and it is in its range with all of its interval.
    Reproduced,
    /// We claim it, and it is in its range, but its interval reaches beyond: more trials could show that it is not.
    Unsure,
    /// It is not where we say, whether we claim to reproduce it or that it differs.
    Moved,
    /// We say that it differs, why, and where it is instead; and there it is.
    Differs,
}

impl Plan {
    /// Spells out every run of `figures`; all random numbers are drawn from `seed`.
    ///
    /// # Errors
    /// An experiment file makes no sense.
    pub fn new(figures: Vec<Figure>, quick: bool, seed: u64) -> Result<Self, Error> {
        let mut resolved = Vec::new();
        let mut points = Vec::new();
        for figure in figures {
            let id = figure.id.clone();
            let figure = figure.resolve(quick, seed).map_err(|what| Error::Experiment { id, what })?;
            for dot in figure.dots.iter().flatten().flatten() {
                if !points.contains(&dot.point) {
                    points.push(dot.point.clone());
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
        let kept: Vec<Option<Measured>> = self.points.iter().map(|point| store.load(point)).collect();
        let to_do = self.points.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        progress(Progress::ToDo(to_do.map(|(point, _)| point.cost()).sum()));

        let mut results = Results { points: Vec::new(), resumed: kept.iter().flatten().count() };
        for (point, kept) in self.points.iter().zip(kept) {
            let measured = match kept {
                Some(measured) => measured,
                None => run(point, store, progress)?,
            };
            // A protocol that is tried where it promises nothing may find its own state broken, and stop.
            if let Some(what) = measured.stop.clone().filter(|_| !self.is_of_promises(point)) {
                return Err(Error::Stopped { run: point.command(), what });
            }
            results.points.push((point.clone(), measured));
        }
        Ok(results)
    }
}

impl Plan {
    /// Whether a run is for tables of promises only.
    fn is_of_promises(&self, point: &Point) -> bool {
        let has_it = |figure: &&Resolved| figure.dots.iter().flatten().flatten().any(|dot| dot.point == *point);
        self.figures.iter().filter(has_it).all(|figure| figure.figure.file.promises)
    }
}

fn run(point: &Point, store: &Store, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Measured, Error> {
    progress(Progress::Point(&point.name()));
    let measured = point.run(&|cost| progress(Progress::Done(cost))).map_err(|error| match error {
        catalogue::Error::Matrix(what) => Error::Experiment { id: point.name(), what: what.to_string() },
        catalogue::Error::Broken(failure) => Error::Broken { run: point.command(), failure },
    })?;
    store.save(point, &measured)?;
    Ok(measured)
}

impl Results {
    /// What a run measured.
    ///
    /// # Panics
    /// If it is not a run of the plan.
    pub fn of(&self, point: &Point) -> &Measured {
        let found = self.points.iter().find(|(known, _)| known == point);
        &found.expect("a plan runs every point of its figures").1
    }

    /// What we measure beside a published number, and what becomes of it.
    pub fn judge(&self, number: &Number) -> (Option<Estimate>, Verdict) {
        let estimate = self.estimate(number);
        let is_in_range = estimate.is_some_and(|estimate| number.accept.has(estimate.value));
        let verdict = match (number.published.claim, is_in_range) {
            (_, false) => Verdict::Moved,
            (Claim::Differs, true) => Verdict::Differs,
            (Claim::Reproduced, true) if estimate.is_some_and(|all| all.is_within(number.accept)) => {
                Verdict::Reproduced
            }
            (Claim::Reproduced, true) => Verdict::Unsure,
        };
        (estimate, verdict)
    }

    fn estimate(&self, number: &Number) -> Option<Estimate> {
        let of = |point: &Point| Estimate::of(number.metric, self.of(point));
        if let Some([from, by, to]) = &number.bend {
            let y = |dot: &Dot| Some(of(&dot.point)?.value);
            let slope = |from: &Dot, to: &Dot| Some((y(to)? - y(from)?) / (to.x - from.x));
            return Some(Estimate::without_interval(slope(by, to)? / slope(from, by)?));
        }
        match &number.over {
            None => of(&number.point),
            Some(over) => Some(of(over)?.over(of(&number.point)?)),
        }
    }
}
