//! Blocks that mounted file systems have freed without discarding them (CSA-FS §3). The rule is that of `vellum_ext4::freed`;
//! this applies it to everything a scan has found.
//!
//! The caller must keep this order:
//! 1. Every request is [seen](FreeSpace::see) before it is handed to the core, and again when it is [answered](FreeSpace::answer).
//! 2. Runs are [taken](FreeSpace::take) and handed to the core in one step. So a write to one of a run's blocks was either seen
//!    before, and the block is not in the run, or it reaches the core later, and wins.
//! 3. Whenever a new scan is needed, everything is [given up](FreeSpace::give_up) until that scan has ended, because what was
//!    known may describe a file system that is no longer there.

use crate::change::Change;
use crate::limits::FREED_RUN_BLOCKS;
use crate::ranges::{BLOCK, Range};
use vellum_ext4::freed::{Freed, FreedCounts, NotFollowed};
use vellum_ext4::{Allowance, Scan, Source, Span};

/// Follows the free space of a volume's file systems; see the module.
#[derive(Default)]
pub struct FreeSpace {
    is_wanted: bool,
    /// How often everything was given up.
    given_up: u64,
    followed: Vec<Freed>,
    /// Flushes sent so far.
    flushes: u64,
    is_due: bool,
    /// Counts of what is no longer followed.
    past: FreedCounts,
    file_systems: Vec<Followed>,
}

/// A file system, and whether its free space is followed.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    /// The first byte of its partition.
    pub start: u64,
    /// Why it is not followed; `None` if it is.
    pub not_followed: Option<NotFollowed>,
}

/// File systems whose free space has been read and can be followed from there.
#[derive(Default)]
pub struct Known {
    followed: Vec<Freed>,
    file_systems: Vec<Followed>,
}

impl Known {
    /// Reads the free space of what a scan found on a volume with this many blocks.
    pub fn read(scan: &Scan, source: &mut dyn Source, blocks: u64) -> Self {
        let mut known = Self::default();
        let file_systems = scan.file_systems.iter();
        let journaled = file_systems.filter(|found| found.journal.is_ok()).count();
        let mut allowance = Allowance::to_follow(journaled);
        for found in &scan.file_systems {
            let freed = Freed::new(found, source, blocks, &mut allowance);
            known.file_systems.push(Followed {
                start: found.partition.start,
                not_followed: freed.as_ref().err().copied(),
            });
            known.followed.extend(freed);
        }
        // Of two that overlap, one is a leftover. Neither is trusted.
        let homes: Vec<Span> = known.followed.iter().map(Freed::home).collect();
        let is_alone = |own: &Span| homes.iter().filter(|home| home.overlaps(*own)).count() == 1;
        known.followed.retain(|freed| is_alone(&freed.home()));
        known
    }
}

/// What was seen in a request, to be passed along with its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestSeen {
    /// It writes a bitmap, so its answer matters.
    bitmap: bool,
    /// The number of a flush; 0 for other requests.
    flush: u64,
}

impl RequestSeen {
    /// True if it writes a bitmap, so that its answer matters.
    #[must_use]
    pub fn is_bitmap(self) -> bool {
        self.bitmap
    }

    /// True if its answer matters at all.
    #[must_use]
    pub fn is_anything(self) -> bool {
        self.bitmap || self.flush != 0
    }
}

impl FreeSpace {
    /// True if anything is followed. If not, requests need not be seen.
    #[must_use]
    pub fn is_followed(&self) -> bool {
        !self.followed.is_empty()
    }

