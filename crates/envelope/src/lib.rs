//! Encryption at rest, without any I/O: the header of an encrypted medium, and the encryption of its blocks.
//!
//! ```text
//! block 0            a copy of the header
//! block 128          the other copy
//! block 256 and on   the volume, as on a medium of its own: block n of it is encrypted with tweak n
//! ```
//!
//! A header has slots. Each slot holds the same volume key, wrapped by a key of its own that is derived from a passphrase or from
//! a file, so a secret can be changed without rewriting data. All ciphers are from RustCrypto; the hash is BLAKE3.

#![forbid(unsafe_code)]

mod cipher;
mod header;
mod key;
mod places;
mod random;
mod raw;
mod slot;

pub use cipher::Cipher;
pub use header::{Header, HeaderError, SLOTS};
pub use key::{KEY_FILE_BYTES_MAX, KEY_FILE_BYTES_MIN, Secret, SecretError, VolumeKey};
pub use places::{BLOCK_BYTES, COPIES, START};
pub use slot::{Cost, Kind, Slot};
