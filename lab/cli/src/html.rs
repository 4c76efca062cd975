//! Pages of `bench` and `live`: one file without scripts or external resources.
//!
//! A plot has one row per case, with the case's numbers on a common log axis.

use std::fs;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use peerlock_figures::Error::Output;
use peerlock_figures::plot::{Axis, escape, tidy};
use peerlock_figures::{Scale, put};
use serde::Serialize;

use crate::Result;

const STYLE: &str = include_str!("html.css");
const MOST_TICKS: usize = 6;

pub struct Row {
    pub name: String,
    pub class: String,
    pub marks: Vec<f64>,
    pub text: String,
}

/// Checks that the directory is writable, before minutes of measurement.
pub fn prepare(dir: &Path) -> Result<()> {
    let output = |source| Output { path: dir.into(), source };
    fs::create_dir_all(dir).map_err(output)?;
    access(dir, AccessFlags::W_OK).map_err(|error| output(error.into()))?;
    Ok(())
}

/// Writes `NAME.html` and `NAME.json`, and returns the path of the page.
pub fn write(dir: &Path, name: &str, html: &str, numbers: &impl Serialize) -> Result<PathBuf> {
    let page = dir.join(format!("{name}.html"));
    let json = serde_json::to_string_pretty(numbers).map_err(std::io::Error::from)? + "\n";
    for (path, text) in [(&page, html), (&dir.join(format!("{name}.json")), json.as_str())] {
        fs::write(path, text).map_err(|source| Output { path: path.clone(), source })?;
    }
    Ok(page)
}

/// Returns the command line, with replacement characters where it is not UTF-8.
pub fn command() -> String {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\">\n<title>peerlock: {title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )
}

pub fn plot(body: &mut String, title: &str, what: &str, groups: &[(String, Vec<Row>)]) {
    let values = groups.iter().flat_map(|(_, rows)| rows).flat_map(|row| row.marks.iter().copied());
    let axis = Axis::horizontal(title, Scale::Log, &[], values);
    let ticks = axis.ticks();
    // Every third tick is a power of ten.
    let ticks: Vec<_> = ticks.iter().step_by(if ticks.len() > MOST_TICKS { 3 } else { 1 }).collect();
    put!(body, "<h2>{}</h2>\n<p class=\"soft\">{}</p>\n<div class=\"plot\">", escape(title), escape(what));
    for (heading, rows) in groups {
        put!(body, "<h3>{}</h3>", escape(heading));
        for row in rows {
            let (class, name, text) = (escape(&row.class), escape(&row.name), escape(&row.text));
            let track = track(&axis, &ticks, &row.marks);
            put!(
                body,
                "<div class=\"row {class}\"><span class=\"name\">{name}</span><span class=\"track\">{track}</span>\
                     <span class=\"text\">{text}</span></div>"
            );
        }
    }
    let labels: String =
        ticks.iter().map(|(at, label)| format!("<span style=\"left:{:.1}%\">{label}</span>", at * 100.0)).collect();
    put!(
        body,
        "<div class=\"row axis\" aria-hidden=\"true\"><span></span><span class=\"track\">{labels}</span>\
             <span></span></div>\n</div>"
    );
}

/// Draws the ticks, a bar over the range, and a circle per number, the first on top.
fn track(axis: &Axis, ticks: &[&(f64, String)], marks: &[f64]) -> String {
    let mut track = String::new();
    for (at, _) in ticks {
        track += &format!("<i style=\"left:{:.1}%\"></i>", at * 100.0);
    }
    let place = |value: f64| axis.place(value) * 100.0;
    let shown = || marks.iter().copied().filter(|value| axis.shows(*value)).map(place);
    let (low, high) = (shown().fold(f64::INFINITY, f64::min), shown().fold(f64::NEG_INFINITY, f64::max));
    if low <= high {
        track += &format!("<s style=\"left:{low:.1}%;width:{:.1}%\"></s>", high - low);
    }
    for (number, value) in marks.iter().enumerate().rev().filter(|(_, value)| axis.shows(**value)) {
        let class = if number == 0 { " class=\"first\"" } else { "" };
        track += &format!("<b{class} style=\"left:{:.1}%\" title=\"{}\"></b>", place(*value), tidy(*value));
    }
    track
}

pub fn source(body: &mut String, command: &str, numbers: &str) {
    let (commit, command) = (escape(env!("PEERLOCK_COMMIT")), escape(command));
    put!(
        body,
        "<p class=\"soft\">Commit <code>{commit}</code>, <code>{command}</code>. Data: \
             <a href=\"{numbers}\">{numbers}</a>.</p>"
    );
}