    /// True if there may be a run to take.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_due
    }

    /// How often everything was given up. What was read before the latest time is not used: see [`follow`](Self::follow).
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Records that a flush is about to be handed to the core.
    pub fn flush(&mut self) -> RequestSeen {
        self.flushes += 1;
        for freed in &mut self.followed {
            freed.flush(self.flushes);
        }
        RequestSeen {
            bitmap: false,
            flush: self.flushes,
        }
    }

    /// Records that a change is about to be handed to the core.
    pub fn see(&mut self, change: &Change<'_>) -> RequestSeen {
        let span = change.span();
        let mut seen = RequestSeen::default();
        for freed in &mut self.followed {
            if !freed.home().overlaps(span) {
                continue;
            }
            if change.written.is_none() {
                freed.blanked(span);
            }
            for (at, block) in change.by_place() {
                seen.bitmap |= freed.written(at, block);
            }
        }
        seen
    }

    /// Records that a request for these blocks, in which something was seen, is about to be answered.
    pub fn answer(&mut self, seen: RequestSeen, (first, after): Range, is_done: bool) {
        for freed in &mut self.followed {
            if seen.bitmap {
                (first..after).for_each(|block| freed.answered(block * BLOCK, is_done));
            }
            if seen.flush != 0 && is_done {
                self.is_due |= freed.flushed(seen.flush);
            }
        }
    }

    /// Returns a run of blocks to drop: the first, and the one after the last. `None` if there is none for now.
    pub fn take(&mut self) -> Option<Range> {
        let mut followed = self.followed.iter_mut();
        let next = followed.find_map(|freed| freed.take(FREED_RUN_BLOCKS));
        self.is_due = next.is_some();
        next.map(|span| (span.start / BLOCK, span.end() / BLOCK))
    }

    /// Stops dropping blocks.
    pub fn end(&mut self) {
        self.is_due = false;
    }

    /// Gives up everything that is known.
    pub fn give_up(&mut self) {
        self.given_up += 1;
        self.let_go();
    }

    fn let_go(&mut self) {
        for freed in self.followed.drain(..) {
            add(&mut self.past, freed.counts());
        }
        self.file_systems.clear();
    }

    /// Turns the reporting of freed blocks on or off. Returns true if that is a change that needs a scan.
    pub fn want(&mut self, is_wanted: bool) -> bool {
        let is_new = is_wanted && !self.is_wanted;
        self.is_wanted = is_wanted;
        if !is_wanted {
            self.let_go();
        }
        is_new
    }

    /// True if freed blocks are to be reported.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// Starts to follow what is known, unless something was given up since the scan began. `given_up` is the
    /// [count](Self::given_up) at that time.
    pub fn follow(&mut self, mut known: Known, given_up: u64) {
        if !self.is_wanted || self.given_up != given_up {
            return;
        }
        self.let_go();
        for freed in &mut known.followed {
            freed.flush(self.flushes);
        }
        self.followed = known.followed;
        self.file_systems = known.file_systems;
    }

    /// The file systems of the last scan.
    #[must_use]
    pub fn file_systems(&self) -> &[Followed] {
        &self.file_systems
    }

    /// Counts of what has been seen and done.
    #[must_use]
    pub fn counts(&self) -> FreedCounts {
        let mut counts = self.past;
        for freed in &self.followed {
            add(&mut counts, freed.counts());
        }
        counts
    }

    /// Blocks that are free in a committed bitmap, and wait for that bitmap to be home and durable.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.followed.iter().map(Freed::waiting).sum()
    }
}

fn add(sum: &mut FreedCounts, more: FreedCounts) {
    sum.commits += more.commits;
    sum.copies += more.copies;
    sum.homes += more.homes;
    sum.foreign += more.foreign;
    sum.refused += more.refused;
    sum.cancelled += more.cancelled;
    sum.left_out += more.left_out;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Known {
        Known {
            followed: Vec::new(),
            file_systems: vec![Followed {
                start: 4096,
                not_followed: Some(NotFollowed::NotMounted),
            }],
        }
    }

    #[test]
    fn free_space_read_before_a_change_is_not_followed() {
        let mut space = FreeSpace::default();
        space.follow(known(), 0);
        assert!(
            space.file_systems().is_empty(),
            "free space is not followed unless wanted"
        );
        assert!(space.want(true) && !space.want(true));
        let before = space.given_up();
        space.give_up();
        space.follow(known(), before);
        assert!(space.file_systems().is_empty(), "something has changed");
        space.follow(known(), space.given_up());
        assert_eq!(space.file_systems().len(), 1);
        space.give_up();
        assert!(space.file_systems().is_empty());
        space.follow(known(), space.given_up());
        assert!(!space.want(false));
        assert!(space.file_systems().is_empty());
    }

    #[test]
    fn nothing_is_seen_where_nothing_is_followed_but_flushes_have_numbers() {
        let mut space = FreeSpace::default();
        let change = Change {
            first: 0,
            blocks: 1,
            written: None,
        };
        assert!(!space.see(&change).is_anything());
        let (one, other) = (space.flush(), space.flush());
        assert!(one.is_anything() && one.flush < other.flush);
        space.answer(other, (0, 0), true);
        assert!(!space.is_due() && space.take().is_none());
    }
}
