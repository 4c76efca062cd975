//! The data directory, which holds state for later processes of this host.
//!
//! ```text
//! cluster    the cluster ID, then the addresses of the members, a line each
//! registry   the voter's file, if this host is a voter
//! process    the number of the last process that has used the directory
//! ```
//!
//! The first two are written by threads of their own: a disk may take longer than a lease lasts.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use peerlock_node::{ClusterId, Damage, Write};
use peerlock_registry::disk::{Disk as _, DiskThread, FileDisk};
use peerlock_registry::{State, Versions, inspect, last_state};
use peerlock_types::PeerId;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The number of the write that removes the file of a former voter of a recovered cluster. Other writes count from 1.
const FOLLOWS: u64 = u64::MAX;

/// The store of a peer.
pub struct Store {
    place: Place,
    process: Option<u64>,
    stored: UnboundedReceiver<Stored>,
}

enum Place {
    /// Stores nothing: for a peer without a data directory.
    Memory(UnboundedSender<Stored>),
    Dir {
        registry: DiskThread,
        cluster: mpsc::Sender<Change>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    Written(u64),
    Belongs,
}

enum Change {
    Belongs(ClusterId),
    Members(Vec<String>),
    /// Stores the ID of the recovered cluster, …
    Follows(ClusterId),
    /// … after the former voter's file was removed, and ends the process.
    Gone,
}

/// The voter's file, and its name in earlier development versions.
const REGISTRY: &str = "registry";
const EARLIER: &str = "register";

/// The state that earlier processes have left in a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The cluster that this host belongs to.
    pub cluster: Option<ClusterId>,
    /// The last known addresses of its members.
    pub members: Vec<String>,
    /// The voter's file.
    pub registry: Option<Vec<u8>>,
}

impl Known {
    /// Returns whether this host belongs to a cluster.
    pub fn names_cluster(&self) -> bool {
        self.cluster.is_some() || self.registry.is_some()
    }

    /// Reads the directory, including the voter's file. Changes nothing.
    pub fn read(dir: &Path) -> Result<Self, Unusable> {
        let (mut known, path) = (known(dir)?, dir.join(REGISTRY));
        known.registry = match fs::read(&path) {
            Ok(bytes) => Some(bytes),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(Unusable::Io { path, source }),
        };
        if let Some(bytes) = &known.registry {
            known.cluster = Some(cluster_of(&path, bytes, known.cluster)?);
        }
        Ok(known)
    }

    /// Returns whether this host is the only member of its cluster, by its voter's file. False if it does not vote.
    pub fn is_alone(&self) -> bool {
        self.state().is_some_and(|state| {
            let me = state.voter_hosts();
            let is_me = |host: &PeerId| me == [*host];
            state.members().keys().all(is_me) && state.sessions().values().all(|session| is_me(&session.host))
        })
    }

    /// Returns whether the voter's file has detached grants.
    pub fn has_grants(&self) -> bool {
        self.state().is_some_and(|state| state.granted().next().is_some())
    }

    fn state(&self) -> Option<State> {
        last_state(self.registry.as_ref()?, Versions::OURS).ok()
    }
}

/// Renames the files of the cluster to `cluster.left` and `registry.left`: the next agent belongs to no cluster. No
/// process may use the directory meanwhile.
///
/// # Errors
/// If a file cannot be renamed.
pub fn leave(dir: &Path) -> io::Result<()> {
    // In this order: a voter's file alone names its cluster, but `cluster` alone would be a member without voters.
    for file in ["cluster", REGISTRY] {
        let path = dir.join(file);
        match fs::rename(&path, path.with_extension("left")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => File::open(dir)?.sync_all()?,
        }
    }
    Ok(())
}

/// Why a data directory cannot be used. It is unchanged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages describe the variants")]
pub enum Unusable {
    #[error("cannot use {path}: {source}. Make it readable and writable for this user")]
    Io { path: PathBuf, source: io::Error },
    #[error(
        "{path} is damaged: its first line is not a cluster ID. If another member runs, copy the first line of its \
         file, which is the same on all hosts of a cluster"
    )]
    Cluster { path: PathBuf },
    #[error("{path}: {source}")]
    Registry { path: PathBuf, source: Damage },
    #[error(
        "{path} was written by a development version of peerlock, before 0.1.0, whose clusters this one cannot \
         continue. Stop all agents of that cluster, move their data directories away, and create the cluster again"
    )]
    Earlier { path: PathBuf },
    #[error(
        "{path} is of cluster {registry}, but the file `cluster` beside it names {cluster}: it was copied, or is \
         outdated. Move it away; this host then rejoins {cluster} as a new voter"
    )]
    Clusters { path: PathBuf, registry: ClusterId, cluster: ClusterId },
}

