//! Segments' summaries, the only metadata that is read back. Only the owners are kept: 4 bytes a block.
//!
//! A summary has each block's owner and checksum in 12 bytes. The checksum is that of the block on the medium, so it
//! is left out here and put back when the summary is read.

use crate::content::Content;
use vellum_core::addr::{BLOCK_BYTES, Lba, Pba, Segment, Seq, Vba};
use vellum_core::format::summary::{self, Owner, Tag};
use vellum_core::format::superblock::Superblock;

const NONE: u32 = 0;
/// Marks the number of a shared page; an LBA is kept plus one.
const SHARED: u32 = 1 << 31;

/// The summaries of a volume; see the module.
pub struct Summaries {
    superblock: Superblock,
    /// The owner of each block of the segments.
    owners: Vec<u32>,
    /// The newest chunk in each segment's summary, if it has one.
    newest: Vec<Option<Seq>>,
    tags: Vec<Tag>,
}

impl Summaries {
    /// The summaries of a new volume: none.
    #[must_use]
    pub fn new(superblock: &Superblock) -> Self {
        let (segments, each) = (superblock.segment_count(), superblock.segment_blocks());
        Self {
            superblock: superblock.clone(),
            owners: vec![NONE; segments as usize * each as usize],
            newest: vec![None; segments as usize],
            tags: Vec::new(),
        }
    }

    fn first(&self, segment: Segment) -> usize {
        segment.0 as usize * self.superblock.segment_blocks() as usize
    }

    /// The segment whose summary is written or read at `at`, if there is one.
    fn segment(&self, at: Pba) -> Option<Segment> {
        // The summary lies after the data blocks.
        let usable = u64::from(self.superblock.usable_blocks());
        let (segment, offset) = self.superblock.segment_of(Pba(at.0.checked_sub(usable)?))?;
        (offset == 0).then_some(segment)
    }

    /// Keeps what was written, if it is a summary.
    pub fn keep(&mut self, at: Pba, bytes: &[u8], medium: &[Content]) {
        let Some(segment) = self.segment(at) else {
            return;
        };
        let signature = self.superblock.signature();
        let usable = self.superblock.usable_blocks() as usize;
        let mut tags = std::mem::take(&mut self.tags);
        let crc = crc32c::crc32c;
        let newest = summary::decode_into(&signature, segment, usable, bytes, crc, &mut tags)
            .and_then(|()| summary::last_seq(&signature, segment, usable, bytes, crc));
        let first = self.first(segment);
        for (kept, tag) in self.owners[first..].iter_mut().zip(&tags) {
            *kept = match tag.owner {
                Owner::None => NONE,
                Owner::Lba(lba) => lba.0 as u32 + 1,
                Owner::Vba(vba) => SHARED | vba.0,
            };
        }
        self.tags = tags;
        self.newest[segment.0 as usize] = newest.ok();
        debug_assert_eq!(self.read(at, bytes.len(), medium), bytes);
    }

    /// What was written at `at`; zeros where there is no summary.
    pub fn read(&mut self, at: Pba, len: usize, medium: &[Content]) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let Some(segment) = self.segment(at) else {
            return bytes;
        };
        let Some(newest) = self.newest[segment.0 as usize] else {
            return bytes;
        };
        let start = self.superblock.segment_start(segment).0 as usize;
        let first = self.first(segment);
        let usable = self.superblock.usable_blocks() as usize;
        let blocks = self.owners[first..first + usable]
            .iter()
            .zip(&medium[start..]);
        let mut tags = std::mem::take(&mut self.tags);
        tags.clear();
        tags.extend(blocks.map(|(&kept, content)| match kept {
            NONE => Tag {
                owner: Owner::None,
                sum: 0,
            },
            _ => Tag {
                owner: match kept & SHARED {
                    0 => Owner::Lba(Lba(u64::from(kept) - 1)),
                    _ => Owner::Vba(Vba(kept & !SHARED)),
                },
                sum: content.sum(),
            },
        }));
        let signature = self.superblock.signature();
        summary::encode(
            &signature,
            segment,
            newest,
            &tags,
            crc32c::crc32c,
            &mut bytes,
        );
        self.tags = tags;
        debug_assert_eq!(bytes.len() % BLOCK_BYTES, 0);
        bytes
    }

    /// Notes that a segment is erased.
    pub fn erased(&mut self, at: Pba) {
        if let Some((segment, _)) = self.superblock.segment_of(at) {
            self.newest[segment.0 as usize] = None;
        }
    }
}
