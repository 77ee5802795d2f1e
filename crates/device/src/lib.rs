//! Runs the core on a medium and offers the block interface to front ends.
//!
//! [`Volume`] is the whole of it; `docs/ARCHITECTURE.md` follows a write through.

pub mod archive;
mod bases;
pub mod block;
mod classes;
mod compare;
mod copies;
mod critical;
pub mod damage;
mod digest;
mod drive;
mod entropy;
pub mod events;
pub mod frames;
mod freed;
mod gate;
pub mod info;
pub mod inspect;
mod journals;
mod kept;
mod layouts;
pub mod limits;
mod memory;
pub mod migrate;
mod options;
pub mod pack;
mod parts;
pub mod policy;
mod properties;
mod reaper;
mod recall;
mod refusals;
mod requests;
pub mod rescue;
mod scout;
mod scratch;
mod scrub;
mod shared;
mod sight;
mod source;
mod start;
pub mod stats;
mod sweep;
mod turns;
mod volume;
mod waits;

pub use digest::crc32c;
pub use journals::{Extent, FileSystemStats, JournalError};
pub use layouts::check_choice;
pub use options::{CreateError, CreateOptions, OpenError, OpenOptions, StopError};
pub use properties::{ChangeError, change_at_rest};
pub use scrub::{Finding, ScrubReport, Severity};
pub use source::MediumSource;
pub use sweep::{Haste, Sought, SweepError, SweepProgress};
pub use volume::Volume;
