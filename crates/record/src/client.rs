//! Reads the device as a client does, to find its file systems.

use crate::limits::READ_BLOCKS;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;
use vellum_core::addr::{BLOCK_BYTES, Lba};
use vellum_device::block::{BlockDevice, BlockError, Op, Replies, Request};
use vellum_device::frames::{Frames, Quota};
use vellum_ext4::{Source, Unreadable};

/// How long to wait for frames before trying again, and how often to try: clients have priority.
const PATIENCE: Duration = Duration::from_millis(10);
const TRIES: u32 = 500;

type Answer = (Request, Result<(), BlockError>);

/// The one answer to wait for.
#[derive(Default)]
struct OneAnswer {
    answer: Mutex<Option<Answer>>,
    came: Condvar,
}

impl Replies for OneAnswer {
    fn complete(&self, request: Request, result: Result<(), BlockError>) {
        *self.answer.lock() = Some((request, result));
        self.came.notify_one();
    }

    fn flush(&self) {}
}

impl OneAnswer {
    fn wait(&self) -> Answer {
        let mut answer = self.answer.lock();
        loop {
            match answer.take() {
                Some(answer) => return answer,
                None => self.came.wait(&mut answer),
            }
        }
    }
}

pub(crate) struct Client<'a> {
    device: &'a dyn BlockDevice,
    answer: Arc<OneAnswer>,
    replies: Arc<dyn Replies>,
}

impl<'a> Client<'a> {
    pub fn new(device: &'a dyn BlockDevice) -> Self {
        let answer = Arc::new(OneAnswer::default());
        Self {
            device,
            replies: answer.clone(),
            answer,
        }
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
        let request = Request {
            tag: 0,
            op: Op::Read,
            lba: Lba(lba),
            blocks: count as u64,
            frames: self.frames(count)?,
        };
        self.device.submit(&mut vec![request], &self.replies);
        let (request, result) = self.answer.wait();
        result.ok()?;
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
