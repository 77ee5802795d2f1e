//! A sweep for blocks that are stored twice: out-of-line deduplication (CAFTL §3.5).
//!
//! A sweep compares the checksums of all live blocks, as a [`Walk`] finds them. It gives blocks with the same checksum to the core in
//! pairs. The core reads, compares and shares them, or finds that they have changed. If both have several owners, the sweep searches the
//! map for the owners of one. Its memory is bounded: if a volume has more blocks than fit, it is walked several times, each time for a
//! part of the checksums (`pass`). The core records the progress with map checkpoints, so that the next sweep continues there. Even if
//! the record is wrong, no harm is done: a duplicate is found only by the next sweep, or a pair is compared again.

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
use pass::{CHECKSUMS, Form, Pass};

/// Pairs of pages with several owners each that are collected before their owners are searched for, in all of the map at once:
/// half a MiB.
const SHARED: usize = 64 << 10;
/// Entries of the map searched at once for a page's owners: this holds the volume's lock for 30 microseconds.
const OWNERS: u64 = 16 << 10;
/// How often a map checkpoint records a sweep's progress while it compares. While it walks the summaries there is no progress to record.
const KEEP: Nanos = Nanos(60_000_000_000);
/// Different contents may have one checksum. A block is compared with at most this many of them.
const COLLIDING: usize = 4;
/// How often a pair that is put off is given again, with pauses in between: a tenth of a second in all.
const TRIES: u32 = 100;

/// Returns how much of a sweep is done, in thousandths, when all checksums below `swept` are.
#[must_use]
pub fn permille_of(swept: u32) -> u64 {
    u64::from(swept) * 1000 / CHECKSUMS
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A pass begins, from this checksum on.
    Begin(u64),
    /// Collects the blocks of the pass.
    Fill,
    /// Gives pairs.
    Pairs,
    /// Searches for owners of pages, in the map from this LBA on.
    Owners(u64),
    /// Gives the owners found, this one next.
    Found(usize),
}

/// A sweep of a volume.
#[derive(Debug)]
pub struct Sweep {
    walk: Walk,
    /// Bytes of memory that it may use.
    spare: u64,
    at: At,
    pass: Pass,
    pairs: Pairs,
    /// Pairs of pages that have several owners each: all owners of the first should move to the second, and only the map names
    /// them.
    pages: Vec<(Vba, Vba)>,
    owners: Vec<(Lba, Vba)>,
    /// The map has been searched for owners up to here.
    owners_to: u64,
    /// How often the current pair was put off, and whether it was only just put off.
    put_off: u32,
    is_put_off: bool,
    /// When the progress was last recorded.
    kept: Nanos,
}

/// The place among the pairs of a pass.
#[derive(Debug, Default)]
struct Pairs {
    /// The blocks of one checksum.
    same: Range<usize>,
    /// The block to be given next.
    one: usize,
    /// Different contents of that checksum. If there were only the first one, blocks that equal another could not be shared.
    contents: Vec<Holder>,
    /// The next of these contents that the block is compared with.
    against: usize,
}

impl Pairs {
    /// Moves on to the next block of the same checksum.
    fn pass_one(&mut self, is_new: Option<Holder>) {
        self.contents
            .extend(is_new.filter(|_| self.contents.len() < COLLIDING));
        (self.one, self.against) = (self.one + 1, 0);
    }
}

impl Sweep {
    /// A sweep that continues where the last one was left, as `Core::swept` says. `spare`: bytes that it may use; it uses 18 MiB
    /// in any case.
    #[must_use]
    pub fn new(
        superblock: Superblock,
        crc: Crc,
        (haste, from): (Haste, u32),
        spare: u64,
        now: Nanos,
    ) -> Self {
        let form = Form::of(superblock.mapped_blocks());
        Self {
            walk: Walk::new(superblock, crc, haste, now),
            spare,
            at: At::Begin(from.into()),
            pass: Pass::new(form, from.into(), 0, 0),
            pairs: Pairs::default(),
            pages: Vec::new(),
            owners: Vec::new(),
            owners_to: 0,
            put_off: 0,
            is_put_off: false,
            kept: now,
        }
    }

    /// Takes the result of the pair of [`Step::Merge`], from the volume's counters before and after. These are unambiguous, because
    /// nothing else gives pairs.
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
            // The pair was shared, or it is no longer a pair, or it is unreadable.
            _ => self.pairs.pass_one(None),
        }
    }

    /// Returns the step that records that all checksums below `at` are done; 0: the sweep has ended.
    fn keep(&mut self, now: Nanos, at: u64) -> Option<Step> {
        let keep = now.0 - self.kept.0 >= KEEP.0;
        if keep {
            self.kept = now;
        }
        let to = u32::try_from(at).ok()?;
        Some(Step::Keep { to, keep })
    }

    fn begin(&mut self, from: u64, volume: &impl Answers) {
        let form = Form::of(self.walk.superblock().mapped_blocks());
        self.pass = Pass::new(form, from, volume.stored(), self.spare);
        self.walk.rewind();
        self.at = At::Fill;
    }

    fn fill(&mut self, volume: &impl Answers) {
        if !self.walk.has_found() {
            return self.walk.ask(volume);
        }
        // Only live blocks are added: if a dead block came first, all others would be compared with it in vain.
        let (pass, mut live) = (&mut self.pass, Vec::new());
        self.walk.found(|at, found| match found {
            Found::Blocks(tags) => volume.contents(at, tags, &mut live),
            Found::Parts(_, parts) => volume.parts(at, parts, &mut live),
        });
        live.iter()
            .for_each(|(holder, sum)| pass.add(*holder, *sum));
    }

    fn is_filled(&mut self) {
        self.pass.sort();
        self.pairs = Pairs::default();
        self.at = At::Pairs;
    }

    /// Returns the next step among the pairs; `None`: look again.
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
            // Pages are handled when there are many, and at the end.
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

    /// Gives the pair when it is the sweep's turn: a client's request waits for at most one pair's reads.
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

    /// Returns the page that should replace this one.
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
