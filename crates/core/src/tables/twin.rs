//! Blocks that are stored already: proposed by a policy, compared, and linked to.
//!
//! Here a twin is a data block, whichever LBAs lead to it. It is pinned from the comparison until it is linked, so the block that was
//! compared is the block that gets the link.

use super::Tables;
use super::data_blocks::DataBlocks;
use super::order::Step;
use super::pending::Pending;
use super::table::Table;
use super::verdict::{Proposer, Twin, Verdict};
use crate::addr::{Lba, RequestId, Vba};
use crate::format::table::Link;
use crate::index::Holder;
use crate::limits;
use crate::policy::dedup::{Dedup, content_hash};
use crate::seam::{Against, Dedup as Policy, Effect, Outcome, Payload};
use alloc::vec::Vec;

/// The result for a block with a twin.
pub(super) enum Sharing {
    Done,
    /// Its count has no room: the block is stored once more.
    No,
}

impl Tables {
    /// Looks for a twin of each block of a write, and requests the comparisons. Returns an empty list if there are none.
    pub(super) fn ask(&mut self, request: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let full = u64::from(self.options.write_buffers);
        let held = u64::from(self.outbox.buffers() - self.buffers.on_their_way());
        self.dedup.begin(blocks, held, full, &mut self.stats);
        for (at, payload) in blocks.iter().enumerate() {
            if self.options.zero && payload.digest.zero {
                continue;
            }
            let home = lba.plus(at as u64);
            let proposed = self.once.propose(home, payload, &mut self.stats);
            let twin = match proposed {
                Some((by, journal)) => self.journaled(journal, payload).map(|index| Twin {
                    by: Proposer::Journal(by),
                    index,
                }),
                None => self.propose_content(home, at, payload),
            };
            let Some(twin) = twin else {
                self.stats.missing_blocks += u64::from(proposed.is_some());
                continue;
            };
            if verdicts.is_empty() {
                verdicts.resize(blocks.len(), Verdict::Write);
            }
            verdicts[at] = Verdict::Asked(twin);
            self.blocks.pin(twin.index);
            let with = match self.buffers.get(twin.index) {
                Some(buf) => Against::Buffer(buf),
                None => {
                    self.stats.compare_reads += 1;
                    Against::Medium(self.superblock.areas().data(twin.index))
                }
            };
            let id = self.outbox.begin(Pending::Compare {
                request,
                index: at as u32,
            });
            let buf = payload.buf;
            self.outbox.tell(Effect::Compare { id, buf, with });
        }
        verdicts
    }

    /// The data block of a journal's block, if its checksum may match: a misdirected read must not pass another block off as a
    /// twin.
    fn journaled(&self, journal: Lba, payload: &Payload) -> Option<u32> {
        let link = self.link(journal);
        link.index().filter(|_| link.sum == payload.digest.sum)
    }

    /// The block that the index proposes, if it still exists.
    fn propose_content(&mut self, lba: Lba, at: usize, payload: &Payload) -> Option<Twin> {
        let (hash, holder) = self.dedup.propose(lba, at, payload, &mut self.stats)?;
        let Holder::Page(Vba(index)) = holder else {
            return None;
        };
        let sum = payload.digest.sum;
        let is_stored = self.fingerprint(index) == Some(sum);
        if !is_stored {
            self.stats.dedup_false_hints += 1;
            self.dedup.forget(hash);
            return None;
        }
        Some(Twin {
            by: Proposer::Index(hash),
            index,
        })
    }

    /// The checksum of a data block's contents, if the block has a fingerprint.
    fn fingerprint(&self, index: u32) -> Option<u32> {
        if u64::from(index) >= self.superblock.areas().data_blocks() {
            return None;
        }
        self.groups.print(index).or_else(|| self.prints.sum(index))
    }

