//! NAND flash: its structure, its timing, and its wear.

mod cells;
mod commands;
mod dies;
mod endurance;
mod energy;
mod errors;
mod options;
mod placement;
mod preset;
mod queues;
mod shape;
mod speed;
mod stress;
mod wear;
mod zoned;

pub use cells::{Cell, PageTypes, SlcCache, TYPES_MAX};
pub use commands::Busy;
pub use dies::Flash;
pub use endurance::{NoSpare, Worn};
pub use energy::{Counts, Energy, Taken};
pub use errors::Reads;
pub use options::{BitErrors, Endurance, Options, Suspend};
pub use placement::{HANDLES_MAX, Placement, Stream};
pub use preset::{Block, Kind, Nand, PLAIN, PageMapping, Preset};
pub use queues::{QUEUES_MAX, Queues, Weights};
pub use shape::{Die, EraseBlock, Shape};
pub use speed::{PART_BLOCKS, POINTS_MAX, Point, Speed, Table, TableError};
pub use stress::{Due, PastDue, Refresh};
pub use wear::Wear;
pub use zoned::Zoned;
