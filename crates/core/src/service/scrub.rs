//! A scrub: everything stored is read and verified, one item after another.
//!
//! The machine says what to look at next, and when. It knows nothing of the results, except for these rules:
//! 1. Clients come first: while they are served it waits, but not forever. It keeps to its read rate.
//! 2. An item that looks bad is looked at again, after a pause: it may have moved, or been in flight. Only an item that looks bad
//!    [`LOOKS`] times in a row is damaged.
//! 3. If several blocks read at once are not all good, each is looked at separately.
//! 4. The place of a scrub can be recorded, to continue there. The recorded place is never past damage that could not be mended, so the
//!    continued scrub finds that damage again.

use super::pace::Pace;
use crate::addr::{Generation, Lba, Nanos};
use crate::format::areas::Layout;
use crate::format::superblock::Superblock;

/// Blocks read at once.
pub const RUN: u32 = 64;
/// How often in a row an item must look bad to count as damaged.
pub const LOOKS: u32 = 3;
/// The pause before it is looked at again.
pub const LOOK_PAUSE: Nanos = Nanos(20_000_000);

/// How many items there are of each kind, in the order in which they are looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Mirrors of the superblock.
    pub mirrors: u32,
    /// Copies of roots.
    pub roots: u32,
    /// Leaves of the map, or blocks of the directory of tables.
    pub leaves: u32,
    /// Blocks of tables.
    pub tables: u32,
    /// Segments.
    pub segments: u32,
    /// Blocks of the map: those that clients see, and those of snapshots and clones.
    pub blocks: u64,
}

/// An item to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item {
    /// A mirror of the superblock.
    Mirror(u32),
    /// A copy of a root.
    Root(u32),
    /// A leaf of the map, or a block of the directory of tables.
    Leaf(u32),
    /// A block of tables.
    Table(u32),
    /// A segment's summary, and the headers of its chunks.
    Segment(u32),
    /// Blocks, as a client reads them.
    Blocks(Lba, u32),
}

impl Plan {
    /// Plans all of a volume.
    #[must_use]
    pub fn of(superblock: &Superblock) -> Self {
        let mut plan = Self {
            mirrors: 2,
            blocks: superblock.mapped_blocks(),
            ..Self::default()
        };
        match superblock.layout() {
            Layout::Log => {
                let copies = superblock.root_copies(Generation(0)).count() as u32;
                (plan.roots, plan.leaves) = (2 * copies, superblock.leaves());
                plan.segments = superblock.segment_count();
            }
            layout => {
                plan.tables = superblock.table_blocks().iter().sum::<u64>() as u32;
                if layout == Layout::Shadow {
                    (plan.roots, plan.leaves) = (4, superblock.directory_blocks() as u32);
                }
            }
        }
        plan
    }

    fn structures(&self) -> u64 {
        let kinds = [
            self.mirrors,
            self.roots,
            self.leaves,
            self.tables,
            self.segments,
        ];
        kinds.iter().map(|count| u64::from(*count)).sum()
    }

    fn structure(&self, place: u64) -> Item {
        let kinds = [
            (self.mirrors, Item::Mirror as fn(u32) -> Item),
            (self.roots, Item::Root),
            (self.leaves, Item::Leaf),
            (self.tables, Item::Table),
            (self.segments, Item::Segment),
        ];
        let mut within = place;
        for (count, item) in kinds {
            if within < u64::from(count) {
                return item(within as u32);
            }
            within -= u64::from(count);
        }
        unreachable!("asked for no more than there are")
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Look at this, and report by [`Scrub::seen`].
    Look(Item),
    /// Call again at this time.
    Wait(Nanos),
    /// Everything has been looked at.
    End,
}

/// What an item looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// As it should be, or no longer needed.
    Good,
    /// For blocks: nothing is stored in this many blocks from there on.
    Empty(u64),
    /// Otherwise.
    Bad,
}

/// Whether something is damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is intact.
    No,
    /// Not known yet: it will be looked at again.
    NotYet,
    /// It is damaged.
    Damaged,
}

/// A scrub of a volume.
#[derive(Clone, Debug)]
pub struct Scrub {
    plan: Plan,
    /// The next structure, or after all structures the next block.
    at: u64,
    /// Blocks before this one are read one at a time.
    alone_until: u64,
    /// How often in a row the next item has looked bad.
    looks: u32,
    /// The next item is not looked at before this time.
    rest_until: Nanos,
    pace: Pace,
    /// The first damage that could not be mended: a later scrub continues there, and not at the current place.
    unmended: Option<u64>,
}

impl Scrub {
    /// A scrub that begins at `from`, a value of [`Scrub::place`]. It reads at most `rate` blocks a second; 0: as many as it can.
    #[must_use]
    pub fn new(plan: Plan, from: u32, rate: u32, now: Nanos) -> Self {
        let from = u64::from(from);
        let is_known = (1..=plan.blocks).contains(&from);
        Self {
            plan,
            at: if is_known {
                plan.structures() + from - 1
            } else {
                0
            },
            alone_until: 0,
            looks: 0,
            rest_until: now,
            pace: Pace::new(rate, now),
            unmended: None,
        }
    }

