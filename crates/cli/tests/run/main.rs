//! The commands as operators and scripts use them: real processes on loopback, each test in its own directory.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod access;
mod admin;
mod agents;
mod cluster;
mod codes;
mod common;
mod detached;
#[path = "../../../supervise/tests/real/dir.rs"]
mod dir;
mod doctor;
mod joining;
mod losing;
mod messages;
mod once;
mod rotation;
mod secret;
mod terminal;
mod turns;
mod users;
