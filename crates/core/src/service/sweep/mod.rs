//! A sweep for blocks that are stored twice: deduplication out of line (CAFTL §3.5).
//!
//! What it goes by are checksums: of each block that is alive, as a [`Walk`] finds them. Blocks of one checksum are told to the core in
//! pairs, which it reads, compares and shares, or finds that they have changed; where both have several owners, the map is searched for
//! those of the one. Memory is bounded: a volume with more blocks than fit is gone through several times, each time for a part of the
//! checksums (`pass`). How far it is the core keeps with its map checkpoints, so that the next one goes on there: whatever that says,
//! at worst a duplicate is found by the next sweep, or a pair is compared again.

mod pass;

use super::pace::{Around, Haste, PAUSE};
use super::walk::{Found, Walk};
use super::{Answers, Machine, Seen, Step};
use crate::addr::{Lba, Nanos, Vba};
use crate::format::Crc;
use crate::format::superblock::Superblock;
use crate::index::Holder;
use crate::stats::Stats;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;
use pass::{CHECKSUMS, Pass};

/// Pairs of pages with several owners each that are kept until these owners are looked for, in all of the map at once: half a MiB.
const SHARED: usize = 64 << 10;
/// Entries of the map that are searched at once for a page's owners: 30 microseconds of the volume's lock.
const OWNERS: u64 = 16 << 10;
/// How often the map checkpoint says how far it is, while it compares. While it looks through the summaries it gets no further.
const KEEP: Nanos = Nanos(60_000_000_000);
/// How many unequal contents of one checksum each block of that checksum is held against.
const COLLIDING: usize = 4;
/// How often a pair is told that is put off, with a pause between: a tenth of a second in all.
const TRIES: u32 = 100;

/// How much of a sweep is done, in thousandths, that has passed the checksums that are less.
#[must_use]
pub fn permille_of(swept: u32) -> u64 {
    u64::from(swept) * 1000 / CHECKSUMS
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A pass begins, from this checksum on.
    Begin(u64),
    /// It looks for what the pass is about.
    Fill,
    /// It tells pairs.
    Pairs,
    /// Owners of pages are looked for, in the map from this LBA on.
    Owners(u64),
    /// Those that were found are told, this one next.
    Found(usize),
}

/// See the module.
#[derive(Debug)]
pub struct Sweep {
    walk: Walk,
    /// Bytes that may be taken for what is found.
    spare: u64,
    at: At,
    pass: Pass,
    pairs: Pairs,
    /// Pages that have several owners each: all of the one's are to become the other's, and only the map knows who they are.
    pages: Vec<(Vba, Vba)>,
    owners: Vec<(Lba, Vba)>,
    /// Up to where they were looked for.
    owners_to: u64,
    /// How often the pair that is being told was put off; and whether it was only just.
    put_off: u32,
    is_put_off: bool,
    /// When it was last kept how far it is.
    kept: Nanos,
}

/// Where it is among the pairs of a pass.
#[derive(Debug, Default)]
struct Pairs {
    /// Those of one checksum.
    same: Range<usize>,
    /// The one of them that is told next.
    one: usize,
    /// Contents of that checksum that are not equal: a collision must not speak for all that is like one of them.
    contents: Vec<Holder>,
    /// The one of these that it is held against.
    against: usize,
}

impl Pairs {
    /// Goes on to the next of the same checksum.
    fn pass_one(&mut self, is_new: Option<Holder>) {
        self.contents
            .extend(is_new.filter(|_| self.contents.len() < COLLIDING));
        (self.one, self.against) = (self.one + 1, 0);
    }
}

impl Sweep {
    /// One that goes on where the last one was left, as `Core::swept` says. `spare`: bytes that it may take, though it takes 18 MiB in
    /// any case.
    #[must_use]
    pub fn new(
        superblock: Superblock,
        crc: Crc,
        (haste, from): (Haste, u32),
        spare: u64,
        now: Nanos,
    ) -> Self {
        Self {
            walk: Walk::new(superblock, crc, haste, now),
            spare,
            at: At::Begin(from.into()),
            pass: Pass::new(from.into(), 0, 0),
            pairs: Pairs::default(),
            pages: Vec::new(),
            owners: Vec::new(),
            owners_to: 0,
            put_off: 0,
            is_put_off: false,
            kept: now,
        }
    }

    /// What has become of the pair of [`Step::Merge`], by the volume's counters before and after: nobody else tells of pairs.
    pub fn merged(&mut self, before: &Stats, after: &Stats) {
        let reads = after.merge_reads - before.merge_reads;
        self.walk.turn.spend(2 * reads);
        if after.merges_put_off > before.merges_put_off && self.put_off + 1 < TRIES {
            // The collector is at work, and has all buffers.
            (self.put_off, self.is_put_off) = (self.put_off + 1, true);
            return;
        }
        self.put_off = 0;
        let is_unequal = reads > 0 && after.merged_blocks == before.merged_blocks;
        match self.at {
            At::Found(index) => self.at = At::Found(index + 1),
            _ if is_unequal => self.pairs.against += 1,
            // Shared; or they are no pair any more, or could not be read.
            _ => self.pairs.pass_one(None),
        }
    }

    /// All checksums that are less have been seen to; 0: it has ended.
    fn keep(&mut self, now: Nanos, at: u64) -> Option<Step> {
        let keep = now.0 - self.kept.0 >= KEEP.0;
        if keep {
            self.kept = now;
        }
        let to = u32::try_from(at).ok()?;
        Some(Step::Keep { to, keep })
    }

