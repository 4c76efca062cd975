//! Messages on standard error, in the name of this program.

use serde::Serialize;

/// Writes a message to a person.
pub fn say(what: impl std::fmt::Display) {
    peerlock_console::say("peerlock", what);
}

/// Writes a message to a machine: one JSON object.
pub fn notify(what: &impl Serialize) {
    peerlock_console::notify("peerlock", what);
}
