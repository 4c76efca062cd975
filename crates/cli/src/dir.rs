//! The data directory of an agent, which one process at a time uses.
//!
//! ```text
//! agent.lock   locked by the running agent: its process, whether it exits when idle, its socket, its machine, and
//!              in the end the mark of a clean exit
//! agent.log    the log of an agent that a command started
//! drained      exists if the agent was drained: commands do not start another one
//! identity     the key of the host
//! secret       the cluster secret
//! ```

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::sys::statfs::statfs;
use nix::unistd::{Pid, geteuid};
use peerlock::places;
pub use peerlock::places::Occupant;
use tokio::time::sleep;

use crate::{Error, Result};

const INTERVAL: Duration = Duration::from_millis(20);
/// Longer than [`is_taken`] holds the lock.
const CHECK: Duration = Duration::from_millis(200);
pub const LOG: &str = "agent.log";
/// The size from which a log is rotated when an agent starts.
pub const LONGEST_LOG: u64 = 1 << 20;
const DRAINED: &str = "drained";

const MACHINE: &str = "machine ";
const ENDED: &str = "ended";
/// File systems that several machines can mount, by their magic number in statfs(2).
const SHARED: [(u32, &str); 12] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "SMB"),
    (0xfe53_4d42, "SMB"),
    (0x6573_5546, "FUSE"),
    (0x0102_1997, "9P"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x7375_7245, "Coda"),
    (0x0bd0_0bd0, "Lustre"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
];

pub struct DataDir {
    lock: Flock<File>,
}

impl DataDir {
    /// Locks the directory, and creates it if necessary: two processes with one identity would replace each other's
    /// connections. Waits for the current agent as long as `waits` returns true, but no longer than `patience`.
    pub async fn take(path: &Path, patience: Duration, me: &Occupant, mut waits: impl FnMut() -> bool) -> Result<Self> {
        let unusable = |source| Error::Dir { path: path.to_owned(), source };
        private(path)?;
        let lock_path = path.join("agent.lock");
        let mut file = open(&lock_path).map_err(unusable)?;
        let since = Instant::now();
        let mut lock = loop {
            file = match lock(file) {
                Ok(lock) if is_same(&lock, &lock_path) => break lock,
                // The file was removed: another agent may lock the new one.
                Ok(_) => open(&lock_path).map_err(unusable)?,
                Err((file, Errno::EWOULDBLOCK)) if waits() && since.elapsed() < patience => file,
                Err((file, Errno::EWOULDBLOCK)) if since.elapsed() < CHECK => file,
                Err((_, Errno::EWOULDBLOCK)) => {
                    let pid = last(path).map(|other| other.pid);
                    return Err(Error::SecondAgent { path: path.to_owned(), pid });
                }
                Err((_, error)) => return Err(unusable(error.into())),
            };
            sleep(INTERVAL).await;
        };
        let machine = machine();
        let mut before = String::new();
        // If the file is unreadable, it names no agent.
        _ = lock.read_to_string(&mut before);
        if let (Some(here), Some(there)) = (&machine, left_open(&before))
            && here != there
        {
            return Err(Error::OtherMachine { path: path.to_owned(), machine: there.to_owned() });
        }
        // Truncated last, so that a concurrent reader finds either the previous agent or this one.
        let machine = machine.map(|id| format!("{MACHINE}{id}\n")).unwrap_or_default();
        let text = me.to_text() + &machine;
        lock.rewind().and_then(|()| lock.write_all(text.as_bytes())).map_err(unusable)?;
        lock.set_len(text.len() as u64).map_err(unusable)?;
        Ok(Self { lock })
    }

    /// Marks a clean exit, so that another machine may use the directory, and releases it.
    pub fn end(mut self) {
        // If this fails, an agent on another machine refuses to start.
        _ = self.lock.seek(SeekFrom::End(0)).and_then(|_| writeln!(self.lock, "{ENDED}"));
    }
}

