//! What lies behind the place where replay has stopped: nothing that was durable, or it is damage.

use super::RecoveryError;
use super::replay::Replay;
use crate::addr::{BLOCK_BYTES, Pba, Segment};
use crate::format::chunk::{self, ChunkHeader};
use crate::format::summary;
use crate::limits::CHUNK_DATA_BLOCKS;
use alloc::vec;

impl Replay<'_> {
    /// Nothing durable may lie behind the hole at which replay has stopped.
    pub(super) fn look_past_the_hole(&mut self, newer_lost: bool) -> Result<(), RecoveryError> {
        let expected = self.last_seq.next();
        if self.durable >= expected {
            // The root or a header that was replayed says so.
            return Err(RecoveryError::Missing {
                seq: expected,
                durable: self.durable,
            });
        }
        for cursor in self.heads {
            let start = self.superblock.segment_start(cursor.segment);
            for offset in cursor.offset..self.superblock.usable_blocks() {
                self.find_evidence(start.plus(u64::from(offset)))?;
            }
        }
        if newer_lost || self.a_head_went_on()? {
            for segment in 0..self.superblock.segment_count() {
                self.find_evidence(self.superblock.segment_start(Segment(segment)))?;
            }
        }
        Ok(())
    }

    /// Learns from what lies further on in the segments how much was durable, when `header`'s data is bad.
    pub(super) fn look_ahead_for_durable(&mut self, header: &ChunkHeader) {
        let starts = self.heads.map(|head| (head.segment, head.offset));
        let next = header.next.map(|segment| (segment, 0));
        for (segment, from) in starts.into_iter().chain(next) {
            if segment.0 >= self.superblock.segment_count() {
                continue;
            }
            let start = self.superblock.segment_start(segment);
            for offset in from..self.superblock.usable_blocks() {
                if let Some(later) = self.header_at(start.plus(offset.into()))
                    && later.seq > header.seq
                    && later.life >= header.life
                {
                    self.durable = self.durable.max(later.durable.min(header.seq));
                }
            }
        }
    }

    /// The header at `at`, if there is one of ours.
    fn header_at(&mut self, at: Pba) -> Option<ChunkHeader> {
        let mut block = [0; BLOCK_BYTES];
        self.source.read(at, &mut block).ok()?;
        let (header, _) = chunk::decode(&block, self.crc).ok()?;
        (header.signature == self.superblock.signature() && header.at == at).then_some(header)
    }

    /// An error when a header at `at` proves that what replay did not find was durable.
    fn find_evidence(&mut self, at: Pba) -> Result<(), RecoveryError> {
        let expected = self.last_seq.next();
        let Some(header) = self.header_at(at).filter(|header| header.seq >= expected) else {
            return Ok(());
        };
        if header.root_generation > self.root.generation {
            return Err(RecoveryError::RootLost {
                lost: header.root_generation,
            });
        }
        if header.durable >= expected && header.life >= self.last_life {
            return Err(RecoveryError::Hole {
                seq: expected,
                later: header.seq,
                at,
            });
        }
        Ok(())
    }

    /// Whether a head may have left the segment in which replay has stopped: the chunk that is missing
    /// may be its last, and then what follows is in a segment that only it could name. The summary,
    /// which is written together with it, tells; it is not proof of anything, but tells where to look.
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
            if bytes.iter().all(|&byte| byte == 0) {
                continue;
            }
            match summary::last_seq(
                &signature,
                cursor.segment,
                usable as usize,
                &bytes,
                self.crc,
            ) {
                Ok(seq) if seq <= self.last_seq => {}
                Ok(_) | Err(_) => return Ok(true),
            }
        }
        Ok(false)
    }
}
