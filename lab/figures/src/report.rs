//! The output: a page, and per figure a plot, a table and its experiment file.

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

/// The provenance of a report. With the same seed, two reports differ in nothing else.
#[derive(Clone, Debug, Serialize)]
pub struct Provenance {
    /// The program's version.
    pub version: String,
    /// The commit it was built from, if known.
    pub commit: String,
    /// The command that made the report.
    pub command: String,
    /// The seed of all random numbers; as text, since TOML's numbers have a sign.
    pub seed: String,
    /// How long the runs took.
    pub duration: String,
}

/// The result for the published numbers.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Where the report was written.
    pub page: PathBuf,
    /// How many published numbers have a claim, plus the number of promises that can be broken.
    pub claimed: usize,
    /// A sentence for each claim or promise that failed.
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
    write_file(&out.join("run.toml"), run.expect("words and small numbers have a place in TOML").as_bytes())?;
    let page = out.join("report.html");
    write_file(&page, page::html(plan, results, &plots, provenance).as_bytes())?;

    let mut outcome = Outcome { page, claimed: 0, moved: Vec::new() };
    for figure in &plan.figures {
        for cell in promises::cells(figure, results).iter().flatten().filter(|cell| cell.is_promised()) {
            outcome.claimed += 1;
            outcome.moved.extend(cell.complaint().map(|complaint| format!("{}: {complaint}", figure.figure.id)));
        }
        for number in &figure.numbers {
            let (measured, verdict) = results.judge(number);
            outcome.claimed += 1;
            if verdict == Verdict::Moved {
                outcome.moved.push(format!(
                    "{}: {}: the paper says {}, measured {}, which is not {}",
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

/// The content of `run.toml`.
#[derive(Serialize)]
struct Run<'a> {
    quick: bool,
    points: usize,
    resumed: usize,
    #[serde(flatten)]
    provenance: &'a Provenance,
}

/// Formats a number with its interval and unit.
fn amount(value: Option<Estimate>, unit: &str) -> String {
    value.map_or("nothing".into(), |value| format!("{} {unit}", with_error(value)))
}

/// Formats a number with its interval: `355.2 ± 0.3`, or `0.98 (0.95 to 0.99)` if asymmetric.
fn with_error(Estimate { value, interval }: Estimate) -> String {
    match interval {
        None => tidy(value),
        Some((low, high)) if high - value <= 1e-9 * value.abs() && value - low <= 1e-9 * value.abs() => tidy(value),
        Some((low, high)) if ((high - value) - (value - low)).abs() <= 1e-6 * (high - low) => {
            // Two digits of the error.
            let half = high - value;
            let size = 10f64.powf(half.log10().floor() - 1.0);
            format!("{} ± {}", tidy(value), tidy((half / size).round() * size))
        }
        Some((low, high)) => format!("{} ({} to {})", tidy(value), tidy(low), tidy(high)),
    }
}

/// Formats a range.
fn range(range: Range, unit: &str) -> String {
    // A bound is written as in the file, not rounded, unless it is tiny.
    let bound = |value: f64| if value.abs() < 1e-4 { tidy(value) } else { value.to_string() };
    match (range.from.map(bound), range.to.map(bound)) {
        (Some(from), Some(to)) => format!("from {from} to {to} {unit}"),
        (Some(from), None) => format!("{from} {unit} or more"),
        (None, Some(to)) => format!("{to} {unit} or less"),
        (None, None) => "anything".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_written_as_in_its_file_and_can_be_read() {
        let words = |from, to| range(Range { from, to }, "s");
        assert_eq!(words(Some(0.05), Some(0.4071)), "from 0.05 to 0.4071 s");
        assert_eq!(words(Some(5e-43), Some(1e-42)), "from 5·10⁻⁴³ to 10⁻⁴² s");
        assert_eq!(words(Some(0.0), Some(1250.0)), "from 0 to 1250 s");
        assert_eq!((words(Some(3.0), None), words(None, None)), ("3 s or more".into(), "anything".into()));
    }
}
