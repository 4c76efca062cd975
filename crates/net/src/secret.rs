use std::fs;
use std::path::Path;

use hmac::{Hmac, KeyInit as _};
use sha2::Sha256;

use crate::Error;

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

    /// The secret in a file, without the line end that editors add.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|source| Error::SecretUnreadable { path: path.to_owned(), source })?;
        Self::new(bytes.trim_ascii_end())
    }

    /// A fresh computation under this secret.
    pub(crate) fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use hmac::Mac as _;

    use super::*;

    #[test]
    fn a_secret_is_its_line_and_not_too_short() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let tag = |secret: Secret| secret.mac().finalize().into_bytes();
        let expected = tag(Secret::new(b"0123456789abcdef").unwrap());
        for text in [&b"0123456789abcdef"[..], b"0123456789abcdef\n", b"0123456789abcdef\r\n"] {
            fs::write(&path, text).unwrap();
            assert_eq!(tag(Secret::load(&path).unwrap()), expected);
        }
        fs::write(&path, "0123456789abcde\n").unwrap();
        assert!(matches!(Secret::load(&path), Err(Error::SecretTooShort { length: 15, .. })));
        assert!(matches!(Secret::load(directory.path()), Err(Error::SecretUnreadable { .. })));
    }
}
