//! Remembers which commit the program was built from.

include!("commit.rs");
