//! Checks the log past the place where replay has stopped: if any chunk there was durable, the log is damaged.

use super::error::RecoveryError;
use super::replay::Replay;
use crate::addr::{BLOCK_BYTES, Generation, Life, Pba, Segment, Seq};
use crate::format::chunk::{self, ChunkHeader};
use crate::format::root::Cursor;
use crate::format::summary;
use crate::limits::CHUNK_DATA_BLOCKS;
use alloc::collections::BTreeSet;
use alloc::{vec, vec::Vec};

impl Replay<'_> {
    /// Checks that nothing durable follows the hole at which replay has stopped.
    pub(super) fn look_past_the_hole(&mut self, newer_lost: bool) -> Result<(), RecoveryError> {
        let expected = self.last_seq.next();
        if self.durable >= expected {
            // The root or a replayed header says so.
            return Err(RecoveryError::Missing {
                seq: expected,
                durable: self.durable,
            });
        }
        let mut evidence = Ok(());
        let (root, last_life) = (self.root.generation, self.last_life);
        let mut find = |header: &ChunkHeader| {
            if evidence.is_ok() {
                evidence = is_no_evidence(header, expected, root, last_life);
            }
        };
        self.each_later(self.heads.to_vec(), expected, &mut find);
        if newer_lost || self.a_head_went_on()? {
            let segments = (0..self.superblock.segment_count()).map(Segment);
            let begins = segments.filter(|&segment| {
                let first = self.header_at(self.superblock.segment_start(segment));
                first.is_some_and(|first| first.seq >= expected)
            });
            let starts = begins.map(start_of).collect();
            self.each_later(starts, expected, &mut find);
        }
        evidence
    }

    /// Learns from later headers how much was durable, when the data of `header` is bad.
    pub(super) fn look_ahead_for_durable(&mut self, header: &ChunkHeader) {
        let heads = self.heads.into_iter();
        let starts = heads.chain(header.next.map(start_of)).collect();
        let mut durable = self.durable;
        self.each_later(starts, header.seq.next(), &mut |later| {
            if later.life >= header.life {
                durable = durable.max(later.durable.min(header.seq));
            }
        });
        self.durable = durable;
    }

    /// Shows each header whose number is `from` or above: after these places, and in the segments that a head moved on to from there. The
    /// proof that a chunk was durable may be far behind it, and in the segments of the other head.
    fn each_later(
        &mut self,
        mut starts: Vec<Cursor>,
        from: Seq,
        show: &mut dyn FnMut(&ChunkHeader),
    ) {
        let mut seen: BTreeSet<Segment> = starts.iter().map(|cursor| cursor.segment).collect();
        while let Some(cursor) = starts.pop() {
            if cursor.segment.0 >= self.superblock.segment_count() {
                continue;
            }
            let start = self.superblock.segment_start(cursor.segment);
            for offset in cursor.offset..self.superblock.usable_blocks() {
                let header = self.header_at(start.plus(offset.into()));
                let Some(header) = header.filter(|header| header.seq >= from) else {
                    continue;
                };
                show(&header);
                let is_of_log = header.life >= self.last_life;
                let next = header.next.filter(|&next| is_of_log && seen.insert(next));
                starts.extend(next.map(start_of));
            }
        }
    }

    /// The header at `at`, if this volume has one there.
    fn header_at(&mut self, at: Pba) -> Option<ChunkHeader> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block).ok()?;
        let (header, _) = chunk::decode(&block, self.crc).ok()?;
        (header.signature == self.superblock.signature() && header.at == at).then_some(header)
    }

    /// True if a head may have left the segment in which replay has stopped. The missing chunk may be the segment's last. Then the next
    /// chunk is in a segment that only the missing one named. The segment's summary shows this, because it is written together with its
    /// last chunk. It proves nothing, but tells where to look.
    fn a_head_went_on(&mut self) -> Result<bool, RecoveryError> {
        let usable = self.superblock.usable_blocks();
        let blocks = self.superblock.segment_blocks() - usable;
        let signature = self.superblock.signature();
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        for cursor in self.heads {
            if usable - cursor.offset > CHUNK_DATA_BLOCKS as u32 + 2 {
                continue;
            }
            let at = self
                .superblock
                .segment_start(cursor.segment)
                .plus(usable.into());
            if self.source.read(at, &mut bytes).is_err() {
                return Ok(true);
            }
            let (segment, count) = (cursor.segment, usable as usize);
            let went_on = match summary::last_seq(&signature, segment, count, &bytes, self.crc) {
                Ok(seq) => seq > self.last_seq,
                Err(_) => summary::may_be_left_of(&signature, segment, count, &bytes, self.crc),
            };
            if went_on {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn start_of(segment: Segment) -> Cursor {
    Cursor { segment, offset: 0 }
}

/// Returns an error if a header proves that a chunk that replay did not find was durable.
fn is_no_evidence(
    header: &ChunkHeader,
    expected: Seq,
    root: Generation,
    last_life: Life,
) -> Result<(), RecoveryError> {
    if header.root_generation > root {
        return Err(RecoveryError::RootLost {
            lost: header.root_generation,
        });
    }
    if header.durable >= expected && header.life >= last_life {
        return Err(RecoveryError::Hole {
            seq: expected,
            later: header.seq,
            at: header.at,
        });
    }
    Ok(())
}
