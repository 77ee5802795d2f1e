//! Infers what a client's file system is doing from what it writes. No threads, no locks, no clock, no I/O.
//!
//! The input is the client's writes, their answers, and what this crate requests to read from the volume
//! ([`Source`](vellum_ext4::Source)). The output is hints for the core, and what must be examined again. The caller provides the
//! locks and the time: the device does for real file systems, and tests do for made-up ones.
//!
//! All input was written by a client, so it is treated as hostile: `vellum_ext4` parses it within bounds, and what is kept of it
//! is bounded here ([`limits`]). The output is only a proposal: bytes are compared before it has an effect, but where the user has set
//! `replay` or `freed`, which believe a journal and a file system.
#![forbid(unsafe_code)]

mod bases;
mod change;
mod classes;
mod copies;
mod critical;
mod findings;
mod flushes;
mod free_space;
mod gate;
pub mod journals;
pub mod limits;
mod logs;
mod order;
mod ranges;
mod scans;
mod wants;

pub use bases::{Base, Bases, Found, bucket};
pub use change::{Blocks, Change};
pub use classes::{Classes, is_own, may_be_own};
pub use copies::{Copied, Copies};
pub use critical::{Critical, may_be_critical};
pub use findings::{Expected, Findings};
pub use free_space::{Followed, FreeSpace, Known, RequestSeen};
pub use gate::{CommitGate, Due, Waiting, is_near};
pub use journals::{Extent, FileSystemStats, JournalError, Plan};
pub use logs::{EarlierPlaces, Entry, Followers, Log};
pub use order::{CommitOrder, Reason, Stop, Wait};
pub use scans::{Checked, Scans};
pub use vellum_ext4::journal::Refusal;
pub use wants::Wants;
