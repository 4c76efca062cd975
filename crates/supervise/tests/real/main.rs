//! Real commands under real leases.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod common;
mod dir;
mod processes;
mod terminal;