impl Unusable {
    /// Returns whether the disk is full, or the file has reached its size limit.
    pub fn is_full(&self) -> bool {
        let kinds = [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded, io::ErrorKind::FileTooLarge];
        matches!(self, Self::Io { source, .. } if kinds.contains(&source.kind()))
    }
}

impl Store {
    /// Creates a store without a directory, which completes every write at once.
    pub fn memory() -> Self {
        let (done, stored) = unbounded_channel();
        Self { place: Place::Memory(done), process: None, stored }
    }

    /// Opens a directory, which the caller has locked. The process ends with an error message if a later write fails.
    pub fn dir(dir: &Path) -> Result<(Self, Known), Unusable> {
        let (path, registry) = (dir.join("cluster"), dir.join(REGISTRY));
        let io = |path: &Path| {
            let path = path.to_owned();
            move |source| Unusable::Io { path, source }
        };
        let mut known = known(dir)?;
        let mut disk = FileDisk::new(&registry);
        known.registry = disk.load().map_err(io(&registry))?;
        if let Some(bytes) = &known.registry {
            let id = cluster_of(&registry, bytes, known.cluster)?;
            if known.cluster != Some(id) {
                // When it created or recovered the cluster, a process ended between the two writes.
                write(&path, id, &known.members).map_err(io(&path))?;
                known.cluster = Some(id);
            }
        }
        let counter = dir.join("process");
        let process = count_up(&counter, SystemTime::now()).map_err(io(&counter))?;
        let (done, stored) = unbounded_channel();
        let (cluster, changes) = mpsc::channel();
        let (written, removed) = (done.clone(), cluster.clone());
        let done_with = move |number| match number {
            FOLLOWS => _ = removed.send(Change::Gone),
            number => _ = written.send(Stored::Written(number)),
        };
        let registry = DiskThread::start(disk, done_with, peerlock_registry::disk::Failure::end_process);
        let registry = registry.map_err(io(dir))?;
        let (id, members) = (known.cluster, known.members.clone());
        let write_changes = move || write_cluster_file(&path, id, members, &changes, &done);
        thread::Builder::new().name("cluster".into()).spawn(write_changes).map_err(io(dir))?;
        Ok((Self { place: Place::Dir { registry, cluster }, process: Some(process), stored }, known))
    }

    /// Returns the number of this process, which is higher than that of every earlier process of the directory.
    pub(crate) fn process(&self) -> Option<u64> {
        self.process
    }

    pub(crate) fn write(&self, number: u64, write: Write) {
        match &self.place {
            Place::Memory(done) => _ = done.send(Stored::Written(number)),
            Place::Dir { registry, .. } => registry.write(number, write),
        }
    }

    pub(crate) fn belongs(&self, id: ClusterId) {
        match &self.place {
            Place::Memory(done) => _ = done.send(Stored::Belongs),
            Place::Dir { cluster, .. } => _ = cluster.send(Change::Belongs(id)),
        }
    }

    pub(crate) fn members(&self, addresses: Vec<String>) {
        if let Place::Dir { cluster, .. } = &self.place {
            _ = cluster.send(Change::Members(addresses));
        }
    }

    /// Follows a recovered cluster to its new ID: removes the voter's file and ends the process, whose session is not
    /// valid there. The next process is a member of the new cluster.
    pub(crate) fn follow(&self, id: ClusterId) {
        if let Place::Dir { registry, cluster } = &self.place {
            _ = cluster.send(Change::Follows(id));
            // After pending writes.
            registry.write(FOLLOWS, Write::Remove);
        }
    }

    /// Returns the next completed write. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Stored> {
        self.stored.recv().await
    }

    pub(crate) fn try_next(&mut self) -> Option<Stored> {
        self.stored.try_recv().ok()
    }
}

