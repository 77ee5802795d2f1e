//! Buffers: what is in each, and whose it is.

use super::super::medium::Cell;
use super::CLIENT_BUFS;
use super::{Driver, Failure, RELEASED, Stage, ensure};
use vellum_core::addr::Buf;
use vellum_core::seam::{Digest, Packed, Payload};

impl Driver {
    /// A buffer with a block in it.
    pub(super) fn take_buf(&mut self, token: u32) -> u32 {
        let at = self.rng.below(self.free.len() as u64) as usize;
        let buf = self.free.swap_remove(at);
        self.cells[buf as usize] = Cell::Data(token);
        self.held[buf as usize] = true;
        buf
    }

    pub(super) fn payload(&self, buf: u32, token: u32, packed: Option<Packed>) -> Payload {
        let digest = Digest {
            packed,
            first: token.reverse_bits(),
            sum: self.medium.tokens.sum(token),
            weak: u64::from(token % self.hashes) << 32,
            zero: token == 0,
            ..Digest::default()
        };
        Payload {
            buf: Buf(buf),
            digest,
        }
    }

    pub(super) fn release(&mut self, buf: Buf) -> Result<(), Failure> {
        let index = buf.0 as usize;
        ensure!(
            buf.0 < CLIENT_BUFS,
            "buffer {buf} is the collector's, and was released"
        );
        ensure!(self.held[index], "buffer {buf} released twice");
        let used = self
            .flights
            .iter()
            .any(|f| f.stage != Stage::Carried && f.bufs.contains(&buf));
        ensure!(
            !used,
            "buffer {buf} released while it is being written or compared"
        );
        self.held[index] = false;
        self.cells[index] = Cell::Data(RELEASED);
        self.free.push(buf.0);
        Ok(())
    }
}
