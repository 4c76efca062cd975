//! Peers of one data folder that run now, so that those who start on one machine find each other.
//!
//! Without it a second `peerlock run` on the same machine would begin a cluster of its own, and run beside the first.
//! Each peer has a file with its address, locked for as long as its process lives, however it ends. Only one starts at
//! a time: of two that look around at once neither would see the other.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use peerlock::Secret;
use tokio::time::sleep;

/// How often we look whether it is our turn to start.
const LOOK: Duration = Duration::from_millis(10);
/// Longer than a peer looks for somebody to join.
const PATIENCE: Duration = Duration::from_secs(30);

/// The right to start, until it is dropped.
pub struct Turn {
    folder: PathBuf,
    _lock: Flock<File>,
}

/// Our own entry among the neighbours, until it is dropped.
pub struct Entry {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Turn {
    /// Waits until nobody else with this folder and this secret is starting.
    pub async fn take(data_dir: &Path, secret: &Secret) -> io::Result<Self> {
        let folder = data_dir.join("peers").join(format!("{:016x}", secret.fingerprint()));
        fs::create_dir_all(&folder)?;
        let since = Instant::now();
        let mut file = File::create(folder.join("starting"))?;
        loop {
            file = match lock(file) {
                Ok(lock) => return Ok(Self { folder, _lock: lock }),
                Err((file, Errno::EWOULDBLOCK)) if since.elapsed() < PATIENCE => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let message = "another peer has been starting for half a minute, and others wait for it";
                    return Err(io::Error::new(io::ErrorKind::TimedOut, message));
                }
                Err((_, error)) => return Err(error.into()),
            };
            sleep(LOOK).await;
        }
    }

    /// Where the others can be reached. What the dead have left is removed.
    pub fn neighbours(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let path = entry?.path();
            if path.extension().is_none_or(|ending| ending != "peer") {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue }; // It has just gone.
            match lock(file) {
                Ok(_) => fs::remove_file(&path)?,
                Err(_) => found.push(fs::read_to_string(&path)?.trim().to_owned()),
            }
        }
        found.sort();
        Ok(found)
    }

    /// Lets those who come after us know where we are.
    pub fn enter(self, address: SocketAddr) -> io::Result<Entry> {
        let path = self.folder.join(format!("{}.peer", std::process::id()));
        let mut lock = lock(File::create(&path)?).map_err(|(_, error)| error)?;
        writeln!(lock, "{}", super::on_this_machine(address))?;
        Ok(Entry { path, _lock: lock })
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let _gone = fs::remove_file(&self.path);
    }
}

fn lock(file: File) -> Result<Flock<File>, (File, Errno)> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_runs_is_found_and_who_has_died_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let turn = Turn::take(folder.path(), &secret).await.unwrap();
        assert!(turn.neighbours().unwrap().is_empty());
        let (stale, mine) = (turn.folder.join("1.peer"), turn.folder.join(format!("{}.peer", std::process::id())));
        fs::write(&stale, "10.0.0.1:1\n").unwrap(); // Nobody has it locked.
        let entry = turn.enter("0.0.0.0:7400".parse().unwrap()).unwrap();

        let turn = Turn::take(folder.path(), &secret).await.unwrap();
        assert_eq!(turn.neighbours().unwrap(), ["127.0.0.1:7400"]);
        assert!(!stale.exists() && mine.exists());
        // Others have no business with those of another secret, and need not wait for them.
        let other = Turn::take(folder.path(), &Secret::new(b"fedcba9876543210").unwrap()).await.unwrap();
        assert!(other.neighbours().unwrap().is_empty());
        drop(entry);
        assert!(turn.neighbours().unwrap().is_empty() && !mine.exists());
    }
}
