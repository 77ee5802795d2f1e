//! Out-of-line deduplication: two blocks that are stored, and may be equal, become one page (CAFTL §3.5).
//!
//! Who finds such pairs (by the summaries' checksums, in idle time) is the runtime's business,
//! and it may be wrong or late: the block is read, compared with the other, and mapped to its page only if
//! both are still where they were. To a client nothing changes: the bytes are the same. A block that fails its
//! checksum is left alone, or an error would become data.
//!
//! A block that is a part of a page is decoded into a buffer, when the page has been held against its checksum: both
//! of a pair, if both are parts, for equal parts of a damaged page would be shared to be refused when they are read.

use super::parked::Pair;
use super::segments::locate;
use super::twin::Shared as Sharing;
use super::verdict::{Proposer, Twin};
use super::{Engine, Pending};
use crate::addr::{Buf, Lba, Pba, RequestId, Segment};
use crate::entry::{Entry, PartId};
use crate::index::Holder;
use crate::seam::{Against, Class, Effect, Outcome, Refusal};
use crate::state::Place;

/// A pair under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Merge {
    request: RequestId,
    /// The block that is to give its place up, and that place.
    lba: Lba,
    from: Side,
    /// The one that is to be shared.
    of: Holder,
    to: Side,
    /// Whether both are in their buffers.
    both: bool,
}

/// One of a pair.
#[derive(Clone, Copy, Debug)]
struct Side {
    place: Place,
    /// The checksum of the page there.
    sum: u32,
    /// Where it is read to; the other of a pair may be compared where it is, if it is a whole block.
    buf: Option<Buf>,
}

impl Side {
    fn is_read(&self, outcome: Outcome<'_>) -> bool {
        match outcome {
            Outcome::Sums(sums) => self.place.slot.is_none() && sums == [self.sum],
            Outcome::Parts { sum, whole, .. } => {
                self.place.slot.is_some() && whole && sum == self.sum
            }
            _ => false,
        }
    }
}

/// What a page's checksum is.
enum Sum {
    Is(u32),
    /// It is being read.
    Awaited(Segment),
    Unknown,
}

impl Engine {
    pub(super) fn merge(&mut self, request: RequestId, lba: Lba, of: Holder) {
        let known = None;
        let pair = Pair {
            request,
            lba,
            of,
            known,
        };
        self.merge_or_load(pair, None);
    }

    /// The checksums of a segment have come, or cannot be had.
    pub(super) fn merge_again(&mut self, segment: Segment) {
        for (awaited, pair) in self.sums.parked.pairs.take_all() {
            match awaited == segment {
                true => self.merge_or_load(pair, Some(segment)),
                false => self.sums.parked.pairs.park(awaited, pair),
            }
        }
    }

    /// `came`: a segment whose checksums are not asked for again.
    fn merge_or_load(&mut self, pair: Pair, came: Option<Segment>) {
        let Pair {
            request, lba, of, ..
        } = pair;
        if self.course.is_poisoned() {
            return self.outbox.reply(request, Err(Refusal::Poisoned));
        }
        if !self.in_range(lba, 1) || matches!(of, Holder::Lba(of) if !self.in_range(of, 1)) {
            return self.outbox.reply(request, Err(Refusal::OutOfRange));
        }
        let Some((from, to)) = self.apart(lba, of).filter(|_| !self.state.is_redeeming()) else {
            return self.outbox.reply(request, Ok(()));
        };
        let Some(sums) = self.sums_of_pair(pair, (from, to), came) else {
            return;
        };
        let are_whole = from.slot.is_none() && to.slot.is_none();
        // Of the collector's: it needs them more, and a pair can be told again.
        let Some(first) = self.collector.spare_buf() else {
            self.stats.merges_put_off += 1;
            return self.outbox.reply(request, Ok(()));
        };
        // A whole block that is equal to one whose checksum it should have needs no check of its own.
        let second = match are_whole {
            true => None,
            false => match self.collector.spare_buf() {
                None => {
                    self.stats.merges_put_off += 1;
                    self.release(first);
                    return self.outbox.reply(request, Ok(()));
                }
                buf => buf,
            },
        };
        self.stats.merge_reads += 1;
        for place in [from, to] {
            let (segment, _) = locate(&self.superblock, place.pba);
            self.segments.begin_reader(segment);
        }
        let side = |place, sum, buf| Side { place, sum, buf };
        let merge = Merge {
            request,
            lba,
            from: side(from, sums[0], Some(first)),
            of,
            to: side(to, sums[1], second),
            both: false,
        };
        self.fetch(merge, from, first);
    }

