//! Strays: pages whose owner is not the one that their segment's summary names, WOJ's reverse map (§3.4).
//!
//! When the journal reuses its space, a remapped journal copy belongs to its home address alone. Its chunk header and the summary still
//! name the journal. The collector must know the real owner, and strays record it: in memory, bounded by a quarter of the journal. If
//! there are more, a summary is rewritten with the current owners. If a crash tears the rewritten summary, nothing is lost: the headers
//! hold the same information, and the collector searches the map for owners that nothing names.
//!
//! This decides which summary is rewritten next, and whether the one on the medium may be the base of a new one.

use super::segments::locate;
use crate::addr::{Lba, Pba, Segment, Seq};
use crate::format::summary::{self, Owner, Tag};
use crate::format::{Crc, superblock::Superblock};
use alloc::vec::Vec;
use core::ops::{Range, RangeInclusive};

/// The most segments that one call examines for a summary to rewrite; the next call examines others.
const TRIES: usize = 8;

/// When summaries are rewritten, and from what.
pub(crate) struct Restamp {
    /// The most strays that are remembered, whatever the journal's size.
    strays: usize,
}

/// A segment's summary, as the medium has it.
pub(crate) struct ReadSummary<'a> {
    pub segment: Segment,
    pub bytes: &'a [u8],
    /// From the segment's newest known chunk to the newest of the log.
    pub chunks: RangeInclusive<Seq>,
}

impl Restamp {
    /// `strays`: the most that are remembered, or a quarter of a journal's pages if that is more.
    pub fn new(strays: usize) -> Self {
        Self { strays }
    }

    /// True if there are too many strays; `pool`: the journal's pages.
    pub fn is_wanted(&self, strays: usize, pool: usize) -> bool {
        strays > self.strays.max(pool / 4)
    }

    /// Returns the segment whose summary is rewritten next; `None`: no stray of this turn is in one that `may` be. Report the summary
    /// that was read to [`Self::on_read`].
    pub fn poll(
        &self,
        superblock: &Superblock,
        mut next_stray: impl FnMut() -> Option<Pba>,
        may: impl Fn(Segment) -> bool,
    ) -> Option<Segment> {
        (0..TRIES)
            .filter_map(|_| next_stray())
            .map(|pba| locate(superblock, pba).0)
            .find(|&segment| may(segment))
    }

    /// Returns the tags of a summary that was read, and its newest chunk. Returns `None` if the summary is damaged or old, or if it
    /// contradicts known sums of the segment (`agree`): then its strays are given up. A damaged summary is left as it is, and not tried
    /// again: the collector searches the map instead.
    pub fn on_read(
        &self,
        superblock: &Superblock,
        crc: Crc,
        read: &ReadSummary<'_>,
        agree: impl Fn(&[Tag]) -> bool,
    ) -> Option<(Vec<Tag>, Seq)> {
        let (signature, usable) = (superblock.signature(), superblock.usable_blocks() as usize);
        let (segment, bytes) = (read.segment, read.bytes);
        let tags = summary::decode(&signature, segment, usable, bytes, crc).ok()?;
        let last = summary::last_seq(&signature, segment, usable, bytes, crc).ok()?;
        // A summary that is whole may be from an older use of the segment, if the drive lost a later write of it. Then it covers fewer
        // chunks than are known, or contradicts known sums.
        (read.chunks.contains(&last) && agree(&tags)).then_some((tags, last))
    }

    /// The places of a segment's blocks.
    pub fn pages(superblock: &Superblock, segment: Segment) -> Range<Pba> {
        let start = superblock.segment_start(segment);
        start..start.plus(superblock.usable_blocks().into())
    }

