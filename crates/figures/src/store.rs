//! Finished points on disk: what makes an interrupted run go on where it stopped.

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

/// Nobody takes longer than this to write a file.
const UNFINISHED: Duration = Duration::from_secs(24 * 3600);

/// The finished points of one bench, in a folder.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    bench: String,
}

/// A point's file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    bench: String,
    /// The command that does the same.
    run: String,
    /// A fingerprint of the file of latencies that it names, if it names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    latencies: Option<String>,
    measured: Measured,
}

impl Store {
    /// Points in `out/points`, which is made if need be. Those of another bench, whose protocols or simulator differ in
    /// any letter, are not taken.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn open(out: &Path) -> Result<Self, Error> {
        let folder = out.join("points");
        fs::create_dir_all(&folder).map_err(|source| Error::Output { path: folder.clone(), source })?;
        remove_unfinished(&folder);
        Ok(Self { folder, bench: env!("PEERLOCK_BENCH").into() })
    }

    /// A finished point. A file that is damaged, or that is of something else, counts as none. `latencies` is a
    /// fingerprint of the file that the point reads, if it reads one: its name says nothing of what is in it.
    pub fn load(&self, point: &Point, latencies: Option<u64>) -> Option<Measured> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let kept: Kept = toml::from_str(&text).ok()?;
        let is_it = kept.bench == self.bench && kept.run == point.command() && kept.latencies == in_words(latencies);
        is_it.then_some(kept.measured)
    }

    /// Keeps a finished point.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, point: &Point, latencies: Option<u64>, measured: &Measured) -> Result<(), Error> {
        let (bench, run) = (self.bench.clone(), point.command());
        let kept = Kept { bench, run, latencies: in_words(latencies), measured: measured.clone() };
        let text = toml::to_string(&kept).expect("counts stay far below 2^63, and all else has a place in TOML");
        write(&self.path(point), text.as_bytes())
    }

    fn path(&self, point: &Point) -> PathBuf {
        let key = format!("{} {}", self.bench, point.command());
        self.folder.join(format!("{:016x}.toml", fingerprint(key.as_bytes())))
    }
}

/// Text, since TOML's numbers have a sign.
fn in_words(fingerprint: Option<u64>) -> Option<String> {
    fingerprint.map(|fingerprint| format!("{fingerprint:016x}"))
}

/// Writes a file so that it is there as a whole or not at all, whenever the run is stopped, whoever else writes it, and
/// if the power fails.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    static WRITTEN: AtomicU64 = AtomicU64::new(0);
    let failed = |source| Error::Output { path: path.into(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(format!(".{}-{}.part", process::id(), WRITTEN.fetch_add(1, Relaxed)));
    let done = write_synced(Path::new(&unfinished), bytes).and_then(|()| fs::rename(&unfinished, path));
    done.map_err(|source| {
        let _ = fs::remove_file(&unfinished); // It may not even be there.
        failed(source)
    })
}

/// What runs have left that were stopped while they wrote. Those that still write have begun less than a day ago.
fn remove_unfinished(folder: &Path) {
    for file in fs::read_dir(folder).into_iter().flatten().flatten() {
        let written = file.metadata().and_then(|file| file.modified());
        let is_old = written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > UNFINISHED));
        if is_old && file.path().extension().is_some_and(|extension| extension == "part") {
            let _ = fs::remove_file(file.path()); // Nobody misses it, and the next run tries again.
        }
    }
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all() // Else the name may last longer than what is in it.
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_a_run_left_that_was_stopped_while_it_wrote_goes_some_day() {
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

    /// From the table that the function's authors publish.
    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf29ce484222325);
        assert_eq!(fingerprint(b"foobar"), 0x85944171f73967e8);
    }

    /// Two runs may have one folder.
    #[test]
    fn who_writes_the_same_file_at_once_leaves_one_of_them_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("point.toml");
        let texts = [b'a', b'b'].map(|letter| vec![letter; 100_000]);
        std::thread::scope(|scope| {
            for text in &texts {
                scope.spawn(|| (0..50).for_each(|_| write(&path, text).unwrap()));
            }
        });
        assert!(texts.contains(&fs::read(&path).unwrap()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }

    #[test]
    fn what_cannot_be_written_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a folder");
        fs::create_dir_all(path.join("with something in it")).unwrap();
        assert!(write(&path, b"text").is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing unfinished is left");
    }
}
