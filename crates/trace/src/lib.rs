//! Traces record which requests a host sent to a disk, when, and some facts about each block that it wrote. The blocks themselves are not
//! in a trace.
//!
//! `docs/TRACE.md` describes the format byte by byte: a header, frames that can each be read alone, and an index at
//! the end. A file without its end (the recorder was killed, or its disk was full) can be read up to where it breaks
//! off.
//!
//! [`Writer`] takes [`Entry`]s and needs a [`Write`](std::io::Write); [`Reader`] gives them back from a
//! [`Read`](std::io::Read). Whatever the bytes, [`limits`] bounds the memory, and an error is a [`TraceError`] that
//! says where it is.
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
pub use reader::{Reader, fill};
pub use writer::Writer;
