//! Finished points on disk, from which an interrupted run continues.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use std::{fs, io, process};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::fingerprint::fingerprint;
use crate::metric::Measured;
use crate::point::Point;

/// An unfinished file older than this is abandoned.
const UNFINISHED: Duration = Duration::from_secs(24 * 3600);

/// The finished points of this version of the simulator.
#[derive(Debug)]
pub struct Store {
    dir: PathBuf,
    version: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: String,
    run: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latencies: Option<String>,
    measured: Measured,
}

impl Store {
    /// Opens or creates `out/points`. Points of another version, whose protocols or simulator differ in any byte, are
    /// ignored.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn open(out: &Path) -> Result<Self, Error> {
        let dir = out.join("points");
        fs::create_dir_all(&dir).map_err(|source| Error::Output { path: dir.clone(), source })?;
        remove_unfinished(&dir);
        Ok(Self { dir, version: env!("PEERLOCK_SIMULATOR").into() })
    }

    /// Loads a finished point; `None` if the file is damaged or of another run. `latencies` is the fingerprint of the
    /// latency file that the run reads.
    pub fn load(&self, point: &Point, latencies: Option<u64>) -> Option<Measured> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let stored: Stored = toml::from_str(&text).ok()?;
        let is_same =
            stored.version == self.version && stored.run == point.command() && stored.latencies == hex(latencies);
        is_same.then_some(stored.measured)
    }

    pub fn save(&self, point: &Point, latencies: Option<u64>, measured: &Measured) -> Result<(), Error> {
        let (version, run) = (self.version.clone(), point.command());
        let stored = Stored { version, run, latencies: hex(latencies), measured: measured.clone() };
        let text = toml::to_string(&stored).expect("TOML represents all values, and counts are below 2^63");
        write(&self.path(point), text.as_bytes())
    }

    fn path(&self, point: &Point) -> PathBuf {
        let key = format!("{} {}", self.version, point.command());
        self.dir.join(format!("{:016x}.toml", fingerprint(key.as_bytes())))
    }
}

/// Text, since TOML has no unsigned numbers.
fn hex(fingerprint: Option<u64>) -> Option<String> {
    fingerprint.map(|fingerprint| format!("{fingerprint:016x}"))
}

/// Writes a file atomically, also with concurrent writers or a power failure.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let failed = |source| Error::Output { path: path.into(), source };
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).map_err(failed)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}-{}.part", process::id(), WRITTEN.fetch_add(1, Relaxed)));
    let done = write_synced(Path::new(&unfinished), bytes).and_then(|()| fs::rename(&unfinished, path));
    done.map_err(|source| {
        let _ = fs::remove_file(&unfinished); // It may not exist.
        failed(source)
    })
}

/// Removes the unfinished files of interrupted runs. Younger ones may be in use.
fn remove_unfinished(dir: &Path) {
    for file in fs::read_dir(dir).into_iter().flatten().flatten() {
        let written = file.metadata().and_then(|file| file.modified());
        let is_old = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNFINISHED));
        if is_old && file.path().extension().is_some_and(|extension| extension == "part") {
            let _ = fs::remove_file(file.path()); // The next run tries again.
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all() // The rename may be durable before the content otherwise.
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn old_unfinished_files_are_removed() {
        let out = tempfile::tempdir().unwrap();
        let points = out.path().join("points");
        fs::create_dir(&points).unwrap();
        for (name, days) in [("a.toml.1-0.part", 2), ("b.toml.2-0.part", 0), ("c.toml", 2)] {
            let file = fs::File::create(points.join(name)).unwrap();
            file.set_modified(SystemTime::now() - days * UNFINISHED).unwrap();
        }
        Store::open(out.path()).unwrap();
        let is_left = ["a.toml.1-0.part", "b.toml.2-0.part", "c.toml"].map(|name| points.join(name).exists());
        assert_eq!(is_left, [false, true, true]);
    }

    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf29ce484222325);
        assert_eq!(fingerprint(b"foobar"), 0x85944171f73967e8);
    }

    #[test]
    fn concurrent_writers_leave_one_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("point.toml");
        let texts = [b'a', b'b'].map(|message| vec![message; 100_000]);
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| (0..50).for_each(|_| write(&path, text).unwrap()));
            }
        });
        assert!(texts.contains(&fs::read(&path).unwrap()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no unfinished file is left");
    }

    #[test]
    fn failed_write_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a directory");
        fs::create_dir_all(path.join("not empty")).unwrap();
        assert!(write(&path, b"text").is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no unfinished file is left");
    }
}
