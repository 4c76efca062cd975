//! Whole clusters in one process, on a network in memory and in virtual time.

mod basics;
mod world;
