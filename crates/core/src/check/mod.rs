//! The check: compares every invariant of a volume at rest with the medium; nothing is changed.
//!
//! The invariants:
//! 1. Both superblocks are whole and equal; the newest root is whole and so are the leaves it names, their copies and parities too.
//! 2. The log replays to its end without a hole.
//! 3. Every mapped block lies in a segment, on a block that a chunk header says is data.
//! 4. That block's owner is the LBA that maps to it, or was, where pages have been shared or blocks had other LBAs.
//! 5. No page has two owners, except a shared one; that has one number, and its count is right.
//! 6. A segment that a head has left has a whole summary, and its chunk headers say the same (with `data`).
//! 7. Every live block has the checksum that was written down for it (with `data`).
//!
//! What snapshots are and keep is stored in blocks like any other, perhaps in parts of pages, which this crate cannot read. So only the
//! report says whether there are any: the caller reads them.

mod chunks;
mod copies;
pub(crate) mod mirrors;
mod names;
pub(crate) mod options;
pub(crate) mod report;

pub use chunks::{Chunk, Chunks};
pub use options::Options;
pub use report::{Problem, Report, Severity};

use crate::addr::{BLOCK_BYTES, Lba, Pba, Segment, Vba};
use crate::entry::Entry;
use crate::format::areas::Layout;
use crate::format::summary::{self, Owner, Tag};
use crate::format::{Crc, FormatError, superblock::Superblock};
use crate::recovery::{Recovered, Source, Unreadable, find_superblock, recover};
use alloc::{vec, vec::Vec};
use mirrors::check_mirrors;

/// Blocks of one read of data.
const READ_BLOCKS: u32 = 64;

/// In the table of owners: no owner. No LBA has this number.
const NOBODY: Name = Name([u8::MAX; 5]);

/// Checks a volume.
pub fn check(source: &mut dyn Source, medium_blocks: u64, options: Options, crc: Crc) -> Report {
    let mut report = Report::new(options.findings_max);
    let mut options = options;
    let found = find_superblock(source, medium_blocks, crc).map(|(superblock, _)| superblock);
    if found.as_ref().is_ok_and(|sb| sb.without_data().is_some()) {
        options.data = false;
        report.add(Problem::WithoutData);
    }
    if found.is_ok_and(|superblock| superblock.layout() != Layout::Log) {
        crate::tables::check(source, medium_blocks, options, crc, &mut report);
        return report;
    }
    match recover(source, medium_blocks, crc) {
        Ok(recovered) => check_recovered(source, &recovered, options, crc, &mut report),
        Err(error) => report.add(Problem::Unopenable(error)),
    }
    report
}

/// Checks what recovery has found against the medium.
fn check_recovered(
    source: &mut dyn Source,
    recovered: &Recovered,
    options: Options,
    crc: Crc,
    report: &mut Report,
) {
    let superblock = &recovered.superblock;
    report.superblock = Some(superblock.clone());
    report.replayed = recovered.replayed;
    if let Some(unread) = recovered.unread {
        report.add(Problem::Unread(unread));
    }
    let [list, ..] = superblock.history().parts();
    let map = recovered.state.map();
    // A pack does not have the blocks of the list. What cannot be read may hold newer ones, or lead to them.
    let has_list = superblock.without_data().is_none() && recovered.unread.is_none();
    report.has_snapshots = has_list && map.stored_in(list.start, list.end).is_some();
    check_mirrors(source, superblock, crc, report);
    copies::check(source, recovered, crc, report);
    names::check(source, recovered, crc, report);
    check_end(recovered, report);
    check_free(recovered, report);
    let owners = Owners::collect(recovered, report);
    check_shared(recovered, report);
    let mut segments = Segments {
        source,
        superblock,
        recovered,
        tags_are_old: recovered.has_shared() || superblock.resettled().is_some(),
        owners,
        options,
        crc,
        report,
        buffer: vec![0; READ_BLOCKS as usize * BLOCK_BYTES],
    };
    for segment in 0..superblock.segment_count() {
        segments.check(Segment(segment));
    }
}

/// Checks that a volume that has shrunk holds nothing behind its end.
fn check_end(recovered: &Recovered, report: &mut Report) {
    let superblock = &recovered.superblock;
    let end = Lba(superblock.logical_blocks());
    let last = Lba(superblock.addressed_blocks());
    if let Some((lba, blocks)) = recovered.state.map().stored_in(end, last) {
        let more = blocks - 1;
        report.add(Problem::Behind { lba, more });
    }
}

