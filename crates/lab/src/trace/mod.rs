//! Traces: recorded requests to a disk, read from the formats in common use.
//!
//! A reader takes lines (or events) and yields [`Traced`] requests. Everything in a trace is hostile: a line that is not valid
//! is an error that names its number, and so is a line or a request that is too long. No number of a trace is used as
//! a size before it has been bounded.

mod blkparse;
mod blktrace;
mod columns;
mod csv;
mod detect;
mod disksim;
mod error;
mod fields;
mod fio;
mod fiu;
mod format;
mod limits;
mod open;
mod own;
mod reader;
mod traced;

pub use columns::{COLUMNS, Columns, ColumnsError};
pub use detect::detect;
pub use error::{Problem, TraceError};
pub use fields::SECTOR_BYTES;
pub use format::Format;
pub use limits::{DISK_BYTES_MAX, LINE_BYTES_MAX, REQUEST_BYTES_MAX};
pub use open::{Bytes, open, unpacked};
pub use own::Known;
pub use reader::{Reader, Seen};
pub use traced::{Op, Traced};
pub use vellum_trace::limits::COMMITTED_MAX;
pub use vellum_trace::{Class, Committed, Journal, Sizes};
