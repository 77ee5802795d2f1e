//! The baseline: a flash translation layer as most drives have it, for comparison. One map entry a page, no log
//! headers, no checkpoints, its map in RAM that survives a crash. It costs nothing but its collector's moves; as an option wear is levelled, the
//! map is on flash with a cache of its entries, and what is hot is kept apart from what is cold.

mod collector;
mod divisor;
mod drive;
mod levelling;
mod mapcache;
mod order;
mod own;
mod pagemap;
mod separation;
mod victims;

pub use drive::{Drive, Io, Wanted};
pub use levelling::{Levelling, THRESHOLD};
pub use mapcache::{ENTRY_BYTES, Lookups};
pub use order::{Order, Stage};
pub use own::{Choose, Chooser, Closed, Separate, Separator};
pub use pagemap::{FlashOp, Moved, PageMap, TooSmall};
pub use separation::COUNT_BYTES;
pub use victims::Victim;