    fn begin(&mut self, from: u64, volume: &impl Answers) {
        self.pass = Pass::new(from, volume.stored(), self.spare);
        self.walk.rewind();
        self.at = At::Fill;
    }

    fn fill(&mut self, volume: &impl Answers) {
        if !self.walk.has_found() {
            return self.walk.ask(volume);
        }
        // Only what is alive: a dead block that came first would speak for all of its content.
        let (pass, mut live) = (&mut self.pass, Vec::new());
        self.walk.found(|at, found| match found {
            Found::Blocks(tags) => volume.contents(at, tags, &mut live),
            Found::Parts(parts) => volume.parts(at, parts, &mut live),
        });
        live.iter()
            .for_each(|(holder, sum)| pass.add(*holder, *sum));
    }

    fn is_filled(&mut self) {
        self.pass.sort();
        self.pairs = Pairs::default();
        self.at = At::Pairs;
    }

    /// The next thing to do among the pairs; none: look again.
    fn next_pair(&mut self, now: Nanos, around: &Around) -> Option<Step> {
        let pairs = &mut self.pairs;
        if pairs.one < pairs.same.end {
            let holder = self.pass.holder(pairs.one);
            match (holder, self.pass.holder(pairs.same.start)) {
                (Holder::Lba(lba), _) => {
                    if let Some(&of) = pairs.contents.get(pairs.against) {
                        return Some(self.tell(now, around, lba, of));
                    }
                }
                (Holder::Page(page), Holder::Page(of)) => self.pages.push((page, of)),
                _ => {}
            }
            pairs.pass_one(Some(holder));
            if self.pages.len() == SHARED {
                self.find_owners();
            }
            return None;
        }
        let next = self.pass.content(pairs.same.end);
        let last = mem::replace(&mut pairs.same, next);
        if pairs.same.is_empty() {
            // Pages are seen to when there are many, and at the end.
            if !self.pages.is_empty() {
                self.find_owners();
                return None;
            }
            let to = self.pass.to();
            self.at = At::Begin(to);
            return self.keep(now, to % CHECKSUMS);
        }
        let first = self.pass.holder(pairs.same.start);
        pairs.contents.clear();
        (pairs.one, pairs.against) = (pairs.same.start, 0);
        pairs.pass_one(Some(first));
        let is_behind = last.len() > 1 && self.pages.is_empty();
        let behind = is_behind.then(|| self.pass.behind(last.start))?;
        self.keep(now, behind)
    }

    /// The pair, when it is its turn: a client's request finds the reads of one under way at most.
    fn tell(&mut self, now: Nanos, around: &Around, lba: Lba, of: Holder) -> Step {
        if mem::take(&mut self.is_put_off) {
            return Step::Wait(Nanos(now.0 + PAUSE.0));
        }
        let wait = (self.put_off == 0).then(|| self.walk.turn.wait(now, around));
        wait.flatten().map_or(Step::Merge { lba, of }, Step::Wait)
    }

    fn find_owners(&mut self) {
        self.pages.sort_unstable();
        self.at = At::Owners(0);
    }

    /// The page that is to have what this one has.
    fn successor(&self, page: Vba) -> Option<Vba> {
        let at = self.pages.binary_search_by_key(&page, |(page, _)| *page);
        at.ok().map(|at| self.pages[at].1)
    }

    fn next_owner(&mut self, now: Nanos, around: &Around, index: usize) -> Option<Step> {
        if let Some(&(lba, page)) = self.owners.get(index)
            && let Some(of) = self.successor(page)
        {
            return Some(self.tell(now, around, lba, Holder::Page(of)));
        }
        None
    }
}

impl Machine for Sweep {
    fn next(&mut self, now: Nanos, around: &Around) -> Step {
        loop {
            let step = match self.at {
                At::Begin(CHECKSUMS..) => Some(Step::End(true)),
                At::Begin(_) => Some(Step::Ask),
                At::Fill => match self.walk.next(now, around) {
                    Step::Found => Some(Step::Ask),
                    Step::End(_) => {
                        self.is_filled();
                        None
                    }
                    step => Some(step),
                },
                At::Pairs => self.next_pair(now, around),
                At::Owners(from) if from >= self.walk.superblock().logical_blocks() => {
                    self.pages.clear();
                    self.at = At::Pairs;
                    None
                }
                At::Owners(_) => {
                    let until = self.walk.turn.wait(now, around);
                    Some(until.map_or(Step::Ask, Step::Wait))
                }
                At::Found(index) => self.next_owner(now, around, index).or_else(|| {
                    self.at = At::Owners(self.owners_to);
                    None
                }),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    fn ask(&mut self, volume: &impl Answers) {
        match self.at {
            At::Begin(from) => self.begin(from, volume),
            At::Fill => self.fill(volume),
            At::Owners(from) => {
                let mut owners = mem::take(&mut self.owners);
                owners.clear();
                self.owners_to = from + OWNERS;
                let wanted = |page| self.successor(page).is_some();
                volume.owners_in(from..self.owners_to, wanted, &mut owners);
                self.owners = owners;
                self.at = At::Found(0);
            }
            At::Pairs | At::Found(_) => {}
        }
    }

    fn read(&mut self, seen: Seen<'_>) {
        self.walk.read(seen);
    }

    fn permille(&self) -> u64 {
        let inside = match self.at {
            At::Begin(from) => return from * 1000 / CHECKSUMS,
            At::Fill => self.walk.permille() / 2,
            _ => 500 + self.pairs.same.start as u64 * 500 / self.pass.len().max(1) as u64,
        };
        self.pass.permille(inside)
    }
}

#[cfg(test)]
mod tests;
