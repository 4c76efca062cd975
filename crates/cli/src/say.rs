//! Messages on standard error, prefixed with the program's name.

use serde::Serialize;

pub fn say(what: impl std::fmt::Display) {
    peerlock_console::say("peerlock", what);
}

pub fn notify(what: &impl Serialize) {
    peerlock_console::notify("peerlock", what);
}
