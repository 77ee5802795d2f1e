//! Counts blocks by class: by what they are to their writer.

use crate::seam::{Class, Packed, Payload};
use crate::stats::Stats;

impl Stats {
    /// Counts the blocks of a write request, before it is decided how they are stored.
    pub(crate) fn asked(&mut self, blocks: &[Payload]) {
        for block in blocks {
            let count = match block.digest.class {
                Class::Data => &mut self.asked_data,
                Class::Metadata => &mut self.asked_metadata,
                Class::Copy => &mut self.asked_copies,
                Class::Journal => &mut self.asked_journal,
            };
            *count += 1;
        }
    }

    /// Counts a block stored in a page by itself.
    pub(crate) fn stored_whole(&mut self, class: Class) {
        let count = match class {
            Class::Data => &mut self.whole_data,
            Class::Metadata => &mut self.whole_metadata,
            Class::Copy => &mut self.whole_copies,
            Class::Journal => &mut self.whole_journal,
        };
        *count += 1;
    }

    /// Counts a block stored in a part of a page.
    pub(crate) fn stored_in_part(&mut self, class: Class, packed: Packed) {
        let bytes = u64::from(packed.len.get());
        self.packed_blocks += 1;
        self.packed_bytes += bytes;
        if packed.base.is_some() {
            self.delta_blocks += 1;
            self.delta_bytes += bytes;
        }
        let (blocks, total) = match class {
            Class::Data => (&mut self.parts_data, &mut self.part_bytes_data),
            Class::Metadata => (&mut self.parts_metadata, &mut self.part_bytes_metadata),
            Class::Copy => (&mut self.parts_copies, &mut self.part_bytes_copies),
            Class::Journal => (&mut self.parts_journal, &mut self.part_bytes_journal),
        };
        *blocks += 1;
        *total += bytes;
    }
}
