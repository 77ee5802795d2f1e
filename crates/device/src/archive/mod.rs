//! Archives: a volume's medium as one stream of bytes, and back ([`vellum_core::format::archive`] has the format).

mod dump;
mod pack;
mod reader;
mod restore;
mod totals;
mod writer;

pub use crate::runs::{Damaged, Problem};
pub use dump::{DumpError, dump};
pub use pack::pack;
pub use reader::{Reader, Run};
pub use restore::{RestoreError, restore};
pub use totals::Totals;
pub use vellum_core::format::archive::{Head, Kind};
pub use writer::Writer;
