//! Traces: what a host asked of a disk, when, and what is known of each block that it wrote; never the block.
//!
//! The format is described byte by byte in `docs/TRACE.md`. It is a header, frames that each stand for themselves, and
//! an index at the end. A file without its end (the recorder was killed, its disk was full) can be read up to
//! where it breaks off.
//!
//! [`Writer`] takes [`Entry`]s and needs a [`Write`](std::io::Write); [`Reader`] gives them back from a
//! [`Read`](std::io::Read). Whatever the bytes, memory is bounded by [`limits`] and a mistake is a [`TraceError`]
//! that says where it is.
#![forbid(unsafe_code)]

mod block;
mod entry;
mod error;
mod frame;
mod header;
mod index;
pub mod limits;
mod reader;
mod varint;
mod writer;

pub use block::{Block, Class, Content};
pub use entry::{Committed, Entry, Journal, Op, Request};
pub use error::{Problem, TraceError};
pub use header::{Header, MAGIC, Sizes};
pub use index::{Index, Place};
pub use reader::Reader;
pub use writer::Writer;
