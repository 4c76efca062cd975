//! An agent's data folder: one agent at a time, which says in it who it is.
//!
//! ```text
//! agent.lock   locked by the agent that runs: its process, its socket, whether it ends by itself; its machine, and in
//!              the end that it has left in good order
//! agent.log    what an agent says that a command has started
//! drained      there is one if the agent was drained: commands do not start another one
//! identity     who it is to the others
//! secret       what the members of its cluster have in common
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

/// Before the machine's ID in `agent.lock`, and what is there when its agent has ended in good order.
const MACHINE: &str = "machine ";
const ENDED: &str = "ended";
/// File systems that several machines can have mounted, by the number that statfs(2) gives.
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

/// A data folder that is ours until it is dropped.
pub struct DataDir {
    lock: Flock<File>,
}

impl DataDir {
    /// Takes the folder, and makes it if there is none. An agent that is in it has so long to go, as long as `waits`
    /// says that it is worth waiting for: two with one identity would push each other out.
    pub async fn take(path: &Path, patience: Duration, me: &Occupant, mut waits: impl FnMut() -> bool) -> Result<Self> {
        let unusable = |source| Error::Dir { path: path.to_owned(), source };
        private(path)?;
        let lock_path = path.join("agent.lock");
        let mut file = open(&lock_path).map_err(unusable)?;
        let since = Instant::now();
        let mut lock = loop {
            file = match lock(file) {
                Ok(lock) if is_same(&lock, &lock_path) => break lock,
                // It was removed meanwhile: another agent may lock the file that has its name now.
                Ok(_) => open(&lock_path).map_err(unusable)?,
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
        let machine = machine();
        let mut before = String::new();
        // One that cannot be read is of no agent.
        _ = lock.read_to_string(&mut before);
        if let (Some(here), Some(there)) = (&machine, left_open(&before))
            && here != there
        {
            return Err(Error::OtherMachine { path: path.to_owned(), machine: there.to_owned() });
        }
        // Cut off only then: whoever reads it meanwhile finds this one or the one before, and not nobody.
        let machine = machine.map(|id| format!("{MACHINE}{id}\n")).unwrap_or_default();
        let text = me.to_text() + &machine;
        lock.rewind().and_then(|()| lock.write_all(text.as_bytes())).map_err(unusable)?;
        lock.set_len(text.len() as u64).map_err(unusable)?;
        Ok(Self { lock })
    }

    /// Gives the folder up in good order: an agent of another machine may have it.
    pub fn end(mut self) {
        // Where it cannot be written, another machine asks a person.
        _ = self.lock.seek(SeekFrom::End(0)).and_then(|_| writeln!(self.lock, "{ENDED}"));
    }
}

/// Returns whether a path still names the file that is open.
fn is_same(file: &File, path: &Path) -> bool {
    let id = |found: io::Result<fs::Metadata>| found.map(|file| (file.dev(), file.ino())).ok();
    id(file.metadata()).is_some_and(|open| id(fs::metadata(path)) == Some(open))
}

/// The ID of this machine, if it has one.
fn machine() -> Option<String> {
    let id = fs::read_to_string("/etc/machine-id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// The machine of the last agent, by what it has written into `agent.lock`, unless it ended in good order.
fn left_open(text: &str) -> Option<&str> {
    let machine = text.lines().find_map(|line| line.strip_prefix(MACHINE));
    machine.filter(|_| text.lines().all(|line| line != ENDED))
}

/// Refuses a data folder that other machines may use at the same time, where a lock may be one machine's only, or be
/// lost while its agent runs.
pub fn check_filesystem(path: &Path) -> Result<()> {
    private(path)?;
    let found = statfs(path).map_err(|error| Error::Dir { path: path.to_owned(), source: error.into() })?;
    // A number of 32 bits, which some systems have with a sign.
    match shared((found.filesystem_type().0 & 0xffff_ffff) as u64) {
        Some(kind) => Err(Error::SharedFilesystem { path: path.to_owned(), kind }),
        None => Ok(()),
    }
}

/// The name of a file system that several machines can have mounted, by its number.
fn shared(magic: u64) -> Option<&'static str> {
    SHARED.iter().find(|(known, _)| u64::from(*known) == magic).map(|(_, name)| *name)
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
        let is_private = || socket.parent().is_some_and(|dir| private(dir).is_ok());
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
    let unusable = |source| Error::Dir { path: path.to_owned(), source };
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
    let unusable = |source| Error::Dir { path: path.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(unusable)?;
    let metadata = fs::metadata(path).map_err(unusable)?;
    check_private(path, metadata.uid(), metadata.permissions().mode() & 0o777)?;
    check_parents(path, [0, geteuid().as_raw(), overflow_uid()])
}

/// Refuses a directory below one in which others could rename it: one that belongs to another user than these, or in
/// which all users may write and rename what is not theirs. One in which its group may write is accepted: users'
/// directories are made so where each user has a group.
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

/// The user as whom the system shows those that it has no number for, as the real root in a container without one.
fn overflow_uid() -> u32 {
    let text = fs::read_to_string("/proc/sys/kernel/overflowuid").unwrap_or_default();
    text.trim().parse().unwrap_or(65_534)
}

/// Root could do everything anyway.
fn check_private(path: &Path, owner: u32, mode: u32) -> Result<()> {
    match (mode & 0o022, [0, geteuid().as_raw()].contains(&owner)) {
        (0, true) => Ok(()),
        (_, false) => Err(Error::ForeignDir { path: path.to_owned(), owner }),
        (_, true) => Err(Error::OpenDir { path: path.to_owned(), mode }),
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
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
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
    fn only_file_systems_of_one_machine_are_accepted() {
        let named = [0x6969, 0xff53_4d42, 0x6573_5546].map(shared);
        assert_eq!(named, [Some("NFS"), Some("SMB"), Some("FUSE")]);
        // ext4, XFS, Btrfs, ZFS, tmpfs, overlay.
        for local in [0xef53, 0x5846_5342, 0x9123_683e, 0x2fc1_2fc1, 0x0102_1994, 0x794c_7630] {
            assert_eq!(shared(local), None, "{local:x}");
        }
        assert!(check_filesystem(tempfile::tempdir().unwrap().path()).is_ok());
    }

    #[test]
    fn machine_counts_until_its_agent_has_ended() {
        assert_eq!(left_open("7\nstays\n/s\nmachine ab\n"), Some("ab"));
        assert_eq!(left_open("7\nstays\n/s\nmachine ab\nended\n"), None);
        assert_eq!(left_open("7\nstays\n/s\n"), None, "of an earlier version");
    }

    /// Two agents had a lock each when a person removed the file between opening and locking it.
    #[tokio::test]
    async fn lock_file_that_was_removed_is_not_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        private(&path).unwrap();
        let lock_path = path.join("agent.lock");
        let removed = lock(open(&lock_path).unwrap()).map_err(|_| ()).unwrap();
        let me = Occupant { pid: 7, ends_by_itself: false, socket: "/s".into() };
        let mut looks = 0;
        let waits = || {
            looks += 1;
            if looks == 1 {
                fs::remove_file(&lock_path).unwrap();
            }
            true
        };
        let (taken, ()) = tokio::join!(DataDir::take(&path, Duration::from_secs(60), &me, waits), async {
            sleep(5 * LOOK).await;
            drop(removed);
        });
        let taken = taken.unwrap();
        assert!(is_same(&taken.lock, &lock_path) && is_taken(&path));
    }

    #[tokio::test]
    async fn the_next_agent_is_where_the_last_one_has_left_its_socket() {
        let dir = tempfile::tempdir().unwrap();
        let (data, usual) = (dir.path().join("data"), PathBuf::from("/run/user/7/peerlock/agent.sock"));
        assert_eq!(place(&data, usual.clone()), usual, "there was none");
        let socket = dir.path().join("run/agent.sock");
        let me = Occupant { pid: 7, ends_by_itself: true, socket: socket.clone() };
        let _taken = DataDir::take(&data, Duration::ZERO, &me, || true).await.unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "it has ended in good order");
        private(&dir.path().join("run")).unwrap();
        File::create(&socket).unwrap();
        assert_eq!(place(&data, usual.clone()), socket);
        fs::set_permissions(dir.path().join("run"), fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(place(&data, usual.clone()), usual, "others could take its place");
    }

    #[tokio::test]
    async fn a_folder_has_one_agent_at_a_time_and_tells_which() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data");
        let first = Occupant { pid: 7, ends_by_itself: true, socket: "/run/a b/agent.sock".into() };
        assert!(last(&path).is_none() && !is_taken(&path));
        let taken = DataDir::take(&path, Duration::ZERO, &first, || true).await.unwrap();
        assert!(last(&path) == Some(first.clone()) && is_taken(&path));
        let second = Occupant { pid: 8, ends_by_itself: false, socket: "x".into() };
        let error = DataDir::take(&path, Duration::ZERO, &second, || true).await.err().unwrap().to_string();
        assert!(error.contains("(process 7)"), "{error}");
        assert_eq!(last(&path), Some(first), "who was refused has changed nothing");
        // So has who need not wait any more, however long it could.
        let in_vain = DataDir::take(&path, Duration::from_secs(3600), &second, || false).await;
        assert!(in_vain.is_err());
        // Who has time waits for the first to go.
        let waits = DataDir::take(&path, Duration::from_secs(60), &second, || true);
        let (second_has_it, ()) = tokio::join!(waits, async { drop(taken) });
        assert!(second_has_it.is_ok() && last(&path) == Some(second));
    }
}
