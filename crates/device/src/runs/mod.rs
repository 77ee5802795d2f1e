//! Runs of blocks as one stream of bytes, and back ([`vellum_core::format::frames`] has its format): what an archive and a stream
//! of a snapshot are made of.

mod reader;
mod writer;

pub use reader::{Damaged, Problem};
pub(crate) use reader::{FrameReader, Nature};
pub(crate) use writer::FrameWriter;
