//! The baseline: a flash translation layer as most drives have it, for comparison. One map entry a page, no log
//! headers, no checkpoints, its map in RAM that survives a crash. It costs nothing but its collector's moves.

mod drive;
mod order;
mod pagemap;
mod victims;

pub use drive::{Drive, Io, Wanted};
pub use order::{Order, Stage};
pub use pagemap::{FlashOp, Moved, PageMap, TooSmall};
pub use victims::Victim;
