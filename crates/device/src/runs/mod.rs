//! Runs of blocks as one stream of bytes, and back ([`vellum_core::format::frames`] has the format). Archives and streams of
//! snapshots are made of them.

mod reader;
#[cfg(test)]
pub(crate) mod sample;
mod writer;

pub use reader::{Damaged, Problem};
pub(crate) use reader::{FrameReader, Nature};
pub(crate) use writer::FrameWriter;
