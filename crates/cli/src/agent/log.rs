//! The log of an agent: standard error, which is a file of bounded size if a command started the agent.

use std::fs::{self, File};
use std::io::{self, Write, stderr};
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::unistd::dup2_stderr;

use crate::dir;

/// The size at which a running agent rotates its log. Larger than at a start, so that the starting command finds the
/// first messages in the current file.
const LONGEST: u64 = 2 * dir::LONGEST_LOG;

pub struct Log {
    /// The log file, if its size is limited.
    path: Option<PathBuf>,
}

impl Log {
    pub fn to_stderr() -> Self {
        Self { path: None }
    }

    pub fn to_file(data_dir: &Path) -> Self {
        Self { path: Some(data_dir.join(dir::LOG)) }
    }
}

impl Write for Log {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(path) = &self.path {
            // If this fails, the log grows further.
            if let Ok(Some(next)) = next(path, &File::from(stderr().as_fd().try_clone_to_owned()?), LONGEST) {
                dup2_stderr(next)?;
            }
        }
        stderr().write(line)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns a new log file if the current one is too long. An exiting and a starting agent may share a log: the second
/// one finds it rotated already.
fn next(path: &Path, current: &File, longest: u64) -> io::Result<Option<File>> {
    let current = current.metadata()?;
    if current.len() <= longest {
        return Ok(None);
    }
    if fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (current.dev(), current.ino())) {
        dir::move_log(path)?;
    }
    dir::open_log(path).map(Some)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn long_log_is_moved_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(dir::LOG);
        let mut first = dir::open_log(&path).unwrap();
        // The handle of the exiting agent.
        let other = first.try_clone().unwrap();
        first.write_all(&[b'a'; 10]).unwrap();
        assert!(next(&path, &first, 10).unwrap().is_none());
        first.write_all(b"b").unwrap();
        let mut second = next(&path, &first, 10).unwrap().unwrap();
        second.write_all(b"second").unwrap();
        let mut third = next(&path, &other, 10).unwrap().unwrap();
        third.write_all(b", third").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second, third");
        assert_eq!(fs::metadata(path.with_extension("log.old")).unwrap().len(), 11);
    }
}
