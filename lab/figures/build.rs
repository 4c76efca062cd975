//! Takes a fingerprint of all code that measured numbers depend on, so that stored points of other versions are not
//! reused.

use std::path::Path;

include!("src/fingerprint.rs");
include!("src/sources.rs");

fn main() {
    let mut files = sources(Path::new(".."));
    files.push("../../Cargo.lock".into());
    println!("cargo:rerun-if-changed=..");
    println!("cargo:rerun-if-changed=../../crates");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
    println!("cargo:rustc-env=PEERLOCK_SIMULATOR={:016x}", fingerprint_of(&files));
}
