//! What the medium should hold: the owner and the checksum of each block of a segment.
//!
//! It issues no effects: it says what to read, and takes what was read.
//!
//! For segments being written, `Sums` keeps owners and checksums, from which it makes their summary. For other segments it keeps only
//! checksums: it reads them from the summary when needed, and caches them for a limited number of segments. So memory does not grow with
//! the volume, and every read is checked.

use super::segments::locate;
use crate::addr::{Pba, Segment, Seq};
use crate::format::summary::{self, Owner, Tag};
use crate::format::{Crc, chunk, superblock::Superblock};
use alloc::{vec, vec::Vec};
use hashbrown::HashMap;

/// Memory for segments being written: for each head, the open segment and one whose summary is being written.
const SPARE_TAGS: usize = 4;

enum Sum {
    /// Open, or closed with its summary not yet on the medium.
    Tags(Vec<Tag>),
    /// The summary is being read, or the chunk headers instead of it. This holds the checksums found so far, and whether something could
    /// not be read. If so, the result is not kept, and the next read tries again.
    Loading {
        sums: Vec<Option<u32>>,
        partial: bool,
        /// From a damaged summary: its newest chunk, and its checksums for blocks that no header covers.
        torn: Option<(Seq, Vec<u32>)>,
        /// Only headers of chunks newer than this one count: the summary covers the older ones, and a header may itself be stale.
        newer_than: Option<Seq>,
    },
    Known {
        sums: Vec<u32>,
        used: bool,
        /// The newest chunk of the summary, if these checksums come from a summary alone. The drive may have lost a write of the summary,
        /// so it may be stale.
        by_summary: Option<Seq>,
    },
}

/// What is known about a block that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judged {
    /// It is what was written.
    Right,
    /// It is not what a summary says, and the summary may be stale: the chunk headers have to be read first, from block 0 on.
    Doubted,
    /// It is not what was written.
    Wrong,
    /// Its checksum cannot be read, so it cannot be verified.
    Unknown,
}

pub(crate) struct Sums {
    blocks: usize,
    limit: usize,
    superblock: Superblock,
    of: HashMap<u32, Sum>,
    /// The cached segments in clock order.
    clock: Vec<u32>,
    hand: usize,
    /// The segment whose summary is being rewritten.
    rewriting: Option<Segment>,
    /// Reused for the next segments, so that writing allocates nothing; at most [`SPARE_TAGS`].
    spare_tags: Vec<Vec<Tag>>,
    /// Also reused; together with the cached ones never more than the cache may hold.
    spare_sums: Vec<Vec<u32>>,
}

/// The tag of a block about which nothing is known. A checksum matches it only by chance, and the map names no such block.
const NOTHING: Tag = Tag {
    owner: Owner::None,
    sum: 0,
};

impl Sums {
    pub fn new(superblock: Superblock, limit: usize) -> Self {
        Self {
            blocks: superblock.usable_blocks() as usize,
            limit: limit.max(1),
            superblock,
            of: HashMap::new(),
            clock: Vec::new(),
            hand: 0,
            rewriting: None,
            spare_tags: Vec::new(),
            spare_sums: Vec::new(),
        }
    }

    /// Restores a segment whose tags have been read: by recovery from its chunks, or from a summary that is to be rewritten.
    pub fn restore(&mut self, segment: Segment, mut tags: Vec<Tag>) {
        tags.resize(self.blocks, NOTHING);
        self.forget(segment);
        self.of.insert(segment.0, Sum::Tags(tags));
    }

    /// False if sums that are known contradict these tags.
    pub fn agree(&self, segment: Segment, tags: &[Tag]) -> bool {
        match self.of.get(&segment.0) {
            Some(Sum::Known { sums, .. }) => {
                sums.iter().zip(tags).all(|(sum, tag)| *sum == tag.sum)
            }
            _ => true,
        }
    }

    pub fn open(&mut self, segment: Segment) {
        let mut tags = self.spare_tags.pop().unwrap_or_default();
        tags.clear();
        tags.resize(self.blocks, NOTHING);
        self.of.insert(segment.0, Sum::Tags(tags));
    }

    fn tag_mut(&mut self, segment: Segment, offset: u32) -> &mut Tag {
        match self.of.get_mut(&segment.0) {
            Some(Sum::Tags(tags)) => &mut tags[offset as usize],
            _ => unreachable!("block {offset} is written into {segment}, which is not open"),
        }
    }

    pub fn tag(&mut self, segment: Segment, offset: u32, tag: Tag) {
        *self.tag_mut(segment, offset) = tag;
    }

    pub fn set_owner(&mut self, pba: Pba, owner: Owner) {
        let (segment, offset) = locate(&self.superblock, pba);
        self.tag_mut(segment, offset).owner = owner;
    }

    pub fn retag(&mut self, pba: Pba, sum: u32) {
        let (segment, offset) = locate(&self.superblock, pba);
        self.tag_mut(segment, offset).sum = sum;
    }

    /// Returns all tags of a segment whose summary is not on the medium yet.
    pub fn tags(&self, segment: Segment) -> Option<&[Tag]> {
        match self.of.get(&segment.0) {
            Some(Sum::Tags(tags)) => Some(tags),
            _ => None,
        }
    }