/// Checks that what the root calls free is free.
fn check_free(recovered: &Recovered, report: &mut Report) {
    for segment in recovered.free_segments() {
        let blocks = recovered.state.live().valid(segment);
        if blocks > 0 {
            report.add(Problem::NotFree { segment, blocks });
        }
    }
}

/// Checks every shared page's count against the map.
fn check_shared(recovered: &Recovered, report: &mut Report) {
    if recovered.state.shared().is_empty() && recovered.state.shared().packed() == 0 {
        return;
    }
    let mut counted: Vec<u32> = Vec::new();
    for (_, entry) in recovered.state.map().iter() {
        if let Entry::Shared(vba) | Entry::Packed(vba, _) = entry {
            let index = vba.0 as usize;
            if counted.len() <= index {
                counted.resize(index + 1, 0);
            }
            counted[index] = counted[index].saturating_add(1);
        }
    }
    for (vba, &counted) in (0..).map(Vba).zip(&counted) {
        let held = recovered.state.shared().owners(vba);
        if counted != held {
            report.add(Problem::SharedCount { vba, counted, held });
        }
        if counted == 0 || !recovered.state.shared().is_placed(vba) {
            continue;
        }
        match recovered.state.shared().has_parts(vba) {
            true => report.packed_pages += 1,
            false => report.shared_pages += 1,
        }
        let at = recovered.state.shared().pba(vba);
        if let Some(other) = recovered.state.shared().find(at)
            && other != vba
        {
            report.add(Problem::SharedTwice { at, vba, other });
        }
    }
}

/// An LBA in 5 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Name([u8; 5]);

impl Name {
    fn lba(self) -> Lba {
        let mut bytes = [0; 8];
        bytes[..5].copy_from_slice(&self.0);
        Lba(u64::from_le_bytes(bytes))
    }
}

impl From<Lba> for Name {
    fn from(lba: Lba) -> Self {
        let [a, b, c, d, e, ..] = lba.0.to_le_bytes();
        Self([a, b, c, d, e])
    }
}

/// Which LBA each block of the segments is mapped from: 5 bytes a block, for segments that have any.
struct Owners {
    first: u64,
    segment_blocks: usize,
    segments: Vec<Option<Vec<Name>>>,
}

impl Owners {
    fn collect(recovered: &Recovered, report: &mut Report) -> Self {
        let superblock = &recovered.superblock;
        let first = superblock.segment_start(Segment(0)).0;
        let mut owners = Self {
            first,
            segment_blocks: superblock.segment_blocks() as usize,
            segments: vec![None; superblock.segment_count() as usize],
        };
        for (lba, entry) in recovered.state.map().iter() {
            let pba = match entry {
                Entry::Unmapped => continue,
                Entry::Zero => {
                    report.zero_blocks += 1;
                    continue;
                }
                Entry::Plain(pba) => pba,
                Entry::Shared(vba) | Entry::Packed(vba, _)
                    if recovered.state.shared().is_placed(vba) =>
                {
                    recovered.state.shared().pba(vba)
                }
                Entry::Shared(vba) | Entry::Packed(vba, _) => {
                    report.add(Problem::SharedNowhere { lba, vba });
                    continue;
                }
            };
            report.mapped_blocks += 1;
            if superblock.segment_of(pba).is_none() {
                report.add(Problem::NotData { lba, at: pba });
                continue;
            }
            let slot = owners.slot((pba.0 - first) as usize);
            if *slot != NOBODY {
                let first = recovered.state.map().get(slot.lba());
                let is_shared = match (entry, first) {
                    (Entry::Shared(vba), Entry::Shared(other)) => {
                        vba == other && recovered.state.shared().find(pba) == Some(vba)
                    }
                    (Entry::Packed(vba, _), Entry::Packed(other, _)) => vba == other,
                    _ => false,
                };
                if !is_shared {
                    report.add(Problem::TwoOwners {
                        at: pba,
                        first: slot.lba(),
                        second: lba,
                    });
                }
                continue;
            }
            *slot = lba.into();
        }
        owners.add_bases(recovered, report);
        owners
    }