    /// Returns what to do next. `busy`: a client's request is being served.
    pub fn next(&mut self, now: Nanos, busy: bool) -> Step {
        let structures = self.plan.structures();
        if self.at >= structures + self.plan.blocks {
            return Step::End;
        }
        if now < self.rest_until {
            return Step::Wait(self.rest_until);
        }
        if let Some(until) = self.pace.wait(now, busy) {
            return Step::Wait(until);
        }
        if self.at < structures {
            return Step::Look(self.plan.structure(self.at));
        }
        let lba = self.at - structures;
        let most = match lba < self.alone_until {
            true => 1,
            false => u64::from(RUN),
        };
        Step::Look(Item::Blocks(
            Lba(lba),
            most.min(self.plan.blocks - lba) as u32,
        ))
    }

    /// Takes the state of the item of [`Step::Look`], and how many blocks were read to see it.
    pub fn seen(&mut self, now: Nanos, item: Item, read: u64, seen: Seen) -> Verdict {
        self.pace.spend(read);
        let length = match (item, seen) {
            (Item::Blocks(lba, blocks), Seen::Bad) if blocks > 1 => {
                self.alone_until = lba.0 + u64::from(blocks);
                return Verdict::NotYet;
            }
            (_, Seen::Bad) => {
                self.looks += 1;
                if self.looks < LOOKS {
                    self.rest_until = Nanos(now.0 + LOOK_PAUSE.0);
                    return Verdict::NotYet;
                }
                1
            }
            (_, Seen::Empty(blocks)) => blocks.max(1),
            (Item::Blocks(_, blocks), Seen::Good) => blocks.into(),
            (_, Seen::Good) => 1,
        };
        let end = self.plan.structures() + self.plan.blocks;
        self.at = self.at.saturating_add(length).min(end);
        self.looks = 0;
        match seen {
            Seen::Bad => Verdict::Damaged,
            _ => Verdict::No,
        }
    }

    /// Notes that the last damage found could not be mended.
    pub fn not_mended(&mut self) {
        self.unmended.get_or_insert(self.at - 1);
    }

    /// Returns where to continue later: 0 at the beginning, or when it has ended.
    #[must_use]
    pub fn place(&self) -> u32 {
        let at = self.unmended.map_or(self.at, |at| at.min(self.at));
        let structures = self.plan.structures();
        let is_over = self.at >= structures + self.plan.blocks;
        let lba = at.checked_sub(structures).filter(|_| !is_over);
        match lba.filter(|lba| (1..self.plan.blocks).contains(lba)) {
            // Of more than 16 TiB, what comes after them is read again.
            Some(lba) => u32::try_from(lba + 1).unwrap_or(u32::MAX),
            None => 0,
        }
    }

    /// Returns how much is done, in thousandths. Structures are few compared to what they describe, and count as a hundredth.
    #[must_use]
    pub fn permille(&self) -> u64 {
        permille(&self.plan, self.at)
    }

    /// Sets the read rate from now on.
    pub fn set_rate(&mut self, rate: u32, now: Nanos) {
        self.pace = Pace::new(rate, now);
    }
}

fn permille(plan: &Plan, at: u64) -> u64 {
    let structures = plan.structures();
    match at.checked_sub(structures) {
        None => at * 10 / structures,
        Some(lba) => 10 + lba * 990 / plan.blocks.max(1),
    }
}

/// Returns how much of a scrub was done, in thousandths, when it was left at a place.
#[must_use]
pub fn permille_of(plan: &Plan, place: u32) -> Option<u64> {
    let lba = u64::from(place).checked_sub(1)?;
    Some(permille(plan, plan.structures() + lba.min(plan.blocks)))
}

#[cfg(test)]
mod tests {
    use super::super::pace::PATIENCE;
    use super::*;
    use alloc::vec::Vec;

    const PLAN: Plan = Plan {
        mirrors: 2,
        roots: 2,
        leaves: 1,
        tables: 0,
        segments: 3,
        blocks: 1000,
    };

    /// Runs a scrub to its end over blocks of which some are bad, and advances the time as the scrub asks. Returns the damaged items, and
    /// how long it took.
    fn run(scrub: &mut Scrub, bad: impl Fn(Item) -> bool, busy: bool) -> (Vec<Item>, Nanos) {
        let (mut now, mut damaged) = (Nanos(0), Vec::new());
        loop {
            match scrub.next(now, busy) {
                Step::End => return (damaged, now),
                Step::Wait(until) => {
                    assert!(until > now);
                    now = until;
                }
                Step::Look(item) => {
                    let read = match item {
                        Item::Blocks(_, blocks) => blocks.into(),
                        _ => 1,
                    };
                    let seen = if bad(item) { Seen::Bad } else { Seen::Good };
                    if scrub.seen(now, item, read, seen) == Verdict::Damaged {
                        damaged.push(item);
                    }
                }
            }
        }
    }

