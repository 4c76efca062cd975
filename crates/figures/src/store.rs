//! Finished points on disk: what makes an interrupted run go on where it stopped.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::fingerprint::fingerprint;
use crate::metric::Measured;
use crate::point::Point;

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
        Ok(Self { folder, bench: env!("PEERLOCK_BENCH").into() })
    }

    /// A finished point. A file that is damaged, or that is of something else, counts as none.
    pub fn load(&self, point: &Point) -> Option<Measured> {
        let text = fs::read_to_string(self.path(point)).ok()?;
        let kept: Kept = toml::from_str(&text).ok()?;
        (kept.bench == self.bench && kept.run == point.command()).then_some(kept.measured)
    }

    /// Keeps a finished point.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn save(&self, point: &Point, measured: &Measured) -> Result<(), Error> {
        let kept = Kept { bench: self.bench.clone(), run: point.command(), measured: measured.clone() };
        let text = toml::to_string(&kept).expect("counts stay far below 2^63, and all else has a place in TOML");
        write(&self.path(point), text.as_bytes())
    }

    fn path(&self, point: &Point) -> PathBuf {
        let key = format!("{} {}", self.bench, point.command());
        self.folder.join(format!("{:016x}.toml", fingerprint(key.as_bytes())))
    }
}

/// Writes a file so that it is there as a whole or not at all, whenever the run is stopped.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |source| Error::Output { path: path.into(), source };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".part");
    fs::write(&unfinished, bytes).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the table that the function's authors publish.
    #[test]
    fn fingerprints_are_those_of_fnv_1a() {
        assert_eq!(fingerprint(b""), 0xcbf29ce484222325);
        assert_eq!(fingerprint(b"foobar"), 0x85944171f73967e8);
    }
}
