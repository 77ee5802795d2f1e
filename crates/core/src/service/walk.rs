//! A look through all that is stored, as segments' summaries and pages' directories tell it.
//!
//! What was written last has no summary yet, and is known to the volume. What cannot be read says nothing. A page of parts that was
//! moved, or is not written yet, fails its checksum.

use super::pace::{Around, Haste, Turn};
use super::{Answers, Machine, Seen, Step};
use crate::addr::{BLOCK_BYTES, Nanos, Pba, Segment};
use crate::format::Crc;
use crate::format::pack::{self, PartTag};
use crate::format::summary::{self, Tag};
use crate::format::superblock::Superblock;
use alloc::vec::Vec;

/// Blocks, or entries of the map, of which the volume is asked or told at once: under a millisecond of its lock by what each costs.
/// Which pages hold parts is asked of a segment at once.
pub const AT_ONCE: usize = 1024;
/// Pages of parts that are read at once for what they hold: a client's request finds no more than these in its way.
const PAGES: usize = 16;

/// Whose what is stored may be, and its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// By the summary of a segment: of so many of its blocks, in order.
    Blocks(&'a [Tag]),
    /// By the directory of a page: of its parts.
    Parts(&'a [PartTag]),
}

/// Where it is in the segment.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Its tags are to be asked for.
    Segment,
    /// Its summary is to be read.
    Summary,
    /// Its tags are known, and told from this one on.
    Blocks(usize),
    /// Its pages of parts are to be asked for.
    Pages,
    /// Its pages are known, and to be read from this one on.
    Read(usize),
    /// Those from this one on have been read.
    Parts(usize),
}

/// See the module.
#[derive(Debug)]
pub struct Walk {
    superblock: Superblock,
    crc: Crc,
    /// Pages of parts that have more owners are passed over.
    most_owners: u32,
    pub(super) turn: Turn,
    segment: Segment,
    at: At,
    /// The segment's.
    tags: Vec<Tag>,
    pages: Vec<(Pba, u32)>,
    /// Of those that were read last.
    directories: Vec<Vec<PartTag>>,
}

impl Walk {
    /// At the beginning.
    #[must_use]
    pub fn new(superblock: Superblock, crc: Crc, haste: Haste, now: Nanos) -> Self {
        Self {
            superblock,
            crc,
            most_owners: u32::MAX,
            turn: Turn::new(haste, now),
            segment: Segment(0),
            at: At::Segment,
            tags: Vec::new(),
            pages: Vec::new(),
            directories: Vec::new(),
        }
    }

    /// Back to the beginning.
    pub(super) fn rewind(&mut self) {
        (self.segment, self.at) = (Segment(0), At::Segment);
    }

    pub(super) fn of_pages_with(mut self, most_owners: u32) -> Self {
        self.most_owners = most_owners;
        self
    }

    pub(super) fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    pub(super) fn has_found(&self) -> bool {
        matches!(self.at, At::Blocks(_) | At::Parts(_))
    }

