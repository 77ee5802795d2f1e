//! Buffers: the contents of each, and its owner.

use super::super::medium::Cell;
use super::super::model::OpId;
use super::CLIENT_BUFS;
use super::{Driver, Failure, RELEASED, Request, ensure};
use vellum_core::addr::{Buf, Lba, RequestId};
use vellum_core::seam::{Ack, Digest, Input, Packed, Payload, Refusal};

/// No write here has more blocks.
const WRITE_MAX: u64 = 64;

impl Driver {
    /// Takes a free buffer and puts a block into it.
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

    /// Blocks to write, each in a buffer of its own, and some in fewer bytes as well.
    pub(super) fn payloads(&mut self, first: u64, tokens: &[u32]) -> Vec<Payload> {
        let mut blocks = Vec::with_capacity(tokens.len());
        for (&token, lba) in tokens.iter().zip(first..) {
            let buf = self.take_buf(token);
            let packed = self.rng.percent(self.packing);
            let packed = packed.then(|| self.in_fewer_bytes(lba, buf, token));
            blocks.push(self.payload(buf, token, packed));
        }
        blocks
    }

    /// Hands over a write; its client may already have its answer.
    pub(super) fn write(
        &mut self,
        id: RequestId,
        (lba, tokens): (u64, &[u32]),
        blocks: &[Payload],
        fua: bool,
    ) -> Result<(), Failure> {
        // Answers by the state before, with room for the requests to come. It may have changed since.
        let most = u64::from(CLIENT_BUFS) - self.free.len() as u64 + WRITE_MAX;
        let may_answer = std::mem::replace(&mut self.may_answer, self.core.may_answer(most));
        let op = self.model.begin(lba, tokens.iter().copied(), fua);
        let is_early = self.early > 0 && !fua && self.rng.percent(self.early) && may_answer;
        let (request, ack) = match is_early {
            true => (Request::Answered { op }, Ack::Given),
            false => (Request::Change { op }, Ack::of(fua)),
        };
        if is_early {
            self.counts.early += 1;
            self.model.end(op, true, true);
        }
        self.requests.insert(id.0, request);
        let lba = Lba(lba);
        self.feed(Input::Write {
            id,
            lba,
            blocks,
            ack,
        })
    }

    /// Ends a write that was answered early. It has taken effect, unless the medium fails: that is the only excuse.
    pub(super) fn kept(&mut self, op: OpId, result: Result<(), Refusal>) -> Result<(), Failure> {
        if result.is_err() {
            // Segments that are set aside can take up room that was free.
            let has_failed = self.poisoned || !self.suspects.is_empty();
            ensure!(has_failed, "a write was answered, and then {result:?}");
            self.model.end(op, false, false);
        }
        Ok(())
    }

    pub(super) fn take_back(&mut self, buf: Buf) -> Result<(), Failure> {
        let index = buf.0 as usize;
        ensure!(
            buf.0 < CLIENT_BUFS,
            "buffer {buf} is the collector's, and was released"
        );
        ensure!(self.held[index], "buffer {buf} released twice");
        ensure!(
            !self.is_used(buf),
            "buffer {buf} released while it is being written or compared"
        );
        self.held[index] = false;
        self.cells[index] = Cell::Data(RELEASED);
        self.free.push(buf.0);
        Ok(())
    }
}
