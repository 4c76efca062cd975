//! Messages on standard error, prefixed with the program's name.

use serde::Serialize;

/// Prints a message for a person.
pub fn say(what: impl std::fmt::Display) {
    peerlock_console::say("peerlock", what);
}

/// Prints a message for a program: one JSON object.
pub fn notify(what: &impl Serialize) {
    peerlock_console::notify("peerlock", what);
}
