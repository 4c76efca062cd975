//! The commands as a person and a script meet them: real processes, on loopback, each test with a folder of its own.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod agents;
mod by_hand;
mod cluster;
mod codes;
mod common;
mod detached;
mod doctor;
mod doors;
mod doors_users;
#[path = "../../../supervise/tests/real/folder.rs"]
mod folder;
mod joining;
mod losing;
mod rotation;
mod secret;
mod terminal;
mod turns;
