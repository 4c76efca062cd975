//! The fingerprint of measured numbers.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

use std::fs;
use std::path::Path;

use tempfile::tempdir;

include!("../src/fingerprint.rs");
include!("../src/sources.rs");

#[test]
fn fingerprint_covers_every_dependency() {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let files = sources(&lab);
    for file in [
        "../crates/types/src/random.rs",
        "catalogue/src/protocol.rs",
        "catalogue/src/setting.rs",
        "figures/src/metric.rs",
        "../crates/protocol/src/custody.rs",
        "overlay/src/chord.rs",
        "overlay/src/pastry.rs",
        "peer/src/peer.rs",
        "protocols/src/sigma.rs",
        "protocols/src/sigma/replica.rs",
        "sim/src/latency.rs",
        "sim/src/watch/passing.rs",
    ] {
        assert!(files.contains(&lab.join(file)), "{file} is not in the fingerprint");
    }
    for file in ["figures/src/plot.rs", "../crates/service/src/driver.rs", "cli/src/main.rs"] {
        assert!(!files.contains(&lab.join(file)), "{file} does not affect numbers");
    }
}

#[test]
fn fingerprint_changes_with_an_added_crate_or_byte() {
    let crates = tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = crates.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let now = || fingerprint_of(&sources(crates.path()));
    write("catalogue/Cargo.toml", "[dependencies]\nserde = \"1\"\n\n[dev-dependencies]\npeerlock-net = {}\n");
    write("catalogue/src/lib.rs", "1");
    write("net/src/lib.rs", "1");
    write("new/Cargo.toml", "[dependencies]\npeerlock-below.workspace = true\n");
    write("new/src/lib.rs", "1");
    write("below/src/module/lib.rs", "1");
    let before = now();
    write("net/src/lib.rs", "2");
    assert_eq!(now(), before, "a development dependency");
    write("catalogue/Cargo.toml", "[dependencies]\npeerlock-new = { path = \"../new\" }\n");
    let added = now();
    assert_ne!(added, before);
    write("below/src/module/lib.rs", "2");
    assert_ne!(now(), added);
}
