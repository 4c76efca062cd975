//! Files that only their owner may use.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Creates a file with one line, atomically, and a missing directory.
///
/// # Errors `AlreadyExists` if `path` exists.
pub fn create(path: &Path, line: &str) -> io::Result<()> {
    let dir = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_private_dir(dir)?;
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
    own_as(&path, file.path())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

#[cfg(unix)]
fn own_as(other: &Path, file: &Path) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let (ours, theirs) = (fs::metadata(file)?, fs::metadata(other)?);
    let is_same = (ours.uid(), ours.gid()) == (theirs.uid(), theirs.gid());
    if is_same { Ok(()) } else { chown(file, Some(theirs.uid()), Some(theirs.gid())) }
}

#[cfg(not(unix))]
fn own_as(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}

#[cfg(unix)]
fn create_private_dir(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_private_dir(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

pub(crate) fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(unix)]
pub fn mode(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o777
}

/// Files of a user are private by default.
#[cfg(not(unix))]
pub fn mode(_: &fs::Metadata) -> u32 {
    0o600
}
