//! Carries out merges, step by step.

use super::super::parked::Pair;
use super::super::twin::Sharing;
use super::super::verdict::Twin;
use super::super::{Engine, Pending};
use super::{Merge, Side, Sum};
use crate::addr::{Buf, Lba, Pba, RequestId, Segment};
use crate::entry::{Entry, PartId};
use crate::index::Holder;
use crate::log::locate;
use crate::policy::Proposer;
use crate::seam::{Against, Class, Effect, Outcome, Refusal};
use crate::state::Place;

impl Engine {
    pub(in crate::engine) fn merge(&mut self, request: RequestId, lba: Lba, of: Holder) {
        let known = None;
        let pair = Pair {
            request,
            lba,
            of,
            known,
        };
        self.merge_or_load(pair, None);
    }

    /// Handles the arrival of a segment's checksums, or the failure to read them.
    pub(in crate::engine) fn merge_again(&mut self, segment: Segment) {
        for (awaited, pair) in self.parked.pairs.take_all() {
            match awaited == segment {
                true => self.merge_or_load(pair, Some(segment)),
                false => self.parked.pairs.park(awaited, pair),
            }
        }
    }

    /// `came`: a segment whose checksums are not requested again.
    fn merge_or_load(&mut self, pair: Pair, came: Option<Segment>) {
        let Pair {
            request, lba, of, ..
        } = pair;
        if self.front.course.is_poisoned() {
            return self.front.reply(request, Err(Refusal::Poisoned));
        }
        if !self.in_range(lba, 1) || matches!(of, Holder::Lba(of) if !self.in_range(of, 1)) {
            return self.front.reply(request, Err(Refusal::OutOfRange));
        }
        let Some((from, to)) = self.apart(lba, of).filter(|_| !self.state.is_redeeming()) else {
            return self.front.reply(request, Ok(()));
        };
        let Some(sums) = self.sums_of_pair(pair, (from, to), came) else {
            return;
        };
        let are_whole = from.slot.is_none() && to.slot.is_none();
        // The buffer is the collector's. If the collector needs all of its buffers, the pair is put off: it can be given again.
        let Some(first) = self.collector.spare_buf() else {
            self.stats.merges_put_off += 1;
            return self.front.reply(request, Ok(()));
        };
        // A whole block that equals one with the expected checksum needs no separate check.
        let second = match are_whole {
            true => None,
            false => match self.collector.spare_buf() {
                None => {
                    self.stats.merges_put_off += 1;
                    self.release(first);
                    return self.front.reply(request, Ok(()));
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

    /// Returns the checksums that the pages of a pair should have. `None`: the pair waits for them, or was answered, because they cannot
    /// be read or the two differ.
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
            (Sum::Awaited(segment), _) => self.parked.pairs.park(segment, pair),
            (Sum::Is(sum), Sum::Awaited(segment)) => {
                // If few segments' checksums are cached, the first segment's may be gone when the second's arrive.
                let known = Some((from, sum));
                self.parked.pairs.park(segment, Pair { known, ..pair });
            }
            _ => self.front.reply(pair.request, Ok(())),
        }
        None
    }

    /// Where a sweep for duplicates continues after a restart; 0: at the beginning.
    #[must_use]
    pub fn swept(&self) -> u32 {
        self.checkpoint.swept()
    }

    pub(in crate::engine) fn sweep_is_at(&mut self, to: u32, keep: bool) {
        // Once the volume stops, the last map checkpoint has recorded the sweep's place.
        if self.front.course.is_running() {
            self.checkpoint.on_swept(to, keep);
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
        self.want_sums(segment);
        match self.sums.is_loading(segment) {
            true => Sum::Awaited(segment),
            false => Sum::Unknown,
        }
    }

    fn fetch(&mut self, merge: Merge, place: Place, to: Buf) {
        let at = place.pba;
        self.front
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

    /// Returns the places of the two blocks, if both are on the medium and the places differ.
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

    pub(in crate::engine) fn merge_read(&mut self, merge: Merge, outcome: Outcome<'_>) {
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
        self.front
            .ask(Pending::MergeCompare(merge), |id| Effect::Compare {
                id,
                buf,
                with,
            });
    }

    pub(in crate::engine) fn merge_compared(&mut self, merge: Merge, outcome: Outcome<'_>) {
        let same = matches!(outcome, Outcome::Same(true));
        // A volume that is stopping has sealed its last chunk, or is about to.
        let open = self.front.course.is_sound();
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
                // The checksum of a page is not that of its part: the index's entry for the part stays unchanged.
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
        self.front.reply(merge.request, Ok(()));
    }
}
