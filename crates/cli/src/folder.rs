//! An agent's data folder: one agent at a time, which says in it who it is.
//!
//! ```text
//! agent.lock   locked by the agent that runs: its process, its socket, and whether it ends by itself
//! agent.log    what an agent says that a command has started
//! drained      there is one if the agent was drained: commands do not start another one
//! identity     who it is to the others
//! secret       what the members of its cluster have in common
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Pid, geteuid};
use peerlock::places;
pub use peerlock::places::Occupant;
use tokio::time::sleep;

use crate::{Error, Result};

/// How often we look whether the agent before us has gone.
const LOOK: Duration = Duration::from_millis(20);
/// Whoever only looks whether the folder is taken has its lock for a moment, which is shorter than this.
const GLANCE: Duration = Duration::from_millis(200);
/// The name of the log of an agent that a command has started.
pub const LOG: &str = "agent.log";
/// A log that is longer than this at an agent's start is moved aside.
pub const LONGEST_LOG: u64 = 1 << 20;
/// The name of the file that marks a data folder as drained.
const DRAINED: &str = "drained";

/// A data folder that is ours until it is dropped.
pub struct DataFolder {
    _lock: Flock<File>,
}

impl DataFolder {
    /// Takes the folder, and makes it if there is none. An agent that is in it has so long to go, as long as `waits`
    /// says that it is worth waiting for: two with one identity would push each other out.
    pub async fn take(path: &Path, patience: Duration, me: &Occupant, mut waits: impl FnMut() -> bool) -> Result<Self> {
        let unusable = |source| Error::Folder { path: path.to_owned(), source };
        private(path)?;
        let mut file = open(&path.join("agent.lock")).map_err(unusable)?;
        let since = Instant::now();
        let mut lock = loop {
            file = match lock(file) {
                Ok(lock) => break lock,
                Err((file, Errno::EWOULDBLOCK)) if waits() && since.elapsed() < patience => file,
                Err((file, Errno::EWOULDBLOCK)) if since.elapsed() < GLANCE => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let pid = last(path).map(|other| other.pid);
                    return Err(Error::SecondAgent { path: path.to_owned(), pid });
                }
                Err((_, error)) => return Err(unusable(error.into())),
            };
            sleep(LOOK).await;
        };
        // Cut off only then: whoever reads it meanwhile finds this one or the one before, and not nobody.
        let text = me.to_text();
        lock.rewind().and_then(|()| lock.write_all(text.as_bytes())).map_err(unusable)?;
        lock.set_len(text.len() as u64).map_err(unusable)?;
        Ok(Self { _lock: lock })
    }
}

/// The last agent of a folder, whether it runs or not.
pub fn last(path: &Path) -> Option<Occupant> {
    places::last_agent(path).ok().flatten()
}

/// Where the next agent of a folder has its socket. The usual place depends on who asks: a shell has
/// `$XDG_RUNTIME_DIR`, and cron has not. So it is where the last one was, if that runs or has not gone in good order:
/// those who held slots or waited there look for the next one there, and what they had is written beside it. The
/// machine's own agent is where all users look for it, and one whose place was said is there.
pub fn place(path: &Path, usual: PathBuf) -> PathBuf {
    if places::is_socket_named() || path == Path::new(places::SYSTEM_DATA_DIR) {
        return usual;
    }
    let is_left = |socket: &PathBuf| {
        // Where nobody has this folder, whoever answers there is the agent of another one.
        let is_ours = || is_taken(path) || UnixStream::connect(socket).is_err();
        let is_private = || socket.parent().is_some_and(|folder| private(folder).is_ok());
        socket.is_absolute() && socket.exists() && is_private() && is_ours()
    };
    last(path).map(|last| last.socket).filter(is_left).unwrap_or(usual)
}

/// Whether an agent runs with this folder.
pub fn is_taken(path: &Path) -> bool {
    File::open(path.join("agent.lock")).is_ok_and(|file| lock(file).is_err())
}

/// The process of the agent that has this folder, if it has it indeed: what is written there may be of one before it.
pub fn holder(path: &Path) -> Option<Pid> {
    let Occupant { pid, socket, .. } = last(path).filter(|_| is_taken(path))?;
    let pid = i32::try_from(pid).ok()?;
    let lock = fs::canonicalize(path.join("agent.lock")).ok()?;
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let has_it = open.any(|file| fs::read_link(file.path()).is_ok_and(|file| file == lock));
    // Into one that has rights which we have not, as root's has that systemd did not start, we cannot look.
    (has_it || listener(&socket) == Some(pid)).then(|| Pid::from_raw(pid))
}

/// The process that listens at a socket.
fn listener(socket: &Path) -> Option<i32> {
    Some(getsockopt(&UnixStream::connect(socket).ok()?, PeerCredentials).ok()?.pid())
}

