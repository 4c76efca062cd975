//! Whole clusters in one process, on a network in memory and in virtual time.

#![allow(clippy::unwrap_used, reason = "tests may")]

mod basics;
mod clients;
mod leaving;
mod trouble;
mod world;
