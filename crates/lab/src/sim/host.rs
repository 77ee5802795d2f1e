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
    /// How long requests waited in a submission queue, if the drive has any.
    pub waited: Latencies,
    /// Requests not answered yet.
    open: u32,
    /// When the first request came, and when the last answer did.
    began: Option<u64>,
    ended: u64,
}

impl Host {
    /// Requests not answered yet.
    pub(super) fn open(&self) -> u32 {
        self.open
    }

    /// Nanoseconds from its first request to its last answer.
    #[must_use]
    pub fn nanos(&self) -> u64 {
        self.began
            .map_or(0, |began| self.ended.saturating_sub(began))
    }

    /// Counts a request.
    pub(super) fn asks(&mut self, request: &Request, now: u64) {
        self.open += 1;
        self.began.get_or_insert(now);
        match request.op {
            Op::Read => self.blocks_read += u64::from(request.blocks),
            Op::Write { .. } => self.blocks_written += u64::from(request.blocks),
            Op::Discard { .. } | Op::Flush => {}
        }
    }

    /// Counts an answer that came `now`; a request of no blocks is a flush.
    pub(super) fn is_answered(&mut self, read: bool, blocks: u32, (took, now): (u64, u64)) {
        self.open -= 1;
        self.ended = now;
        self.served += 1;
        let seen = match (read, blocks) {
            (true, _) => &mut self.reads,
            (false, 0) => &mut self.flushes,
            (false, _) => &mut self.writes,
        };
        seen.add(took);
    }
}
