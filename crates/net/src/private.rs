//! Files that only their owner may use.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

/// Writes one line: the whole file beside `path` first, which then gets its name, unless the name is taken. A folder
/// that is missing is made.
///
/// # Errors
/// What the system says; `AlreadyExists` if somebody was faster.
pub fn create(path: &Path, line: &str) -> io::Result<()> {
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_folder(folder)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(folder)?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}

/// Writes lines into a file that is there, in one step: whoever reads it finds the old ones or the new ones. It belongs
/// to whom it belonged to, and only that user may use it.
///
/// # Errors
/// What the system says. Nothing has changed then.
pub fn replace(path: &Path, lines: &str) -> io::Result<()> {
    // The file itself, where `path` is another name of it.
    let path = fs::canonicalize(path)?;
    let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(path.parent().unwrap_or(Path::new("/")))?;
    writeln!(file, "{lines}")?;
    own_as(&path, file.path())?;
    file.as_file().sync_all()?;
    file.persist(&path)?;
    Ok(())
}

/// Gives a new file to the owner of another one.
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
fn create_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

#[cfg(not(unix))]
fn create_folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path)
}

/// A key in hexadecimal digits.
pub(crate) fn hex(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who may use a file, as its permission bits say.
#[cfg(unix)]
pub fn mode(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o777
}

/// Elsewhere than on Unix there are no such bits, and files of a user are private by default.
#[cfg(not(unix))]
pub fn mode(_: &fs::Metadata) -> u32 {
    0o600
}