/// Where an agent that nobody watches writes what it has to say.
pub fn log(path: &Path) -> Result<(File, PathBuf)> {
    let unusable = |source| Error::Folder { path: path.to_owned(), source };
    private(path)?;
    let log = path.join(LOG);
    if fs::metadata(&log).is_ok_and(|log| log.len() > LONGEST_LOG) {
        move_log(&log).map_err(unusable)?;
    }
    Ok((open_log(&log).map_err(unusable)?, log))
}

/// Opens a log, to append to it.
pub fn open_log(log: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(log)
}

/// Moves a log aside. The one that was there is lost.
pub fn move_log(log: &Path) -> io::Result<()> {
    fs::rename(log, log.with_extension("log.old"))
}

/// Marks the folder: its agent was drained, and commands do not start another one.
pub fn mark_drained(path: &Path) -> io::Result<()> {
    File::options().append(true).create(true).mode(0o600).open(path.join(DRAINED)).map(drop)
}

/// Whether its agent was drained and not started again since.
pub fn is_drained(path: &Path) -> bool {
    path.join(DRAINED).exists()
}

/// Removes the mark.
pub fn unmark_drained(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(DRAINED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A folder of this user's own, which is made if there is none. Whoever could write into it could put other files and
/// sockets there, and whoever could open its locks could hold them.
pub fn private(path: &Path) -> Result<()> {
    let unusable = |source| Error::Folder { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let metadata = fs::metadata(path).map_err(unusable)?;
    check_private(path, metadata.uid(), metadata.permissions().mode() & 0o777)
}

/// Root could do everything anyway.
fn check_private(path: &Path, owner: u32, mode: u32) -> Result<()> {
    match (mode & 0o022, [0, geteuid().as_raw()].contains(&owner)) {
        (0, true) => Ok(()),
        (_, false) => Err(Error::ForeignFolder { path: path.to_owned(), owner }),
        (_, true) => Err(Error::OpenFolder { path: path.to_owned(), mode }),
    }
}

/// Opens a file that is locked, which only this user can: also one that a program of before has made for others to
/// read.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Locks a file unless somebody else has.
pub fn lock(file: File) -> std::result::Result<Flock<File>, (File, Errno)> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_others_could_write_into_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        private(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        for (bits, good) in [(0o755, true), (0o770, false), (0o777, false), (0o702, false), (0o500, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            assert_eq!(private(&path).is_ok(), good, "{bits:o}");
            assert_eq!(mode(&path), bits, "it is the owner's to change");
        }
        let me = geteuid().as_raw();
        let of = |owner| check_private(&path, owner, 0o700);
        assert!(of(me).is_ok() && of(0).is_ok());
        assert!(matches!(of(me + 1), Err(Error::ForeignFolder { owner, .. }) if owner == me + 1));
    }

    #[tokio::test]
    async fn the_next_agent_is_where_the_last_one_has_left_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let (data, usual) = (folder.path().join("data"), PathBuf::from("/run/user/7/peerlock/agent.sock"));
        assert_eq!(place(&data, usual.clone()), usual, "there was none");
        let socket = folder.path().join("run/agent.sock");
        let me = Occupant { pid: 7, ends_by_itself: true, socket: socket.clone() };
        let _taken = DataFolder::take(&data, Duration::ZERO, &me, || true).await.unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "it has ended in good order");
        private(&folder.path().join("run")).unwrap();
        File::create(&socket).unwrap();
        assert_eq!(place(&data, usual.clone()), socket);
        fs::set_permissions(folder.path().join("run"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "others could take its place");
    }

    #[tokio::test]
    async fn a_folder_has_one_agent_at_a_time_and_tells_which() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        let first = Occupant { pid: 7, ends_by_itself: true, socket: "/run/a b/agent.sock".into() };
        assert!(last(&path).is_none() && !is_taken(&path));
        let taken = DataFolder::take(&path, Duration::ZERO, &first, || true).await.unwrap();
        assert!(last(&path) == Some(first.clone()) && is_taken(&path));
        let second = Occupant { pid: 8, ends_by_itself: false, socket: "x".into() };
        let error = DataFolder::take(&path, Duration::ZERO, &second, || true).await.err().unwrap().to_string();
        assert!(error.contains("(process 7)"), "{error}");
        assert_eq!(last(&path), Some(first), "who was refused has changed nothing");
        // So has who need not wait any more, however long it could.
        let in_vain = DataFolder::take(&path, Duration::from_secs(3600), &second, || false).await;
        assert!(in_vain.is_err());
        // Who has time waits for the first to go.
        let waits = DataFolder::take(&path, Duration::from_secs(60), &second, || true);
        let (second_has_it, ()) = tokio::join!(waits, async { drop(taken) });
        assert!(second_has_it.is_ok() && last(&path) == Some(second));
    }
}
