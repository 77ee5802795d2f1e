//! What effects in flight are for.

use crate::addr::{Buf, Pba, RequestId};
use crate::format::table::Kind;
use alloc::vec::Vec;

/// What an effect in flight is for.
pub(crate) enum Pending {
    /// Data blocks from `first` on, in the group of this number.
    Data {
        first: u32,
        bufs: Vec<Buf>,
        group: u64,
    },
    /// A table block.
    Table(Kind, u32),
    /// The twin of a block of the map.
    MapTwin(u32),
    /// A directory block of shadowed tables.
    Directory(u32),
    DirectoryTwin(u32),
    Root,
    /// The second copy of a root that was found alone.
    RootCopy(Pba),
    /// The first block of a copy of a root that does not count: no later write may make it whole.
    VoidRoot(Pba),
    /// The superblock, with the newest durable root, in one of its places.
    Mirror(Pba),
    Sync,
    /// Free data blocks from `first` on.
    Discard {
        first: u32,
        blocks: u32,
    },
    Read {
        request: RequestId,
        first: u32,
        sums: Vec<u32>,
    },
    Compare {
        request: RequestId,
        index: u32,
    },
}