    /// Tells what was found, at [`Step::Found`].
    pub fn found(&mut self, mut tell: impl FnMut(Pba, Found<'_>)) {
        match self.at {
            At::Blocks(from) => {
                let to = self.tags.len().min(from + AT_ONCE);
                let at = self.superblock.segment_start(self.segment);
                tell(at.plus(from as u64), Found::Blocks(&self.tags[from..to]));
                self.at = match to < self.tags.len() {
                    true => At::Blocks(to),
                    false => At::Pages,
                };
            }
            At::Parts(from) => {
                let to = from + self.run(from);
                let both = self.pages[from..to].iter().zip(&self.directories);
                let whole = both.filter(|(_, parts)| !parts.is_empty());
                whole.for_each(|((at, _), parts)| tell(*at, Found::Parts(parts)));
                self.read_from(to);
            }
            _ => {}
        }
    }

    /// How many pages from this one on are side by side, and read at once.
    fn run(&self, from: usize) -> usize {
        let pages = &self.pages[from..];
        let mut runs = pages.chunk_by(|(one, _), (next, _)| one.plus(1) == *next);
        runs.next().map_or(0, |run| run.len().min(PAGES))
    }

    fn read_from(&mut self, page: usize) {
        match page < self.pages.len() {
            true => self.at = At::Read(page),
            false => self.leave_segment(),
        }
    }

    fn leave_segment(&mut self) {
        self.segment.0 += 1;
        self.at = At::Segment;
    }

    fn read_summary(&mut self, seen: Seen<'_>) {
        let usable = self.superblock.usable_blocks();
        self.turn
            .spend(u64::from(self.superblock.segment_blocks() - usable));
        let signature = self.superblock.signature();
        let (count, tags) = (usable as usize, &mut self.tags);
        let is_known = matches!(seen, Seen::Bytes(bytes)
            if summary::decode_into(&signature, self.segment, count, bytes, self.crc, tags).is_ok());
        match is_known {
            true => self.at = At::Blocks(0),
            false => self.leave_segment(),
        }
    }

    fn read_pages(&mut self, from: usize, seen: Seen<'_>) {
        let run = self.run(from);
        self.turn.spend(run as u64);
        self.directories.resize(run, Vec::new());
        self.directories.iter_mut().for_each(Vec::clear);
        match seen {
            Seen::Nothing => return self.read_from(from + run),
            Seen::Bytes(bytes) => {
                let sum = self.superblock.sum(self.crc);
                let pages = bytes
                    .chunks_exact(BLOCK_BYTES)
                    .zip(&self.pages[from..from + run]);
                for ((page, (_, expected)), parts) in pages.zip(&mut self.directories) {
                    if sum.of(page) != *expected || pack::directory(page, self.crc, parts).is_err()
                    {
                        parts.clear();
                    }
                }
            }
            Seen::Directories(told) => {
                for (parts, told) in self.directories.iter_mut().zip(told) {
                    parts.extend_from_slice(told);
                }
            }
        }
        self.at = At::Parts(from);
    }
}

impl Machine for Walk {
    fn next(&mut self, now: Nanos, around: &Around) -> Step {
        let is_behind = self.segment.0 >= self.superblock.segment_count();
        let is_turn = matches!(self.at, At::Segment | At::Read(_)) && !is_behind;
        if is_turn && let Some(until) = self.turn.wait(now, around) {
            return Step::Wait(until);
        }
        match self.at {
            At::Segment if is_behind => Step::End(true),
            At::Segment | At::Pages => Step::Ask,
            At::Summary => {
                let usable = self.superblock.usable_blocks();
                let start = self.superblock.segment_start(self.segment);
                let (at, blocks) = (
                    start.plus(usable.into()),
                    self.superblock.segment_blocks() - usable,
                );
                Step::Read { at, blocks }
            }
            At::Read(from) => Step::Read {
                at: self.pages[from].0,
                blocks: self.run(from) as u32,
            },
            At::Blocks(_) | At::Parts(_) => Step::Found,
        }
    }

    fn ask(&mut self, volume: &impl Answers) {
        match self.at {
            At::Segment => {
                self.at = At::Summary;
                if let Some(tags) = volume.unsummarised(self.segment) {
                    self.tags.clear();
                    self.tags.extend_from_slice(tags);
                    self.at = At::Blocks(0);
                }
            }
            At::Pages => {
                let start = self.superblock.segment_start(self.segment);
                self.pages.clear();
                volume.pages_of_parts(start, &self.tags, self.most_owners, &mut self.pages);
                self.read_from(0);
            }
            _ => {}
        }
    }

    fn read(&mut self, seen: Seen<'_>) {
        match self.at {
            At::Summary => self.read_summary(seen),
            At::Read(from) => self.read_pages(from, seen),
            _ => {}
        }
    }

    fn permille(&self) -> u64 {
        let blocks = u64::from(self.superblock.usable_blocks());
        let inside = match self.at {
            At::Segment | At::Summary => 0,
            At::Blocks(from) => from as u64,
            _ => blocks,
        };
        let all = blocks * u64::from(self.superblock.segment_count());
        (u64::from(self.segment.0) * blocks + inside) * 1000 / all
    }
}

#[cfg(test)]
mod tests;
