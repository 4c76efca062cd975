use std::path::Path;

use hmac::{Hmac, KeyInit as _};
use sha2::Sha256;

use crate::Error;
use crate::key_file::{self, Fault};

/// What the members of a cluster have in common and nobody else knows.
///
/// Whoever makes a member connect can try out guesses on its own afterwards, so the secret must be random, not a phrase: 32
/// bytes from a random source, written as hexadecimal digits, are right.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The least number of bytes: sixteen random letters and digits still have 80 bits.
    pub const LEAST: usize = 16;

    /// This secret.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() < Self::LEAST {
            return Err(Error::SecretTooShort { length: bytes.len(), least: Self::LEAST });
        }
        Ok(Self(Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length")))
    }

    /// The secret in a file, without the line end that editors add. The file must be its owner's alone.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::new(&key_file::read(path).map_err(|fault| error(path, fault))?)
    }

    /// The secret kept in `path`; made there, readable by its owner only, if there is no such file. That is the first peer
    /// of a cluster: the others get a copy of the file.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        Self::new(&key_file::read_or_create(path).map_err(|fault| error(path, fault))?)
    }

    /// A fresh computation under this secret.
    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

fn error(path: &Path, fault: Fault) -> Error {
    let path = path.to_owned();
    match fault {
        Fault::Unreadable(source) => Error::SecretUnreadable { path, source },
        Fault::Uncreatable(source) => Error::SecretUncreatable { path, source },
        Fault::TooOpen(mode) => Error::SecretTooOpen { path, mode },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use hmac::Mac as _;

    use super::*;

    fn tag(secret: Secret) -> impl PartialEq + std::fmt::Debug {
        secret.mac().finalize().into_bytes()
    }

    fn write(path: &Path, text: &[u8], mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_secret_is_its_line_and_not_too_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let expected = tag(Secret::new(b"0123456789abcdef").unwrap());
        for text in [&b"0123456789abcdef"[..], b"0123456789abcdef\n", b"0123456789abcdef\r\n"] {
            write(&path, text, 0o600);
            assert_eq!(tag(Secret::load(&path).unwrap()), expected);
            assert_eq!(tag(Secret::load_or_create(&path).unwrap()), expected);
        }
        write(&path, b"0123456789abcde\n", 0o600);
        assert!(matches!(Secret::load(&path), Err(Error::SecretTooShort { length: 15, .. })));
    }

    #[test]
    fn a_secret_is_made_once_and_for_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        assert!(matches!(Secret::load(&path), Err(Error::SecretUnreadable { .. })), "not made by the way");
        let made = tag(Secret::load_or_create(&path).unwrap());
        assert_eq!(tag(Secret::load_or_create(&path).unwrap()), made);
        assert_eq!(tag(Secret::load(&path).unwrap()), made);
        assert_eq!(key_file::mode(&fs::metadata(&path).unwrap()), 0o600);
        assert_eq!(fs::read(&path).unwrap().len(), 65, "32 bytes in hexadecimal digits, and a line end");
        assert_ne!(tag(Secret::load_or_create(&directory.path().join("other")).unwrap()), made);
    }

    #[test]
    fn a_secret_that_others_can_read_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        for open in [0o640, 0o604, 0o620, 0o777] {
            write(&path, b"0123456789abcdef\n", open);
            let error = Secret::load(&path).err().unwrap();
            assert!(matches!(error, Error::SecretTooOpen { mode, .. } if mode == open), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
            assert!(matches!(Secret::load_or_create(&path), Err(Error::SecretTooOpen { .. })));
        }
        let nowhere = directory.path().join("no/such/directory");
        assert!(matches!(Secret::load_or_create(&nowhere), Err(Error::SecretUncreatable { .. })));
    }
}
