//! Keys and secrets. They are erased from memory after their last use.

use crate::random::random;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A key file has at least this many bytes: they are assumed to be random, so guesses are not made expensive.
pub const KEY_FILE_BYTES_MIN: usize = 32;
/// A key file has at most this many bytes.
pub const KEY_FILE_BYTES_MAX: usize = 8192;
/// The most bytes in a passphrase.
const PASSPHRASE_BYTES_MAX: usize = 4096;

/// The key that a volume's blocks are encrypted with. It never changes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct VolumeKey([[u8; 32]; 2]);

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeKey")
    }
}

impl VolumeKey {
    /// Generates a new key.
    ///
    /// # Errors
    /// If the system provides no randomness.
    pub fn random() -> std::io::Result<Self> {
        Ok(Self([random()?, random()?]))
    }

    pub(crate) fn from_bytes(bytes: &[u8; 64]) -> Self {
        let mut key = Self([[0; 32]; 2]);
        key.0.as_flattened_mut().copy_from_slice(bytes);
        key
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_flattened()
    }

    /// The keys for the data and for the tweak.
    pub(crate) fn halves(&self) -> [&[u8; 32]; 2] {
        self.0.each_ref()
    }
}

/// What opens a slot.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub enum Secret {
    /// A passphrase; see [`Secret::passphrase`].
    Passphrase(Vec<u8>),
    /// The bytes of a file; see [`Secret::key_file`].
    KeyFile(Vec<u8>),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Why bytes are not acceptable as a secret.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SecretError {
    /// Its length.
    #[error("a passphrase has 1 to {PASSPHRASE_BYTES_MAX} bytes, and this one has {0}")]
    Passphrase(usize),
    /// Its length.
    #[error(
        "a key file has {KEY_FILE_BYTES_MIN} to {KEY_FILE_BYTES_MAX} random bytes, and this one has {}: \
         make one by `head -c 64 /dev/urandom >FILE`",
        if *.0 > KEY_FILE_BYTES_MAX { "more".to_owned() } else { .0.to_string() }
    )]
    KeyFile(usize),
}

impl Secret {
    /// Makes a secret from a passphrase.
    ///
    /// # Errors
    /// If it is empty or too long.
    pub fn passphrase(bytes: Vec<u8>) -> Result<Self, SecretError> {
        match bytes.len() {
            1..=PASSPHRASE_BYTES_MAX => Ok(Self::Passphrase(bytes)),
            length => Err(SecretError::Passphrase(length)),
        }
    }

    /// Makes a secret from the bytes of a key file.
    ///
    /// # Errors
    /// If there are too few or too many bytes for a key.
    pub fn key_file(bytes: Vec<u8>) -> Result<Self, SecretError> {
        match bytes.len() {
            KEY_FILE_BYTES_MIN..=KEY_FILE_BYTES_MAX => Ok(Self::KeyFile(bytes)),
            length => Err(SecretError::KeyFile(length)),
        }
    }
}
