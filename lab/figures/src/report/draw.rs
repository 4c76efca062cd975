//! Converts the runs of a figure to a plot.

use crate::estimate::Estimate;
use crate::figure::{self, Dot, Resolved, Scale};
use crate::metric::Metric;
use crate::plan::Results;
use crate::plot::{Axis, Panel, Plot, Series};

pub fn plot(resolved: &Resolved, results: &Results) -> Plot {
    let file = &resolved.figure.file;
    let style = |number: usize| file.curves[number].style.unwrap_or(number + 1);
    let mut panels = Vec::new();
    for (number, panel) in file.panels.iter().enumerate() {
        let curves = resolved.dots[number].iter().enumerate();
        let series: Vec<Series> = curves
            .map(|(curve, dots)| match resolved.metrics[number] {
                Some(metric) => {
                    let heights =
                        dots.iter().map(|dot| (dot.x, height(dot, metric, panel, (resolved, number), results)));
                    let heights: Vec<(f64, Estimate)> = heights.filter_map(|(x, height)| Some((x, height?))).collect();
                    let bar = |&(x, height): &(f64, Estimate)| height.interval.map(|(low, high)| (x, low, high));
                    let bars = heights.iter().filter_map(bar).collect();
                    let points = heights.iter().map(|&(x, height)| (x, height.value)).collect();
                    Series { style: style(curve), points, bars, marker_every: 1 }
                }
                None => {
                    let is_there = |place: &(f64, f64)| file.x.scale != Scale::Log || place.0 > 0.0;
                    let points = dots.iter().flat_map(|dot| distribution(dot, results)).filter(is_there).collect();
                    Series { style: style(curve), points, bars: Vec::new(), marker_every: 20 }
                }
            })
            .collect();
        let rings: Vec<(f64, f64)> = resolved
            .numbers
            .iter()
            .filter_map(|published| match published.mark {
                Some((at, x)) if at == number => Some((x, published.published.value)),
                _ => None,
            })
            .collect();
        let tops = series.iter().flat_map(|line| &line.bars).map(|&(x, _, high)| (x, high)).collect::<Vec<_>>();
        let places = || series.iter().flat_map(|line| line.points.iter()).chain(&rings).chain(&tops);
        panels.push(Panel {
            title: panel.title.clone(),
            x: Axis::horizontal(&file.x.label, file.x.scale, &file.x.names, places().map(|place| place.0)),
            y: Axis::vertical(&panel.label, panel.scale, places().map(|place| place.1)),
            series,
            rings,
        });
    }
    let legend = file.curves.iter().enumerate().map(|(number, curve)| (curve.label.clone(), style(number))).collect();
    Plot { title: format!("{}: {}", resolved.figure.id, file.title), panels, legend }
}

/// Returns the height of a dot: its metric, divided by that of the reference curve if the panel has one.
pub fn height(
    dot: &Dot,
    metric: Metric,
    panel: &figure::Panel,
    (resolved, number): (&Resolved, usize),
    results: &Results,
) -> Option<Estimate> {
    let own = Estimate::of(metric, results.of(&dot.point))?;
    let Some(label) = &panel.relative_to else { return Some(own) };
    let base = resolved.figure.file.curves.iter().position(|curve| curve.label == *label)?;
    let base = resolved.dots[number][base].iter().find(|base| base.x == dot.x)?;
    if base.point == dot.point {
        return Some(Estimate::without_interval(1.0));
    }
    own.over(Estimate::of(metric, results.of(&base.point))?)
}

/// Returns pairs of a wait and the percentage of peers that waited at most so long.
fn distribution(dot: &Dot, results: &Results) -> Vec<(f64, f64)> {
    let (_, percentiles) = results.of(&dot.point).distribution();
    percentiles.iter().enumerate().map(|(percent, most)| (*most, percent as f64)).collect()
}
