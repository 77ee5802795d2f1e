//! Watched blocks: which of up to 32 consecutive blocks have had no write to their entries since watching began.
//!
//! If an entry was not written, nothing else was stored there, and the block's page was not given up. So the page's number does not stand
//! for another page.

use crate::addr::Lba;
use crate::format::chunk::Record;

/// The watched blocks, up to 32 in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    first: u64,
    intact: u32,
}

impl Watched {
    /// Watches, of the blocks from `first` on, those with a bit in `intact`.
    pub fn new(first: Lba, intact: u32) -> Self {
        let first = first.0;
        Self { first, intact }
    }

    /// Notes that the blocks that a record changes are not intact any more. A pledge does not change its home's mapping.
    #[inline]
    pub fn note(&mut self, record: &Record) {
        if self.intact != 0
            && let Some((lba, blocks)) = record.sets()
        {
            self.remapped(lba, blocks);
        }
    }

    fn remapped(&mut self, lba: Lba, blocks: u64) {
        let end = lba.0.saturating_add(blocks);
        let watched = self.first..self.first + u64::from(u32::BITS);
        for lba in lba.0.max(watched.start)..end.min(watched.end) {
            self.intact &= !(1 << (lba - self.first));
        }
    }

    pub fn is_intact(self, lba: Lba) -> bool {
        let index = lba.0.wrapping_sub(self.first);
        index < u64::from(u32::BITS) && self.intact & 1 << index != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn intact(watched: Watched) -> Vec<u64> {
        (0..100)
            .filter(|lba| watched.is_intact(Lba(*lba)))
            .collect()
    }

    #[test]
    fn blocks_that_a_record_changes_are_not_intact_any_more() {
        let mut watched = Watched::new(Lba(10), 0b1_1011);
        assert_eq!(intact(watched), [10, 11, 13, 14]);
        let (home, journal) = (Lba(10), Lba(11));
        watched.note(&Record::Pledge { home, journal });
        watched.note(&Record::Data {
            lba: Lba(9),
            sum: 0,
        });
        assert_eq!(intact(watched), [10, 11, 13, 14]);
        watched.note(&Record::Data {
            lba: Lba(11),
            sum: 0,
        });
        assert_eq!(intact(watched), [10, 13, 14]);
        let blocks = 4;
        watched.note(&Record::Discard {
            lba: Lba(7),
            blocks,
        });
        assert_eq!(intact(watched), [13, 14]);
        let blocks = u64::MAX;
        watched.note(&Record::Zero {
            lba: Lba(14),
            blocks,
        });
        assert_eq!(intact(watched), [13]);
    }

    #[test]
    fn nothing_is_watched_by_itself() {
        assert!(intact(Watched::default()).is_empty());
    }
}
