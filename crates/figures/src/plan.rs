//! All runs of some figures, each done once, however many figures share it.

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

/// What is to be run, and for which figures.
#[derive(Debug)]
pub struct Plan {
    /// The figures, with every run spelled out.
    pub figures: Vec<Resolved>,
    /// Whether this is the quick run.
    pub quick: bool,
    /// Every different run, in the order of the figures.
    points: Vec<Point>,
    /// The files of latencies that runs read, and fingerprints of what is in them.
    latencies: BTreeMap<PathBuf, u64>,
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
    /// The same, but its interval reaches to what is published: more trials could show that it does not differ.
    MayDiffer,
    /// It is where the paper has it, and we say which choice of ours has put it there.
    ByChoice,
}

impl Plan {
    /// Spells out every run of `figures`; all random numbers are drawn from `seed`.
    ///
    /// # Errors
    /// An experiment file makes no sense, or a file of latencies that it names cannot be used.
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

    /// How many different runs there are.
    pub fn points(&self) -> usize {
        self.points.len()
    }

    /// Does every run that `store` does not have yet, and keeps each there as soon as it is done.
    ///
    /// # Errors
    /// A protocol broke a rule, or a point cannot be written.
    pub fn run(&self, store: &Store, progress: &(dyn Fn(Progress<'_>) + Sync)) -> Result<Results, Error> {
        let kept: Vec<Option<Measured>> =
            self.points.iter().map(|point| store.load(point, self.latencies_of(point))).collect();
        let to_do = self.points.iter().zip(&kept).filter(|(_, kept)| kept.is_none());
        progress(Progress::ToDo(to_do.fold(0, |sum, (point, _)| point.cost().saturating_add(sum))));

        let mut results = Results { points: Vec::new(), resumed: kept.iter().flatten().count() };
        for (point, kept) in self.points.iter().zip(kept) {
            let measured = match kept {
                Some(measured) => measured,
                None => self.run_point(point, store, progress)?,
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

/// Reads all files of latencies, so that none is found missing an hour into a run: a fingerprint of each.
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
    /// A fingerprint of the file of latencies that a run reads, if it reads one.
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

    /// Whether a run is for tables of promises only.
    fn is_of_promises(&self, point: &Point) -> bool {
        let has_it = |figure: &&Resolved| figure.dots.iter().flatten().flatten().any(|dot| dot.point == *point);
        self.figures.iter().filter(has_it).all(|figure| figure.figure.file.promises)
    }
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
