//! Blocks that are stored already: proposed by a policy, compared, and linked to.
//!
//! Here a twin is a data block, whichever LBAs lead to it. It is pinned from the comparison until it is linked, so the block that was
//! compared is the block that gets the link.

use super::Tables;
use super::data_blocks::DataBlocks;
use super::order::Step;
use super::pending::Pending;
use super::table::Table;
use super::verdict::{Twin, Verdict};
use crate::addr::{Lba, RequestId, Vba};
use crate::format::table::Link;
use crate::front::{Noted, refuse};
use crate::index::Holder;
use crate::limits;
use crate::policy::dedup::{Dedup, content_hash};
use crate::policy::{Answer, Proposer};
use crate::seam::{Against, DedupPolicy, Effect, Outcome, Payload};
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
        let held = u64::from(self.front.outbox.buffers() - self.buffers.on_their_way());
        let full = self.options.write_buffers;
        self.proposers.begin(blocks, held, full, &mut self.stats);
        Verdict::ask_for(blocks, |at, payload| {
            if self.options.zero.takes(payload) {
                return None;
            }
            let home = lba.plus(at as u64);
            let twin = self.propose(home, at, payload)?;
            self.blocks.pin(twin.index);
            let with = match self.buffers.get(twin.index) {
                Some(buf) => Against::Buffer(buf),
                None => {
                    self.stats.compare_reads += 1;
                    Against::Medium(self.superblock.areas().data(twin.index))
                }
            };
            let id = self.front.begin(Pending::Compare {
                request,
                index: at as u32,
            });
            let buf = payload.buf;
            self.front.tell(Effect::Compare { id, buf, with });
            Some(twin)
        })
    }

    /// The data block that is proposed, if its checksum may match: a misdirected read must not pass another block off as a twin.
    fn propose(&mut self, lba: Lba, at: usize, payload: &Payload) -> Option<Twin> {
        let (by, holder) = self.proposers.propose(lba, at, payload, &mut self.stats)?;
        let (index, sum) = match holder {
            Holder::Lba(journal) => {
                let link = self.link(journal);
                (link.index(), Some(link.sum))
            }
            Holder::Page(Vba(index)) => (Some(index), self.fingerprint(index)),
        };
        let index = index.filter(|_| sum == Some(payload.digest.sum));
        if index.is_none() {
            self.proposers.refuted(by, &mut self.stats);
        }
        index.map(|index| Twin { by, index })
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
        let judge = |twin| same.then_some(twin);
        let (twin, refused) = match self.front.queue.on_answer(request, index, judge) {
            Noted::Waits(Some(twin)) if same => {
                let by = Some(twin.by);
                return self
                    .proposers
                    .learn(by, Answer::Same(None), &mut self.stats);
            }
            Noted::Waits(twin) => {
                let by = twin.map(|twin| twin.by);
                let is_journals = matches!(by, Some(Proposer::Journal(_)));
                self.stats.missing_blocks += u64::from(is_journals);
                self.proposers.learn(by, Answer::Other, &mut self.stats);
                (twin, None)
            }
            Noted::Refused(twin, refused) => (twin, refused),
        };
        if let Some(twin) = twin {
            self.unpin(twin.index);
        }
        if let Some((waiting, refusal)) = refused {
            refuse::one(self, waiting, refusal);
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
                || self.proposers.dedup().is_critical(lba) && is_shared
            {
                return Sharing::No;
            }
            self.blocks.raise(twin.index);
            self.mark(Step::CountUp, Table::<u16>::block_of(twin.index));
            self.relink(lba, link);
        }
        self.proposers.shared_by(twin.by, &mut self.stats);
        Sharing::Done
    }

    /// Notes that a content is stored in a data block.
    pub(super) fn met(&mut self, index: u32, sum: u32) {
        meet(self.proposers.dedup_mut(), &self.blocks, index, sum);
    }

    pub(crate) fn dedup(&self) -> &Dedup {
        self.proposers.dedup()
    }

    pub(crate) fn dedup_mut(&mut self) -> &mut Dedup {
        self.proposers.dedup_mut()
    }

    /// Sets the policy; a new index is filled from the table of fingerprints.
    pub(super) fn set_dedup(&mut self, policy: DedupPolicy) {
        if !self.proposers.set(policy) || !self.proposers.dedup().is_on() {
            return;
        }
        self.prints.begin_to_fill();
    }

    /// Continues to fill a new index, a part with every tick, because a large table would hold up requests.
    pub(super) fn fill_index(&mut self) {
        if !self.proposers.dedup().is_on() {
            return self.prints.end_to_fill();
        }
        let all = self.superblock.areas().data_blocks() as u32;
        let (blocks, dedup) = (&self.blocks, self.proposers.dedup_mut());
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
