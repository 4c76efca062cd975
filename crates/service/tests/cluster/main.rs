//! Whole clusters in one process, on a network in memory and in virtual time.

mod basics;
mod clients;
mod leaving;
mod trouble;
mod world;
