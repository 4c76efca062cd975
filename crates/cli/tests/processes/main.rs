//! Agents and clients as processes, checked from outside: every client appends its actions to one log, and a checker
//! without any code of peerlock reads it.
//!
//! Tests do not measure time: they wait for events, with a generous limit. Every process is killed at the end of its
//! test. `PEERLOCK_SEED=7` selects other clients and victims.
#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod addresses;
mod boot;
mod checker;
mod client;
mod custody;
mod deaths;
mod fuzzed;
mod host;
mod killed;
mod kills;
mod namespaces;
mod network;
mod once;
mod order;
mod recovery;
#[path = "../run/secret.rs"]
mod secret;
mod servers;
mod sites;
mod takeover;
mod unauthenticated;
mod unsynced;
mod workload;
mod world;
