//! The end of a replay: owners and live blocks are counted from the map, so that no count is too low.

use super::live::Live;
use super::{State, Unsound};
use crate::addr::{Leaf, Pba};
use crate::entry::{Entry, LEAF_ENTRIES};
use crate::format::root::Cursor;
use crate::format::superblock::SegmentArea;

impl State {
    /// Counts; from now on [`State::apply`] keeps the counts. `heads`: where the log goes on.
    ///
    /// # Errors
    /// The table that leads where the log has not been, to more blocks than there are, or to a page that is nowhere.
    pub fn settle(&mut self, heads: &[Cursor; 2]) -> Result<(), Unsound> {
        debug_assert!(!self.is_counted);
        self.count_owners(heads)?;
        for pba in self.shared.settle_deltas().ok_or(Unsound::Deltas)? {
            self.count(heads, pba).ok_or(Unsound::Deltas)?;
        }
        if !self.shared.has_numbers(self.pledges.len()) {
            return Err(Unsound::Shared);
        }
        for (lba, pba) in self.shared.settle().ok_or(Unsound::Shared)? {
            self.map.set(lba, Entry::Plain(pba));
            self.strays.insert(pba, lba);
        }
        self.is_counted = true;
        Ok(())
    }

    fn count_owners(&mut self, heads: &[Cursor; 2]) -> Result<(), Unsound> {
        let (map, shared) = (&self.map, &mut self.shared);
        let mut count = |pba| count_block(&self.segments, &mut self.live, heads, pba);
        for (lba, entry) in map.iter() {
            let pba = match entry {
                Entry::Unmapped | Entry::Zero => continue,
                Entry::Plain(pba) => pba,
                Entry::Shared(vba) => {
                    let is_first = shared.owners(vba) == 0;
                    let is_one = shared.is_placed(vba) && !shared.has_parts(vba);
                    if is_one && !(shared.add(vba, lba) && is_first) {
                        continue;
                    }
                    match is_one {
                        true => shared.pba(vba),
                        false => Pba(0),
                    }
                }
                Entry::Packed(vba, _) if shared.has_parts(vba) => {
                    shared.add_part(vba);
                    if shared.owners(vba) > 1 {
                        continue;
                    }
                    shared.pba(vba)
                }
                Entry::Packed(..) => Pba(0),
            };
            let leaf = Leaf((lba.0 / LEAF_ENTRIES as u64) as u32);
            count(pba).ok_or(Unsound::Map(leaf))?;
        }
        match self.lost_leaf() {
            Some(leaf) => Err(Unsound::Map(leaf)),
            None => Ok(()),
        }
    }

    fn count(&mut self, heads: &[Cursor; 2], pba: Pba) -> Option<()> {
        count_block(&self.segments, &mut self.live, heads, pba)
    }
}

/// A block is live where the heads have been, and once: more of them than a segment has are not.
fn count_block(
    segments: &SegmentArea,
    live: &mut Live,
    heads: &[Cursor; 2],
    pba: Pba,
) -> Option<()> {
    let (segment, offset) = segments.segment_of(pba)?;
    let is_ahead = |head: &Cursor| head.segment == segment && head.offset <= offset;
    let fits = live.born(segment) <= segments.usable();
    (fits && !heads.iter().any(is_ahead)).then_some(())
}
