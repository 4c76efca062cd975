//! Test support: a fuzzing member, and deliberate errors. Each needs its feature.

#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod mutation;
#[cfg(any(test, feature = "fuzz"))]
mod retained;
