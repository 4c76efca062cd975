//! What tests of real processes share, here and in `crates/cli`: waiting for something, and a folder to see it in.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Longer than anything here takes on a machine under load; only a failure takes so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for something to happen.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(started.elapsed() < PATIENCE, "never seen: {what}");
        sleep(Duration::from_millis(5));
    }
}

/// A folder for what processes read and write.
pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// A whole line that somebody writes into a file, sooner or later.
pub fn line(path: &Path) -> String {
    eventually(&format!("a line in {}", path.display()), || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}
