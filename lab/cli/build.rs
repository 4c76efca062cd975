//! Remembers which commit the program was built from, for the reports that it makes.

include!("../../crates/cli/commit.rs");
