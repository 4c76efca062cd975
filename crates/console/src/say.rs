//! Messages on standard error, each written in one piece, so that lines of other processes do not interleave.

use std::io::{Write as _, stderr};

use peerlock_types::visible;
use serde::Serialize;

/// Writes a message to a person, with the name of the program. Control characters in it are made visible.
pub fn say(program: &str, what: impl std::fmt::Display) {
    let text = what.to_string();
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    write(format!("{program}: {}\n", lines.join("\n")));
}

/// Writes a message to a machine: one JSON object.
pub fn notify(program: &str, what: &impl Serialize) {
    match serde_json::to_string(what) {
        Ok(line) => write(line + "\n"),
        Err(error) => say(program, error),
    }
}

/// If standard error is closed, the line is dropped.
fn write(line: String) {
    let _gone = stderr().write_all(line.as_bytes());
}
