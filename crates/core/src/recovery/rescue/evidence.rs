//! Decides whether the block that a guess leads to is still there. A chunk may be no part of the log, because it was torn, or because its
//! life's log ended before it. But its blocks were written, so the earlier blocks there are gone. All headers, and the segments'
//! summaries, are evidence of that.

use super::super::replay::Replay;
use super::scan::{Scan, Spot};
use crate::addr::{BLOCK_BYTES, Lba, Segment, Seq};
use crate::entry::Entry;
use crate::format::chunk::{self, Record};
use crate::format::summary::{self, Owner, Tag};
use alloc::{vec, vec::Vec};

/// The contents of a whole summary: the newest chunk that it covers, and the tag of each block.
type Told = (Seq, Vec<Tag>);

/// The summary that was read last: guesses near each other mostly lead to the same segment.
#[derive(Default)]
pub(super) struct Summaries {
    last: Option<(Segment, Option<Told>)>,
}

impl Replay<'_> {
    /// Chunk `through`, or an earlier one, mapped the LBA to a block. True if nothing shows that the block was overwritten after that.
    pub(super) fn is_still_there(
        &mut self,
        scan: &Scan,
        summaries: &mut Summaries,
        (lba, entry): (Lba, Entry),
        through: Seq,
    ) -> bool {
        let shared = self.state.shared();
        let (pba, own, is_parts) = match entry {
            Entry::Unmapped | Entry::Zero => return true,
            Entry::Plain(pba) => (pba, Owner::Lba(lba), false),
            // A number without a page: its entry is dropped later, because it leads nowhere.
            Entry::Shared(vba) | Entry::Packed(vba, _) if !shared.is_placed(vba) => return true,
            Entry::Shared(vba) => (shared.pba(vba), Owner::Vba(vba), false),
            Entry::Packed(vba, _) => (shared.pba(vba), Owner::Vba(vba), true),
        };
        let Some((segment, offset)) = self.superblock.segment_of(pba) else {
            return true;
        };
        let mut written: Vec<(Seq, Tag)> = Vec::new();
        for spot in scan.over(segment, offset) {
            written.extend(self.tag_by(spot, offset).map(|tag| (spot.seq, tag)));
        }
        written.sort_unstable_by_key(|(seq, _)| *seq);
        // Either the block's own tag names this LBA. Or another LBA owned the block when it was written, and the two share it, or did.
        let by_itself = written.iter().rfind(|(_, tag)| tag.owner == own);
        let by_another = written
            .iter()
            .rfind(|(seq, _)| !is_parts && *seq <= through);
        let base = by_itself.or(by_another).copied();
        let newest = written.last().map(|(seq, _)| *seq);
        let told = self.summary_of(summaries, segment);
        let told = told.map(|(seq, tags)| (*seq, tags[offset as usize]));
        match (base, told) {
            (Some((seq, _)), _) if newest > Some(seq) => false,
            (Some((seq, tag)), Some((last, told))) => {
                // A summary that was rewritten names the owner of then.
                let is_named = [tag.owner, Owner::Lba(lba)].contains(&told.owner);
                last < seq || told.sum == tag.sum && is_named
            }
            (None, _) if newest.is_some() => false,
            (None, Some((_, told))) => told.owner == own || told.owner == Owner::None,
            (_, None) => true,
        }
    }

    /// The tag that a header gives a block of its chunk.
    fn tag_by(&mut self, spot: &Spot, offset: u32) -> Option<Tag> {
        let mut block = [0; BLOCK_BYTES];
        let start = self.superblock.segment_start(spot.place.segment);
        let at = start.plus(spot.place.offset.into());
        self.source.read(at, &mut block).ok()?;
        let (_, records) = chunk::decode(&block, self.crc).ok()?;
        match offset - spot.place.offset {
            0 => chunk::own_tag(&records, &block, self.superblock.sum(self.crc)),
            index => {
                let mut tags = records.iter().filter_map(Record::tag);
                tags.nth(index as usize - 1)
            }
        }
    }

    fn summary_of<'s>(
        &mut self,
        summaries: &'s mut Summaries,
        segment: Segment,
    ) -> Option<&'s Told> {
        if summaries.last.as_ref().is_none_or(|(of, _)| *of != segment) {
            summaries.last = Some((segment, self.read_summary(segment)));
        }
        summaries.last.as_ref()?.1.as_ref()
    }

    fn read_summary(&mut self, segment: Segment) -> Option<Told> {
        let usable = self.superblock.usable_blocks();
        let blocks = self.superblock.segment_blocks() - usable;
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let at = self.superblock.segment_start(segment).plus(usable.into());
        self.source.read(at, &mut bytes).ok()?;
        let (signature, count) = (self.superblock.signature(), usable as usize);
        let last = summary::last_seq(&signature, segment, count, &bytes, self.crc).ok()?;
        let tags = summary::decode(&signature, segment, count, &bytes, self.crc).ok()?;
        Some((last, tags))
    }
}
