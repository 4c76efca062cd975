//! What the pages of `bench` and `live` have in common: no script, nothing from the network; on a telephone, in the
//! dark and on paper.
//!
//! A plot is a row for each case with its numbers on a log axis. Rows and not `reproduce`'s curves: a case has a name
//! and no place on an axis of its own, and a few to a thousand messages belong into one picture.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use peerlock_figures::Error::Output;
use peerlock_figures::Scale;
use peerlock_figures::plot::{Axis, escape, tidy};
use serde::Serialize;

use crate::Result;

const STYLE: &str = include_str!("html.css");
/// Why nothing can go wrong when a page is put together.
pub const INFALLIBLE: &str = "a string takes whatever is written";
/// More words than this on an axis would meet on a telephone.
const MOST_TICKS: usize = 6;

/// A row of a plot.
pub struct Row {
    /// What stands before it.
    pub name: String,
    /// Its class in the style sheet, which has its colour.
    pub class: String,
    /// Numbers on the axis; the first is the one that counts.
    pub marks: Vec<f64>,
    /// What stands behind it.
    pub text: String,
}

/// Makes sure that pages can be written here, before anything is measured: that takes minutes.
pub fn prepare(dir: &Path) -> Result<()> {
    let output = |source| Output { path: dir.into(), source };
    fs::create_dir_all(dir).map_err(output)?;
    access(dir, AccessFlags::W_OK).map_err(|error| output(error.into()))?;
    Ok(())
}

/// Writes a page, `NAME.html`, and its numbers beside it, `NAME.json`. Returns where the page is.
pub fn write(dir: &Path, name: &str, html: &str, numbers: &impl Serialize) -> Result<PathBuf> {
    let page = dir.join(format!("{name}.html"));
    let json = serde_json::to_string_pretty(numbers).map_err(std::io::Error::from)? + "\n";
    for (path, text) in [(&page, html), (&dir.join(format!("{name}.json")), json.as_str())] {
        fs::write(path, text).map_err(|source| Output { path: path.clone(), source })?;
    }
    Ok(page)
}

/// The command that is running, for the page to name: whatever of it is no text, such as the name of a folder, as well
/// as it can be shown.
pub fn command() -> String {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// A page with this body.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// A plot of these rows, which stand together under their headings.
pub fn plot(body: &mut String, title: &str, what: &str, groups: &[(String, Vec<Row>)]) {
    let values = groups.iter().flat_map(|(_, rows)| rows).flat_map(|row| row.marks.iter().copied());
    let axis = Axis::horizontal(title, Scale::Log, &[], values);
    let ticks = axis.ticks();
    // On a log axis every third is ten times as much.
    let ticks: Vec<_> = ticks.iter().step_by(if ticks.len() > MOST_TICKS { 3 } else { 1 }).collect();
    put(body, format_args!("<h2>{}</h2>\n<p class=\"soft\">{}</p>\n<div class=\"plot\">", escape(title), escape(what)));
    for (heading, rows) in groups {
        put(body, format_args!("<h3>{}</h3>", escape(heading)));
        for row in rows {
            let (class, name, text) = (escape(&row.class), escape(&row.name), escape(&row.text));
            let track = track(&axis, &ticks, &row.marks);
            put(
                body,
                format_args!(
                    "<div class=\"row {class}\"><span class=\"name\">{name}</span><span class=\"track\">{track}</span>\
                     <span class=\"text\">{text}</span></div>"
                ),
            );
        }
    }
    let labels: String =
        ticks.iter().map(|(at, label)| format!("<span style=\"left:{:.1}%\">{label}</span>", at * 100.0)).collect();
    put(
        body,
        format_args!(
            "<div class=\"row axis\" aria-hidden=\"true\"><span></span><span class=\"track\">{labels}</span>\
             <span></span></div>\n</div>"
        ),
    );
}

/// The lines of the axis, a bar over all numbers, and a circle for each; the first is drawn last.
fn track(axis: &Axis, ticks: &[&(f64, String)], marks: &[f64]) -> String {
    let mut track = String::new();
    for (at, _) in ticks {
        write!(track, "<i style=\"left:{:.1}%\"></i>", at * 100.0).expect(INFALLIBLE);
    }
    let place = |value: f64| axis.place(value) * 100.0;
    let shown = || marks.iter().copied().filter(|value| axis.shows(*value)).map(place);
    let (low, high) = (shown().fold(f64::INFINITY, f64::min), shown().fold(f64::NEG_INFINITY, f64::max));
    if low <= high {
        write!(track, "<s style=\"left:{low:.1}%;width:{:.1}%\"></s>", high - low).expect(INFALLIBLE);
    }
    for (number, value) in marks.iter().enumerate().rev().filter(|(_, value)| axis.shows(**value)) {
        let class = if number == 0 { " class=\"first\"" } else { "" };
        write!(track, "<b{class} style=\"left:{:.1}%\" title=\"{}\"></b>", place(*value), tidy(*value))
            .expect(INFALLIBLE);
    }
    track
}

/// Where the numbers are from.
pub fn source(body: &mut String, command: &str, numbers: &str) {
    let (commit, command) = (escape(env!("PEERLOCK_COMMIT")), escape(command));
    put(
        body,
        format_args!(
            "<p class=\"soft\">Commit <code>{commit}</code>, <code>{command}</code>. The numbers: \
             <a href=\"{numbers}\">{numbers}</a>.</p>"
        ),
    );
}

/// Another line of a page.
pub fn put(body: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(body, "{line}").expect(INFALLIBLE);
}
