//! What we say beside what we print: one line, written in one piece, so that nobody who writes to the same terminal
//! comes in between.

use std::io::{Write as _, stderr};

use peerlock_base::visible;
use serde::Serialize;

/// To a person. What others have said may be part of it, and is only text.
pub fn say(what: impl std::fmt::Display) {
    let text = what.to_string();
    let lines: Vec<_> = text.split('\n').map(visible).collect();
    write(format!("peerlock: {}\n", lines.join("\n")));
}

/// To a machine: one JSON object.
pub fn tell(what: &impl Serialize) {
    match serde_json::to_string(what) {
        Ok(line) => write(line + "\n"),
        Err(error) => say(error),
    }
}

/// If our standard error is closed, the line is dropped.
fn write(line: String) {
    let _gone = stderr().write_all(line.as_bytes());
}