    pub fn awaits_summary(&self, segment: Segment) -> bool {
        self.tags(segment).is_some()
    }

    pub fn encode_summary(
        &self,
        superblock: &Superblock,
        segment: Segment,
        last_seq: Seq,
        crc: Crc,
        out: &mut [u8],
    ) {
        let Some(tags) = self.tags(segment) else {
            unreachable!("a summary is written from its tags")
        };
        summary::encode(&superblock.signature(), segment, last_seq, tags, crc, out);
    }

    /// Notes that the summary is written: from now on the checksums are enough. A rewritten summary was made from the one on the medium.
    /// That one may be from an older use of the segment, if the drive lost a later write, so it [can be doubted](Self::doubt).
    pub fn summarised(&mut self, segment: Segment, last_seq: Seq) {
        let by_summary = self.rewrites(segment).then_some(last_seq);
        self.end_rewrite(segment);
        let Some(Sum::Tags(tags)) = self.of.remove(&segment.0) else {
            return;
        };
        self.cache(segment, tags.iter().map(|tag| tag.sum), by_summary);
        // Tags read for a rewrite come on top of the tags of opened segments, so there may be more than the pool keeps.
        if self.spare_tags.len() < SPARE_TAGS {
            self.spare_tags.push(tags);
        }
    }

    fn cache(
        &mut self,
        segment: Segment,
        of_blocks: impl Iterator<Item = u32>,
        by_summary: Option<Seq>,
    ) {
        while self.clock.len() >= self.limit {
            self.hand %= self.clock.len();
            let victim = self.clock[self.hand];
            match self.of.get_mut(&victim) {
                Some(Sum::Known { used, .. }) if *used => {
                    *used = false;
                    self.hand += 1;
                }
                Some(Sum::Known { .. }) => {
                    if let Some(Sum::Known { sums, .. }) = self.of.remove(&victim) {
                        self.spare_sums.push(sums);
                    }
                    self.clock.swap_remove(self.hand);
                }
                _ => {
                    self.clock.swap_remove(self.hand);
                }
            }
        }
        let mut sums = self.spare_sums.pop().unwrap_or_default();
        sums.clear();
        sums.extend(of_blocks);
        let known = Sum::Known {
            sums,
            used: true,
            by_summary,
        };
        self.of.insert(segment.0, known);
        self.clock.push(segment.0);
    }

    /// Forgets an erased segment.
    pub fn forget(&mut self, segment: Segment) {
        if let Some(Sum::Known { sums, .. }) = self.of.remove(&segment.0) {
            self.spare_sums.push(sums);
            self.clock.retain(|&cached| cached != segment.0);
        }
    }

    /// True if a segment's checksums are not in memory, nor being read.
    pub fn wants_load(&self, segment: Segment) -> bool {
        !self.of.contains_key(&segment.0)
    }

    pub fn is_loading(&self, segment: Segment) -> bool {
        matches!(self.of.get(&segment.0), Some(Sum::Loading { .. }))
    }

    /// Begins to read a segment's summary, or goes on with the chunk header at block `offset`. Returns the blocks to read.
    pub fn begin_load(&mut self, segment: Segment, offset: Option<u32>) -> (Pba, u32) {
        self.of.entry(segment.0).or_insert_with(|| Sum::Loading {
            sums: Vec::new(),
            partial: false,
            torn: None,
            newer_than: None,
        });
        let start = self.superblock.segment_start(segment);
        match offset {
            Some(offset) => (start.plus(offset.into()), 1),
            None => {
                let usable = self.superblock.usable_blocks();
                (
                    start.plus(usable.into()),
                    self.superblock.segment_blocks() - usable,
                )
            }
        }
    }

    /// Takes the bytes that [`begin_load`](Self::begin_load) asked for; none if they could not be read. `waiting`: the blocks that wait for
    /// their checksums, each with the sums of what was read there. Returns the offset of the chunk header to read next, if one is needed:
    /// to find a checksum, or because a block that waits contradicts the summary.
    pub fn on_read<'a>(
        &mut self,
        segment: Segment,
        offset: Option<u32>,
        bytes: &[u8],
        crc: Crc,
        waiting: impl Iterator<Item = (Pba, &'a [u32])>,
    ) -> Option<u32> {
        let next = self.loaded(segment, offset, bytes, crc);
        next.or_else(|| (!self.fit(segment, waiting) && self.doubt(segment)).then_some(0))
    }

