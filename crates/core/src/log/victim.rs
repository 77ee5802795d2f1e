//! Chooses the segment that the collector empties next.

use super::segments::Segments;
use crate::addr::{Segment, Seq};
use crate::format::superblock::Superblock;

/// A segment that waits for a map checkpoint counts as fuller by one in this many of its blocks.
const PINNED_PENALTY: u32 = 4;

/// How the collector chooses its victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Victim {
    /// The segment with the fewest live blocks.
    #[default]
    Greedy,
    /// The segment with the highest benefit times age, divided by cost (LFS). It leaves hot segments alone until they have emptied.
    CostBenefit,
}

/// What there is to choose from.
pub(crate) struct Among<'a> {
    pub superblock: &'a Superblock,
    pub segments: &'a Segments,
    /// The number of live blocks of each segment.
    pub live: &'a [u32],
    /// The newest chunk that the durable map checkpoint includes.
    pub root_seq: Seq,
    /// The newest chunk.
    pub newest: Seq,
}

impl Victim {
    /// The names of all, as users write them.
    pub const NAMES: &'static [&'static str] = &["greedy", "cost-benefit"];

    /// Returns its name, as users write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Returns the one of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let all = [Self::Greedy, Self::CostBenefit];
        all.into_iter().find(|victim| victim.name() == name)
    }

    /// Returns the next victim: if free segments are short, the one by which most is gained; otherwise one that is to be vacated.
    pub(crate) fn choose(self, is_short: bool, among: &Among<'_>) -> Option<Segment> {
        let worst = is_short.then(|| self.worst_filled(among)).flatten();
        worst.or_else(|| among.segments.to_vacate(among.live))
    }

    /// The segment by which most is gained.
    fn worst_filled(self, among: &Among<'_>) -> Option<Segment> {
        let usable = among.superblock.usable_blocks();
        let limit = among.superblock.victim_limit();
        match self {
            Self::Greedy => among.segments.best(among.live, limit, |live, info| {
                // A segment that is newer than the durable map checkpoint is not free before the next one, which writes every
                // dirty leaf: it must be that much emptier.
                live + u32::from(info.last_seq > among.root_seq) * (usable / PINNED_PENALTY)
            }),
            Self::CostBenefit => among.segments.best(among.live, limit, |live, info| {
                // Benefit over cost is (1 - u) * age / (1 + u); the best has the smallest inverse.
                let age = (among.newest.0 - info.last_seq.0 + 1) as f64;
                f64::from(usable + live) / (f64::from(usable - live) * age)
            }),
        }
    }
}
