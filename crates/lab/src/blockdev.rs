//! A device of which only latency and bandwidth are known.
//!
//! Transfers in one direction share its bandwidth, one after the other; each then takes its latency, concurrently with
//! the others. A flush waits for the writes before it. The inside of the device is not simulated, so it has no
//! erasures and no life.

use crate::flash::Block;
use crate::timeline::{Tag, Timeline};
use vellum_core::addr::BLOCK_BYTES;

/// The device; see the module.
#[derive(Clone, Copy, Debug)]
pub struct BlockDevice {
    figures: Block,
    /// When the last transfer of each direction ends.
    reads_end: u64,
    writes_end: u64,
    /// When all writes are done.
    written: u64,
}

impl BlockDevice {
    /// An idle device.
    #[must_use]
    pub fn new(figures: Block) -> Self {
        Self {
            figures,
            reads_end: 0,
            writes_end: 0,
            written: 0,
        }
    }

    /// Reads.
    pub fn read(&mut self, time: &mut Timeline, tag: Tag, blocks: u32) {
        if time.is_instant() {
            return time.done(tag);
        }
        let bytes = bytes(blocks);
        let begins = time.now().max(self.reads_end);
        self.reads_end = begins + self.figures.read.transfer_ns(bytes);
        time.at(begins + self.figures.read.alone_ns(bytes), tag);
    }

    /// Writes.
    pub fn write(&mut self, time: &mut Timeline, tag: Tag, blocks: u32, durable: bool) {
        self.write_from(time, time.now(), tag, blocks, durable);
    }

    /// Writes data that is ready at a time not before now.
    pub fn write_from(
        &mut self,
        time: &mut Timeline,
        from: u64,
        tag: Tag,
        blocks: u32,
        durable: bool,
    ) {
        if time.is_instant() {
            return time.done(tag);
        }
        let bytes = bytes(blocks);
        let begins = from.max(self.writes_end);
        self.writes_end = begins + self.figures.write.transfer_ns(bytes);
        let done = begins + self.figures.write.alone_ns(bytes);
        self.written = self.written.max(done);
        let flush = if durable { self.figures.flush_ns } else { 0 };
        time.at(done + flush, tag);
    }

    /// Makes what was written durable.
    pub fn flush(&mut self, time: &mut Timeline, tag: Tag) {
        if time.is_instant() {
            return time.done(tag);
        }
        time.at(time.now().max(self.written) + self.figures.flush_ns, tag);
    }
}

fn bytes(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64
}
