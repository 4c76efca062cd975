//! What we say beside what we print: one line, written in one piece, so that nobody who writes to the same terminal
//! comes in between.

use std::io::{Write as _, stderr};

use serde::Serialize;

/// To a person.
pub fn say(what: impl std::fmt::Display) {
    write(format!("peerlock: {what}\n"));
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
