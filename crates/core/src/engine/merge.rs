//! Out-of-line deduplication: two blocks that are stored, and may be equal, become one page (CAFTL §3.5).
//!
//! Who finds such pairs (an external sort of the summaries' checksums, in idle time) is the runtime's business,
//! and it may be wrong or late: the block is read, compared with the other, and mapped to its page only if
//! both are still where they were. To a client nothing changes: the bytes are the same. A block that fails its
//! checksum is left alone, or an error would become data.

use super::twin::{Proposer, Shared as Sharing, Twin};
use super::*;
use crate::index::Holder;
use crate::seam::{Against, Class};

/// A pair under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    request: RequestId,
    /// The block that is to give its page up, and that page.
    lba: Lba,
    from: Pba,
    /// The one that is to be shared.
    of: Holder,
    to: Pba,
    /// The checksum of both, if they are equal.
    crc: u32,
    buf: Buf,
}

impl Engine {
    pub(super) fn merge(&mut self, request: RequestId, lba: Lba, of: Holder) {
        self.merge_or_load(request, lba, of, true);
    }

    /// The checksums of a segment have come, or cannot be had.
    pub(super) fn merge_again(&mut self, segment: Segment) {
        let pairs = core::mem::take(&mut self.pairs);
        for (of_segment, request, lba, of) in pairs {
            match of_segment == segment {
                true => self.merge_or_load(request, lba, of, false),
                false => self.pairs.push((of_segment, request, lba, of)),
            }
        }
    }

    fn merge_or_load(&mut self, request: RequestId, lba: Lba, of: Holder, load: bool) {
        if self.poisoned {
            return self.reply(request, Err(Refusal::Poisoned));
        }
        if !self.in_range(lba, 1) || matches!(of, Holder::Lba(of) if !self.in_range(of, 1)) {
            return self.reply(request, Err(Refusal::OutOfRange));
        }
        let Some((from, to)) = self.apart(lba, of).filter(|_| !self.redeeming) else {
            return self.reply(request, Ok(()));
        };
        let (segment, offset) = locate(&self.superblock, from);
        let Some(crc) = self.sums.crc(segment, offset) else {
            if load && self.sums.wants_load(segment) {
                self.load_sums(segment, None);
            }
            if load && self.sums.is_loading(segment) {
                return self.pairs.push((segment, request, lba, of));
            }
            return self.reply(request, Ok(()));
        };
        // One of the collector's: it needs them more, and a pair can be told again.
        let Some(buf) = self.collector.spare_buf() else {
            return self.reply(request, Ok(()));
        };
        self.stats.merge_reads += 1;
        for pba in [from, to] {
            let (segment, _) = locate(&self.superblock, pba);
            self.segments.get_mut(segment).readers += 1;
        }
        let merge = Merge {
            request,
            lba,
            from,
            of,
            to,
            crc,
            buf,
        };
        self.effect(Pending::MergeRead(merge), |id| Effect::Gather {
            id,
            at: from,
            blocks: 1,
            to: buf,
        });
    }

    /// The two pages, if both are on the medium and not one.
    fn apart(&self, lba: Lba, of: Holder) -> Option<(Pba, Pba)> {
        let from = self.physical(self.map.get(lba))?;
        let to = self.physical(self.entry_of(of))?;
        let stored = |pba| self.chunks.find(pba).is_none();
        let allowed = !self.dedup.is_critical(lba)
            && !matches!(of, Holder::Lba(of) if self.dedup.is_critical(of));
        (from != to && allowed && stored(from) && stored(to)).then_some((from, to))
    }

    pub(super) fn merge_read(&mut self, merge: Merge, outcome: Outcome<'_>) {
        if !matches!(outcome, Outcome::Crcs(crcs) if crcs == [merge.crc]) {
            return self.merge_ends(merge);
        }
        let (buf, with) = (merge.buf, Against::Medium(merge.to));
        self.effect(Pending::MergeCompare(merge), |id| Effect::Compare {
            id,
            buf,
            with,
        });
    }

    pub(super) fn merge_compared(&mut self, merge: Merge, outcome: Outcome<'_>) {
        let same = matches!(outcome, Outcome::Same(true));
        // A volume that stops has sealed its last chunk, or is about to.
        let open = self.mode == Mode::Running && !self.poisoned;
        if same && open && self.apart(merge.lba, merge.of) == Some((merge.from, merge.to)) {
            let twin = Twin {
                by: Proposer::Pair,
                of: merge.of,
                place: Place {
                    pba: merge.to,
                    slot: None,
                },
                absorptions: None,
                print: None,
            };
            if matches!(self.share(merge.lba, twin), Sharing::Done) {
                self.stats.merged_blocks += 1;
                if self.dedup.is_on() {
                    self.note_content(merge.lba, merge.crc, Class::Data);
                }
            }
        }
        self.merge_ends(merge);
    }

    fn merge_ends(&mut self, merge: Merge) {
        for pba in [merge.from, merge.to] {
            self.end_reader(locate(&self.superblock, pba).0);
        }
        self.release(merge.buf);
        self.reply(merge.request, Ok(()));
    }
}
