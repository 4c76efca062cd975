//! Takes a fingerprint of everything that a measured number depends on. Points measured by a different program must not
//! be reused, but a new title in an experiment file must not discard them.

use std::path::Path;

include!("src/fingerprint.rs");
include!("src/sources.rs");

fn main() {
    let mut files = sources(Path::new(".."));
    files.push("../../Cargo.lock".into());
    println!("cargo:rerun-if-changed=..");
    println!("cargo:rerun-if-changed=../../crates");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    println!("cargo:rustc-env=PEERLOCK_BENCH={:016x}", fingerprint_of(&files));
}
