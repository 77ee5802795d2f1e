//! The baseline for comparison: a flash translation layer as in most drives. It has one map entry a page, no log headers, no
//! checkpoints, and a map in RAM that survives a crash. Its only cost is its collector's moves. Options add wear levelling, a map
//! on flash with a cache of its entries, and the separation of hot from cold data.

mod apart;
mod collector;
mod divisor;
mod drive;
mod folding;
mod heat;
mod idle;
mod leveller;
mod levelling;
mod mapcache;
mod ops;
mod order;
mod own;
mod pagemap;
mod paging;
mod refresh;
mod renewing;
mod separation;
mod slc;
mod streams;
mod victims;

pub use drive::{Drive, Io, Wanted};
pub use heat::{COUNT_BYTES, Heat};
pub use leveller::{Levelling, THRESHOLD};
pub use mapcache::ENTRY_BYTES;
pub use order::{Order, Stage};
pub use own::{Choose, Chooser, Closed, Separate, Separator};
pub use pagemap::{FlashOp, Moved, PageMap, Place, TooSmall};
pub use paging::Lookups;
pub use refresh::Refreshed;
pub use slc::Folded;
pub use victims::Victim;

/// The flash of most tests here.
#[cfg(test)]
const SHAPE: crate::flash::Shape = crate::flash::Shape {
    channels: 1,
    dies: 2,
    erase_blocks: 64,
    units: 16,
    unit_blocks: 2,
};