/// Writes each change to the file `cluster`, until the store is dropped.
fn write_cluster_file(
    path: &Path,
    mut id: Option<ClusterId>,
    mut members: Vec<String>,
    changes: &mpsc::Receiver<Change>,
    done: &UnboundedSender<Stored>,
) {
    let mut follows = None;
    while let Ok(change) = changes.recv() {
        let is_new = match change {
            Change::Follows(cluster) => {
                follows = Some(cluster);
                continue;
            }
            Change::Gone => {
                id = follows.or(id);
                true
            }
            Change::Belongs(cluster) => {
                id = Some(cluster);
                true
            }
            Change::Members(addresses) => {
                members = addresses;
                false
            }
        };
        let Some(id) = id else { continue };
        match write(path, id, &members) {
            Ok(()) if follows == Some(id) => {
                _ = writeln!(
                    io::stderr(),
                    "peerlock: the cluster was recovered after the loss of its quorum, and has the ID {id} now: this \
                     process ends, and is a member of it when it is started again"
                );
                std::process::exit(75) // EX_TEMPFAIL
            }
            Ok(()) if is_new => _ = done.send(Stored::Belongs),
            Ok(()) => {}
            Err(error) if is_new => {
                // The log may be on the disk that is full.
                _ = writeln!(
                    io::stderr(),
                    "peerlock: cannot write {}: {error}. This process ends, since a member that forgets its cluster \
                     would create another one. Free disk space (or raise `ulimit -f`), or replace the disk, and start \
                     it again",
                    path.display()
                );
                std::process::exit(74) // EX_IOERR
            }
            Err(error) => tracing::warn!(path = %path.display(), %error, "cannot store the members' addresses"),
        }
    }
}

/// Returns the next process number of a directory, and stores it. It is at least the time in milliseconds, so that it
/// rises even if the directory was restored from an old copy, unless the clock was set back as well.
fn count_up(path: &Path, now: SystemTime) -> io::Result<u64> {
    let last: u64 = match fs::read_to_string(path) {
        Ok(text) => text.trim().parse().unwrap_or(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => return Err(error),
    };
    let next = millis(now).max(last.saturating_add(1));
    replace_file(path, &format!("{next}\n"))?;
    Ok(next)
}

pub(crate) fn millis(now: SystemTime) -> u64 {
    now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis().try_into().unwrap_or(0))
}

fn write(path: &Path, id: ClusterId, members: &[String]) -> io::Result<()> {
    let lines: String = members.iter().map(|address| format!("{address}\n")).collect();
    replace_file(path, &format!("{id}\n{lines}"))
}

fn replace_file(path: &Path, text: &str) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(path.parent().unwrap_or(Path::new(".")))?.sync_all()
}

/// Reads the directory without the voter's file. Changes nothing.
pub fn known(dir: &Path) -> Result<Known, Unusable> {
    match dir.join(EARLIER) {
        path if path.exists() => Err(Unusable::Earlier { path }),
        _ => read(&dir.join("cluster")),
    }
}

fn read(path: &Path) -> Result<Known, Unusable> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Known::default()),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            return Err(Unusable::Cluster { path: path.to_owned() });
        }
        Err(source) => return Err(Unusable::Io { path: path.to_owned(), source }),
    };
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let id = lines.next().filter(|line| line.len() == 32).and_then(|line| u128::from_str_radix(line, 16).ok());
    let cluster = id.map(ClusterId::new).ok_or_else(|| Unusable::Cluster { path: path.to_owned() })?;
    Ok(Known { cluster: Some(cluster), members: lines.map(str::to_owned).collect(), registry: None })
}

/// Returns the cluster that a voter's file belongs to: that of its directory, or one recovered from it.
fn cluster_of(path: &Path, bytes: &[u8], cluster: Option<ClusterId>) -> Result<ClusterId, Unusable> {
    let path = path.to_owned();
    let (registry, torn) = match inspect(bytes, Versions::OURS) {
        Ok(inspected) => inspected,
        Err(source) => return Err(Unusable::Registry { path, source }),
    };
    if let Some(cluster) = cluster.filter(|cluster| *cluster != registry && !registry.follows(*cluster)) {
        return Err(Unusable::Clusters { path, registry, cluster });
    }
    if torn > 0 {
        tracing::warn!(path = %path.display(), bytes = torn, "discarded a torn record at the end of the file");
    }
    Ok(registry)
}

/// Stores a recovered cluster: its registry, then its ID. If the process ends in between, the next one completes it.
pub fn replace(dir: &Path, registry: Vec<u8>, id: ClusterId) -> Result<(), Unusable> {
    let (path, cluster) = (dir.join(REGISTRY), dir.join("cluster"));
    let known = read(&cluster)?;
    let written = FileDisk::new(&path).write(&Write::Replace(registry));
    written.map_err(|source| Unusable::Io { path, source })?;
    write(&cluster, id, &known.members).map_err(|source| Unusable::Io { path: cluster, source })
}

