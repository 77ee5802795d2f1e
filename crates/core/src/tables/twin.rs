//! A block that is stored already: proposed by a policy, compared, and linked to.
//!
//! Here a twin is a data block, whoever leads to it: while it is looked at it is pinned, so what was compared is
//! what is linked to.

use super::order::Step;
use super::table::Table;
use super::waiting::Waiting;
use super::{Pending, Tables};
use crate::addr::{Lba, RequestId, Vba};
use crate::format::table::Link;
use crate::front;
use crate::index::Holder;
use crate::limits;
use crate::policy::dedup::{Dedup, content_hash};
use crate::seam::{Against, Dedup as Policy, Effect, Outcome, Payload};
use alloc::vec::Vec;

/// What is known of the twin of a block in the queue.
pub(super) type Verdict = front::Verdict<Twin>;

/// Who proposed a twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proposer {
    /// The pool: this block of the journals.
    Journal(u32),
    /// The index, by this hash.
    Index(u64),
}

/// A data block that may be equal; pinned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Twin {
    by: Proposer,
    index: u32,
}

/// What became of a block with a twin.
pub(super) enum Sharing {
    Done,
    /// Its count has no room: the block is stored once more.
    No,
}

/// A fingerprint as the table has it: 0 is none.
pub(super) fn print_of(sum: u32) -> u32 {
    sum.wrapping_add(1).max(1)
}

impl Tables {
    /// Asks about each block of a write that may be stored already. Empty: about none.
    pub(super) fn ask(&mut self, request: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        let full = u64::from(self.options.write_buffers);
        let held = u64::from(self.outbox.buffers() - self.on_their_way);
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
            self.pin(twin.index);
            let with = match self.held.get(&twin.index) {
                Some(&buf) => Against::Buffer(buf),
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

    /// The data block of a journal's block, if its checksum allows it to be the same: a misdirected read must not make a twin
    /// of another.
    fn journaled(&self, journal: Lba, payload: &Payload) -> Option<u32> {
        let link = self.link(journal);
        link.index().filter(|_| link.sum == payload.digest.sum)
    }

    /// What the index proposes, if it is still there.
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

    /// The checksum of what a data block holds, if the block has a fingerprint.
    fn fingerprint(&self, index: u32) -> Option<u32> {
        if u64::from(index) >= self.superblock.areas().data_blocks() {
            return None;
        }
        let committing = self.committing.as_ref();
        let pending = self.running.prints.get(&index);
        let pending = pending.or_else(|| committing.and_then(|c| c.group.prints.get(&index)));
        match (pending, self.prints.get(index)) {
            (Some(sum), _) => Some(*sum),
            (None, 0) => None,
            (None, print) => Some(print.wrapping_sub(1)),
        }
    }

    pub(super) fn compared(&mut self, request: RequestId, index: u32, outcome: Outcome<'_>) {
        let same = match outcome {
            Outcome::Same(same) => same,
            _ => {
                // The block at hand is whole, and is written; nothing is lost.
                self.stats.unreadable_blocks += 1;
                false
            }
        };
        let is_it =
            |waiting: &Waiting| matches!(waiting, Waiting::Write { id, .. } if *id == request);
        if let Some(Waiting::Write { verdicts, .. }) = self.waiting.iter_mut().find(|w| is_it(w)) {
            let verdict = &mut verdicts[index as usize];
            let Verdict::Asked(twin) = *verdict else {
                return;
            };
            *verdict = match same {
                true => Verdict::Same(twin),
                false => Verdict::Write,
            };
            if !same {
                self.unpin(twin.index);
            }
            return self.learn(twin.by, same);
        }
        let Some(at) = self.doomed.iter().position(|(w, _)| is_it(w)) else {
            unreachable!("request {request} keeps its buffers while they are compared")
        };
        if let Waiting::Write { verdicts, .. } = &mut self.doomed[at].0 {
            let verdict = core::mem::take(&mut verdicts[index as usize]);
            if let Verdict::Asked(twin) = verdict {
                self.unpin(twin.index);
            }
        }
        if !self.doomed[at].0.is_asking() {
            let (waiting, refusal) = self.doomed.swap_remove(at);
            self.refuse(waiting, refusal);
        }
    }

    /// What a comparison says of who proposed it.
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

    /// A verdict is not needed any more.
    pub(super) fn let_go(&mut self, verdict: Verdict) {
        if let Verdict::Same(twin) = verdict {
            self.unpin(twin.index);
        }
    }

    /// Links an LBA to its twin.
    pub(super) fn share(&mut self, lba: Lba, payload: &Payload, twin: Twin) -> Sharing {
        let link = Link::to(twin.index, payload.digest.sum);
        if self.link(lba) != link {
            if self.counts.get(twin.index) >= limits::COUNT_MAX {
                return Sharing::No;
            }
            self.raise(twin.index);
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

    /// A content is stored in a data block.
    pub(super) fn met(&mut self, index: u32, sum: u32) {
        let owners = u32::from(self.refs.get(index));
        let holder = Holder::Page(Vba(index));
        self.dedup.met(content_hash(sum), holder, owners);
    }

    pub(crate) fn dedup(&self) -> &Dedup {
        &self.dedup
    }

    pub(crate) fn dedup_mut(&mut self) -> &mut Dedup {
        &mut self.dedup
    }

    /// Another policy from now on; another index is filled from the table of fingerprints.
    pub(super) fn set_dedup(&mut self, policy: Policy) {
        if !self.dedup.set(policy) || !self.dedup.is_on() {
            return;
        }
        self.fill_from = Some(0);
    }

    /// Goes on filling a new index, with every tick: a large table would hold requests up.
    pub(super) fn fill_index(&mut self) {
        let Some(first) = self.fill_from.filter(|_| self.dedup.is_on()) else {
            self.fill_from = None;
            return;
        };
        let all = self.superblock.areas().data_blocks() as u32;
        let end = all.min(first.saturating_add(limits::PRINTS_AT_A_TIME));
        let mut from = first;
        while let Some((index, print)) = self.prints.next(from, end) {
            self.met(index, print.wrapping_sub(1));
            from = index + 1;
        }
        self.fill_from = (end < all).then_some(end);
    }
}
