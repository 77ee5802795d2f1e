//! The segment table: what state each segment is in. How many of its blocks are live, [`Live`](crate::state::Live) knows.
//!
//! Free -> Open (a head appends) -> Closed -> Emptied (no live block; waits until nothing that a crash
//! could need is in it) -> Erasing -> Free. A segment whose live blocks cannot be read is quarantined:
//! it stays Closed and is never a victim.

use super::head::Marks;
use crate::addr::{Pba, Segment, Seq};
use crate::format::root::{Cursor, FreeSegments};
use crate::format::superblock::Superblock;
use crate::limits;
use alloc::{collections::VecDeque, vec::Vec};

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SegmentState {
    Free,
    Open,
    Closed,
    Emptied,
    Erasing,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentInfo {
    pub state: SegmentState,
    /// How many of its chunks are being written: until they are on the medium, their blocks are only in memory.
    pub writing: u32,
    /// True if it is closed, and its summary waits for those writes.
    pub summary_due: bool,
    /// How often it was opened for writing, in this life.
    pub uses: u32,
    /// Reads of the medium in flight; the segment must not be erased under them.
    pub readers: u32,
    /// The newest chunk in it: while the durable map checkpoint is older, replay needs its headers.
    pub last_seq: Seq,
    /// Once it has emptied: the chunks that hold the newer copies, which must be durable before it may be erased.
    pub marks: Marks,
}

pub(crate) struct Segments {
    info: Vec<SegmentInfo>,
    /// Segments from this one on are being emptied: they are taken only when no other is free.
    end: u32,
    free: VecDeque<Segment>,
    /// Free ones of those.
    spare: VecDeque<Segment>,
    emptied: Vec<Segment>,
    /// Segments that were empty when the volume was opened, and that nothing needs. A large volume can have hundreds of thousands, so
    /// they are kept and erased in runs of neighbours: the first, and how many.
    stale: VecDeque<(Segment, u32)>,
    /// The number of those, including the run being erased. They will be free soon, so the collector need not run to replace them.
    stale_count: usize,
    /// True if a run of them is being erased. Only one run at a time is erased, because clients' writes wait for it.
    erasing_stale: bool,
    /// Erases in flight.
    erasing: u32,
    /// True if something has happened that may allow an erase, since the caller last looked for segments to erase.
    has_news: bool,
    /// Segments whose live blocks cannot be read.
    quarantined: Vec<Segment>,
}

impl Segments {
    pub fn new(count: u32, end: Option<u32>) -> Self {
        let fresh = SegmentInfo {
            state: SegmentState::Free,
            writing: 0,
            summary_due: false,
            uses: 0,
            readers: 0,
            last_seq: Seq(0),
            marks: [0; 2],
        };
        Self {
            info: alloc::vec![fresh; count as usize],
            end: end.map_or(count, |end| end.min(count)),
            free: VecDeque::with_capacity(count as usize),
            spare: VecDeque::new(),
            emptied: Vec::new(),
            stale: VecDeque::new(),
            stale_count: 0,
            erasing_stale: false,
            erasing: 0,
            has_news: true,
            quarantined: Vec::new(),
        }
    }

    /// Takes the newest chunk in each segment, and where the heads are, from recovery: all others are closed.
    pub fn recover(&mut self, newest: &[Seq], heads: &[Cursor; 2]) {
        for (info, newest) in self.info.iter_mut().zip(newest) {
            (info.last_seq, info.state) = (*newest, SegmentState::Closed);
        }
        for head in heads {
            self.get_mut(head.segment).state = SegmentState::Open;
        }
    }

    /// Sorts the segments that recovery found without live blocks (`live`). After a clean stop they are free: the volume discarded them
    /// before it stopped. After a crash those that nothing needs (`is_needed`) are erased first, in runs if `in_runs` is set.
    /// `unsummarised` is in ascending order.
    ///
    /// A crash right after a map checkpoint looks like a clean stop. Then the discards that this checkpoint allowed are lost, until their
    /// segments have been used once more.
    pub fn found(
        &mut self,
        was_stopped: bool,
        in_runs: bool,
        live: &[u32],
        unsummarised: &[Segment],
        is_needed: impl Fn(&SegmentInfo) -> bool,
    ) {
        for index in 0..self.count() {
            let segment = Segment(index);
            if self.get(segment).state != SegmentState::Closed || live[index as usize] > 0 {
                continue;
            }
            let waits = unsummarised.binary_search(&segment).is_ok();
            if was_stopped && !waits {
                self.set_free(segment);
            } else if in_runs && !waits && !is_needed(self.get(segment)) {
                self.add_stale(segment);
            } else {
                self.empty(segment, [0; 2]);
            }
        }
    }

    /// Takes note of the segments that are free for certain, before anything is counted.
    pub fn found_free(&mut self, free: &[Segment]) {
        free.iter().for_each(|segment| self.set_free(*segment));
    }

    fn add_stale(&mut self, segment: Segment) {
        self.get_mut(segment).state = SegmentState::Emptied;
        self.stale_count += 1;
        match self.stale.back_mut() {
            Some((first, count)) if first.0 + *count == segment.0 => *count += 1,
            _ => self.stale.push_back((segment, 1)),
        }
    }

    /// Takes up to `most` neighbouring segments that were found empty, to erase them now, unless a run is being erased.
    pub fn take_stale(&mut self, most: u32) -> Option<(Segment, u32)> {
        if self.erasing_stale {
            return None;
        }
        let (first, left) = self.stale.front_mut()?;
        let run = (*first, most.min(*left));
        (*first, *left) = (Segment(first.0 + run.1), *left - run.1);
        if *left == 0 {
            self.stale.pop_front();
        }
        for index in 0..run.1 {
            self.get_mut(Segment(run.0.0 + index)).state = SegmentState::Erasing;
        }
        self.erasing_stale = true;
        Some(run)
    }

    /// Marks this run free.
    pub fn erased_stale(&mut self, first: Segment, count: u32) {
        for index in first.0..first.0 + count {
            self.set_free(Segment(index));
        }
        self.stale_count -= count as usize;
        self.erasing_stale = false;
        self.has_news = true;
    }

    /// Lists all free segments, also those that are being emptied. Nothing that a crash could need is in them.
    pub fn list_free(&self, out: &mut FreeSegments) {
        out.clear(self.count());
        let all = self.free.iter().chain(&self.spare);
        all.for_each(|segment| out.put(*segment));
    }

    /// The number of free segments, without those that are being emptied.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// The number of segments that will be free soon, whatever happens.
    pub fn free_soon(&self) -> usize {
        let emptied = match self.is_vacating() {
            false => self.emptied.len(),
            true => self.emptied.iter().filter(|s| s.0 < self.end).count(),
        };
        emptied + self.stale_count
    }

    /// The number of segments that stay in use.
    pub fn staying(&self) -> u32 {
        self.end
    }

    /// True if the last segments are being emptied.
    pub fn is_vacating(&self) -> bool {
        self.end < self.count()
    }

    /// Returns the next segment to move out of: one of the last segments, if enough others are free to move into.
    pub fn to_vacate(&self, live: &[u32]) -> Option<Segment> {
        if !self.is_vacating() || self.free.len() < limits::COLLECTOR_SEGMENTS + 2 {
            return None;
        }
        (self.end..self.count()).map(Segment).find(|&segment| {
            let info = self.get(segment);
            let is_whole = info.state == SegmentState::Closed && info.writing == 0;
            is_whole && live[segment.0 as usize] > 0 && !self.quarantined.contains(&segment)
        })
    }

    /// Takes a free segment to write to.
    pub fn open(&mut self) -> Option<Segment> {
        let segment = self.free.pop_front()?;
        Some(self.opened(segment))
    }

    /// Takes a free one of those that are being emptied. The collector needs it when no other is free, and gains others by it.
    pub fn open_spare(&mut self) -> Option<Segment> {
        let segment = self.spare.pop_front()?;
        Some(self.opened(segment))
    }

    fn opened(&mut self, segment: Segment) -> Segment {
        let info = self.get_mut(segment);
        debug_assert_eq!(info.state, SegmentState::Free);
        (info.state, info.uses) = (SegmentState::Open, info.uses.wrapping_add(1));
        segment
    }

    fn set_free(&mut self, segment: Segment) {
        self.get_mut(segment).state = SegmentState::Free;
        match segment.0 < self.end {
            true => self.free.push_back(segment),
            false => self.spare.push_back(segment),
        }
    }

    /// Notes that a segment is about to be read: it is not erased until [`Segments::end_reader`].
    pub fn begin_reader(&mut self, segment: Segment) {
        self.get_mut(segment).readers += 1;
    }

    pub fn end_reader(&mut self, segment: Segment) {
        let info = self.get_mut(segment);
        info.readers -= 1;
        if info.readers == 0 && info.state == SegmentState::Emptied {
            self.has_news = true;
        }
    }

    /// Notes that something emptied segments wait for may have happened.
    pub fn look_again(&mut self) {
        self.has_news = true;
    }

    /// True if the caller should look for segments to erase.
    pub fn has_news(&self) -> bool {
        self.has_news
    }

    /// As [`Segments::has_news`], and resets it: the caller looks now.
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news)
    }

    /// Segments without a live block that cannot be erased yet, because something still needs them.
    pub fn emptied(&self) -> &[Segment] {
        &self.emptied
    }

    /// True if one more may be erased now.
    pub fn may_erase(&self) -> bool {
        self.erasing < limits::ERASURES_IN_FLIGHT
    }

    /// Starts to erase one of [`Segments::emptied`] that nothing needs any more.
    pub fn begin_erase(&mut self, index: usize) {
        let segment = self.emptied.swap_remove(index);
        self.get_mut(segment).state = SegmentState::Erasing;
        self.erasing += 1;
    }

    /// Marks it free; the next one may have waited for its turn.
    pub fn erased(&mut self, segment: Segment) {
        self.set_free(segment);
        self.erasing -= 1;
        self.has_news = true;
    }

    pub fn count(&self) -> u32 {
        self.info.len() as u32
    }

    pub fn get(&self, segment: Segment) -> &SegmentInfo {
        &self.info[segment.0 as usize]
    }

    fn get_mut(&mut self, segment: Segment) -> &mut SegmentInfo {
        &mut self.info[segment.0 as usize]
    }

    /// Notes that a chunk in the segment was sealed, and is about to be written.
    pub fn on_sealed(&mut self, segment: Segment, seq: Seq) {
        let info = self.get_mut(segment);
        info.last_seq = seq;
        info.writing += 1;
    }

    /// Notes that a chunk of the segment is on the medium. Returns true if the summary, which waits for the last one, may be written now.
    pub fn on_written(&mut self, segment: Segment) -> bool {
        let info = self.get_mut(segment);
        info.writing -= 1;
        info.writing == 0 && core::mem::take(&mut info.summary_due)
    }

    /// Closes a segment, and returns its newest chunk. Its summary waits until all its chunks are written.
    pub fn close(&mut self, segment: Segment) -> Seq {
        let info = self.get_mut(segment);
        // The checksum of a page of parts is known only when the page is encoded.
        debug_assert!(info.writing > 0, "the chunk that closes it is on its way");
        info.state = SegmentState::Closed;
        info.summary_due = true;
        info.last_seq
    }

    /// Notes that a summary names this chunk of the segment.
    pub fn on_summary_read(&mut self, segment: Segment, last_seq: Seq) {
        let info = self.get_mut(segment);
        info.last_seq = info.last_seq.max(last_seq);
    }

    /// As if it were closed, with this newest chunk.
    #[cfg(test)]
    pub fn recover_one(&mut self, segment: Segment, last_seq: Seq) {
        let info = self.get_mut(segment);
        (info.state, info.last_seq) = (SegmentState::Closed, last_seq);
    }

    /// Marks a segment that has no live block: it waits for `marks` to be durable.
    pub fn empty(&mut self, segment: Segment, marks: Marks) {
        let info = self.get_mut(segment);
        (info.state, info.marks) = (SegmentState::Emptied, marks);
        self.quarantined.retain(|&other| other != segment);
        self.emptied.push(segment);
        self.has_news = true;
    }

    /// Quarantines a segment whose live blocks cannot be read.
    pub fn quarantine(&mut self, segment: Segment) {
        self.quarantined.push(segment);
    }

    /// The quarantined segments.
    pub fn quarantined(&self) -> &[Segment] {
        &self.quarantined
    }

    /// Returns the closed segment with the lowest `score` among those with at most `limit` live blocks; `None` if there is none. Leaves
    /// out segments that are being emptied, because nothing is gained by them.
    pub fn best<S: PartialOrd>(
        &self,
        live: &[u32],
        limit: u32,
        score: impl Fn(u32, &SegmentInfo) -> S,
    ) -> Option<Segment> {
        let mut best: Option<(S, usize)> = None;
        let staying = &self.info[..self.end as usize];
        for (index, (&valid, info)) in live.iter().zip(staying).enumerate() {
            if valid <= limit
                && info.state == SegmentState::Closed
                && info.writing == 0
                && (self.quarantined.is_empty()
                    || !self.quarantined.contains(&Segment(index as u32)))
            {
                let score = score(valid, info);
                if best.as_ref().is_none_or(|(least, _)| score < *least) {
                    best = Some((score, index));
                }
            }
        }
        best.map(|(_, index)| Segment(index as u32))
    }
}

