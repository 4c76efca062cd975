//! From a figure's runs to the lines of its plot.

use crate::figure::{Dot, Resolved, Scale};
use crate::plan::Results;
use crate::plot::{Axis, Line, Panel, Plot};

/// The plot of a figure.
pub fn plot(resolved: &Resolved, results: &Results) -> Plot {
    let file = &resolved.figure.file;
    let style = |number: usize| file.curves[number].style.unwrap_or(number + 1);
    let mut panels = Vec::new();
    for (number, panel) in file.panels.iter().enumerate() {
        let curves = resolved.dots[number].iter().enumerate();
        let lines: Vec<Line> = curves
            .map(|(curve, dots)| match resolved.metrics[number] {
                Some(metric) => {
                    let height = |dot: &Dot| Some((dot.x, metric.of(results.of(&dot.point))?));
                    Line { style: style(curve), points: dots.iter().filter_map(height).collect(), marker_every: 1 }
                }
                None => {
                    let is_there = |place: &(f64, f64)| file.x.scale != Scale::Log || place.0 > 0.0;
                    let points = dots.iter().flat_map(|dot| distribution(dot, results)).filter(is_there).collect();
                    Line { style: style(curve), points, marker_every: 20 }
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
        let places = || lines.iter().flat_map(|line| line.points.iter()).chain(&rings);
        panels.push(Panel {
            title: panel.title.clone(),
            x: Axis::horizontal(&file.x.label, file.x.scale, &file.x.names, places().map(|place| place.0)),
            y: Axis::vertical(&panel.label, panel.scale, places().map(|place| place.1)),
            lines,
            rings,
        });
    }
    let legend = file.curves.iter().enumerate().map(|(number, curve)| (curve.label.clone(), style(number))).collect();
    Plot { title: format!("{}: {}", resolved.figure.id, file.title), panels, legend }
}

/// How many per cent of the peers had at most this much.
fn distribution(dot: &Dot, results: &Results) -> Vec<(f64, f64)> {
    let (_, percentiles) = results.of(&dot.point).distribution();
    percentiles.iter().enumerate().map(|(percent, most)| (*most, percent as f64)).collect()
}
