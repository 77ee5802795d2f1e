//! Writes what mke2fs and jbd2 write: made-up file systems for simulations and tests. None of it is read from a client.

mod file_system;
mod log;

pub use file_system::{FileSystem, descriptor_blocks};
pub use log::{Named, Writer, features, flags};
