//! A device of which only latency and bandwidth are known.
//!
//! Transfers share the bandwidth of their direction one after the other; each then takes its latency, beside
//! those of others. A flush waits for the writes before it. What the device does inside is not simulated, so
//! it has no erasures and no life.

use crate::flash::Block;
use crate::timeline::{Tag, Timeline};
use vellum_core::addr::BLOCK_BYTES;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct BlockDevice {
    figures: Block,
    reads_end: u64,
    writes_end: u64,
}

impl BlockDevice {
    /// An idle one.
    #[must_use]
    pub fn new(figures: Block) -> Self {
        Self {
            figures,
            reads_end: 0,
            writes_end: 0,
        }
    }

    fn tell(time: &mut Timeline, at: u64, tag: Tag) {
        if time.is_instant() {
            time.done(tag);
        } else {
            time.at(at, tag);
        }
    }

    /// Reads.
    pub fn read(&mut self, time: &mut Timeline, tag: Tag, blocks: u32) {
        let at = self.read_ends(time.now(), blocks);
        Self::tell(time, at, tag);
    }

    /// Writes.
    pub fn write(&mut self, time: &mut Timeline, tag: Tag, blocks: u32, durable: bool) {
        self.write_from(time, time.now(), tag, blocks, durable);
    }

    /// Writes what is ready at a moment not before now.
    pub fn write_from(
        &mut self,
        time: &mut Timeline,
        from: u64,
        tag: Tag,
        blocks: u32,
        durable: bool,
    ) {
        let at = self.write_ends(from, blocks, durable);
        Self::tell(time, at, tag);
    }

    /// Makes what was written durable.
    pub fn flush(&mut self, time: &mut Timeline, tag: Tag) {
        let at = self.flush_ends(time.now());
        Self::tell(time, at, tag);
    }

    fn read_ends(&mut self, now: u64, blocks: u32) -> u64 {
        self.reads_end = now.max(self.reads_end) + transfer(blocks, self.figures.read_bytes_per_s);
        self.reads_end + self.figures.read_ns
    }

    fn write_ends(&mut self, now: u64, blocks: u32, durable: bool) -> u64 {
        self.writes_end =
            now.max(self.writes_end) + transfer(blocks, self.figures.write_bytes_per_s);
        let flush = if durable { self.figures.flush_ns } else { 0 };
        self.writes_end + self.figures.write_ns + flush
    }

    fn flush_ends(&mut self, now: u64) -> u64 {
        now.max(self.writes_end + self.figures.write_ns) + self.figures.flush_ns
    }
}

fn transfer(blocks: u32, bytes_per_s: u64) -> u64 {
    u64::from(blocks) * BLOCK_BYTES as u64 * 1_000_000_000 / bytes_per_s.max(1)
}
