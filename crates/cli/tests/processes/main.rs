//! Real agents and real clients, each a process of its own, checked from outside: every client appends what it does to
//! one log, and a checker that knows nothing of peerlock reads it.
//!
//! Nothing measures time; every wait is for something to happen, and has a generous end. Whatever a test has started is
//! killed when it ends, however it ends. `PEERLOCK_SEED=7` gives other clients and victims.
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
