//! A table of protocols and faults: promises and results.

use std::fmt::Write;

use crate::estimate::Estimate;
use crate::figure::{Promise, Resolved};
use crate::metric::Metric;
use crate::plan::Results;
use crate::plot::escape;

pub struct Cell<'a> {
    curve: &'a str,
    fault: &'a str,
    promise: Promise,
    trials: u64,
    violated: u64,
    starved: u64,
    stopped: u64,
    stop: Option<&'a str>,
}

impl Cell<'_> {
    pub fn is_promised(&self) -> bool {
        self.promise != Promise::Nothing
    }

    fn is_broken(&self) -> bool {
        match self.promise {
            Promise::Both => self.violated + self.starved + self.stopped > 0,
            Promise::Safety => self.violated + self.stopped > 0,
            Promise::Nothing => false,
        }
    }

    fn results(&self) -> String {
        let Self { trials, violated, starved, stopped, .. } = *self;
        let kinds = [(violated, "violated safety"), (starved, "starved a client"), (stopped, "stopped")];
        let faulty = kinds.iter().filter(|(count, _)| *count > 0).map(|(count, kind)| format!("{count} {kind}"));
        match faulty.collect::<Vec<_>>().join(", ") {
            none if none.is_empty() => format!("none of {trials} failed"),
            faulty => format!("of {trials}: {faulty}"),
        }
    }

    pub fn failure(&self) -> Option<String> {
        let Self { curve, fault, .. } = self;
        let why = self.stop.map_or(String::new(), |stop| format!(" ({stop})"));
        self.is_broken().then(|| format!("{curve} under {fault} broke its promise: {}{why}", self.results()))
    }
}

/// Returns the cells of a figure, a row per protocol; empty if the figure is not such a table.
pub fn cells<'a>(resolved: &'a Resolved, results: &'a Results) -> Vec<Vec<Cell<'a>>> {
    let file = &resolved.figure.file;
    if !file.promises {
        return Vec::new();
    }
    let count = |name: &str, run| {
        let metric = Metric::named(name).ok()?;
        Some(Estimate::of(metric, run)?.value)
    };
    let row = |(curve, dots): (&'a crate::figure::Curve, &Vec<crate::figure::Dot>)| {
        let cell = |(at, dot): (usize, &crate::figure::Dot)| {
            let (run, trials) = (results.of(&dot.point), dot.point.trials());
            let of = |name: &str| (count(name, run).unwrap_or(0.0) * trials as f64).round() as u64;
            Cell {
                curve: &curve.label,
                fault: file.x.names.get(at).map_or("", String::as_str),
                promise: curve.promises[at],
                trials,
                violated: of("violated"),
                starved: of("starved"),
                stopped: of("stopped"),
                stop: run.stop.as_deref(),
            }
        };
        dots.iter().enumerate().map(cell).collect()
    };
    file.curves.iter().zip(&resolved.dots[0]).map(row).collect()
}

pub fn html(resolved: &Resolved, results: &Results) -> String {
    let (file, rows) = (&resolved.figure.file, cells(resolved, results));
    let mut html = String::from("<div class=\"wide\"><table class=\"promises\"><thead><tr><th>protocol</th>");
    let mut push = |text: std::fmt::Arguments<'_>| html.write_fmt(text).expect("writing to a string cannot fail");
    file.x.names.iter().for_each(|name| push(format_args!("<th>{}</th>", escape(name))));
    push(format_args!("</tr></thead><tbody>"));
    for (curve, row) in file.curves.iter().zip(rows) {
        push(format_args!("<tr><td>{}</td>", escape(&curve.label)));
        for cell in row {
            let (class, promise) = match (cell.is_broken(), cell.promise) {
                (true, _) => ("moved", "promise broken"),
                (_, Promise::Both) => ("reproduced", "promises both"),
                (_, Promise::Safety) => ("reproduced", "promises safety"),
                (_, Promise::Nothing) => ("small", "promises nothing"),
            };
            let why = cell.stop.map_or(String::new(), |stop| format!(" title=\"{}\"", escape(stop)));
            push(format_args!("<td{why}><span class=\"{class}\">{promise}</span><br>{}</td>", cell.results()));
        }
        push(format_args!("</tr>"));
    }
    push(format_args!("</tbody></table></div>"));
    html
}
