//! Reads the device as a client does, to find its file systems.

use crate::limits::READ_BLOCKS;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, Op, Request, answer_to};
use vellum_device::frames::{Frames, Quota};
use vellum_ext4::{Source, Unreadable};

/// How long to wait for frames before trying again, and how often to try: clients have priority.
const PATIENCE: Duration = Duration::from_millis(10);
const TRIES: u32 = 500;

pub(crate) struct Client<'a> {
    device: &'a dyn BlockDevice,
}

impl<'a> Client<'a> {
    pub fn new(device: &'a dyn BlockDevice) -> Self {
        Self { device }
    }

    fn frames(&self, count: usize) -> Option<Frames> {
        (0..TRIES).find_map(|_| {
            let frames = self.device.frames().try_take(Quota::Read, count);
            if frames.is_none() {
                std::thread::sleep(PATIENCE);
            }
            frames
        })
    }

    fn read_some(&self, lba: u64, out: &mut [u8]) -> Option<()> {
        let count = out.len() / BLOCK_BYTES;
        let read = Request::new(Op::Read, Lba(lba), count as u64, self.frames(count)?);
        let request = answer_to(|replies| self.device.submit(&mut vec![read], replies)).ok()?;
        for (index, block) in out.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            block.copy_from_slice(request.frames.block(index));
        }
        Some(())
    }
}

impl Source for Client<'_> {
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Unreadable> {
        let bytes = out.len() as u64;
        let mut lba = offset / BLOCK_BYTES as u64;
        let most = READ_BLOCKS.min(self.device.frames().capacity(Quota::Read));
        for part in out.chunks_mut(most * BLOCK_BYTES) {
            self.read_some(lba, part)
                .ok_or(Unreadable { offset, bytes })?;
            lba += most as u64;
        }
        Ok(())
    }
}
