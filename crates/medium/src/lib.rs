//! Where blocks are stored.
//!
//! A medium reads, writes, syncs and discards 4 KiB blocks. It knows physical addresses, and nothing about the contents.
//!
//! | medium | for |
//! | --- | --- |
//! | [`MemoryMedium`] | tests and benchmarks; completes inside `submit` |
//! | [`FileMedium`] | a regular file or a block device, by io_uring or by a pool of threads |
//! | [`EncryptedMedium`] | wraps any other: encrypts what is written through it |
//! | [`FaultMedium`] | wraps any other: loses power, tears, flips, misdirects, fails |
//! | [`Recorder`](fault::Recorder) | wraps any other: records all operations, for power cuts at any instant |

pub mod below;
mod bounce;
mod completions;
mod encrypted;
pub mod envelope;
mod error;
pub mod fault;
pub mod file;
pub mod io;
mod lengthen;
pub mod lock;
mod lost;
pub mod medium;
pub mod memory;
pub mod open;
mod past;
mod status;
mod target;
mod threads;
mod transfer;
mod uring;
mod zeros;

pub use encrypted::EncryptedMedium;
pub use error::MediumError;
pub use fault::{Fault, FaultMedium, Plan};
pub use file::FileMedium;
pub use io::{Done, Io, Kind, Piece};
pub use lost::Lost;
pub use medium::Medium;
pub use memory::MemoryMedium;
pub use open::{Engine, OpenError, OpenOptions, Prealloc, Tuning};
