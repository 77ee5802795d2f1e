//! Streams: a snapshot, or what changed between two, as bytes ([`vellum_core::format::stream`] has the format).

mod reader;
mod receive;
mod send;
mod totals;
mod writer;

pub use crate::runs::{Damaged, Problem};
pub use reader::{Reader, Run};
pub use receive::{ReceiveError, Received, receive};
pub use send::{SendError, Sender};
pub use totals::Totals;
pub use vellum_core::format::stream::Head;
pub use writer::Writer;
