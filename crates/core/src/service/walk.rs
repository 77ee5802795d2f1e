//! A walk through everything stored, by segments' summaries and pages' directories.
//!
//! The newest segments have no summary yet; the volume knows their contents. What cannot be read is skipped. A page of parts that
//! was moved, or is not written yet, fails its checksum.

use super::pace::{Around, Haste, Turn};
use super::{Answers, Machine, Seen, Step};
use crate::addr::{BLOCK_BYTES, Nanos, Pba, Segment, Vba};
use crate::format::Crc;
use crate::format::pack::{self, PageOfParts, PartTag};
use crate::format::summary::{self, Tag};
use crate::format::superblock::Superblock;
use alloc::vec::Vec;

/// How many blocks, or entries of the map, one query asks about or one step passes on: this holds the volume's lock for less than a
/// millisecond. Only the pages of parts are queried for a whole segment.
pub const AT_ONCE: usize = 1024;
/// Directories of pages of parts read at once: a client's request waits for no more than these.
const PAGES: usize = 16;

/// Checksums of what is stored, and its possible owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// From a segment's summary: for consecutive blocks of it.
    Blocks(&'a [Tag]),
    /// From the directory of the page of this number: for its parts.
    Parts(Vba, &'a [PartTag]),
}

/// What the walk does next in its segment.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Query the volume for the segment's tags.
    Segment,
    /// Read the segment's summary.
    Summary,
    /// The tags are known: pass them on, from this one on.
    Blocks(usize),
    /// Query the volume for the segment's pages of parts.
    Pages,
    /// The pages are known: read them, from this one on.
    Read(usize),
    /// Pages from this one on have been read: pass on their parts.
    Parts(usize),
}

/// A walk through a volume's segments.
#[derive(Debug)]
pub struct Walk {
    superblock: Superblock,
    crc: Crc,
    /// Pages of parts with more owners than this are skipped.
    most_owners: u32,
    pub(super) turn: Turn,
    segment: Segment,
    at: At,
    /// The segment's tags.
    tags: Vec<Tag>,
    pages: Vec<PageOfParts>,
    /// The directories of the pages read last.
    directories: Vec<Vec<PartTag>>,
}

impl Walk {
    /// Starts at the beginning.
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

    /// Returns to the beginning.
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

    /// Passes on what was found, at [`Step::Found`].
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
                whole.for_each(|(page, parts)| tell(page.at, Found::Parts(page.number, parts)));
                self.read_from(to);
            }
            _ => {}
        }
    }

    /// Counts the pages from this one on that are adjacent, and read at once.
    fn run(&self, from: usize) -> usize {
        let pages = &self.pages[from..];
        let mut runs = pages.chunk_by(|one, next| one.at.plus(1) == next.at);
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
                for ((page, expected), parts) in pages.zip(&mut self.directories) {
                    if sum.of(page) != expected.sum
                        || pack::directory(page, self.crc, parts).is_err()
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
                at: self.pages[from].at,
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
