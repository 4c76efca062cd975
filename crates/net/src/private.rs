//! Files that only their owner may use.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

/// Creates a file with one line, atomically, and a missing directory.
///
/// # Errors
/// `AlreadyExists` if `path` exists.
pub fn create(path: &Path, line: &str) -> io::Result<()> {
    let dir = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(dir)?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}

/// Replaces an existing file atomically. Keeps its owner; the mode is private to that user.
pub fn replace(path: &Path, lines: &str) -> io::Result<()> {
    // Follow symbolic links.
    let path = fs::canonicalize(path)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
    writeln!(file, "{lines}")?;
    let (ours, theirs) = (file.as_file().metadata()?, fs::metadata(&path)?);
    if (ours.uid(), ours.gid()) != (theirs.uid(), theirs.gid()) {
        chown(file.path(), Some(theirs.uid()), Some(theirs.gid()))?;
    }
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

pub(crate) fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn mode(metadata: &fs::Metadata) -> u32 {
    metadata.permissions().mode() & 0o777
}
