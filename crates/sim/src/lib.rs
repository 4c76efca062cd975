//! The simulator: virtual time, and the models of the network that messages cross.

pub mod latency;
pub mod text;
