//! The report: a page, and for each figure a plot, a table and its experiment file.

mod draw;
mod page;
mod promises;
mod table;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::estimate::Estimate;
use crate::plan::{Plan, Results, Verdict};
use crate::plot::tidy;
use crate::store::write as write_file;
use crate::{Error, figure::Range};

/// The provenance of a report. Reports with the same seed differ in nothing else.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    pub version: String,
    pub commit: String,
    pub command: String,
    /// The seed, as text, since TOML has no unsigned numbers.
    pub seed: String,
    pub duration: String,
}

/// The result of a comparison with the published numbers.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub page: PathBuf,
    /// The number of claims and promises that were checked.
    pub claimed: usize,
    /// A message for each that failed.
    pub moved: Vec<String>,
}

/// Writes the report into the directory `out`: `report.html`, `run.toml`, and for each figure `ID.svg`, `ID.csv`,
/// `ID.toml`.
///
/// # Errors
/// A file cannot be written.
pub fn write(out: &Path, plan: &Plan, results: &Results, provenance: &Provenance) -> Result<Outcome, Error> {
    let mut plots = Vec::new();
    for figure in &plan.figures {
        let file = |kind: &str| out.join(format!("{}.{kind}", figure.figure.id));
        let svg = draw::plot(figure, results).svg();
        write_file(&file("svg"), svg.as_bytes())?;
        write_file(&file("csv"), table::csv(figure, results).as_bytes())?;
        write_file(&file("toml"), figure.figure.source.as_bytes())?;
        plots.push(svg);
    }
    let run = toml::to_string(&Run { quick: plan.quick, points: plan.points(), resumed: results.resumed, provenance });
    write_file(&out.join("run.toml"), run.expect("TOML represents all values").as_bytes())?;
    let page = out.join("report.html");
    write_file(&page, page::html(plan, results, &plots, provenance).as_bytes())?;

    let mut outcome = Outcome { page, claimed: 0, moved: Vec::new() };
    for figure in &plan.figures {
        for cell in promises::cells(figure, results).iter().flatten().filter(|cell| cell.is_promised()) {
            outcome.claimed += 1;
            outcome.moved.extend(cell.failure().map(|failure| format!("{}: {failure}", figure.figure.id)));
        }
        for number in &figure.numbers {
            let (measured, verdict) = results.judge(number);
            outcome.claimed += 1;
            if verdict == Verdict::Moved {
                outcome.moved.push(format!(
                    "{}: {}: the paper says {}, measured {}, expected {}",
                    figure.figure.id,
                    number.published.what,
                    number.published.says,
                    amount(measured, number.unit()),
                    range(number.accept, number.unit()),
                ));
            }
        }
    }
    Ok(outcome)
}

#[derive(Serialize)]
struct Run<'a> {
    quick: bool,
    points: usize,
    resumed: usize,
    #[serde(flatten)]
    provenance: &'a Provenance,
}

fn amount(value: Option<Estimate>, unit: &str) -> String {
    value.map_or("none".into(), |value| format!("{} {unit}", with_error(value)))
}

/// Formats a number with its interval: `355.2 ± 0.3`, or `0.98 (0.95 to 0.99)` if asymmetric.
fn with_error(Estimate { value, interval }: Estimate) -> String {
    match interval {
        None => tidy(value),
        Some((low, high)) if high - value <= 1e-9 * value.abs() && value - low <= 1e-9 * value.abs() => tidy(value),
        Some((low, high)) if ((high - value) - (value - low)).abs() <= 1e-6 * (high - low) => {
            // The error is rounded to two digits.
            let half = high - value;
            let size = 10f64.powf(half.log10().floor() - 1.0);
            format!("{} ± {}", tidy(value), tidy((half / size).round() * size))
        }
        Some((low, high)) => format!("{} ({} to {})", tidy(value), tidy(low), tidy(high)),
    }
}

fn range(range: Range, unit: &str) -> String {
    // A bound is written as in the file, unless it is tiny.
    let bound = |value: f64| if value.abs() < 1e-4 { tidy(value) } else { value.to_string() };
    match (range.from.map(bound), range.to.map(bound)) {
        (Some(from), Some(to)) => format!("from {from} to {to} {unit}"),
        (Some(from), None) => format!("{from} {unit} or more"),
        (None, Some(to)) => format!("{to} {unit} or less"),
        (None, None) => "any value".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_is_written_as_in_its_file() {
        let text = |from, to| range(Range { from, to }, "s");
        assert_eq!(text(Some(0.05), Some(0.4071)), "from 0.05 to 0.4071 s");
        assert_eq!(text(Some(5e-43), Some(1e-42)), "from 5·10⁻⁴³ to 10⁻⁴² s");
        assert_eq!(text(Some(0.0), Some(1250.0)), "from 0 to 1250 s");
        assert_eq!((text(Some(3.0), None), text(None, None)), ("3 s or more".into(), "any value".into()));
    }
}