#[cfg(test)]
mod tests {
    use peerlock_registry::VoterId;
    use peerlock_registry::file::{Header, Record, Writer};

    use super::*;

    #[tokio::test]
    async fn stored_state_is_known_to_the_next_process() {
        let dir = std::env::temp_dir().join(format!("peerlock-store-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (mut store, known) = Store::dir(&dir).unwrap();
        assert_eq!(known, Known::default());
        store.members(vec!["10.0.0.1:7400".into()]);
        store.belongs(ClusterId::new(7));
        assert_eq!(store.next().await, Some(Stored::Belongs));
        store.members(vec!["10.0.0.1:7400".into(), "10.0.0.2:7400".into()]);
        let file = voters_file(ClusterId::new(7));
        store.write(1, Write::Replace(file.clone()));
        assert_eq!(store.next().await, Some(Stored::Written(1)));
        store.belongs(ClusterId::new(7)); // Behind the addresses.
        assert_eq!(store.next().await, Some(Stored::Belongs));
        let (_, known) = Store::dir(&dir).unwrap();
        let members = vec!["10.0.0.1:7400".to_owned(), "10.0.0.2:7400".to_owned()];
        assert_eq!(known, Known { cluster: Some(ClusterId::new(7)), members, registry: Some(file) });
        for text in [&b"not an id\n"[..], b"\xff\xfe\x80"] {
            fs::write(dir.join("cluster"), text).unwrap();
            assert!(matches!(Store::dir(&dir), Err(Unusable::Cluster { .. })));
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    /// Even if the clock was set back, or the file is damaged.
    #[test]
    fn process_number_of_a_directory_rises() {
        let dir = std::env::temp_dir().join(format!("peerlock-store-process-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("process");
        let at = |millis| UNIX_EPOCH + std::time::Duration::from_millis(millis);
        for (now, expected) in [(0, 1), (5000, 5000), (5000, 5001), (10, 5002), (6000, 6000)] {
            assert_eq!(count_up(&path, at(now)).unwrap(), expected, "{now}");
        }
        fs::write(&path, "no number").unwrap();
        assert_eq!(count_up(&path, at(7000)).unwrap(), 7000);
        let numbers = [1, 2].map(|_| Store::dir(&dir).unwrap().0.process().unwrap());
        assert!(7000 < numbers[0] && numbers[0] < numbers[1], "{numbers:?}");
        assert_eq!(Store::memory().process(), None);
        fs::remove_dir_all(&dir).unwrap();
    }

    fn voters_file(cluster: ClusterId) -> Vec<u8> {
        let header = Header { cluster, voter: VoterId::new(1), file: 1 };
        Writer::begin(header, &Record::default()).1
    }

    /// Otherwise a host that loses its vote would create another cluster.
    #[test]
    fn voters_file_determines_the_cluster_of_a_directory() {
        let dir = std::env::temp_dir().join(format!("peerlock-store-clusters-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let (old, other) = (ClusterId::new(7), ClusterId::new(8 << 64));
        let line = |id: ClusterId| format!("{id}\n10.0.0.1:7400\n");
        for (says, registry, knows) in [
            (None, old, Some(format!("{old}\n"))), // Founded, and crashed before the second file.
            (Some(line(old)), old.recovered(7), Some(line(old.recovered(7)))), // Recovered, and crashed then.
            (Some(line(old)), old, Some(line(old))),
            (Some(line(old.recovered(7))), old, None),
            (Some(line(other)), old, None),
        ] {
            _ = fs::remove_file(dir.join("cluster"));
            says.iter().for_each(|says| fs::write(dir.join("cluster"), says).unwrap());
            fs::write(dir.join(REGISTRY), voters_file(registry)).unwrap();
            match (Store::dir(&dir), &knows) {
                (Ok((_, known)), Some(line)) => {
                    assert_eq!(known.cluster, Some(registry), "{says:?}");
                    assert_eq!(fs::read_to_string(dir.join("cluster")).unwrap(), *line);
                }
                (Err(Unusable::Clusters { .. }), None) => {
                    assert_eq!(fs::read_to_string(dir.join("cluster")).ok(), says, "nothing has changed");
                }
                (opened, _) => panic!("{says:?}, {registry}: {:?}", opened.map(|(_, known)| known)),
            }
        }
        fs::write(dir.join(REGISTRY), [7; 100]).unwrap();
        let refused = Store::dir(&dir).map(|_| ()).unwrap_err().to_string();
        assert!(refused.starts_with(&dir.join(REGISTRY).display().to_string()), "{refused}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
