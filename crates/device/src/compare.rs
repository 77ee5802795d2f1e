//! Comparisons: a block that a client writes with one that is stored (promise 4).
//!
//! Most stored ones are still in memory: in a chunk, or [kept](crate::kept) since they were written. The others
//! are read back.

use crate::drive::{Batch, Cause, Inner};
use crate::limits::COMPARE_READ_BLOCKS;
use vellum_core::addr::{Buf, EffectId, Nanos, Pba};
use vellum_core::seam::{Against, Input, Outcome};
use vellum_medium::Kind;

/// Comparisons under way.
#[derive(Debug, Default)]
pub(crate) struct Comparisons {
    /// With blocks of the medium that are still to be read.
    to_read: Vec<Comparison>,
    /// Those that are being read, by the number of the first in each operation.
    reading: Vec<Vec<Comparison>>,
    /// Those that are done, and not told to the core yet.
    verdicts: Vec<(EffectId, bool)>,
}

impl Comparisons {
    /// One that is done.
    pub fn verdict(&mut self) -> Option<(EffectId, bool)> {
        self.verdicts.pop()
    }
}

/// A comparison of a frame with a block of the medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Comparison {
    at: Pba,
    id: EffectId,
    buf: Buf,
}

impl Inner {
    /// Compares at once where the other block is in memory, and notes it for [`Inner::read_back`] otherwise.
    pub(crate) fn compare(&mut self, id: EffectId, buf: Buf, with: Against) {
        match with {
            Against::Buffer(other) => {
                let same = self.frame(buf) == self.frame(other);
                self.comparisons.verdicts.push((id, same));
            }
            Against::Medium(at) => match self.frames.is_same(at, self.frame(buf)) {
                Some(same) => {
                    self.counters.compares_kept += 1;
                    self.comparisons.verdicts.push((id, same));
                }
                None => self.comparisons.to_read.push(Comparison { at, id, buf }),
            },
        }
    }

    /// Reads back what is to be compared: what lies side by side in one operation, as copies in a journal
    /// mostly do.
    pub(crate) fn read_back(&mut self, batch: &mut Batch) {
        if self.comparisons.to_read.is_empty() {
            return;
        }
        let mut all = std::mem::take(&mut self.comparisons.to_read);
        all.sort_unstable();
        for run in all.chunk_by(|one, next| one.at.plus(1) == next.at) {
            for part in run.chunks(COMPARE_READ_BLOCKS) {
                self.read_run(part, batch);
            }
        }
        all.clear();
        self.comparisons.to_read = all;
    }

    fn read_run(&mut self, run: &[Comparison], batch: &mut Batch) {
        let Some(&Comparison { at, id, .. }) = run.first() else {
            return;
        };
        self.counters.read_blocks_compare += run.len() as u64;
        self.counters.reads_compare += 1;
        let mut io = self.io(Cause::Compare, id, Kind::Read, at);
        for one in run {
            let buffer = self.buffers.take(1);
            self.keep(one.id, buffer, &mut io);
        }
        let index = id.0 as usize;
        let reading = &mut self.comparisons.reading;
        if reading.len() <= index {
            reading.resize_with(index + 1, Vec::new);
        }
        reading[index].extend_from_slice(run);
        batch.ios.push(io);
    }

    /// What was read back has come, or cannot be had.
    pub(crate) fn compared(&mut self, now: Nanos, first: EffectId, came: bool, batch: &mut Batch) {
        let mut run = std::mem::take(&mut self.comparisons.reading[first.0 as usize]);
        // One bad block must not speak for its neighbours: then each is read alone.
        let again = !came && run.len() > 1;
        for one in run.drain(..) {
            let buffer = self.metadata[one.id.0 as usize].take();
            let outcome = match &buffer {
                Some(buffer) if came => Outcome::Same(buffer.bytes() == self.frame(one.buf)),
                _ => Outcome::Failed,
            };
            if let Some(buffer) = buffer {
                self.buffers.give_back(buffer);
            }
            match again {
                true => self.read_run(&[one], batch),
                false => self.engine.handle(
                    now,
                    Input::Done {
                        id: one.id,
                        outcome,
                    },
                ),
            }
        }
        if self.comparisons.reading[first.0 as usize].is_empty() {
            self.comparisons.reading[first.0 as usize] = run;
        }
        self.drain(batch);
    }
}
