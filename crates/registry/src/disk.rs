//! The registry's file, and the thread that writes it: the thread that hands tokens over never waits for a disk.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

/// Complete when it would survive a power loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Append(Vec<u8>),
    Replace(Vec<u8>),
    Remove,
}

pub trait Disk {
    fn load(&mut self) -> io::Result<Option<Vec<u8>>>;

    /// Writes and syncs. After an error this process must not write again: the content is unknown.
    fn write(&mut self, write: &Write) -> io::Result<()>;
}

/// A file. `….new` beside it is about to replace it.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    file: Option<File>,
}

impl FileDisk {
    /// The caller ensures that no other process uses this path.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), file: None }
    }

    /// A name is durable only once its directory is synced.
    fn sync_dir(&self) -> io::Result<()> {
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Disk for FileDisk {
    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, write: &Write) -> io::Result<()> {
        match write {
            Write::Append(bytes) => {
                let file =
                    self.file.as_mut().ok_or_else(|| io::Error::other("this process has not started the file"))?;
                file.write_all(bytes)?;
                file.sync_data()
            }
            Write::Replace(bytes) => {
                let mut new = self.path.clone().into_os_string();
                new.push(".new");
                let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
                file.write_all(bytes)?;
                file.sync_all()?;
                fs::rename(&new, &self.path)?;
                self.file = Some(file);
                self.sync_dir()
            }
            Write::Remove => {
                self.file = None;
                match fs::remove_file(&self.path) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                    Ok(()) | Err(_) => self.sync_dir(),
                }
            }
        }
    }
}

/// Nothing that depends on a failed write is ever confirmed.
#[derive(Debug, thiserror::Error)]
#[error(
    "the registry file could not be written ({0}), so this process ends: it must not confirm unstored entries. Free \
     space on the disk, raise `ulimit -f` if it limits the file, or replace the disk, and start it again"
)]
pub struct Failure(#[source] io::Error);

impl Failure {
    /// Reports the error and exits: after a failed sync the kernel may have dropped the data, and reports it only once.
    pub fn end_process(self) {
        _ = writeln!(io::stderr(), "peerlock: {self}");
        std::process::exit(74) // EX_IOERR
    }
}

#[derive(Debug)]
pub struct DiskThread {
    jobs: Option<Sender<(u64, Write)>>,
    thread: Option<JoinHandle<()>>,
}

impl DiskThread {
    /// Calls `done` after each write, and `failed` after the first error. A process with a voter then exits:
    /// [`Failure::end_process`].
    pub fn start(
        mut disk: impl Disk + Send + 'static,
        mut done: impl FnMut(u64) + Send + 'static,
        failed: impl FnOnce(Failure) + Send + 'static,
    ) -> io::Result<Self> {
        let (jobs, todo) = channel::<(u64, Write)>();
        let write_all = move || {
            while let Ok((number, write)) = todo.recv() {
                match disk.write(&write) {
                    Ok(()) => done(number),
                    Err(error) => return failed(Failure(error)),
                }
            }
        };
        let thread = thread::Builder::new().name("registry".into()).spawn(write_all)?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Queues a write. Never blocks.
    pub fn write(&self, number: u64, write: Write) {
        if let Some(jobs) = &self.jobs {
            _ = jobs.send((number, write));
        }
    }
}

impl Drop for DiskThread {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("peerlock-registry-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn file_is_started_appended_replaced_and_removed() {
        let dir = Dir::new("file");
        let path = dir.0.join("registry");
        let mut disk = FileDisk::new(&path);
        assert_eq!(disk.load().unwrap(), None);
        assert!(disk.write(&Write::Append(vec![1])).is_err(), "no file was started");
        for (write, expected) in [
            (Write::Replace(vec![1, 2]), Some(vec![1, 2])),
            (Write::Append(vec![3]), Some(vec![1, 2, 3])),
            (Write::Replace(vec![4]), Some(vec![4])),
            (Write::Append(vec![5]), Some(vec![4, 5])),
            (Write::Remove, None),
            (Write::Remove, None),
        ] {
            disk.write(&write).unwrap();
            assert_eq!(FileDisk::new(&path).load().unwrap(), expected, "{write:?}");
        }
        assert!(FileDisk::new(&path).write(&Write::Append(vec![1])).is_err());
    }

    #[test]
    fn failed_write_ends_the_thread() {
        struct Full(u64);
        impl Disk for Full {
            fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
                Ok(None)
            }
            fn write(&mut self, _: &Write) -> io::Result<()> {
                self.0 += 1;
                if self.0 == 2 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
            }
        }
        let (sent, receives) = channel();
        let failed = sent.clone();
        let thread = DiskThread::start(
            Full(0),
            move |number| _ = sent.send(Ok(number)),
            move |failure| _ = failed.send(Err(failure.to_string())),
        )
        .unwrap();
        for number in 1..=3 {
            thread.write(number, Write::Append(Vec::new()));
        }
        drop(thread);
        let received: Vec<_> = receives.iter().collect();
        assert_eq!(received.len(), 2, "{received:?}");
        assert_eq!(received[0], Ok(1));
        assert!(received[1].as_ref().is_err_and(|sentence| sentence.contains("could not be written")), "{received:?}");
    }
}
