//! The runs of some figures, each once even if several figures share it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use peerlock_catalogue as catalogue;
use peerlock_sim::latency::{MatrixError, Model};

use crate::Error;
use crate::estimate::Estimate;
use crate::figure::{Dot, Figure, Number, Resolved, Statement};
use crate::fingerprint::fingerprint;
use crate::metric::Measured;
use crate::point::Point;
use crate::store::Store;

/// The runs of some figures.
#[derive(Debug)]
pub struct Plan {
    pub figures: Vec<Resolved>,
    pub quick: bool,
    /// The distinct runs, in the order of the figures.
    points: Vec<Point>,
    latencies: BTreeMap<PathBuf, u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<'a> {
    ToDo(u64),
    Point(&'a str),
    Done(u64),
}

#[derive(Debug)]
pub struct Results {
    points: Vec<(Point, Measured)>,
    pub resumed: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In the claimed range with its whole interval.
    Reproduced,
    /// In the claimed range, but its interval is not: more trials could refute it.
    Unsure,
    Moved,
    /// Differs as stated, and is in the stated range.
    Differs,
    /// Differs as stated, but its interval includes the published number.
    MayDiffer,
    /// Agrees because of a stated choice of ours.
    ByChoice,
}

impl Plan {
    /// Resolves the runs of `figures`.
    ///
    /// # Errors
    /// An experiment file is invalid, or a latency file cannot be used.
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
        let latencies = read_all(&points)?;
        Ok(Self { figures: resolved, quick, points, latencies })
    }

    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Runs every point that is not in `store`, and saves it there.
    ///
    /// # Errors
    /// A protocol violated a rule, or a point cannot be written.
    pub fn run(&self, store: &Store, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Results, Error> {
        let stored: Vec<Option<Measured>> =
            self.points.iter().map(|point| store.load(point, self.latencies_of(point))).collect();
        let to_do = self.points.iter().zip(&stored).filter(|(_, stored)| stored.is_none());
        progress(Progress::ToDo(to_do.fold(0, |sum, (point, _)| point.cost().saturating_add(sum))));

        let mut results = Results { points: Vec::new(), resumed: stored.iter().flatten().count() };
        for (point, stored) in self.points.iter().zip(stored) {
            let measured = match stored {
                Some(measured) => measured,
                None => self.run_point(point, store, progress)?,
            };
            // In tables of promises, a protocol may stop under a fault for which it promises nothing.
            if let Some(what) = measured.stop.clone().filter(|_| !self.is_of_promises(point)) {
                return Err(Error::Stopped { run: point.command(), what });
            }
            results.points.push((point.clone(), measured));
        }
        Ok(results)
    }
}

/// Checks all latency files before a long run, and returns their fingerprints.
fn read_all(points: &[Point]) -> Result<BTreeMap<PathBuf, u64>, Error> {
    let mut hosts: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for (file, needed) in points.iter().filter_map(Point::latencies) {
        let most = hosts.entry(file.to_path_buf()).or_default();
        *most = needed.max(*most);
    }
    let read = |(file, hosts): (PathBuf, usize)| {
        Model::Matrix(file.clone()).load(hosts)?;
        let bytes = fs::read(&file).map_err(|reason| MatrixError::Unreadable { file: file.clone(), reason })?;
        Ok((file, fingerprint(&bytes)))
    };
    hosts.into_iter().map(read).collect::<Result<_, MatrixError>>().map_err(Error::Latencies)
}

impl Plan {
    fn latencies_of(&self, point: &Point) -> Option<u64> {
        self.latencies.get(point.latencies()?.0).copied()
    }

    fn run_point(
        &self,
        point: &Point,
        store: &Store,
        progress: &(dyn Fn(Progress<'_>) + Sync),
    ) -> Result<Measured, Error> {
        progress(Progress::Point(&point.name()));
        let measured = point.run(&|cost| progress(Progress::Done(cost))).map_err(|error| match error {
            catalogue::Error::Matrix(what) => Error::Latencies(what),
            catalogue::Error::Broken(failure) => Error::Broken { run: point.command(), failure },
        })?;
        store.save(point, self.latencies_of(point), &measured)?;
        Ok(measured)
    }

    /// Returns whether only tables of promises use the run.
    fn is_of_promises(&self, point: &Point) -> bool {
        let has_it = |figure: &&Resolved| figure.dots.iter().flatten().flatten().any(|dot| dot.point == *point);
        self.figures.iter().filter(has_it).all(|figure| figure.figure.file.promises)
    }
}

impl Results {
    /// Returns the results of a run.
    ///
    /// # Panics
    /// Panics if the run is not in the plan.
    pub fn of(&self, point: &Point) -> &Measured {
        let found = self.points.iter().find(|(known, _)| known == point);
        &found.expect("a plan runs all points of its figures").1
    }

    /// Returns the measured number, and the verdict on the published one.
    pub fn judge(&self, number: &Number) -> (Option<Estimate>, Verdict) {
        let Some(estimate) = self.estimate(number) else { return (None, Verdict::Moved) };
        let verdict = match number.published.claim {
            _ if !number.accept.has(estimate.value) => Verdict::Moved,
            Statement::Reproduced if estimate.is_within(number.accept) => Verdict::Reproduced,
            Statement::Reproduced => Verdict::Unsure,
            Statement::Differs if estimate.meets(number.published.means()) => Verdict::MayDiffer,
            Statement::Differs => Verdict::Differs,
            Statement::ByChoice => Verdict::ByChoice,
        };
        (Some(estimate), verdict)
    }

    fn estimate(&self, number: &Number) -> Option<Estimate> {
        let of = |point: &Point| Estimate::of(number.metric, self.of(point));
        if let Some([from, by, to]) = &number.bend {
            let place = |dot: &Dot| Some((dot.x, of(&dot.point)?));
            return Estimate::bend([place(from)?, place(by)?, place(to)?]);
        }
        match &number.over {
            None => of(&number.point),
            Some(over) => of(over)?.over(of(&number.point)?),
        }
    }
}