    /// True if a summary of these pages that was written names the owner of the page at `pba`.
    pub fn is_named(pages: &Range<Pba>, tags: &[Tag], (pba, owner): (Pba, Lba)) -> bool {
        let tag = tags.get((pba.0 - pages.start.0) as usize);
        tag.is_some_and(|tag| tag.owner == Owner::Lba(owner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::BLOCK_BYTES;
    use crate::format::geometry::{self, SMALL};
    use alloc::vec;
    use crc32c::crc32c;

    const SEGMENT: Segment = Segment(2);

    fn some() -> Superblock {
        geometry::plan(&SMALL).unwrap()
    }

    fn tags(superblock: &Superblock) -> Vec<Tag> {
        let tag = |index: u32| Tag {
            owner: Owner::Lba(Lba(index.into())),
            sum: index,
        };
        (0..superblock.usable_blocks()).map(tag).collect()
    }

    #[test]
    fn summaries_are_rewritten_when_there_are_more_strays_than_a_quarter_of_the_journal() {
        let restamp = Restamp::new(10);
        assert!(!restamp.is_wanted(10, 0) && restamp.is_wanted(11, 0));
        assert!(!restamp.is_wanted(25, 100) && restamp.is_wanted(26, 100));
    }

    #[test]
    fn the_next_summary_is_of_a_stray_whose_segment_may_be_rewritten() {
        let superblock = some();
        let restamp = Restamp::new(0);
        // Strays of the segments 0, 1, 2 and so on; the first turn comes to the end of all.
        let mut turn = [None].into_iter().chain((0..).map(Some));
        let mut next = || {
            let segment = Segment(turn.next()??);
            Some(superblock.segment_start(segment).plus(7))
        };
        let chosen = restamp.poll(&superblock, &mut next, |segment| segment.0 >= 2);
        assert_eq!(chosen, Some(Segment(2)));
        let chosen = restamp.poll(&superblock, &mut next, |segment| segment.0 >= 11);
        assert_eq!(chosen, None, "one call examines eight");
        let chosen = restamp.poll(&superblock, &mut next, |segment| segment.0 >= 11);
        assert_eq!(chosen, Some(Segment(11)), "and the next call the others");
    }

    #[test]
    fn a_damaged_or_stale_summary_is_not_rewritten() {
        let superblock = some();
        let blocks = superblock.segment_blocks() - superblock.usable_blocks();
        let (whole, crc) = (tags(&superblock), crc32c);
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let signature = superblock.signature();
        summary::encode(&signature, SEGMENT, Seq(9), &whole, crc, &mut bytes);
        let read = |segment, bytes: &[u8], chunks: (u64, u64), agrees| {
            let read = ReadSummary {
                segment,
                bytes,
                chunks: Seq(chunks.0)..=Seq(chunks.1),
            };
            let restamp = Restamp::new(0);
            restamp.on_read(&superblock, crc, &read, |tags| tags == whole && agrees)
        };
        let current = Some((whole.clone(), Seq(9)));
        assert_eq!(read(SEGMENT, &bytes, (9, 9), true), current);
        assert_eq!(read(SEGMENT, &bytes, (5, 12), true), current);
        assert_eq!(read(SEGMENT, &bytes, (10, 12), true), None, "older");
        assert_eq!(read(SEGMENT, &bytes, (5, 8), true), None, "of no chunk");
        assert_eq!(read(SEGMENT, &bytes, (5, 12), false), None, "other sums");
        assert_eq!(read(Segment(3), &bytes, (5, 12), true), None);
        assert_eq!(read(SEGMENT, &[], (5, 12), true), None, "not read");
        bytes[100] ^= 1;
        assert_eq!(read(SEGMENT, &bytes, (5, 12), true), None, "damaged");
    }

    #[test]
    fn a_stray_that_the_written_summary_names_is_none() {
        let superblock = some();
        let (pages, tags) = (Restamp::pages(&superblock, SEGMENT), tags(&superblock));
        let named = |offset, lba| {
            let stray = (pages.start.plus(offset), Lba(lba));
            Restamp::is_named(&pages, &tags, stray)
        };
        assert!(named(5, 5) && named(0, 0));
        assert!(!named(5, 6) && !named(254, 5));
    }
}
