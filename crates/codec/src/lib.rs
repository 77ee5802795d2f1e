//! Stores a block in fewer bytes, by itself ([`Encoder::compress`]) or as its difference to another block, its base
//! ([`Encoder::delta`], CSA-FS §3.2), and restores it ([`Decoder::decode`]).
//!
//! No I/O, no threads, and no state outlives a call except working memory. The encoding depends only on the block, its base, the
//! [`Method`] and the room given. After the first calls nothing is allocated.
//!
//! Decoder input comes from the medium, so it is treated as hostile: work and output are bounded by one block, and
//! anything that does not decode to a whole block is an error. A decoder cannot know whether it is the *right* block: the
//! caller keeps a checksum for that.
//!
//! When each encoding is chosen, and the measurements behind the choice: `docs/decisions/0008-encodings.md`.
#![forbid(unsafe_code)]

mod block;
mod decoder;
mod encoder;
mod encoding;
mod error;
mod level;
mod lz4;
mod probe;
pub mod runs;
mod zstd;

pub use block::Block;
pub use decoder::Decoder;
pub use encoder::{Encoded, Encoder, Method};
pub use encoding::{Encoding, UnknownEncoding};
pub use error::DecodeError;
pub use level::Level;