    fn has(item: Item, lba: u64) -> bool {
        matches!(item, Item::Blocks(first, blocks) if (first.0..first.0 + u64::from(blocks)).contains(&lba))
    }

    #[test]
    fn everything_is_looked_at_once_and_in_order() {
        let mut scrub = Scrub::new(PLAN, 0, 0, Nanos(0));
        let (mut seen, mut next) = (Vec::new(), 0);
        while let Step::Look(item) = scrub.next(Nanos(0), false) {
            match item {
                Item::Blocks(lba, blocks) => {
                    assert_eq!(lba.0, next);
                    next += u64::from(blocks);
                }
                item => seen.push(item),
            }
            assert_eq!(scrub.seen(Nanos(0), item, 1, Seen::Good), Verdict::No);
        }
        assert_eq!(next, 1000);
        assert_eq!(seen.len(), 8);
        assert_eq!((seen[0], seen[4]), (Item::Mirror(0), Item::Leaf(0)));
        assert_eq!(seen[7], Item::Segment(2));
        assert_eq!((scrub.permille(), scrub.place()), (1000, 0));
    }

    #[test]
    fn bad_blocks_are_named_one_by_one() {
        let bad = |item| has(item, 63) || has(item, 64) || has(item, 999) || item == Item::Root(1);
        let mut scrub = Scrub::new(PLAN, 0, 0, Nanos(0));
        let (damaged, _) = run(&mut scrub, bad, false);
        let block = |lba| Item::Blocks(Lba(lba), 1);
        assert_eq!(damaged, [Item::Root(1), block(63), block(64), block(999)]);
    }

    #[test]
    fn a_block_that_is_good_when_looked_at_again_is_not_damaged() {
        let looks = core::cell::Cell::new(0);
        let bad = |item| {
            let is_it = has(item, 70);
            looks.set(looks.get() + u32::from(is_it));
            is_it && looks.get() < LOOKS + 1
        };
        let mut scrub = Scrub::new(PLAN, 0, 0, Nanos(0));
        let (damaged, now) = run(&mut scrub, bad, false);
        assert!(damaged.is_empty() && now.0 >= u64::from(LOOKS - 1) * LOOK_PAUSE.0);
    }

    #[test]
    fn a_scrub_keeps_to_its_rate_and_makes_way_for_clients() {
        let mut scrub = Scrub::new(PLAN, 0, 100, Nanos(0));
        let (_, now) = run(&mut scrub, |_| false, false);
        // The scrub has waited for its rate after each read except the last.
        let least = (1008 - u64::from(RUN)) * 10_000_000;
        assert!((least..least + 1_000_000_000).contains(&now.0), "{now:?}");
        // Clients that are never quiet delay each step by `PATIENCE`, and no longer.
        let mut scrub = Scrub::new(PLAN, 0, 0, Nanos(0));
        let (_, now) = run(&mut scrub, |_| false, true);
        assert_eq!(now.0, (8 + 16) * PATIENCE.0);
    }

    #[test]
    fn a_scrub_continues_at_its_place_but_not_past_unmended_damage() {
        let mut scrub = Scrub::new(PLAN, 0, 0, Nanos(0));
        let mut steps = 0;
        while let Step::Look(item) = scrub.next(Nanos(0), false) {
            if steps == 8 + 5 {
                break;
            }
            scrub.seen(Nanos(0), item, 1, Seen::Good);
            steps += 1;
        }
        assert_eq!(scrub.place(), 5 * RUN + 1);
        assert_eq!(
            permille_of(&PLAN, scrub.place()),
            Some(10 + 320 * 990 / 1000)
        );
        let mut next = Scrub::new(PLAN, scrub.place(), 0, Nanos(0));
        let from = Step::Look(Item::Blocks(Lba(320), RUN));
        assert_eq!(next.next(Nanos(0), false), from);
        // Nothing is stored from there to block 700.
        next.seen(Nanos(0), Item::Blocks(Lba(320), RUN), 0, Seen::Empty(380));
        assert_eq!(next.place(), 701);
        for look in 0..=LOOKS {
            let now = Nanos(u64::from(look) * LOOK_PAUSE.0);
            let Step::Look(item) = next.next(now, false) else {
                panic!("it waits");
            };
            next.seen(now, item, 1, Seen::Bad);
        }
        next.not_mended();
        assert_eq!(next.place(), 701);
        // The place stays the same while the scrub goes on, until it has ended.
        let after = Step::Look(Item::Blocks(Lba(701), 1));
        assert_eq!(next.next(Nanos(u64::MAX / 2), false), after);
        run(&mut next, |_| false, false);
        assert_eq!(next.place(), 0);
        // A recorded place may be damaged, and so have any value.
        for place in [1001, u32::MAX] {
            let mut next = Scrub::new(PLAN, place, 0, Nanos(0));
            assert_ne!(next.next(Nanos(0), false), Step::End);
        }
    }
}
