use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::Error;
use crate::private::{create, hex, mode};
use crate::random::random;

/// What the members of a cluster have in common and nobody else knows.
///
/// Whoever makes a member connect can try out guesses on its own afterwards, so the secret must be random, not a
/// phrase: 32 bytes or more from a random source, written as hexadecimal digits. Nothing else is taken, since nobody can
/// see of a phrase how easily it is guessed.
#[derive(Clone)]
pub struct Secret(Hmac<Sha256>);

impl Secret {
    /// The least number of digits: 256 bits.
    pub const LEAST: usize = 64;
    /// Of so many random digits fewer different ones come together once in 10¹² times. Our choice.
    const LEAST_DIFFERENT: usize = 10;

    /// A secret of these hexadecimal digits.
    ///
    /// # Errors
    /// [`Error::SecretWeak`] if they are too few, or cannot be random.
    pub fn new(digits: &[u8]) -> Result<Self, Error> {
        let weak = |why| Err(Error::SecretWeak { why });
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return weak("it is not written in hexadecimal digits");
        }
        if digits.len() < Self::LEAST {
            return weak("it has fewer than 64 hexadecimal digits");
        }
        let different: BTreeSet<u8> = digits.iter().map(u8::to_ascii_lowercase).collect();
        if different.len() < Self::LEAST_DIFFERENT {
            return weak("its digits are not random");
        }
        Ok(Self(Hmac::new_from_slice(digits).expect("HMAC takes a key of any length")))
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
        match create(path, &hex(&random())) {
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
    fn a_secret_is_its_line_and_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let digits = "0123456789abcdef".repeat(4);
        let expected = tag(&Secret::new(digits.as_bytes()).unwrap());
        for end in ["", "\n", "\r\n"] {
            write(&path, format!("{digits}{end}").as_bytes(), 0o600);
            assert_eq!(tag(&Secret::load(&path).unwrap()), expected);
        }
        for open in [0o640, 0o604, 0o620] {
            write(&path, digits.as_bytes(), open);
            let error = Secret::load_or_create(&path).err().unwrap();
            assert!(matches!(error, Error::SecretTooOpen { mode, .. } if mode == open), "{error}");
        }
        assert!(matches!(Secret::load(&directory.path().join("none")), Err(Error::SecretUnreadable { .. })));
    }

    #[test]
    fn what_can_be_guessed_is_no_secret() {
        let digits = "0123456789abcdef".repeat(4);
        for (weak, why) in [
            ("a".repeat(16), "fewer than 64"),
            (digits[..63].to_owned(), "fewer than 64"),
            (String::new(), "fewer than 64"),
            ("a".repeat(64), "not random"),
            ("0123456789".repeat(7).replace('9', "0"), "not random"),
            ("correct horse battery staple ".repeat(3), "not written in hexadecimal digits"),
            (format!("{digits} "), "not written in hexadecimal digits"),
        ] {
            let error = Secret::new(weak.as_bytes()).err().unwrap().to_string();
            assert!(error.contains(why) && error.contains("openssl rand -hex 32"), "{weak:?}: {error}");
            assert!(weak.is_empty() || !error.contains(&weak), "a secret is not shown, not even a bad one");
        }
        assert!(Secret::new(format!("{digits}00").to_uppercase().as_bytes()).is_ok());
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
