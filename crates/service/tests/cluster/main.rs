//! Whole clusters in one process, on a network in memory and in virtual time.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod basics;
mod clients;
mod leaving;
mod trouble;
mod world;
