use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::{fs, io};

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::Error;
use crate::private::{create, hex, mode, replace};
use crate::random::random;

/// The key that the members of a cluster share; during a rotation also the previous one.
///
/// A party that gets a member to connect can test guesses offline, so the secret must be 32 or more random bytes, in
/// hexadecimal digits.
///
/// *Rotation.* Members with a common secret can be linked, by the first one of the dialler that the listener accepts.
/// The new secret is added on every member beside the old one, and then the old one is removed from each.
#[derive(Clone)]
pub struct Secret {
    first: Key,
    before: Option<Key>,
}

#[derive(Clone)]
pub(crate) struct Key(Hmac<Sha256>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(u64);

impl Secret {
    /// 256 bits.
    pub const LEAST: usize = 64;
    /// Random digits have fewer different values with a probability of 10⁻¹².
    const LEAST_DIFFERENT: usize = 10;

    /// Parses a secret, or two lines: the new one and the previous one.
    ///
    /// # Errors
    /// [`Error::SecretWeak`] if there are too few digits, or they cannot be random; [`Error::SecretLines`] if
    /// there are more lines, or equal ones.
    pub fn new(digits: &[u8]) -> Result<Self, Error> {
        let mut lines = digits.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let first = Key::new(lines.next().unwrap_or_default())?;
        let before = lines.next().map(Key::new).transpose()?;
        let is_same = before.as_ref().is_some_and(|before| before.fingerprint() == first.fingerprint());
        if is_same || lines.next().is_some() { Err(Error::SecretLines) } else { Ok(Self { first, before }) }
    }

    pub fn generate() -> Self {
        let bytes: [u8; 32] = random();
        Self { first: Key::of(&bytes), before: None }
    }

    /// Loads a file that only its owner can read.
    pub fn load(path: &Path) -> Result<Self, Error> {
        Self::new(&read(path)?)
    }

    /// Creates a missing file, readable by the owner only.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        match Self::load(path) {
            Err(Error::SecretUnreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        match create(path, &hex(&random())) {
            Err(source) if source.kind() != io::ErrorKind::AlreadyExists => {
                Err(Error::SecretUncreatable { path: path.to_owned(), source })
            }
            Ok(()) | Err(_) => Self::load(path),
        }
    }

    /// Creates a file with a new secret, and its directory.
    ///
    /// # Errors
    /// [`Error::SecretUncreatable`], also if the file exists.
    pub fn create(path: &Path) -> Result<Self, Error> {
        create(path, &hex(&random())).map_err(|source| Error::SecretUncreatable { path: path.to_owned(), source })?;
        Self::load(path)
    }

    /// Adds a new secret before the current one in a file, and returns both.
    ///
    /// # Errors
    /// The file is unchanged. [`Error::SecretLines`] if it has two secrets already.
    pub fn rotate(path: &Path) -> Result<Self, Error> {
        let old = read(path)?;
        if Self::new(&old)?.before.is_some() {
            return Err(Error::SecretLines);
        }
        Self::write(path, &[hex(&random()).as_bytes(), &old].join(&b'\n'))
    }

    /// Removes the previous secret from a file, and returns the remaining one.
    ///
    /// # Errors
    /// The file is unchanged.
    pub fn finish(path: &Path) -> Result<Self, Error> {
        let both = read(path)?;
        Self::new(&both)?;
        Self::write(path, both.split(|byte| *byte == b'\n').next().unwrap_or_default())
    }

    fn write(path: &Path, text: &[u8]) -> Result<Self, Error> {
        let secret = Self::new(text)?;
        let unwritable = |source| Error::SecretUncreatable { path: path.to_owned(), source };
        replace(path, &String::from_utf8_lossy(text)).map_err(unwritable)?;
        Ok(secret)
    }

    pub fn fingerprints(&self) -> Vec<Fingerprint> {
        self.keys().map(Key::fingerprint).collect()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        [&self.first].into_iter().chain(&self.before)
    }

    pub(crate) fn accepts(&self, proved: Fingerprint) -> bool {
        self.keys().any(|key| key.fingerprint() == proved)
    }

    pub(crate) fn preferred(&self) -> Fingerprint {
        self.first.fingerprint()
    }
}

impl Key {
    fn new(digits: &[u8]) -> Result<Self, Error> {
        let weak = |why| Err(Error::SecretWeak { why });
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return weak("it is not written in hexadecimal digits");
        }
        if digits.len() < Secret::LEAST {
            return weak("it has fewer than 64 hexadecimal digits");
        }
        let different: BTreeSet<u8> = digits.iter().map(u8::to_ascii_lowercase).collect();
        if different.len() < Secret::LEAST_DIFFERENT {
            return weak("its digits are not random");
        }
        Ok(Self::of(digits))
    }

    fn of(bytes: &[u8]) -> Self {
        Self(Hmac::new_from_slice(bytes).expect("HMAC takes a key of any length"))
    }

    pub fn fingerprint(&self) -> Fingerprint {
        let hash = self.mac().chain_update(b"peerlock fingerprint").finalize().into_bytes();
        Fingerprint(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn mac(&self) -> Hmac<Sha256> {
        self.0.clone()
    }
}

/// Abbreviated, for comparison by people.
impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 32)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let unreadable = |source| Error::SecretUnreadable { path: path.to_owned(), source };
    let mode = mode(&fs::metadata(path).map_err(unreadable)?);
    if mode & 0o077 != 0 {
        return Err(Error::SecretTooOpen { path: path.to_owned(), mode });
    }
    Ok(fs::read(path).map_err(unreadable)?.trim_ascii_end().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &[u8], mode: u32) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn tag(secret: &Secret) -> Vec<Fingerprint> {
        secret.fingerprints()
    }

    #[test]
    fn secret_file_is_private_and_may_end_in_a_newline() {
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
    fn guessable_secret_is_rejected() {
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
            assert!(weak.is_empty() || !error.contains(&weak), "even a weak secret is not shown");
        }
        assert!(Secret::new(format!("{digits}00").to_uppercase().as_bytes()).is_ok());
    }

    #[test]
    fn created_secret_is_loaded_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data/secret");
        let made = Secret::load_or_create(&path).unwrap();
        assert_eq!(tag(&Secret::load_or_create(&path).unwrap()), tag(&made));
        let other = Secret::load_or_create(&directory.path().join("other")).unwrap();
        assert_ne!(tag(&other), tag(&made));
        let under_a_file = Secret::load_or_create(&path.join("secret"));
        assert!(matches!(under_a_file, Err(Error::SecretUnreadable { .. } | Error::SecretUncreatable { .. })));
    }

    #[test]
    fn rotation_adds_new_secret_and_finish_removes_old() {
        use std::os::unix::fs::MetadataExt as _;
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let old = tag(&Secret::load_or_create(&path).unwrap());
        let both = tag(&Secret::rotate(&path).unwrap());
        assert_eq!((both.len(), both[1]), (2, old[0]));
        assert_ne!(both[0], both[1]);
        assert_eq!(tag(&Secret::load(&path).unwrap()), both);
        assert!(matches!(Secret::rotate(&path), Err(Error::SecretLines)), "a rotation is in progress");
        assert_eq!(tag(&Secret::load_or_create(&path).unwrap()), both, "the file is unchanged");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let new = tag(&Secret::finish(&path).unwrap());
        assert_eq!((new.len(), new[0]), (1, both[0]));
        assert_eq!(tag(&Secret::finish(&path).unwrap()), new, "only one secret is left");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
        assert!(matches!(Secret::rotate(&directory.path().join("none")), Err(Error::SecretUnreadable { .. })));
        let link = directory.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(tag(&Secret::rotate(&link).unwrap())[1], new[0]);
        assert_eq!(tag(&Secret::load(&path).unwrap())[1], new[0]);
    }

    #[test]
    fn only_one_or_two_lines_are_accepted() {
        let (one, two) = ("0123456789abcdef".repeat(4), "fedcba9876543210".repeat(4));
        let of = |text: &str| Secret::new(text.as_bytes()).map(|secret| tag(&secret));
        let (first, second) = (of(&one).unwrap(), of(&two).unwrap());
        for text in [format!("{one}\n{two}"), format!("{one}\r\n{two}")] {
            assert_eq!(of(&text).unwrap(), [first[0], second[0]]);
        }
        for text in [format!("{one}\n{one}"), format!("{one}\n{two}\n{}", "0123456789abcde0".repeat(4))] {
            assert!(matches!(of(&text), Err(Error::SecretLines)), "{text}");
        }
        for text in [format!("{one}\nshort"), format!("short\n{one}"), format!("{one}\n\n{two}"), format!("\n{one}")] {
            assert!(matches!(of(&text), Err(Error::SecretWeak { .. })), "{text}");
        }
        assert_eq!(first[0].to_string().len(), 8);
    }
}
