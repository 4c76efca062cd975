//! Sets the commit that the version shows.

include!("commit.rs");
