//! Whole clusters in one process, on a network in memory and in virtual time. The same seeds give the same runs;
//! `PEERLOCK_SEED=7 cargo test -p peerlock-service --test cluster` gives others.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod asleep;
mod basics;
mod clients;
mod inspect;
mod leaving;
mod nonsense;
mod trouble;
mod world;
