//! Checks the fields of a superblock before they are used.

use super::{ENTRY_WIDTH, KNOWN, RawSuperblock, WHAT};
use crate::addr::BLOCK_BYTES;
use crate::entry::MAX_PBA;
use crate::format::areas::Layout;
use crate::format::error::{FormatError, can_be, within_numbers};
use crate::format::field::is_known;

impl RawSuperblock {
    /// Checks that this program knows the volume, and that the medium can hold it. Returns the layout, and the number of blocks
    /// in a segment.
    pub(super) fn checked(&self, medium_blocks: u64) -> Result<(Layout, u32), FormatError> {
        self.is_known()?;
        let check = |ok, field, value| can_be(WHAT, ok, field, value);
        check(
            self.block_bytes.get() == BLOCK_BYTES as u32,
            "block bytes",
            self.block_bytes.get().into(),
        )?;
        check(
            self.entry_width.get() == ENTRY_WIDTH,
            "entry width",
            self.entry_width.get().into(),
        )?;
        let layout = Layout::of(self.layout.get()).ok_or(FormatError::Value {
            what: WHAT,
            field: "layout",
            value: self.layout.get().into(),
        })?;
        if self.medium_blocks.get() > medium_blocks {
            return Err(FormatError::CutShort {
                what: WHAT,
                recorded: self.medium_blocks.get(),
                have: medium_blocks,
            });
        }
        check(
            self.medium_blocks.get() <= MAX_PBA,
            "medium blocks",
            self.medium_blocks.get(),
        )?;
        let numbers = [
            ("life", self.life.get()),
            ("root generation", self.root_generation.get()),
            ("end of the log", self.log_end.get()),
            ("life of the log's end", self.log_end_life.get()),
            ("generation of properties", self.property_generation.get()),
        ];
        within_numbers(WHAT, &numbers)?;
        let segment_blocks = self.segment_blocks.get();
        check(
            segment_blocks.is_power_of_two() && (64..=65536).contains(&segment_blocks),
            "segment blocks",
            segment_blocks.into(),
        )?;
        Ok((layout, segment_blocks))
    }

    fn is_known(&self) -> Result<(), FormatError> {
        is_known(WHAT, self.version.get())?;
        let bits = self.incompatible.get() & !KNOWN;
        if bits != 0 {
            return Err(FormatError::Features { what: WHAT, bits });
        }
        Ok(())
    }
}
