//! The commands as a person and a script meet them: real processes, on loopback, each test with a folder of its own.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod admin;
mod agents;
mod cluster;
mod codes;
mod common;
mod detached;
#[path = "../../../supervise/tests/real/dir.rs"]
mod dir;
mod doctor;
mod doors;
mod doors_users;
mod joining;
mod losing;
mod rotation;
mod secret;
mod terminal;
mod turns;
