//! A slot: the wrapped volume key.

use crate::key::{Secret, VolumeKey};
use crate::random::random;
use aes::Aes256;
use aes::cipher::{Array, KeyInit};
use aes_kw::AesKw;
use argon2::{Algorithm, Argon2, Params, Version};
use std::io;
use zeroize::Zeroizing;

/// The volume key's bytes, and the eight by which AES-KW detects a wrong key.
pub(crate) const WRAPPED_BYTES: usize = 72;
pub(crate) const SALT_BYTES: usize = 32;

/// The context string with which BLAKE3 derives keys from key files.
const CONTEXT: &str = "vellum 2026-11 envelope, key file to slot key";

/// Limits on what argon2id takes for one guess. A header may be hostile, so larger values are refused.
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
/// Memory times passes, in KiB: about a second.
const WORK_MAX: u32 = 1 << 20;

/// The cost of guessing a passphrase once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// How many times all of it is written.
    pub passes: u32,
    /// Parts of it that may be written in parallel.
    pub lanes: u32,
}

impl Default for Cost {
    /// The second recommended choice of RFC 9106.
    fn default() -> Self {
        Self {
            memory_kib: 64 << 10,
            passes: 3,
            lanes: 4,
        }
    }
}

impl Cost {
    /// The parameters for argon2, if they are within bounds.
    fn params(self) -> Option<Params> {
        let bounded = self.memory_kib <= MEMORY_KIB_MAX
            && self.passes <= PASSES_MAX
            && self.lanes <= LANES_MAX
            && self.memory_kib.saturating_mul(self.passes) <= WORK_MAX;
        let params = Params::new(self.memory_kib, self.passes, self.lanes, Some(32)).ok();
        params.filter(|_| bounded)
    }

    pub(crate) fn is_bounded(self) -> bool {
        self.params().is_some()
    }
}

/// How a slot's key is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From a passphrase, by argon2id.
    Passphrase(Cost),
    /// From a file of random bytes, by BLAKE3.
    KeyFile,
}

/// The volume key, wrapped by the slot's own key (AES-KW, RFC 3394).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    pub(crate) kind: Kind,
    pub(crate) salt: [u8; SALT_BYTES],
    pub(crate) wrapped: [u8; WRAPPED_BYTES],
}

impl Slot {
    /// Wraps a key.
    ///
    /// # Errors
    /// If the system provides no randomness or not enough memory.
    pub fn new(key: &VolumeKey, secret: &Secret) -> io::Result<Self> {
        let kind = match secret {
            Secret::Passphrase(_) => Kind::Passphrase(Cost::default()),
            Secret::KeyFile(_) => Kind::KeyFile,
        };
        let salt = random()?;
        let wrapper = wrapper(kind, &salt, secret)?.ok_or_else(mismatch)?;
        let mut wrapped = [0; WRAPPED_BYTES];
        wrapper
            .wrap_key(key.bytes(), &mut wrapped)
            .map_err(io::Error::other)?;
        Ok(Self {
            kind,
            salt,
            wrapped,
        })
    }

    /// How the slot's key is derived.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the volume key, if this secret opens the slot.
    ///
    /// # Errors
    /// If there is not enough memory for the derivation.
    pub fn open(&self, secret: &Secret) -> io::Result<Option<VolumeKey>> {
        let Some(wrapper) = wrapper(self.kind, &self.salt, secret)? else {
            return Ok(None);
        };
        let mut key = Zeroizing::new([0; WRAPPED_BYTES - 8]);
        let opened = wrapper.unwrap_key(&self.wrapped, &mut *key);
        Ok(opened.is_ok().then(|| VolumeKey::from_bytes(&key)))
    }
}

fn mismatch() -> io::Error {
    io::Error::other("the slot is of another kind")
}

/// Derives the key that wraps the volume key; `None` if the secret is of another kind than the slot.
fn wrapper(kind: Kind, salt: &[u8], secret: &Secret) -> io::Result<Option<AesKw<Aes256>>> {
    let mut key = Zeroizing::new([0; 32]);
    match (kind, secret) {
        (Kind::Passphrase(cost), Secret::Passphrase(words)) => {
            let params = cost.params().ok_or_else(mismatch)?;
            let argon = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
            let hashed = argon.hash_password_into(words, salt, &mut *key);
            hashed.map_err(io::Error::other)?;
        }
        (Kind::KeyFile, Secret::KeyFile(bytes)) => {
            let mut hash = blake3::Hasher::new_derive_key(CONTEXT);
            hash.update(salt).update(bytes);
            hash.finalize_xof().fill(&mut *key);
        }
        _ => return Ok(None),
    }
    Ok(Some(AesKw::new(&Array(*key))))
}
