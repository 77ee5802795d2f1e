//! Encryption at rest, without any I/O: what the head of an encrypted medium says, and how its blocks are turned.
//!
//! ```text
//! block 0            a copy of the header
//! block 128          the other copy
//! block 256 and on   the volume, as on a medium of its own: block n of it is encrypted with tweak n
//! ```
//!
//! A header has slots. Each holds the same volume key, wrapped by a key of its own, which comes from a passphrase or from a
//! file: to change one of these, no data is written anew. All ciphers are by RustCrypto, the hash is BLAKE3.

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
