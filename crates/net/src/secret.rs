use std::path::Path;
use std::{fs, io};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::Error;
use crate::private::{create, mode};
use crate::random::random;

/// What the members of a cluster have in common and nobody else knows.
///
/// Whoever makes a member connect can try out guesses on its own afterwards, so the secret must be random, not a
/// phrase: 32 bytes from a random source, written as hexadecimal digits, are right.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The least number of bytes: sixteen random letters and digits still have 80 bits.
    pub const LEAST: usize = 16;

    /// A secret of these bytes, which should be random.
    pub fn new(bytes: &[u8]) -> Result<Self, Error> {
        if bytes.len() < Self::LEAST {
            return Err(Error::SecretTooShort { length: bytes.len(), least: Self::LEAST });
        }
        Ok(Self(Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length")))
    }

    /// A new one that nobody else knows: for peers of one process.
    pub fn generate() -> Self {
        let bytes: [u8; 32] = random();
        Self(Hmac::new_from_slice(&bytes).expect("HMAC takes a key of any length"))
    }

    /// The secret in a file that only its owner can read, without the line end that editors add.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::SecretUnreadable { path: path.to_owned(), source };
        let mode = mode(&fs::metadata(path).map_err(unreadable)?);
        if mode & 0o077 != 0 {
            return Err(Error::SecretTooOpen { path: path.to_owned(), mode });
        }
        Self::new(fs::read(path).map_err(unreadable)?.trim_ascii_end())
    }

    /// The secret in a file; made there with its folder, random and readable by its owner only, if there is no such
    /// file.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        match Self::load(path) {
            Err(Error::SecretUnreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        match create(path, &random()) {
            // Somebody was faster: theirs is whole, because it appears at once.
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::SecretUncreatable { path: path.to_owned(), source })
            }
            Ok(()) | Err(_) => Self::load(path),
        }
    }

    /// The same number for the same secret, from which nobody can tell the secret.
    pub fn fingerprint(&self) -> u64 {
        let hash = self.mac().chain_update(b"peerlock fingerprint").finalize().into_bytes();
        hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A fresh computation under this secret.
    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &[u8], mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn tag(secret: &Secret) -> impl PartialEq + std::fmt::Debug + use<> {
        secret.mac().finalize().into_bytes()
    }

    #[test]
    fn a_secret_is_its_line_and_not_too_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let expected = tag(&Secret::new(b"0123456789abcdef").unwrap());
        for text in [&b"0123456789abcdef"[..], b"0123456789abcdef\n", b"0123456789abcdef\r\n"] {
            write(&path, text, 0o600);
            assert_eq!(tag(&Secret::load(&path).unwrap()), expected);
        }
        for open in [0o640, 0o604, 0o620] {
            write(&path, b"0123456789abcdef", open);
            let error = Secret::load_or_create(&path).err().unwrap();
            assert!(matches!(error, Error::SecretTooOpen { mode, .. } if mode == open), "{error}");
        }
        write(&path, b"0123456789abcde\n", 0o600);
        assert!(matches!(Secret::load(&path), Err(Error::SecretTooShort { length: 15, .. })));
        assert!(matches!(Secret::load(&directory.path().join("none")), Err(Error::SecretUnreadable { .. })));
    }

    #[test]
    fn a_secret_that_is_made_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data/secret");
        let made = Secret::load_or_create(&path).unwrap();
        assert_eq!(tag(&Secret::load_or_create(&path).unwrap()), tag(&made));
        let other = Secret::load_or_create(&directory.path().join("other")).unwrap();
        assert_ne!(tag(&other), tag(&made));
        assert_ne!(other.fingerprint(), made.fingerprint());
        let under_a_file = Secret::load_or_create(&path.join("secret"));
        assert!(matches!(under_a_file, Err(Error::SecretUnreadable { .. } | Error::SecretUncreatable { .. })));
    }
}
