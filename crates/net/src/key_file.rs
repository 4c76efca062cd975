//! Files that are nobody else's business: keys and secrets.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use crate::random::random;

/// How many random bytes a new file holds.
pub(crate) const BYTES: usize = 32;

/// Why there is no content.
#[derive(Debug)]
pub(crate) enum Fault {
    Unreadable(io::Error),
    Uncreatable(io::Error),
    /// Others than its owner may use it; with its permission bits.
    TooOpen(u32),
}

/// What the file says, without the line end that editors add.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Fault> {
    let mode = mode(&fs::metadata(path).map_err(Fault::Unreadable)?);
    if mode & 0o077 != 0 {
        return Err(Fault::TooOpen(mode));
    }
    let mut bytes = fs::read(path).map_err(Fault::Unreadable)?;
    bytes.truncate(bytes.trim_ascii_end().len());
    Ok(bytes)
}

/// What the file says; if there is none, it is made: a line of random hexadecimal digits, readable by its owner only.
pub(crate) fn read_or_create(path: &Path) -> Result<Vec<u8>, Fault> {
    match read(path) {
        Err(Fault::Unreadable(source)) if source.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let digits: String = random::<BYTES>().iter().map(|byte| format!("{byte:02x}")).collect();
    match create(path, &digits) {
        Ok(()) => Ok(digits.into_bytes()),
        // Somebody was faster: theirs is whole, because it appears at once.
        Err(source) if source.kind() == io::ErrorKind::AlreadyExists => read(path),
        Err(source) => Err(Fault::Uncreatable(source)),
    }
}

/// Writes the whole file beside `path` first and then gives it its name, unless the name is taken.
fn create(path: &Path, line: &str) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".peerlock").tempfile_in(directory)?;
    writeln!(file, "{line}")?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}

#[cfg(unix)]
pub(crate) fn mode(metadata: &fs::Metadata) -> u32 {
    use std::os::unix::fs::PermissionsExt as _;
    metadata.permissions().mode() & 0o777
}

/// Elsewhere than on Unix there are no such bits, and files of a user are private by default.
#[cfg(not(unix))]
pub(crate) fn mode(_: &fs::Metadata) -> u32 {
    0o600
}
