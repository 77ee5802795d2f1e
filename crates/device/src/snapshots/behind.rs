//! What lies behind an end that the volume may get.

use super::carry;
use crate::shared::SharedVolume;
use vellum_core::addr::Lba;
use vellum_core::format::history::Name;
use vellum_core::shrink::Behind;

/// What snapshots and clones keep of blocks behind an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Those that keep something, the oldest first.
    pub names: Vec<Name>,
    /// How many blocks they keep.
    pub blocks: u64,
}

/// The data that clients have written behind `end`.
pub(crate) fn stored(shared: &SharedVolume, end: u64) -> Option<Behind> {
    let (mut at, mut found) = (end, None);
    while at < shared.blocks {
        for (blocks, has_data) in carry::extents(shared, Lba(at), shared.blocks - at) {
            if has_data {
                let none = Behind {
                    end: Lba(end),
                    first: Lba(at),
                    blocks: 0,
                };
                found.get_or_insert(none).blocks += blocks;
            }
            at += blocks;
        }
    }
    found
}

/// What is kept of blocks behind `end`. A kept block that holds nothing reads as zeros, as every block behind an end does: it does
/// not count.
pub(crate) fn kept(shared: &SharedVolume, end: u64) -> Option<Kept> {
    let keeper = shared.keeper.as_ref()?;
    let behind = keeper.book().kept_behind(Lba(end));
    let mut found = Kept {
        names: Vec::new(),
        blocks: 0,
    };
    for (snapshot, runs) in behind {
        // No write waits while the map is looked at.
        let blocks = carry::mapped(shared, &runs).sum::<u64>();
        if blocks > 0 {
            found.blocks += blocks;
            found.names.push(snapshot.identity.name);
        }
    }
    (found.blocks > 0).then_some(found)
}
