//! Shared helpers of tests with real processes, here and in `crates/cli`.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(60);

pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "never seen: {what}");
        sleep(Duration::from_millis(5));
    }
}

pub struct Dir(TempDir);

impl Dir {
    pub fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

pub fn line(path: &Path) -> String {
    eventually(&format!("a line in {}", path.display()), || {
        let text = fs::read_to_string(path).ok()?;
        text.strip_suffix('\n').map(str::to_owned)
    })
}
