//! Discards and zeroes: one record an extent, whatever its length.

use super::*;
use crate::format::chunk::Record;

impl Engine {
    pub(super) fn unmap(&mut self, id: RequestId, lba: Lba, blocks: u64, zero: bool, fua: bool) {
        if self.poisoned {
            return self.reply(id, Err(Refusal::Poisoned));
        }
        if !self.in_range(lba, blocks) {
            return self.reply(id, Err(Refusal::OutOfRange));
        }
        if self.held_writes.are_there() {
            return self.reply(id, Err(Refusal::NoRoom));
        }
        if !self.waiting.is_empty()
            || self.redeeming
            || !self.place_unmap(id, lba, blocks, zero, fua)
        {
            self.waiting.push_back(Waiting::Unmap {
                id,
                lba,
                blocks,
                zero,
                fua,
            });
        }
    }

    /// `true` when it is in the log and answered, or waits for durability alone.
    pub(super) fn place_unmap(
        &mut self,
        id: RequestId,
        lba: Lba,
        blocks: u64,
        zero: bool,
        fua: bool,
    ) -> bool {
        let end = lba.plus(blocks);
        // Nothing mapped: it reads as zeros already, and the log need not say so again.
        let mapped = self.map.next_mapped(lba, end).map(|(first, _)| first);
        let pledged = self.next_pledged(lba, end);
        if let Some(first) = mapped.into_iter().chain(pledged).min() {
            // Unmapped either way: both read as zeros, and an unmapped leaf takes no memory.
            if !self.log_extent(first, end.0 - first.0, false, false) {
                return false;
            }
            if self.once.is_on() {
                self.once.forget(first, end.0 - first.0);
            }
            let mut at = first;
            while let Some((mapped, _)) = self.map.next_mapped(at, end) {
                if self.dedup.forgets() {
                    self.outlive_content(mapped);
                }
                self.remap(mapped, Entry::Unmapped);
                at = mapped.plus(1);
            }
        }
        if !zero {
            self.stats.discarded_blocks += blocks;
        } else {
            self.stats.zero_blocks += blocks;
        }
        self.acknowledge(id, fua);
        true
    }

    /// Logs that an extent is zero or unmapped, joined to the record before where it adjoins; no FLUSH waits for it if that is
    /// what is pledged. `false`: no room for it now.
    pub(super) fn log_extent(&mut self, lba: Lba, blocks: u64, zero: bool, pledged: bool) -> bool {
        let record = if zero {
            Record::Zero { lba, blocks }
        } else {
            Record::Discard { lba, blocks }
        };
        if let Some(open) = self.heads[Head::Host as usize].open {
            let chunk = self.chunks.get_mut(open);
            match chunk.records.last_mut() {
                Some(Record::Zero {
                    lba: first,
                    blocks: length,
                }) if zero && first.plus(*length) == lba => {
                    *length += blocks;
                    chunk.tells |= !pledged;
                    self.keep_pledges_with(&record);
                    return true;
                }
                _ => {}
            }
        }
        let Some(chunk) = self.chunk_with_room(Head::Host, record.encoded_len(), false) else {
            return false;
        };
        self.log_link(chunk, record, pledged);
        true
    }
}
