//! Messages on standard error, each with one write, so that lines of several processes do not interleave.

use std::io::{Write as _, stderr};

use peerlock_types::visible;
use serde::Serialize;

/// Prints a message for a person, with the name of the program. Control characters are escaped.
pub fn say(program: &str, what: impl std::fmt::Display) {
    let text = what.to_string();
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    write(format!("{program}: {}\n", lines.join("\n")));
}

/// Prints a message for a program: one JSON object.
pub fn notify(program: &str, what: &impl Serialize) {
    match serde_json::to_string(what) {
        Ok(line) => write(line + "\n"),
        Err(error) => say(program, error),
    }
}

/// Drops the line if standard error is closed.
fn write(line: String) {
    let _gone = stderr().write_all(line.as_bytes());
}
