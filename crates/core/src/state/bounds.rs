//! What leaves may lead to.

use super::changes::LeafEntries;
use crate::addr::Pba;
use crate::entry::{Entry, LEAF_ENTRIES, UNMAPPED};
use crate::format::root::{Cursor, FreeSegments};
use crate::format::superblock::SegmentArea;
use alloc::vec::Vec;

/// What the entries of a table's leaves may lead to.
#[derive(Clone, Copy)]
pub(super) enum Bounds {
    /// The map of so many LBAs.
    Map(SegmentArea, u64),
    /// The table of pages. Its places have a flag in this bit.
    Pages(SegmentArea, u32),
}

impl Bounds {
    /// Where an entry leads to, if it leads to a block.
    pub fn block_of(self, raw: u32) -> Option<Pba> {
        match self {
            Self::Map(..) => match Entry::unpack(raw) {
                Entry::Plain(pba) => Some(pba),
                Entry::Unmapped | Entry::Zero | Entry::Shared(_) | Entry::Packed(..) => None,
            },
            Self::Pages(_, flag) => (raw != 0).then(|| Pba(u64::from(raw & !flag))),
        }
    }

    /// True if all entries of a leaf lead into segments, and none belongs to an LBA past the last one.
    pub fn admit(self, leaf: usize, page: &LeafEntries) -> bool {
        let (Self::Map(segments, _) | Self::Pages(segments, _)) = self;
        let may_be = |raw: &u32| {
            let block = self.block_of(*raw);
            block.is_none_or(|pba| segments.segment_of(pba).is_some())
        };
        let end = match self {
            Self::Map(_, blocks) => blocks.saturating_sub((leaf * LEAF_ENTRIES) as u64),
            Self::Pages(..) => LEAF_ENTRIES as u64,
        };
        let end = end.min(LEAF_ENTRIES as u64) as usize;
        page[..end].iter().all(may_be) && page[end..].iter().all(|&raw| raw == UNMAPPED)
    }
}

/// What was not written when the volume was opened: new data goes there, so nothing of before leads to it.
#[derive(Clone, Debug, Default)]
pub struct Unwritten {
    /// Where the log goes on: the rest of these segments.
    heads: Vec<Cursor>,
    free: FreeSegments,
}

impl Unwritten {
    /// The rest of the heads' segments, and free ones.
    #[must_use]
    pub fn new(heads: &[Cursor], free: FreeSegments) -> Self {
        let heads = heads.to_vec();
        Self { heads, free }
    }

    /// True if it has this block.
    #[must_use]
    pub fn has(&self, segments: &SegmentArea, pba: Pba) -> bool {
        let Some((segment, offset)) = segments.segment_of(pba) else {
            return false;
        };
        let is_ahead = |head: &Cursor| head.segment == segment && head.offset <= offset;
        self.free.holds(segment) || self.heads.iter().any(is_ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::geometry::{SMALL, plan};

    #[test]
    fn an_entry_that_leads_out_of_the_segments_is_not_admitted() {
        let volume = plan(&SMALL).unwrap();
        let segments = volume.segments();
        let first = segments.first().0 as u32;
        let end = segments.end() as u32;
        let page = |index: usize, raw: u32| {
            let mut page = [0; LEAF_ENTRIES];
            page[index] = raw;
            page
        };
        let map = Bounds::Map(segments, 1030);
        let pages = Bounds::Pages(segments, 1 << 31);
        for (raw, is_good) in [(first, true), (first - 1, false), (end, false), (1, true)] {
            assert_eq!(map.admit(0, &page(1023, raw)), is_good, "{raw}");
        }
        assert!(map.admit(1, &page(5, first)) && !map.admit(1, &page(6, first)));
        for (place, is_good) in [(first, true), (first | 1 << 31, true), (end, false)] {
            assert_eq!(pages.admit(0, &page(9, place)), is_good, "{place}");
        }
    }
}
