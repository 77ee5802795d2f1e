//! The requests that an application sends next.

use crate::trace::Op;
use std::collections::VecDeque;

/// The most blocks of a request: 128 KiB, as file systems send them.
pub(super) const PIECE: u64 = 32;

/// The next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextRequest {
    /// What it does.
    pub op: Op,
    /// The first block.
    pub lba: u64,
    /// How many blocks.
    pub blocks: u32,
}

/// The requests to send next, in order.
#[derive(Default)]
pub(super) struct NextRequests(pub(super) VecDeque<NextRequest>);

impl NextRequests {
    pub(super) fn pieces(&mut self, op: Op, lba: u64, blocks: u64) {
        let all = (0..blocks).step_by(PIECE as usize);
        self.0.extend(all.map(|at| NextRequest {
            op,
            lba: lba + at,
            blocks: (blocks - at).min(PIECE) as u32,
        }));
    }

    pub(super) fn write(&mut self, lba: u64, blocks: u64) {
        self.pieces(Op::Write { fua: false }, lba, blocks);
    }

    pub(super) fn flush(&mut self) {
        self.0.push_back(NextRequest {
            op: Op::Flush,
            lba: 0,
            blocks: 0,
        });
    }
}