    /// Takes the result of reading a summary or a chunk's header. Returns the next header's offset, if another read is needed.
    fn loaded(
        &mut self,
        segment: Segment,
        offset: Option<u32>,
        bytes: &[u8],
        crc: Crc,
    ) -> Option<u32> {
        let Some(Sum::Loading {
            sums,
            partial,
            torn,
            newer_than,
        }) = self.of.get_mut(&segment.0)
        else {
            return None;
        };
        let mut by_summary = None;
        let superblock = &self.superblock;
        let signature = &superblock.signature();
        if let Some(offset) = offset {
            let at = superblock.segment_start(segment).plus(u64::from(offset));
            let mut tags = vec![NOTHING; self.blocks];
            let next = chunk::try_tags(bytes, superblock, at, crc, offset, &mut tags);
            let seq = chunk::decode(bytes, crc).ok().map(|(header, _)| header.seq);
            let counts = newer_than.is_none_or(|known| seq > Some(known));
            // A damaged summary that is older than a chunk of the segment is from the segment's previous use.
            torn.take_if(|(newest, _)| next.is_ok() && seq > Some(*newest));
            for (found, tag) in sums.iter_mut().zip(&tags) {
                if counts && tag.owner != Owner::None {
                    *found = Some(tag.sum);
                }
            }
            *partial |= next.is_err();
            // After a header that cannot be read, the next one is searched for block by block.
            let next = next.unwrap_or(Some(offset + 1));
            if next.is_some_and(|next| (next as usize) < self.blocks - 1) {
                return next;
            }
        } else {
            let Ok(tags) = summary::decode(signature, segment, self.blocks, bytes, crc) else {
                sums.resize(self.blocks, None);
                *torn = summary::unchecked_sums(signature, segment, self.blocks, bytes);
                return Some(0);
            };
            *sums = tags.iter().map(|tag| Some(tag.sum)).collect();
            by_summary = summary::last_seq(signature, segment, self.blocks, bytes, crc).ok();
        }
        if !*partial {
            let sums = core::mem::take(sums);
            self.of.remove(&segment.0);
            let sums = sums.into_iter().map(|sum| sum.unwrap_or(0));
            self.cache(segment, sums, by_summary);
        }
        None
    }

    /// Handles a block that does not match the summary. True if the chunk headers are to be read: they decide for chunks that the summary
    /// does not cover.
    fn doubt(&mut self, segment: Segment) -> bool {
        let Some(Sum::Known {
            sums,
            by_summary: Some(known),
            ..
        }) = self.of.get_mut(&segment.0)
        else {
            return false;
        };
        let (sums, newer_than) = (sums.drain(..).map(Some).collect(), Some(*known));
        self.forget(segment);
        let loading = Sum::Loading {
            sums,
            partial: false,
            torn: None,
            newer_than,
        };
        self.of.insert(segment.0, loading);
        true
    }

    /// True if nothing that was found in these blocks of a segment contradicts its checksums.
    fn fit<'a>(&self, segment: Segment, mut found: impl Iterator<Item = (Pba, &'a [u32])>) -> bool {
        let Some(Sum::Known { sums, .. }) = self.of.get(&segment.0) else {
            return true;
        };
        found.all(|(at, found)| {
            let (_, offset) = locate(&self.superblock, at);
            let mut both = found.iter().zip(sums.iter().skip(offset as usize));
            both.all(|(found, said)| found == said)
        })
    }

    /// Judges a block of a segment by the checksum of what was read.
    #[inline]
    pub fn judge(&mut self, segment: Segment, offset: u32, found: u32) -> Judged {
        match self.sum(segment, offset) {
            Some(expected) if expected == found => Judged::Right,
            Some(_) if self.doubt(segment) => Judged::Doubted,
            Some(_) => Judged::Wrong,
            None => self.judge_by_torn(segment, offset, found),
        }
    }

    /// Judges a block that no readable header covers: a damaged summary may confirm it.
    #[cold]
    fn judge_by_torn(&self, segment: Segment, offset: u32, found: u32) -> Judged {
        match self.of.get(&segment.0) {
            Some(Sum::Loading {
                torn: Some((_, said)),
                ..
            }) if found != 0 && said.get(offset as usize) == Some(&found) => Judged::Right,
            _ => Judged::Unknown,
        }
    }

    /// Drops checksums that were only partly read.
    pub fn settle(&mut self, segment: Segment) {
        if self.is_loading(segment) {
            self.of.remove(&segment.0);
        }
    }

    pub fn sum(&mut self, segment: Segment, offset: u32) -> Option<u32> {
        match self.of.get_mut(&segment.0)? {
            Sum::Tags(tags) => tags.get(offset as usize).map(|tag| tag.sum),
            Sum::Known { sums, used, .. } => {
                *used = true;
                sums.get(offset as usize).copied()
            }
            Sum::Loading { sums, .. } => sums.get(offset as usize).copied().flatten(),
        }
    }

    /// True if a summary is being read or written to name the current owners: one at a time.
    pub fn is_rewriting(&self) -> bool {
        self.rewriting.is_some()
    }

    /// True if this segment's summary is being rewritten.
    pub fn rewrites(&self, segment: Segment) -> bool {
        self.rewriting == Some(segment)
    }

    /// Notes that this segment's summary is about to be rewritten.
    pub fn begin_rewrite(&mut self, segment: Segment) {
        debug_assert!(!self.is_rewriting());
        self.rewriting = Some(segment);
    }

    /// Ends this segment's rewrite, if there was one.
    pub fn end_rewrite(&mut self, segment: Segment) {
        self.rewriting.take_if(|one| *one == segment);
    }
}

#[cfg(test)]
mod tests;
