//! Snapshots of a volume: keeps what each needs to read as the volume did when it was taken.
//!
//! The bookkeeping is [`vellum_core::snapshots`]; this module carries it out. What must hold:
//! 1. Before a change is handed to the core, the blocks that it changes are kept: the copies, and the rows that name them, have
//!    taken effect in the core by then.
//! 2. While a snapshot is taken, no request is handed over, and nothing waits before the core or in it.
//! 3. A crash carries out pledges, and so changes blocks without a client's write. Such a block is kept before it is pledged, or it is
//!    not pledged.
//! 4. A block written to a clone takes effect before the row that leads to it. From then on the block is written in place, and only
//!    by the clone.
//! 5. Writers that wait here may hold all frames for writes. So this module has frames of its own to write with.

mod arrive;
mod behind;
mod carry;
mod changed;
mod clone;
mod doubt;
mod keep;
pub(crate) mod keeper;
mod load;
mod mend;
mod pace;
pub(crate) mod schedule;
mod scheduler;
mod take;
#[cfg(test)]
mod tests;
mod view;
mod written;

pub use arrive::ArrivalError;
pub(crate) use arrive::{arrive, arrived};
pub(crate) use behind::{kept, stored};
pub(crate) use changed::{changed, changed_within};
pub use clone::Cloned;
pub(crate) use clone::make as make_clone;
pub(crate) use keep::{forget_list, keep_for, load};
pub(crate) use keeper::Keeper;
pub use load::Wrong;
pub(crate) use load::{Each, read_as_they_are, read_list, read_rows};
pub(crate) use mend::{rewrite, role};
pub use take::{SnapshotError, SnapshotInfo};
pub(crate) use take::{delete, identity, infos, listed, roll_back, take};
pub use view::Seen;
