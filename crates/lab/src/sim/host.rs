//! What one of several hosts sees of a drive.

use crate::latency::Latencies;
use crate::trace::Op;
use crate::workload::Request;

/// A tenant, as the drive sees it.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Latencies of reads.
    pub reads: Latencies,
    /// Latencies of writes and discards.
    pub writes: Latencies,
    /// Latencies of flushes.
    pub flushes: Latencies,
    /// Blocks written.
    pub blocks_written: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Requests answered.
    pub served: u64,
    /// Requests not answered yet.
    open: u32,
}

impl Host {
    /// Requests not answered yet.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Counts a request.
    pub(super) fn asks(&mut self, request: &Request) {
        self.open += 1;
        match request.op {
            Op::Read => self.blocks_read += u64::from(request.blocks),
            Op::Write { .. } => self.blocks_written += u64::from(request.blocks),
            Op::Discard | Op::Flush => {}
        }
    }

    /// Counts an answer; a request of no blocks is a flush.
    pub(super) fn is_answered(&mut self, read: bool, blocks: u32, took: u64) {
        self.open -= 1;
        self.served += 1;
        let seen = match (read, blocks) {
            (true, _) => &mut self.reads,
            (false, 0) => &mut self.flushes,
            (false, _) => &mut self.writes,
        };
        seen.add(took);
    }
}