    /// Adds the pages that no LBA owns but deltas need; they are read for the LBAs of those deltas.
    fn add_bases(&mut self, recovered: &Recovered, report: &mut Report) {
        let shared = &recovered.state.shared();
        let first_block = self.first;
        let index = |page| (shared.pba(page).0 - first_block) as usize;
        let mut deltas: Vec<(usize, Vba)> = shared
            .deltas()
            .iter()
            .map(|(part, base)| (index(part.page), base.page))
            .collect();
        deltas.sort_unstable();
        // A page that is needed may hold deltas itself.
        let mut next: Vec<usize> = deltas.iter().map(|(of, _)| *of).collect();
        next.dedup();
        next.retain(|&of| self.get(of) != NOBODY);
        while let Some(of) = next.pop() {
            let first = deltas.partition_point(|(other, _)| *other < of);
            for &(_, vba) in deltas[first..].iter().take_while(|(other, _)| *other == of) {
                let at = shared.pba(vba);
                let needed = index(vba);
                if self.get(needed) == NOBODY {
                    *self.slot(needed) = self.get(of);
                    next.push(needed);
                }
                if let Some(other) = shared.find(at)
                    && other != vba
                {
                    report.add(Problem::SharedTwice { at, vba, other });
                }
            }
        }
    }

    /// The owner of a block, by its distance from the first block.
    fn get(&self, index: usize) -> Name {
        match self.segments.get(index / self.segment_blocks) {
            Some(Some(lbas)) => lbas[index % self.segment_blocks],
            _ => NOBODY,
        }
    }

    /// The same, for changing it.
    fn slot(&mut self, index: usize) -> &mut Name {
        let blocks = self.segment_blocks;
        let segment = &mut self.segments[index / blocks];
        let lbas = segment.get_or_insert_with(|| vec![NOBODY; blocks]);
        &mut lbas[index % blocks]
    }

    /// True if a segment has a block with an owner.
    fn has(&self, segment: Segment) -> bool {
        self.segments[segment.0 as usize].is_some()
    }

    fn of(&self, pba: Pba) -> Option<Lba> {
        let lba = self.get(pba.0.checked_sub(self.first)? as usize);
        (lba != NOBODY).then_some(lba.lba())
    }
}

struct Segments<'a> {
    source: &'a mut dyn Source,
    superblock: &'a Superblock,
    recovered: &'a Recovered,
    /// Whether tags may name a former owner: pages have been shared, or blocks have had other LBAs.
    tags_are_old: bool,
    owners: Owners,
    options: Options,
    crc: Crc,
    report: &'a mut Report,
    buffer: Vec<u8>,
}

