//! Chooses the segment that the collector empties next.

use super::segments::Segments;
use crate::addr::{Segment, Seq};
use crate::format::superblock::Superblock;

/// A segment that waits for a map checkpoint counts as fuller by one in this many of its blocks.
const PINNED_PENALTY: u32 = 4;

/// How the collector chooses its victim.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VictimPolicy {
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

impl VictimPolicy {
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
        all.into_iter().find(|policy| policy.name() == name)
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
                // A segment with chunks newer than the durable map checkpoint becomes free only with the next checkpoint, which
                // has to write every dirty leaf. So it is chosen only if it is that much emptier.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::geometry::{self, SMALL};
    use alloc::vec::Vec;

    const FREE: u32 = 8;

    /// Chooses among closed segments with these numbers of live blocks and newest chunks, when the newest chunk of all is 100 and the
    /// durable map checkpoint includes 50. Those from `end` on are to be vacated. Enough others are free.
    fn choose(
        policy: VictimPolicy,
        of: &[(u32, u64)],
        is_short: bool,
        end: Option<u32>,
    ) -> Option<u32> {
        let superblock = geometry::plan(&SMALL).unwrap();
        assert_eq!(superblock.usable_blocks(), 255);
        let free = [(0, 0); FREE as usize];
        let all: Vec<_> = free.iter().chain(of).collect();
        let mut segments = Segments::new(all.len() as u32, end.map(|end| FREE + end));
        for (index, (_, last_seq)) in (0..).zip(&all) {
            segments.recover_one(Segment(index), Seq(*last_seq));
        }
        let live: Vec<_> = all.iter().map(|(live, _)| *live).collect();
        segments.found(true, false, &live, &[], |_| true);
        let among = Among {
            superblock: &superblock,
            segments: &segments,
            live: &live,
            root_seq: Seq(50),
            newest: Seq(100),
        };
        let chosen = policy.choose(is_short, &among)?;
        Some(chosen.0 - FREE)
    }

    #[test]
    fn the_worst_filled_segment_is_the_one_by_which_most_is_gained() {
        let chosen = |policy, of: &[_]| choose(policy, of, true, None);
        let both = [VictimPolicy::Greedy, VictimPolicy::CostBenefit];
        // The first is a little fuller, and much older.
        let of = [(120, 3), (90, 49), (200, 49)];
        assert_eq!(both.map(|policy| chosen(policy, &of)), [Some(1), Some(0)]);
        // The emptiest one waits for a map checkpoint, so it counts as 63 blocks fuller.
        let of = [(100, 60), (162, 50)];
        assert_eq!(chosen(VictimPolicy::Greedy, &of), Some(1));
        let of = [(100, 60), (164, 50)];
        assert_eq!(chosen(VictimPolicy::Greedy, &of), Some(0));
        // Nothing would be gained by segments that are nearly full: four blocks and a 64th.
        assert_eq!(both.map(|policy| chosen(policy, &[(249, 1)])), [None; 2]);
        assert_eq!(both.map(|policy| chosen(policy, &[(248, 1)])), [Some(0); 2]);
    }

    #[test]
    fn a_segment_to_vacate_is_chosen_if_no_other_must_be() {
        let of = [(9, 1), (10, 1), (5, 1), (200, 1)];
        for (is_short, end, chosen) in [
            (false, None, None),
            (false, Some(1), Some(1)),
            (true, None, Some(2)),
            (true, Some(1), Some(0)),
        ] {
            assert_eq!(
                choose(VictimPolicy::Greedy, &of, is_short, end),
                chosen,
                "{end:?}"
            );
        }
    }
}
