//! The simulator.

pub mod text;