fn is_same(file: &File, path: &Path) -> bool {
    let id = |found: io::Result<fs::Metadata>| found.map(|file| (file.dev(), file.ino())).ok();
    id(file.metadata()).is_some_and(|open| id(fs::metadata(path)) == Some(open))
}

fn machine() -> Option<String> {
    let id = fs::read_to_string("/etc/machine-id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

fn left_open(text: &str) -> Option<&str> {
    let machine = text.lines().find_map(|line| line.strip_prefix(MACHINE));
    machine.filter(|_| text.lines().all(|line| line != ENDED))
}

/// Refuses a file system that several machines may use: its locks may be local to one machine, or be lost while held.
pub fn check_filesystem(path: &Path) -> Result<()> {
    private(path)?;
    let found = statfs(path).map_err(|error| Error::Dir { path: path.to_owned(), source: error.into() })?;
    // A 32-bit number, which some systems extend with its sign.
    match shared((found.filesystem_type().0 & 0xffff_ffff) as u64) {
        Some(kind) => Err(Error::SharedFilesystem { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

fn shared(magic: u64) -> Option<&'static str> {
    SHARED.iter().find(|(known, _)| u64::from(*known) == magic).map(|(_, name)| *name)
}

pub fn last(path: &Path) -> Option<Occupant> {
    places::last_agent(path).ok().flatten()
}

/// Returns the socket for the next agent of a directory. If the last agent runs or did not exit cleanly, its socket is
/// used again: its clients wait there, and its takeover file is beside it. The default may differ, since it depends on
/// the environment: a shell has `$XDG_RUNTIME_DIR`, cron has not. Exceptions are the machine's agent and a named
/// socket.
pub fn place(path: &Path, usual: PathBuf) -> PathBuf {
    if places::is_socket_named() || path == Path::new(places::SYSTEM_DATA_DIR) {
        return usual;
    }
    let is_left = |socket: &PathBuf| {
        // If the directory is not locked, an agent that answers at the socket has another directory.
        let is_ours = || is_taken(path) || UnixStream::connect(socket).is_err();
        let is_private = || socket.parent().is_some_and(|dir| private(dir).is_ok());
        socket.is_absolute() && socket.exists() && is_private() && is_ours()
    };
    last(path).map(|last| last.socket).filter(is_left).unwrap_or(usual)
}

pub fn is_taken(path: &Path) -> bool {
    File::open(path.join("agent.lock")).is_ok_and(|file| lock(file).is_err())
}

/// Returns the process of the directory's agent. Verifies it, since the file may name an earlier process.
pub fn holder(path: &Path) -> Option<Pid> {
    let Occupant { pid, socket, .. } = last(path).filter(|_| is_taken(path))?;
    let pid = i32::try_from(pid).ok()?;
    let lock = fs::canonicalize(path.join("agent.lock")).ok()?;
    let mut open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let has_it = open.any(|file| fs::read_link(file.path()).is_ok_and(|file| file == lock));
    // `/proc` does not list the files of a process with more privileges.
    (has_it || listener(&socket) == Some(pid)).then(|| Pid::from_raw(pid))
}

fn listener(socket: &Path) -> Option<i32> {
    Some(getsockopt(&UnixStream::connect(socket).ok()?, PeerCredentials).ok()?.pid())
}

pub fn log(path: &Path) -> Result<(File, PathBuf)> {
    let unusable = |source| Error::Dir { path: path.to_owned(), source };
    private(path)?;
    let log = path.join(LOG);
    if fs::metadata(&log).is_ok_and(|log| log.len() > LONGEST_LOG) {
        move_log(&log).map_err(unusable)?;
    }
    Ok((open_log(&log).map_err(unusable)?, log))
}

pub fn open_log(log: &Path) -> io::Result<File> {
    File::options().append(true).create(true).mode(0o600).open(log)
}

pub fn move_log(log: &Path) -> io::Result<()> {
    fs::rename(log, log.with_extension("log.old"))
}

pub fn mark_drained(path: &Path) -> io::Result<()> {
    File::options().append(true).create(true).mode(0o600).open(path.join(DRAINED)).map(drop)
}

pub fn is_drained(path: &Path) -> bool {
    path.join(DRAINED).exists()
}

pub fn unmark_drained(path: &Path) -> io::Result<()> {
    match fs::remove_file(path.join(DRAINED)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Creates a private directory, or checks an existing one: another user with write access could replace its files and
/// sockets.
pub fn private(path: &Path) -> Result<()> {
    let unusable = |source| Error::Dir { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let metadata = fs::metadata(path).map_err(unusable)?;
    check_private(path, metadata.uid(), metadata.permissions().mode() & 0o777)?;
    check_parents(path, [0, geteuid().as_raw(), overflow_uid()])
}

/// Refuses a path that other users could rename: one with a parent that belongs to none of `owners`, or that is
/// world-writable without the sticky bit. Group-writable parents are accepted, since they are common where each user
/// has a group.
fn check_parents(path: &Path, owners: [u32; 3]) -> Result<()> {
    let path = fs::canonicalize(path).map_err(|source| Error::Dir { path: path.to_owned(), source })?;
    for parent in path.ancestors().skip(1) {
        let Ok(found) = fs::metadata(parent) else { continue };
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        if !owners.contains(&owner) {
            return Err(Error::ForeignDir { path: parent.to_owned(), owner });
        }
        if mode & 0o1002 == 0o002 {
            return Err(Error::OpenDir { path: parent.to_owned(), mode });
        }
    }
    Ok(())
}

/// Returns the user ID that stands for unmapped users, such as the real root in a user namespace.
fn overflow_uid() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65_534)
}

/// Root may own it, too.
fn check_private(path: &Path, owner: u32, mode: u32) -> Result<()> {
    match (mode & 0o022, [0, geteuid().as_raw()].contains(&owner)) {
        (0, true) => Ok(()),
        (_, false) => Err(Error::ForeignDir { path: path.to_owned(), owner }),
        (_, true) => Err(Error::OpenDir { path: path.to_owned(), mode }),
    }
}

/// Opens or creates a lock file, which only this user can open and therefore lock.
pub fn open(path: &Path) -> io::Result<File> {
    let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    Ok(file)
}

pub fn lock(file: File) -> std::result::Result<Flock<File>, (File, Errno)> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn directory_writable_by_others_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        private(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o700, 0o700));
        for (bits, good) in [(0o755, true), (0o770, false), (0o777, false), (0o702, false), (0o500, true)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
            assert_eq!(private(&path).is_ok(), good, "{bits:o}");
            assert_eq!(mode(&path), bits, "the check changes nothing");
        }
        let me = geteuid().as_raw();
        let of = |owner| check_private(&path, owner, 0o700);
        assert!(of(me).is_ok() && of(0).is_ok());
        assert!(matches!(of(me + 1), Err(Error::ForeignDir { owner, .. }) if owner == me + 1));
    }

    #[test]
    fn directory_that_others_could_rename_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (above, path) = (dir.path().join("a"), dir.path().join("a/b/c"));
        private(&path).unwrap();
        for (bits, good) in [(0o755, true), (0o777, false), (0o1777, true), (0o775, true), (0o703, false)] {
            fs::set_permissions(&above, fs::Permissions::from_mode(bits)).unwrap();
            assert_eq!(private(&path).is_ok(), good, "{bits:o}");
        }
        fs::set_permissions(&above, fs::Permissions::from_mode(0o700)).unwrap();
        let me = geteuid().as_raw();
        assert!(check_parents(&path, [0, me, me]).is_ok());
        let other = check_parents(&path, [me + 1; 3]);
        assert!(matches!(other, Err(Error::ForeignDir { owner, .. }) if owner == me), "{other:?}");
    }

    #[test]
    fn shared_file_systems_are_refused() {
        let named = [0x6969, 0xff53_4d42, 0x6573_5546].map(shared);
        assert_eq!(named, [Some("NFS"), Some("SMB"), Some("FUSE")]);
        // ext4, XFS, Btrfs, ZFS, tmpfs, overlay.
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630] {
            assert_eq!(shared(local), None, "{local:x}");
        }
        assert!(check_filesystem(tempfile::tempdir().unwrap().path()).is_ok());
    }

    #[test]
    fn machine_is_recorded_until_its_agent_exits_cleanly() {
        assert_eq!(left_open("7\nstays\n/s\nmachine ab\n"), Some("ab"));
        assert_eq!(left_open("7\nstays\n/s\nmachine ab\nended\n"), None);
        assert_eq!(left_open("7\nstays\n/s\n"), None, "without a machine ID");
    }

    /// Otherwise two agents could each hold a lock: of the removed file, and of a new one.
    #[tokio::test]
    async fn lock_file_that_was_removed_is_not_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        private(&path).unwrap();
        let lock_path = path.join("agent.lock");
        let removed = lock(open(&lock_path).unwrap()).map_err(|_| ()).unwrap();
        let me = Occupant { pid: 7, ends_by_itself: false, socket: "/s".into() };
        let mut attempts = 0;
        let waits = || {
            attempts += 1;
            if attempts == 1 {
                fs::remove_file(&lock_path).unwrap();
            }
            true
        };
        let (taken, ()) = tokio::join!(DataDir::take(&path, Duration::from_secs(60), &me, waits), async {
            sleep(5 * INTERVAL).await;
            drop(removed);
        });
        let taken = taken.unwrap();
        assert!(is_same(&taken.lock, &lock_path) && is_taken(&path));
    }

    #[tokio::test]
    async fn next_agent_reuses_the_socket_of_a_killed_one() {
        let dir = tempfile::tempdir().unwrap();
        let (data, usual) = (dir.path().join("data"), PathBuf::from("/run/user/7/peerlock/agent.sock"));
        assert_eq!(place(&data, usual.clone()), usual, "no previous agent");
        let socket = dir.path().join("run/agent.sock");
        let me = Occupant { pid: 7, ends_by_itself: true, socket: socket.clone() };
        let _taken = DataDir::take(&data, Duration::ZERO, &me, || true).await.unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "it exited cleanly");
        private(&dir.path().join("run")).unwrap();
        File::create(&socket).unwrap();
        assert_eq!(place(&data, usual.clone()), socket);
        fs::set_permissions(dir.path().join("run"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "other users could replace it");
    }

    #[tokio::test]
    async fn directory_has_one_agent_which_it_names() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = Occupant { pid: 7, ends_by_itself: true, socket: "/run/a b/agent.sock".into() };
        assert!(last(&path).is_none() && !is_taken(&path));
        let taken = DataDir::take(&path, Duration::ZERO, &first, || true).await.unwrap();
        assert!(last(&path) == Some(first.clone()) && is_taken(&path));
        let second = Occupant { pid: 8, ends_by_itself: false, socket: "x".into() };
        let error = DataDir::take(&path, Duration::ZERO, &second, || true).await.err().unwrap().to_string();
        assert!(error.contains("(process 7)"), "{error}");
        assert_eq!(last(&path), Some(first), "the refused agent has changed nothing");
        let in_vain = DataDir::take(&path, Duration::from_secs(3600), &second, || false).await;
        assert!(in_vain.is_err());
        let waits = DataDir::take(&path, Duration::from_secs(60), &second, || true);
        let (second_has_it, ()) = tokio::join!(waits, async { drop(taken) });
        assert!(second_has_it.is_ok() && last(&path) == Some(second));
    }
}