    pub(super) fn compared(&mut self, request: RequestId, index: u32, outcome: Outcome<'_>) {
        let same = match outcome {
            Outcome::Same(same) => same,
            _ => {
                // The new block is whole, and is written; nothing is lost.
                self.stats.unreadable_blocks += 1;
                false
            }
        };
        if let Some(waiting) = self.queue.write(request) {
            let Some(twin) = waiting.on_answer(index, same) else {
                return;
            };
            if !same {
                self.unpin(twin.index);
            }
            return self.learn(twin.by, same);
        }
        let (twin, refused) = self.queue.on_late_answer(request, index);
        if let Some(twin) = twin {
            self.unpin(twin.index);
        }
        if let Some((waiting, refusal)) = refused {
            self.refuse(waiting, refusal);
        }
    }

    /// Has the proposer learn from a comparison.
    fn learn(&mut self, by: Proposer, same: bool) {
        match by {
            Proposer::Journal(_) => {
                match same {
                    true => self.stats.compared_equal += 1,
                    false => {
                        self.stats.compared_unequal += 1;
                        self.stats.missing_blocks += 1;
                    }
                }
                self.stats.write_once_pauses += u64::from(self.once.judge(same));
            }
            Proposer::Index(hash) if !same => {
                self.stats.dedup_false_hints += 1;
                self.dedup.forget(hash);
            }
            Proposer::Index(_) => {}
        }
    }

    /// Releases a verdict that is not needed any more.
    pub(super) fn let_go(&mut self, verdict: Verdict) {
        if let Verdict::Same(twin) = verdict {
            self.unpin(twin.index);
        }
    }

    /// Links an LBA to its twin.
    pub(super) fn share(&mut self, lba: Lba, payload: &Payload, twin: Twin) -> Sharing {
        let link = Link::to(twin.index, payload.digest.sum);
        if self.link(lba) != link {
            // One block for several deliberate copies would be a single point of failure, whoever proposes it.
            let is_shared = self.blocks.refs(twin.index) > 1;
            if self.blocks.count(twin.index) >= limits::COUNT_MAX
                || self.dedup.is_critical(lba) && is_shared
            {
                return Sharing::No;
            }
            self.blocks.raise(twin.index);
            self.mark(Step::CountUp, Table::<u16>::block_of(twin.index));
            self.relink(lba, link);
        }
        match twin.by {
            Proposer::Journal(index) => {
                self.stats.remapped_blocks += 1;
                self.once.checkpointed(index);
            }
            Proposer::Index(_) => self.stats.dedup_blocks += 1,
        }
        Sharing::Done
    }

    /// Notes that a content is stored in a data block.
    pub(super) fn met(&mut self, index: u32, sum: u32) {
        meet(&mut self.dedup, &self.blocks, index, sum);
    }

    pub(crate) fn dedup(&self) -> &Dedup {
        &self.dedup
    }

    pub(crate) fn dedup_mut(&mut self) -> &mut Dedup {
        &mut self.dedup
    }

    /// Sets the policy; a new index is filled from the table of fingerprints.
    pub(super) fn set_dedup(&mut self, policy: Policy) {
        if !self.dedup.set(policy) || !self.dedup.is_on() {
            return;
        }
        self.prints.begin_to_fill();
    }

    /// Continues to fill a new index, a part with every tick, because a large table would hold up requests.
    pub(super) fn fill_index(&mut self) {
        if !self.dedup.is_on() {
            return self.prints.end_to_fill();
        }
        let all = self.superblock.areas().data_blocks() as u32;
        let (blocks, dedup) = (&self.blocks, &mut self.dedup);
        self.prints
            .fill(limits::PRINTS_AT_A_TIME, all, |index, sum| {
                meet(dedup, blocks, index, sum);
            });
    }
}

/// Notes that a content is stored in a data block.
fn meet(dedup: &mut Dedup, blocks: &DataBlocks, index: u32, sum: u32) {
    let holder = Holder::Page(Vba(index));
    let owners = u32::from(blocks.refs(index));
    dedup.met(content_hash(sum), holder, owners);
}