/// Returns the segment of a data block's address in the map, and its place there.
pub(crate) fn locate(superblock: &Superblock, pba: Pba) -> (Segment, u32) {
    match superblock.segment_of(pba) {
        Some(place) => place,
        // An entry without a place: any segment will do, because it has no effect.
        None if pba == Pba::NOWHERE => (Segment(0), 0),
        None => {
            unreachable!("recovery admits only addresses inside segments to the map; {pba} is not")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three segments that were free, of which the first is now open.
    fn with_one_open() -> (Segments, Segment) {
        let mut segments = Segments::new(3, None);
        for index in 0..3 {
            segments.set_free(Segment(index));
        }
        let open = segments.open().expect("three are free");
        (segments, open)
    }

    #[test]
    fn a_segment_comes_round_from_free_to_free() {
        let (mut segments, open) = with_one_open();
        assert!(segments.take_news() && !segments.take_news());
        assert_eq!((open, segments.free()), (Segment(0), 2));
        let info = segments.get_mut(open);
        assert_eq!((info.state, info.uses), (SegmentState::Open, 1));
        segments.empty(open, [4, 2]);
        assert!(segments.take_news());
        assert_eq!((segments.emptied(), segments.free_soon()), (&[open][..], 1));
        assert_eq!(segments.get(open).marks, [4, 2]);
        segments.begin_erase(0);
        assert_eq!(segments.get(open).state, SegmentState::Erasing);
        assert!(!segments.has_news() && segments.free_soon() == 0);
        segments.erased(open);
        assert!(segments.has_news() && segments.free() == 3);
        assert_eq!(
            segments.open(),
            Some(Segment(1)),
            "segments are opened in turn"
        );
    }

    #[test]
    fn the_last_reader_of_an_emptied_segment_is_news() {
        let (mut segments, open) = with_one_open();
        segments.begin_reader(open);
        segments.begin_reader(open);
        segments.take_news();
        segments.end_reader(open);
        assert!(!segments.has_news());
        segments.begin_reader(open);
        segments.empty(open, [0; 2]);
        segments.take_news();
        segments.end_reader(open);
        assert!(!segments.has_news(), "one reader is left");
        segments.end_reader(open);
        assert!(segments.has_news());
    }

    #[test]
    fn a_limited_number_of_segments_is_erased_at_once() {
        let mut segments = Segments::new(limits::ERASURES_IN_FLIGHT + 1, None);
        for index in 0..limits::ERASURES_IN_FLIGHT {
            assert!(segments.may_erase());
            segments.empty(Segment(index), [0; 2]);
            segments.begin_erase(0);
        }
        assert!(!segments.may_erase());
        segments.erased(Segment(0));
        assert!(segments.may_erase());
    }

    #[test]
    fn neighbours_that_were_found_empty_are_erased_together_one_run_at_a_time() {
        let mut segments = Segments::new(5, None);
        for index in [0, 1, 2, 4] {
            segments.add_stale(Segment(index));
        }
        assert_eq!(segments.free_soon(), 4);
        assert_eq!(segments.take_stale(2), Some((Segment(0), 2)));
        assert_eq!(segments.take_stale(2), None, "one run at a time");
        segments.erased_stale(Segment(0), 2);
        assert_eq!((segments.free(), segments.free_soon()), (2, 2));
        assert_eq!(segments.take_stale(2), Some((Segment(2), 1)));
        segments.erased_stale(Segment(2), 1);
        assert_eq!(segments.take_stale(9), Some((Segment(4), 1)));
        segments.erased_stale(Segment(4), 1);
        assert_eq!(segments.take_stale(9), None);
    }

    #[test]
    fn the_last_segments_are_taken_only_when_no_other_is_free() {
        let mut segments = Segments::new(4, Some(2));
        for index in [3, 1, 2, 0] {
            segments.set_free(Segment(index));
        }
        assert_eq!(segments.free(), 2);
        assert_eq!(segments.open(), Some(Segment(1)));
        assert_eq!(segments.open(), Some(Segment(0)));
        assert_eq!(segments.open(), None);
        assert_eq!(segments.open_spare(), Some(Segment(3)));
        segments.empty(Segment(3), [0; 2]);
        assert_eq!(segments.free_soon(), 0, "nothing is gained by it");
        segments.empty(Segment(0), [0; 2]);
        assert_eq!(segments.free_soon(), 1);
    }
}
