//! The segment table: what state each segment is in and how many of its blocks are live.
//!
//! Free -> Open (a head appends) -> Closed -> Emptied (no live block; waits until nothing that a crash
//! could need is in it) -> Erasing -> Free. A segment whose live blocks cannot be read is quarantined:
//! it stays Closed and is never a victim.

use crate::addr::{Pba, Segment, Seq};
use crate::format::superblock::Superblock;
use crate::log::Marks;
use crate::state::Live;
use alloc::{collections::VecDeque, vec::Vec};

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentState {
    Free,
    Open,
    Closed,
    Emptied,
    Erasing,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Info {
    pub state: SegmentState,
    /// Chunks of it on their way to the medium: until they are there, their blocks are in memory alone.
    pub writing: u32,
    /// Closed, and its summary waits for those.
    pub summary_due: bool,
    /// How often it has been taken to be written, in this life.
    pub uses: u32,
    /// Reads of the medium in flight; the segment must not be erased under them.
    pub readers: u32,
    /// The newest chunk in it: while the durable map checkpoint is older, replay needs its headers.
    pub last_seq: Seq,
    /// What must be durable before it may be erased, when it has emptied: the chunks that hold the newer copies.
    pub marks: Marks,
}

pub(super) struct Segments {
    info: Vec<Info>,
    pub free: VecDeque<Segment>,
    pub emptied: Vec<Segment>,
    /// Found empty when the volume was opened, with nothing to wait for: hundreds of thousands of a large volume, so
    /// they are kept and erased in runs of neighbours. The first, and how many.
    stale: VecDeque<(Segment, u32)>,
    /// How many that are, with those of the run that is being erased: free soon, so nothing is collected for want of them.
    pub stale_count: usize,
    /// Whether a run of them is being erased: one at a time, for what clients write waits behind it.
    pub erasing_stale: bool,
    /// Erasures in flight.
    pub erasing: u32,
    /// Those whose live blocks cannot be read.
    quarantined: Vec<Segment>,
}

impl Segments {
    pub fn new(count: u32) -> Self {
        let fresh = Info {
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
            free: VecDeque::with_capacity(count as usize),
            emptied: Vec::new(),
            stale: VecDeque::new(),
            stale_count: 0,
            erasing_stale: false,
            erasing: 0,
            quarantined: Vec::new(),
        }
    }

    /// What becomes of those that recovery found without live blocks. A volume that is stopped has discarded
    /// them, so they need not be discarded again. (A crash right after a map checkpoint looks the same, and
    /// loses the discards that this allowed: until their segments have served once more.) Of the others those that
    /// `is_needed` by nothing are erased `in_runs`, if so asked. `unsummarised` in ascending order.
    pub fn found(
        &mut self,
        was_stopped: bool,
        in_runs: bool,
        live: &Live,
        unsummarised: &[Segment],
        is_needed: impl Fn(&Info) -> bool,
    ) {
        for index in 0..self.count() {
            let segment = Segment(index);
            if self.get(segment).state != SegmentState::Closed || live.valid(segment) > 0 {
                continue;
            }
            let waits = unsummarised.binary_search(&segment).is_ok();
            if was_stopped && !waits {
                self.get_mut(segment).state = SegmentState::Free;
                self.free.push_back(segment);
            } else if in_runs && !waits && !is_needed(self.get(segment)) {
                self.add_stale(segment);
            } else {
                self.empty(segment, [0; 2]);
            }
        }
    }

    fn add_stale(&mut self, segment: Segment) {
        self.get_mut(segment).state = SegmentState::Emptied;
        self.stale_count += 1;
        match self.stale.back_mut() {
            Some((first, count)) if first.0 + *count == segment.0 => *count += 1,
            _ => self.stale.push_back((segment, 1)),
        }
    }

    /// Up to `most` neighbours of those, to be erased now.
    pub fn take_stale(&mut self, most: u32) -> Option<(Segment, u32)> {
        let (first, left) = self.stale.front_mut()?;
        let run = (*first, most.min(*left));
        (*first, *left) = (Segment(first.0 + run.1), *left - run.1);
        if *left == 0 {
            self.stale.pop_front();
        }
        for index in 0..run.1 {
            self.get_mut(Segment(run.0.0 + index)).state = SegmentState::Erasing;
        }
        Some(run)
    }

    pub fn count(&self) -> u32 {
        self.info.len() as u32
    }

    pub fn get(&self, segment: Segment) -> &Info {
        &self.info[segment.0 as usize]
    }

    pub fn get_mut(&mut self, segment: Segment) -> &mut Info {
        &mut self.info[segment.0 as usize]
    }

    /// Nothing in it is live: it waits for `marks` to be durable.
    pub fn empty(&mut self, segment: Segment, marks: Marks) {
        let info = self.get_mut(segment);
        (info.state, info.marks) = (SegmentState::Emptied, marks);
        self.quarantined.retain(|&other| other != segment);
        self.emptied.push(segment);
    }

    /// Its live blocks cannot be read: it stays as it is.
    pub fn quarantine(&mut self, segment: Segment) {
        self.quarantined.push(segment);
    }

    /// Those that are.
    pub fn quarantined(&self) -> &[Segment] {
        &self.quarantined
    }

    /// The closed segment that `score` likes best (the smallest), among those with at most `limit` live
    /// blocks; `None` when there is none.
    pub fn best<S: PartialOrd>(
        &self,
        live: &Live,
        limit: u32,
        score: impl Fn(u32, &Info) -> S,
    ) -> Option<Segment> {
        let mut best: Option<(S, usize)> = None;
        for (index, (&valid, info)) in live.of_all().iter().zip(&self.info).enumerate() {
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

/// The segment and the place in it of a data block's address that the map holds.
pub(super) fn locate(superblock: &Superblock, pba: Pba) -> (Segment, u32) {
    match superblock.segment_of(pba) {
        Some(place) => place,
        None => {
            unreachable!("recovery admits only addresses inside segments to the map; {pba} is not")
        }
    }
}