impl Segments<'_> {
    fn check(&mut self, segment: Segment) {
        let usable = self.superblock.usable_blocks();
        let start = self.superblock.segment_start(segment);
        let owned = if self.owners.has(segment) { usable } else { 0 };
        let live: Vec<(u32, Lba)> = (0..owned)
            .filter_map(|offset| Some((offset, self.owners.of(start.plus(offset.into()))?)))
            .collect();
        let in_log = self
            .recovered
            .tags
            .iter()
            .rev()
            .find(|(of, _)| *of == segment)
            .map(|(_, tags)| tags.as_slice());
        if live.is_empty() && in_log.is_none() {
            // The segment is free, or soon will be: its contents mean nothing.
            return;
        }
        self.report.segments += 1;
        let summary = match in_log {
            Some(_) => None,
            None => self.read_summary(segment),
        };
        let first = in_log.or(summary.as_deref());
        let is_anothers = |tags: &[Tag], &(offset, lba): &(u32, Lba)| {
            tags[offset as usize].owner != Owner::Lba(lba)
        };
        let has_others = |tags: &[Tag]| live.iter().any(|one| is_anothers(tags, one));
        // The chunk headers stand in for a summary that a power cut tore while it was rewritten. They also name the owners of before, if a
        // power cut took what a rewritten summary says already.
        let wants_headers =
            first.is_none_or(|tags| self.options.data || !self.tags_are_old && has_others(tags));
        let (said, is_whole) = match wants_headers {
            true => self.read_headers(segment),
            false => (Vec::new(), false),
        };
        let tags = first.unwrap_or(&said);
        for &(offset, lba) in live.iter().filter(|one| is_anothers(tags, one)) {
            let tag = tags[offset as usize];
            let before = Tag {
                owner: Owner::Lba(lba),
                ..tag
            };
            let is_said = said.get(offset as usize) == Some(&before);
            self.check_owner(lba, start.plus(offset.into()), tag, is_said);
        }
        if self.options.data {
            if first.is_some() && is_whole {
                self.check_headers(segment, tags, &said, in_log.is_some());
            }
            self.check_data(start, tags, &live);
        }
    }

    fn read_summary(&mut self, segment: Segment) -> Option<Vec<Tag>> {
        let usable = self.superblock.usable_blocks();
        let at = self.superblock.segment_start(segment).plus(usable.into());
        let blocks = self.superblock.segment_blocks() - usable;
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        if let Err(error) = self.source.read(at, &mut bytes) {
            self.report
                .add(Problem::SummaryUnreadable { segment, error });
            return None;
        }
        let signature = self.superblock.signature();
        match summary::decode(&signature, segment, usable as usize, &bytes, self.crc) {
            Ok(tags) => {
                self.report.summaries += 1;
                Some(tags)
            }
            Err(error) => {
                self.report.add(Problem::Summary { segment, at, error });
                None
            }
        }
    }

    /// Checks a tag that does not name the block's owner. `is_said`: a chunk's header names it, and has the same sum.
    fn check_owner(&mut self, lba: Lba, at: Pba, tag: Tag, is_said: bool) {
        match tag.owner {
            Owner::None => self.report.add(Problem::NotData { lba, at }),
            // The tag of a page that is or was shared may name the owner that wrote it, or the page's number. The tag of a page that
            // snapshots hold may name an LBA from before the volume grew.
            _ if self.tags_are_old || is_said => self.report.foreign_tags += 1,
            owner => self.report.add(Problem::Owner { lba, at, owner }),
        }
    }

    /// Checks that the chunk headers say what the summary repeats. Owners may have changed since: a page was shared, even if a power cut has
    /// taken that. In a segment `in_log`, headers behind its last chunk are stale.
    fn check_headers(&mut self, segment: Segment, tags: &[Tag], said: &[Tag], in_log: bool) {
        let start = self.superblock.segment_start(segment);
        let may_differ = |at: Pba, said: &Tag| {
            let owner = self.owners.of(at);
            self.tags_are_old || owner.is_none_or(|owner| said.owner == Owner::Lba(owner))
        };
        let differs = |(offset, (said, tag)): (u64, (&Tag, &Tag))| {
            let differs = said.sum != tag.sum
                || said.owner != tag.owner && !may_differ(start.plus(offset), said);
            (differs && !(in_log && tag.owner == Owner::None)).then(|| start.plus(offset))
        };
        let mut all = (0..).zip(said.iter().zip(tags));
        if let Some(at) = all.find_map(differs) {
            self.report.add(Problem::HeadersDiffer { segment, at });
        }
    }

    /// What the chunk headers say about each block, and whether all of them could be read.
    fn read_headers(&mut self, segment: Segment) -> (Vec<Tag>, bool) {
        let nothing = Tag {
            owner: Owner::None,
            sum: 0,
        };
        let mut said = vec![nothing; self.superblock.usable_blocks() as usize];
        let mut chunks = Chunks::new(self.superblock, segment, self.crc);
        while let Some(chunk) = chunks.next(self.source) {
            let chunk = match chunk {
                Ok(chunk) => chunk,
                Err(error) => {
                    self.report.add(Problem::HeaderUnreadable(error));
                    return (said, false);
                }
            };
            if let (Some(own), Some(said)) = (chunk.own, said.get_mut(chunk.offset as usize)) {
                *said = own;
            }
            let data = said.iter_mut().skip(chunk.offset as usize + 1);
            for (said, tag) in data.zip(chunk.tags()) {
                *said = tag;
            }
        }
        (said, true)
    }

    fn check_data(&mut self, start: Pba, tags: &[Tag], live: &[(u32, Lba)]) {
        let sum = self.superblock.sum(self.crc);
        let mut rest = live;
        while let Some(&(first, _)) = rest.first() {
            // A run of live blocks in one read.
            let run = rest
                .iter()
                .zip(first..first + READ_BLOCKS)
                .take_while(|((offset, _), expected)| offset == expected)
                .count();
            let (now, later) = rest.split_at(run);
            rest = later;
            let mut buffer = core::mem::take(&mut self.buffer);
            let bytes = &mut buffer[..run * BLOCK_BYTES];
            let whole = self.source.read(start.plus(first.into()), bytes).is_ok();
            for (&(offset, lba), block) in now.iter().zip(bytes.chunks_exact_mut(BLOCK_BYTES)) {
                let at = start.plus(offset.into());
                let read: Result<(), Unreadable> = if whole {
                    Ok(())
                } else {
                    self.source.read(at, block)
                };
                let expected = tags[offset as usize].sum;
                match read {
                    Err(error) => self.report.add(Problem::DataUnreadable { lba, error }),
                    Ok(()) => {
                        self.report.verified_blocks += 1;
                        let found = sum.of(block);
                        if found != expected {
                            let error = FormatError::Checksum {
                                what: "block",
                                found,
                                expected,
                            };
                            self.report.add(Problem::Data { lba, at, error });
                        }
                    }
                }
            }
            self.buffer = buffer;
        }
    }
}
