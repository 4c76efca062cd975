//! Takes a fingerprint of everything that a measured number depends on: points that another bench has measured must not
//! be taken for ours, and a new title in an experiment file must not throw ours away.

use std::fs;
use std::path::{Path, PathBuf};

include!("src/fingerprint.rs");

const BENCH: [&str; 6] =
    ["../base/src", "../mutex/src", "../sim/src", "src/catalogue.rs", "src/voting.rs", "../../Cargo.lock"];

fn main() {
    let mut files = Vec::new();
    for path in BENCH {
        println!("cargo:rerun-if-changed={path}");
        list(Path::new(path), &mut files);
    }
    files.sort();
    let mut text = Vec::new();
    for file in files {
        text.extend(file.to_string_lossy().bytes());
        text.extend(fs::read(file).unwrap_or_default());
    }
    println!("cargo:rustc-env=PEERLOCK_BENCH={:016x}", fingerprint(&text));
}

fn list(path: &Path, files: &mut Vec<PathBuf>) {
    match fs::read_dir(path) {
        Ok(folder) => folder.flatten().for_each(|entry| list(&entry.path(), files)),
        Err(_) => files.push(path.into()),
    }
}
