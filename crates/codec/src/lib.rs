//! A block in fewer bytes: by itself ([`Encoder::compress`]), or as its difference to another block, its base
//! ([`Encoder::delta`], CSA-FS §3.2); and back ([`Decoder::decode`]).
//!
//! No I/O, no threads, no state that outlives a call but memory to work in: what is encoded depends on the
//! block, its base, the [`Method`] and the room for it, and on nothing else. After the first calls nothing is
//! allocated.
//!
//! What is decoded comes from the medium, so it is hostile: the work and the output are bounded by a block, and
//! what is not a whole block is an error. A decoder cannot know whether it is the *right* block: that is for
//! the checksum over it, which its caller keeps.
//!
//! Which encoding is chosen when, and the measurement behind it: `docs/decisions/0008-encodings.md`.
#![forbid(unsafe_code)]

mod decoder;
mod encoder;
mod encoding;
mod lz4;
mod probe;
pub mod runs;
mod zstd;

pub use decoder::{DecodeError, Decoder};
pub use encoder::{Encoded, Encoder, Level, Method};
pub use encoding::{Encoding, UnknownEncoding};

use vellum_core::addr::BLOCK_BYTES;

/// A block's bytes.
pub type Block = [u8; BLOCK_BYTES];
