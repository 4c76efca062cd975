//! A figure's data as CSV.

use crate::figure::{Dot, Resolved};
use crate::metric::{Measured, Metric};
use crate::plan::Results;

/// Returns a line per run with all settings and metrics; for a distribution, a line per percentile.
pub fn csv(resolved: &Resolved, results: &Results) -> String {
    let is_distribution = resolved.metrics.iter().all(Option::is_none);
    let mut names: Vec<String> = vec!["panel".into(), "curve".into()];
    let setting_names = setting_names(resolved);
    names.extend(setting_names.iter().cloned());
    if is_distribution {
        let run = resolved.dots.iter().flatten().flatten().next().map(|dot| results.of(&dot.point));
        names.extend(["percent of peers".into(), run.map_or("", |run| run.distribution().0).into()]);
    } else {
        names.extend(Metric::ALL.iter().map(|metric| format!("{} ({})", metric.name, metric.unit)));
    }
    let mut csv = line(&names);
    let file = &resolved.figure.file;
    for (panel, curves) in file.panels.iter().zip(&resolved.dots) {
        for (curve, dots) in file.curves.iter().zip(curves) {
            for Dot { point, .. } in dots {
                let mut start = vec![panel.title.clone(), curve.label.clone()];
                let pairs = point.pairs();
                let value = |name: &String| pairs.iter().find(|pair| pair.0 == *name).map(|pair| pair.1.clone());
                start.extend(setting_names.iter().map(|name| value(name).unwrap_or_default()));
                for end in ends(results.of(point), is_distribution) {
                    csv.push_str(&line(&[&start[..], &end].concat()));
                }
            }
        }
    }
    csv
}

fn setting_names(resolved: &Resolved) -> Vec<String> {
    let mut names = Vec::new();
    for (name, _) in resolved.dots.iter().flatten().flatten().flat_map(|dot| dot.point.pairs()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn ends(run: &Measured, is_distribution: bool) -> Vec<Vec<String>> {
    if is_distribution {
        let percentiles = run.distribution().1.iter().enumerate();
        return percentiles.map(|(percent, most)| vec![percent.to_string(), most.to_string()]).collect();
    }
    let metrics = Metric::ALL.iter();
    vec![metrics.map(|metric| metric.of(run).map_or(String::new(), |value| value.to_string())).collect()]
}

fn line(fields: &[String]) -> String {
    let quoted: Vec<String> = fields.iter().map(|field| quote(field)).collect();
    quoted.join(",") + "\n"
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n']) { format!("\"{}\"", field.replace('"', "\"\"")) } else { field.into() }
}
