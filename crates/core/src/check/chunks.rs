//! The chunks of a segment, one after another.

use crate::addr::{BLOCK_BYTES, Life, Segment, Seq};
use crate::format::chunk::{self, ChunkHeader, Record};
use crate::format::names::Names;
use crate::format::summary::Tag;
use crate::format::{Crc, superblock::Superblock};
use crate::recovery::{Source, Unreadable};
use alloc::vec::Vec;

/// A chunk as it is on the medium.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The block of its segment that its header is in; its data follows.
    pub offset: u32,
    /// Its header.
    pub header: ChunkHeader,
    /// Its records.
    pub records: Vec<Record>,
    /// The tag of its header's block, if that is a page of parts.
    pub own: Option<Tag>,
    /// The LBAs that it names of the previous chunk.
    pub of_before: Names,
}

impl Chunk {
    /// The tag of each of its data blocks, in order.
    pub fn tags(&self) -> impl Iterator<Item = Tag> + '_ {
        self.records.iter().filter_map(Record::tag)
    }
}

/// Walks a segment's chunks from its first block to the last chunk of its present use.
///
/// Chunks that an earlier use has left after the end are recognised by their order: along a segment, sequence numbers rise and
/// lives do not fall.
#[derive(Debug)]
pub struct Chunks<'a> {
    superblock: &'a Superblock,
    segment: Segment,
    crc: Crc,
    offset: u32,
    last: Option<(Seq, Life)>,
    ended: bool,
}

impl<'a> Chunks<'a> {
    /// Begins at the segment's first block.
    #[must_use]
    pub fn new(superblock: &'a Superblock, segment: Segment, crc: Crc) -> Self {
        Self {
            superblock,
            segment,
            crc,
            offset: 0,
            last: None,
            ended: segment.0 >= superblock.segment_count(),
        }
    }

    /// Returns the next chunk. It takes the source at each call, so that the caller can read in between.
    pub fn next(&mut self, source: &mut dyn Source) -> Option<Result<Chunk, Unreadable>> {
        let usable = self.superblock.usable_blocks();
        if self.ended || self.offset + 2 > usable {
            return None;
        }
        let start = self.superblock.segment_start(self.segment);
        let at = start.plus(self.offset.into());
        let mut block = [0; BLOCK_BYTES];
        // If the next header is missing, the walk ends there.
        self.ended = true;
        if let Err(error) = source.read(at, &mut block) {
            return Some(Err(error));
        }
        let (header, records) = chunk::decode(&block, self.crc).ok()?;
        let follows = self
            .last
            .is_none_or(|(seq, life)| header.seq > seq && header.life >= life);
        let fits = header.data_blocks < usable - self.offset;
        if header.signature != self.superblock.signature() || header.at != at || !follows || !fits {
            return None;
        }
        self.ended = header.next.is_some();
        self.last = Some((header.seq, header.life));
        let own = chunk::own_tag(&records, &block, self.superblock.sum(self.crc));
        let of_before = chunk::names_of_before(&block).ok()?;
        let offset = self.offset;
        self.offset += 1 + header.data_blocks;
        Some(Ok(Chunk {
            offset,
            header,
            records,
            own,
            of_before,
        }))
    }
}