    /// What the pages of a pair should hold. None: the pair waits for it, or has been answered, for it cannot be had or the two are
    /// not equal.
    fn sums_of_pair(
        &mut self,
        pair: Pair,
        (from, to): (Place, Place),
        came: Option<Segment>,
    ) -> Option<[u32; 2]> {
        let first = match pair.known {
            Some((place, sum)) if place == from => Sum::Is(sum),
            Some(_) => Sum::Unknown,
            None => self.sum_of(from.pba, came),
        };
        let second = match first {
            Sum::Is(_) => self.sum_of(to.pba, came),
            _ => Sum::Unknown,
        };
        let are_whole = from.slot.is_none() && to.slot.is_none();
        match (first, second) {
            (Sum::Is(first), Sum::Is(second)) if !are_whole || first == second => {
                return Some([first, second]);
            }
            (Sum::Awaited(segment), _) => self.sums.parked.pairs.park(segment, pair),
            (Sum::Is(sum), Sum::Awaited(segment)) => {
                // Where few segments' checksums are kept, its own may be gone when the other's have come.
                let known = Some((from, sum));
                self.sums.parked.pairs.park(segment, Pair { known, ..pair });
            }
            _ => self.outbox.reply(pair.request, Ok(())),
        }
        None
    }

    /// Where a sweep for duplicates goes on after a restart; 0: at the beginning.
    #[must_use]
    pub fn swept(&self) -> u32 {
        self.checkpoint.swept.now
    }

    pub(super) fn sweep_is_at(&mut self, to: u32, keep: bool) {
        // The last map checkpoint says where it was.
        if self.course.is_running() {
            self.checkpoint.swept.now = to;
            self.checkpoint.due |= keep && !self.checkpoint.swept.is_kept();
        }
    }

    fn sum_of(&mut self, pba: Pba, came: Option<Segment>) -> Sum {
        let (segment, offset) = locate(&self.superblock, pba);
        if let Some(sum) = self.sums.sum(segment, offset) {
            return Sum::Is(sum);
        }
        if came == Some(segment) {
            return Sum::Unknown;
        }
        if self.sums.wants_load(segment) {
            self.load_sums(segment, None);
        }
        match self.sums.is_loading(segment) {
            true => Sum::Awaited(segment),
            false => Sum::Unknown,
        }
    }

    fn fetch(&mut self, merge: Merge, place: Place, to: Buf) {
        let at = place.pba;
        self.outbox
            .ask(Pending::MergeRead(merge), |id| match place.slot {
                None => Effect::Gather {
                    id,
                    at,
                    blocks: 1,
                    to,
                },
                Some(slot) => Effect::GatherPart { id, at, slot, to },
            });
    }

    /// Where the two are, if both are on the medium and not at one place.
    fn apart(&self, lba: Lba, of: Holder) -> Option<(Place, Place)> {
        let from = self.state.place_of(self.state.map().get(lba))?;
        let to = self.state.place_of(self.entry_of(of))?;
        let stored = |place: Place| self.log.held(place.pba, place.slot).is_none();
        let allowed = !self.proposers.dedup().is_critical(lba)
            && !matches!(of, Holder::Lba(of) if self.proposers.dedup().is_critical(of));
        // A delta takes little room, and two reads: it is left alone.
        let is_whole = |entry: Entry| match entry {
            Entry::Packed(page, slot) => {
                let part = PartId { page, slot };
                self.state.shared().deltas().base_of(part).is_none()
            }
            _ => true,
        };
        let whole = is_whole(self.state.map().get(lba)) && is_whole(self.entry_of(of));
        (from != to && allowed && whole && stored(from) && stored(to)).then_some((from, to))
    }

    pub(super) fn merge_read(&mut self, merge: Merge, outcome: Outcome<'_>) {
        let Merge { from, to, both, .. } = merge;
        let read = if both { to } else { from };
        let (true, Some(buf)) = (read.is_read(outcome), from.buf) else {
            return self.merge_ends(merge);
        };
        let with = match to.buf {
            None => Against::Medium(to.place.pba),
            Some(other) if both => Against::Buffer(other),
            Some(other) => {
                return self.fetch(
                    Merge {
                        both: true,
                        ..merge
                    },
                    to.place,
                    other,
                );
            }
        };
        self.outbox
            .ask(Pending::MergeCompare(merge), |id| Effect::Compare {
                id,
                buf,
                with,
            });
    }

    pub(super) fn merge_compared(&mut self, merge: Merge, outcome: Outcome<'_>) {
        let same = matches!(outcome, Outcome::Same(true));
        // A volume that stops has sealed its last chunk, or is about to.
        let open = self.course.is_sound();
        let places = (merge.from.place, merge.to.place);
        if same && open && self.apart(merge.lba, merge.of) == Some(places) {
            let twin = Twin {
                by: Proposer::Pair,
                of: merge.of,
                place: merge.to.place,
                // Nothing is erased while it is read.
                uses: self.uses_at(merge.to.place.pba),
                absorptions: None,
                print: None,
            };
            if matches!(self.share(merge.lba, twin), Sharing::Done) {
                self.stats.merged_blocks += 1;
                let is_part = merge.from.place.slot.is_some();
                self.stats.merged_parts += u64::from(is_part);
                // The checksum of a page is not that of a part of it: what the index knows of that stays as it is.
                if self.proposers.dedup().is_on() && !is_part {
                    self.note_content(merge.lba, merge.from.sum, Class::Data);
                }
            }
        }
        self.merge_ends(merge);
    }

    fn merge_ends(&mut self, merge: Merge) {
        for side in [merge.from, merge.to] {
            self.segments
                .end_reader(locate(&self.superblock, side.place.pba).0);
            if let Some(buf) = side.buf {
                self.release(buf);
            }
        }
        self.outbox.reply(merge.request, Ok(()));
    }
}
