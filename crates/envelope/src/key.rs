//! Keys and secrets, gone from memory with their last use.

use crate::random::random;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// A key file has at least so many bytes: they are taken for random, and not made dear to guess.
pub const KEY_FILE_BYTES_MIN: usize = 32;
/// And at most so many.
pub const KEY_FILE_BYTES_MAX: usize = 8192;
/// A passphrase's.
const PASSPHRASE_BYTES_MAX: usize = 4096;

/// What a volume's blocks are encrypted with; it never changes.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct VolumeKey([[u8; 32]; 2]);

impl std::fmt::Debug for VolumeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("VolumeKey")
    }
}

impl VolumeKey {
    /// A new one.
    ///
    /// # Errors
    /// When the system has no randomness.
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

    /// The data's, and the tweak's.
    pub(crate) fn halves(&self) -> [&[u8; 32]; 2] {
        self.0.each_ref()
    }
}

/// What opens a slot.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub enum Secret {
    /// Words that somebody knows; see [`Secret::passphrase`].
    Passphrase(Vec<u8>),
    /// The bytes of a file; see [`Secret::key_file`].
    KeyFile(Vec<u8>),
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// A secret that is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum SecretError {
    /// Its length.
    #[error("a passphrase has 1 to {PASSPHRASE_BYTES_MAX} bytes, and this one has {0}")]
    Passphrase(usize),
    /// Its length.
    #[error(
        "a key file has {KEY_FILE_BYTES_MIN} to {KEY_FILE_BYTES_MAX} random bytes, and this one has {0}: \
         make one by `head -c 64 /dev/urandom >FILE`"
    )]
    KeyFile(usize),
}

impl Secret {
    /// Of a passphrase.
    ///
    /// # Errors
    /// When it is empty, or very long.
    pub fn passphrase(bytes: Vec<u8>) -> Result<Self, SecretError> {
        match bytes.len() {
            1..=PASSPHRASE_BYTES_MAX => Ok(Self::Passphrase(bytes)),
            length => Err(SecretError::Passphrase(length)),
        }
    }

    /// Of a file's bytes.
    ///
    /// # Errors
    /// When they are too few to be a key, or too many.
    pub fn key_file(bytes: Vec<u8>) -> Result<Self, SecretError> {
        match bytes.len() {
            KEY_FILE_BYTES_MIN..=KEY_FILE_BYTES_MAX => Ok(Self::KeyFile(bytes)),
            length => Err(SecretError::KeyFile(length)),
        }
    }
}
