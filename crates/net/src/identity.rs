use std::path::Path;
use std::{fs, io};

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use peerlock_types::PeerId;
use sha2::{Digest as _, Sha256};

use crate::Error;
use crate::private::{create, hex, mode};
use crate::random::random;

const KEY: usize = 32;

/// A peer's ed25519 key pair. The holder of the file is the peer: do not copy it to another machine.
#[derive(Clone)]
pub struct Identity(SigningKey);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Name([u8; KEY]);

pub(crate) const VOUCHER: usize = KEY + Signature::BYTE_SIZE;

impl Identity {
    pub fn generate() -> Self {
        Self::from_key(random())
    }

    /// Creates a missing file and its directory, readable by the owner only.
    pub fn load_or_create(path: &Path) -> Result<Self, Error> {
        match Self::load(path) {
            Err(Error::IdentityUnreadable { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let key = random();
        match create(path, &hex(&key)) {
            Ok(()) => Ok(Self::from_key(key)),
            Err(source) if source.kind() == io::ErrorKind::AlreadyExists => Self::load(path),
            Err(source) => Err(Error::IdentityUncreatable { path: path.to_owned(), source }),
        }
    }

    pub fn peer(&self) -> PeerId {
        self.name().number()
    }

    pub(crate) fn name(&self) -> Name {
        Name(self.0.verifying_key().to_bytes())
    }

    pub(crate) fn vouch(&self, what: &[u8]) -> [u8; VOUCHER] {
        let mut voucher = [0; VOUCHER];
        let (name, signature) = voucher.split_at_mut(KEY);
        name.copy_from_slice(&self.name().0);
        signature.copy_from_slice(&self.0.sign(what).to_bytes());
        voucher
    }

    fn load(path: &Path) -> Result<Self, Error> {
        let unreadable = |source| Error::IdentityUnreadable { path: path.to_owned(), source };
        let mode = mode(&fs::metadata(path).map_err(unreadable)?);
        if mode & 0o077 != 0 {
            return Err(Error::IdentityTooOpen { path: path.to_owned(), mode });
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        let key = from_hex(bytes.trim_ascii_end()).ok_or_else(|| Error::IdentityMalformed { path: path.to_owned() })?;
        Ok(Self::from_key(key))
    }

    fn from_key(key: [u8; KEY]) -> Self {
        Self(SigningKey::from_bytes(&key))
    }
}

impl Name {
    pub fn vouched(voucher: &[u8], what: &[u8]) -> Option<Self> {
        let (name, signature) = voucher.split_first_chunk::<KEY>()?;
        let signature = Signature::from_slice(signature).ok()?;
        VerifyingKey::from_bytes(name).ok()?.verify_strict(what, &signature).ok()?;
        Some(Self(*name))
    }

    /// Returns 64 bits of a hash of the key.
    ///
    /// Two of n honest peers share a number with a probability of about n² / 2⁶⁵: 3 · 10⁻¹² for ten thousand. Peers
    /// linked with the first of them then refuse the second ([`crate::Refusal::Collision`]).
    pub fn number(&self) -> PeerId {
        // The prefix of an ed25519 key in libp2p. Registries store peers by their numbers, so it cannot change.
        let hash = Sha256::new_with_prefix(b"peerlock peer \x00\x24\x08\x01\x12\x20").chain_update(self.0).finalize();
        PeerId::new(hash.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

fn from_hex(digits: &[u8]) -> Option<[u8; KEY]> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> =
        pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn write(path: &Path, text: &[u8], mode: u32) {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn identity_outlives_its_process() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        let first = Identity::load_or_create(&path).unwrap();
        let again = Identity::load_or_create(&path).unwrap();
        assert_eq!(first.name(), again.name());
        assert_eq!(first.peer(), again.peer());
        assert_eq!(mode(&fs::metadata(&path).unwrap()), 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left behind");
        assert_ne!(first.peer(), Identity::generate().peer());
    }

    #[test]
    fn concurrent_creation_yields_one_identity() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        let names: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..8).map(|_| scope.spawn(|| Identity::load_or_create(&path).unwrap().name())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(names.windows(2).all(|pair| pair[0] == pair[1]), "{names:?}");
    }

    #[test]
    fn unusable_identity_file_is_named_and_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("identity");
        let good = [b'7'; 64];
        for text in [&b""[..], b"\n", &good[..62], &good[..63], &[b'x'; 64], &[b'7'; 66], &[0xff; 64]] {
            write(&path, text, 0o600);
            assert!(matches!(Identity::load_or_create(&path), Err(Error::IdentityMalformed { .. })), "{text:?}");
            assert_eq!(fs::read(&path).unwrap(), text);
        }
        for open in [0o640, 0o604, 0o620, 0o777] {
            write(&path, &good, open);
            let error = Identity::load_or_create(&path).err().unwrap();
            assert!(matches!(error, Error::IdentityTooOpen { mode, .. } if mode == open), "{error}");
            assert!(error.to_string().contains("chmod 600"), "{error}");
        }
        write(&path, &good, 0o600);
        assert!(Identity::load_or_create(&path).is_ok());
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        assert!(matches!(Identity::load_or_create(&path), Err(Error::IdentityUnreadable { .. })));
        // Not even root can create directories there.
        let nowhere = Path::new("/proc/no/such/identity");
        assert!(matches!(Identity::load_or_create(nowhere), Err(Error::IdentityUncreatable { .. })));
    }

    /// Peers must agree on it.
    #[test]
    fn peer_number_never_changes() {
        assert_eq!(Identity::from_key([7; KEY]).peer(), PeerId::new(8_211_119_110_698_976_474));
    }
}
