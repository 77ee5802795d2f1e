//! Of blocks in a row, those whose entries have not been written since somebody began to watch them.
//!
//! Then nothing else has come to be there, and its page has not been given up: so its number is no other page's.

use crate::addr::Lba;
use crate::format::chunk::Record;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    first: u64,
    intact: u32,
}

impl Watched {
    /// From here on, of the blocks from `first` on those with a bit in `intact`.
    pub fn new(first: Lba, intact: u32) -> Self {
        let first = first.0;
        Self { first, intact }
    }

    /// What a record says something new of is not intact any more. A pledge changes nothing of what its home is mapped to.
    #[inline]
    pub fn note(&mut self, record: &Record) {
        if self.intact != 0
            && !matches!(record, Record::Pledge { .. })
            && let Some((lba, blocks)) = record.names()
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
    fn what_a_record_is_about_is_not_intact_any_more() {
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
