//! The volume as the scout reads it.

use crate::block::{Op, Request};
use crate::frames::{Frames, Quota};
use crate::limits::SCAN_READ_BLOCKS;
use crate::shared::SharedVolume;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_ext4::Source;
use vellum_ext4::Unreadable;

/// Reads the volume like a client.
pub(crate) struct VolumeSource<'a> {
    shared: &'a SharedVolume,
}

impl<'a> VolumeSource<'a> {
    pub fn new(shared: &'a SharedVolume) -> Self {
        Self { shared }
    }

    /// Frames of the volume's own: a client may hold all others while it waits for this thread to end. They come back in any case.
    fn frames(&self, count: usize) -> Option<Frames> {
        match self.shared.scout.is_stopping() {
            true => None,
            false => self.shared.frames.take(Quota::OwnRead, count).ok(),
        }
    }

    fn read_some(&self, lba: u64, out: &mut [u8]) -> Option<()> {
        let count = out.len() / BLOCK_BYTES;
        let read = Request::new(Op::Read, Lba(lba), count as u64, self.frames(count)?);
        let request = self.shared.call_plain(read).ok()?;
        for (index, block) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            block.copy_from_slice(request.frames.block(index));
        }
        Some(())
    }
}

impl Source for VolumeSource<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = out.len() as u64;
        let mut lba = offset / BLOCK_BYTES as u64;
        for part in out.chunks_mut(SCAN_READ_BLOCKS * BLOCK_BYTES) {
            self.read_some(lba, part)
                .ok_or(Unreadable { offset, bytes })?;
            lba += SCAN_READ_BLOCKS as u64;
        }
        Ok(())
    }
}
