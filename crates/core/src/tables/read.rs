//! The read path: from memory, from nothing, or from the medium with its checksum.

use super::{Pending, Tables};
use crate::addr::{Lba, RequestId};
use crate::format::table::Link;
use crate::seam::{Effect, Outcome, Refusal};
use alloc::vec::Vec;

impl Tables {
    pub(super) fn start_read(&mut self, id: RequestId, lba: Lba, blocks: u32) {
        let link = |tables: &Self, index: u32| tables.link(lba.plus(u64::from(index)));
        let mut parts = 0;
        let mut index = 0;
        while index < blocks {
            let first = index;
            let here = link(self, index);
            index += 1;
            let Some(unit) = here.index() else {
                while index < blocks && link(self, index) == Link::NONE {
                    index += 1;
                }
                self.front.tell(Effect::ZeroOut {
                    request: id,
                    first,
                    blocks: index - first,
                });
                continue;
            };
            if let Some(from) = self.buffers.get(unit) {
                self.front.tell(Effect::CopyOut {
                    from,
                    request: id,
                    index: first,
                });
                self.stats.buffer_hits += 1;
                continue;
            }
            let mut sums = Vec::new();
            sums.push(here.sum);
            while index < blocks {
                let next = link(self, index);
                let follows = next.index() == Some(unit + (index - first));
                if !follows || self.buffers.has(unit + (index - first)) {
                    break;
                }
                sums.push(next.sum);
                index += 1;
            }
            parts += 1;
            let run = index - first;
            for unit in unit..unit + run {
                self.blocks.pin(unit);
            }
            let effect = self.front.begin(Pending::Read {
                request: id,
                first: unit,
                sums,
            });
            self.front.tell(Effect::Read {
                id: effect,
                at: self.superblock.areas().data(unit),
                blocks: run,
                request: id,
                first,
            });
        }
        self.front.outbox.reply_in_parts(id, parts);
    }

    pub(super) fn data_read(
        &mut self,
        request: RequestId,
        first: u32,
        expected: &[u32],
        outcome: Outcome<'_>,
    ) {
        for unit in first..first + expected.len() as u32 {
            self.unpin(unit);
        }
        let at = self.superblock.areas().data(first);
        let refusal = match outcome {
            Outcome::Sums(sums) => {
                assert_eq!(sums.len(), expected.len(), "one sum a block");
                let wrong = sums.iter().zip(expected).filter(|(a, b)| a != b).count();
                self.stats.corrupt_blocks += wrong as u64;
                sums.iter()
                    .zip(expected)
                    .position(|(found, expected)| found != expected)
                    .map(|bad| Refusal::Corrupt(at.plus(bad as u64)))
            }
            _ => {
                self.stats.unreadable_blocks += 1;
                Some(Refusal::Unreadable(at))
            }
        };
        self.front.outbox.end_part(request, refusal);
    }
}
