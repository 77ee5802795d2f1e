//! A slot: the volume key, wrapped.

use crate::key::{Secret, VolumeKey};
use crate::random::random;
use aes::Aes256;
use aes::cipher::{Array, KeyInit};
use aes_kw::AesKw;
use argon2::{Algorithm, Argon2, Params, Version};
use std::io;
use zeroize::Zeroizing;

/// The volume key's bytes, and the eight by which AES-KW tells a wrong key.
pub(crate) const WRAPPED_BYTES: usize = 72;
pub(crate) const SALT_BYTES: usize = 32;

/// What BLAKE3 derives keys from files for.
const CONTEXT: &str = "vellum 2026-11 envelope, key file to slot key";

/// What argon2id takes for a guess. A header may be an enemy's: it asks for no more than these.
const MEMORY_KIB_MAX: u32 = 256 << 10;
const PASSES_MAX: u32 = 16;
const LANES_MAX: u32 = 16;
/// Memory times passes, in KiB: a second or so.
const WORK_MAX: u32 = 1 << 20;

/// What a guess of a passphrase costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Memory, in KiB.
    pub memory_kib: u32,
    /// Times that all of it is written.
    pub passes: u32,
    /// Parts of it that may be written side by side.
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
    /// As argon2 takes it, if it is within bounds.
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

/// What a slot's key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A passphrase, by argon2id.
    Passphrase(Cost),
    /// A file of random bytes, by BLAKE3.
    KeyFile,
}

/// The volume key, wrapped by a key of the slot's own (AES-KW, RFC 3394).
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
    /// When the system has no randomness, or not the memory.
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

    /// What opens it.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The key, if this secret opens the slot.
    ///
    /// # Errors
    /// When there is not the memory for it.
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

/// What wraps the key; none when the secret is of another kind than the slot.
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
