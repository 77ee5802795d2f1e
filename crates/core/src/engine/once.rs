//! Write-once journaling: a block that the journal holds already is not written home again (WOJ §3).
//!
//! A block written into a journal puts its place into the pool. A block written home asks the pool for a
//! journal block with its hash (or, by the journal's own descriptors, with its address); the bytes of both
//! are compared, and only when all are equal the home address is mapped to the journal copy, as a second
//! owner. The paper believes the hash, because every home write was journaled first; not so when something
//! else than the journal writes to the device (direct I/O, mkfs, e2fsck), so we do not.
//!
//! A block whose comparison is under way keeps its place in the queue of writes: nothing overtakes it.

use super::*;
use crate::format::chunk::Record;
use crate::pool::Pool;
use crate::seam::{Against, Payload, Region, WriteOnce};

/// What is known of the journal copy of a block in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Verdict {
    /// None was proposed, or it is not equal: the block is written.
    #[default]
    Write,
    /// The comparison is under way.
    Asked(JournalCopy),
    /// They are equal.
    Same(JournalCopy),
}

/// A journal block and what it was when it was proposed.
#[derive(Clone, Copy, Debug)]
pub(super) struct JournalCopy {
    index: u32,
    journal: Lba,
    pba: Pba,
    absorptions: u64,
}

/// A run of comparisons, to see whether they pay.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    equal: u32,
    unequal: u32,
}

#[derive(Default)]
pub(super) struct Once {
    regions: Vec<Region>,
    pool: Pool,
    /// Writes into a journal that replaced a block in its unsealed chunk: its place has not changed, but
    /// its bytes have.
    absorptions: u64,
    trial: Trial,
    /// Home blocks that are still to be written without asking, and how many that will be next time.
    paused: u32,
    pause: u32,
    /// Requests that have been refused while a comparison still reads their buffers.
    pub doomed: Vec<(Waiting, Refusal)>,
}

impl Once {
    pub fn is_on(&self) -> bool {
        !self.regions.is_empty()
    }

    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The journal that a block is in, and its place there counted over all of them.
    fn in_journal(&self, lba: Lba) -> Option<(u32, WriteOnce)> {
        let mut first = 0;
        for region in &self.regions {
            let within = lba.0.wrapping_sub(region.start.0);
            if within < region.blocks {
                return Some(((first + within) as u32, region.rule));
            }
            first += region.blocks;
        }
        None
    }

    fn journal_block(&self, index: u32) -> (Lba, &Region) {
        let mut within = u64::from(index);
        for region in &self.regions {
            if within < region.blocks {
                return (region.start.plus(within), region);
            }
            within -= region.blocks;
        }
        unreachable!("the pool holds journal blocks alone")
    }

    /// The rule for a block outside of every journal.
    fn rule_of_home(&self, lba: Lba) -> WriteOnce {
        self.regions
            .iter()
            .find(|region| is_home(region, lba))
            .map_or(WriteOnce::Off, |region| region.rule)
    }

    fn compared(&mut self, equal: bool) -> bool {
        let trial = &mut self.trial;
        match equal {
            true => trial.equal += 1,
            false => trial.unequal += 1,
        }
        if trial.equal + trial.unequal < limits::COMPARES_IN_A_TRIAL {
            return false;
        }
        let pays = trial.equal * 2 >= trial.unequal;
        *trial = Trial::default();
        self.pause = match pays {
            true => 0,
            false => (self.pause * 2).clamp(limits::PAUSE_BLOCKS.0, limits::PAUSE_BLOCKS.1),
        };
        self.paused = self.pause;
        !pays
    }
}

fn is_home(region: &Region, lba: Lba) -> bool {
    lba.0.wrapping_sub(region.homes.0) < region.homes_blocks
}

/// A home address as a key of the pool: every bit of it in the upper half.
fn home_key(lba: Lba) -> u64 {
    (lba.0 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Engine {
    /// Where journals are from now on. Regions are cut to what the volume and the pool can hold.
    pub(super) fn watch_journals(&mut self, regions: &[Region]) {
        let mut room = limits::POOL_BLOCKS;
        let volume = self.map.blocks();
        let mut kept: Vec<Region> = Vec::new();
        for region in regions {
            let mut region = *region;
            if region.rule == WriteOnce::Off || region.start.0 >= volume {
                continue;
            }
            region.blocks = region.blocks.min(volume - region.start.0).min(room);
            if region.blocks > 0 {
                room -= region.blocks;
                kept.push(region);
            }
        }
        if kept == self.once.regions {
            return;
        }
        let blocks: u64 = kept.iter().map(|region| region.blocks).sum();
        self.once.regions = kept;
        self.once.pool = Pool::new(blocks as u32);
        self.once.trial = Trial::default();
        (self.once.paused, self.once.pause) = (0, 0);
        // What has been asked belongs to numbers that are no more.
        self.once.absorptions += 1;
    }

    /// Home addresses of journal blocks, as a descriptor block has them.
    pub(super) fn learn_homes(&mut self, pairs: &[(Lba, Lba)]) {
        for &(home, journal) in pairs {
            if let Some((index, WriteOnce::Descriptor)) = self.once.in_journal(journal)
                && is_home(self.once.journal_block(index).1, home)
            {
                self.once.pool.insert(index, home_key(home));
            }
        }
    }

    /// A block has been written into the log.
    pub(super) fn note_journal(&mut self, lba: Lba, payload: &Payload, absorbed: bool) {
        let Some((index, rule)) = self.once.in_journal(lba) else {
            return;
        };
        self.stats.journal_blocks += 1;
        self.once.absorptions += u64::from(absorbed);
        match rule {
            WriteOnce::Descriptor | WriteOnce::Off => {}
            WriteOnce::Hash | WriteOnce::HashUnlessCollided => {
                self.once.pool.insert(index, payload.digest.weak);
            }
        }
    }

    /// Journal space that reads as zeros proposes nothing.
    pub(super) fn forget_journal(&mut self, lba: Lba, blocks: u64) {
        let end = lba.0 + blocks;
        let mut first = 0;
        for region in &self.once.regions {
            let from = lba.0.max(region.start.0);
            let to = end.min(region.start.0 + region.blocks);
            for at in from..to {
                self.once.pool.remove((first + at - region.start.0) as u32);
            }
            first += region.blocks;
        }
    }

    /// Asks about each block of a write that may have its journal copy. Empty: about none.
    pub(super) fn ask(&mut self, request: RequestId, lba: Lba, blocks: &[Payload]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for (index, payload) in blocks.iter().enumerate() {
            let at = lba.plus(index as u64);
            let Some(copy) = self.propose(at, payload) else {
                continue;
            };
            // One allocation for a request that asks, in place of a read or a write of a block.
            if verdicts.is_empty() {
                verdicts.resize(blocks.len(), Verdict::Write);
            }
            verdicts[index] = Verdict::Asked(copy);
            let buffered = self.chunks.find(copy.pba);
            let with = match buffered {
                Some((chunk, slot)) => Against::Buffer(self.chunks.get(chunk).slots[slot].buf),
                None => Against::Medium(copy.pba),
            };
            let reads = matches!(with, Against::Medium(_));
            if reads {
                self.stats.compare_reads += 1;
                let (segment, _) = locate(&self.superblock, copy.pba);
                self.segments.get_mut(segment).readers += 1;
            }
            let pending = Pending::Compare {
                request,
                index: index as u32,
                reads: reads.then_some(copy.pba),
            };
            let buf = payload.buf;
            self.effect(pending, |id| Effect::Compare { id, buf, with });
        }
        verdicts
    }

    fn propose(&mut self, lba: Lba, payload: &Payload) -> Option<JournalCopy> {
        if (self.options.zero && payload.digest.zero) || self.once.in_journal(lba).is_some() {
            return None;
        }
        let rule = self.once.rule_of_home(lba);
        let key = match rule {
            WriteOnce::Off => return None,
            WriteOnce::Hash | WriteOnce::HashUnlessCollided => payload.digest.weak,
            WriteOnce::Descriptor => home_key(lba),
        };
        self.stats.checkpoint_writes += 1;
        if self.once.paused > 0 {
            self.once.paused -= 1;
            self.stats.missing_blocks += 1;
            return None;
        }
        let found = self.once.pool.find(key).and_then(|proposal| {
            let (journal, region) = self.once.journal_block(proposal.index);
            is_home(region, lba).then_some((proposal, journal))
        });
        let Some((proposal, journal)) = found else {
            self.stats.missing_blocks += 1;
            return None;
        };
        if proposal.collided && rule == WriteOnce::HashUnlessCollided {
            self.stats.collided_blocks += 1;
            return None;
        }
        let Some(pba) = self.physical(self.map.get(journal)) else {
            self.stats.missing_blocks += 1;
            return None;
        };
        Some(JournalCopy {
            index: proposal.index,
            journal,
            pba,
            absorptions: self.once.absorptions,
        })
    }

    pub(super) fn compared(
        &mut self,
        request: RequestId,
        index: u32,
        read: Option<Pba>,
        outcome: Outcome<'_>,
    ) {
        if let Some(pba) = read {
            self.end_reader(locate(&self.superblock, pba).0);
        }
        let same = match outcome {
            Outcome::Same(same) => same,
            _ => {
                // The block at hand is whole, and is written; nothing is lost.
                self.stats.unreadable_blocks += 1;
                false
            }
        };
        match same {
            true => self.stats.compared_equal += 1,
            false => self.stats.compared_unequal += 1,
        }
        self.stats.write_once_pauses += u64::from(self.once.compared(same));
        let is_it =
            |waiting: &Waiting| matches!(waiting, Waiting::Write { id, .. } if *id == request);
        if let Some(Waiting::Write { verdicts, .. }) = self.waiting.iter_mut().find(|w| is_it(w)) {
            answer(verdicts, index, same);
            return;
        }
        let Some(at) = self.once.doomed.iter().position(|(w, _)| is_it(w)) else {
            unreachable!("request {request} keeps its buffers while they are compared")
        };
        if let Waiting::Write { verdicts, .. } = &mut self.once.doomed[at].0 {
            answer(verdicts, index, false);
        }
        if !self.once.doomed[at].0.is_asking() {
            let (waiting, refusal) = self.once.doomed.swap_remove(at);
            self.refuse(waiting, refusal);
        }
    }

    /// A segment is about to be written: a page in it that was compared is not what it was.
    pub(super) fn doubt(&mut self, segment: Segment) {
        for waiting in &mut self.waiting {
            let Waiting::Write { verdicts, .. } = waiting else {
                continue;
            };
            for verdict in verdicts {
                if let Verdict::Same(copy) = verdict
                    && locate(&self.superblock, copy.pba).0 == segment
                {
                    *verdict = Verdict::Write;
                }
            }
        }
    }

    /// Maps a home block to its journal copy. `None`: that is no longer what was compared, and the block
    /// has to be written; `Some(false)`: not now.
    pub(super) fn share(&mut self, lba: Lba, copy: JournalCopy) -> Option<bool> {
        let entry = self.map.get(copy.journal);
        if self.physical(entry) != Some(copy.pba) || self.once.absorptions != copy.absorptions {
            return None;
        }
        let mut records = 2;
        if let Entry::Shared(vba) = entry {
            if self.map.get(lba) == entry {
                // Written home twice: it is there.
                self.remapped(copy);
                return Some(true);
            }
            if self.shared.owners(vba) == u32::MAX {
                return None;
            }
            records = 1;
        }
        // A link must come after what it leads to: a page that the collector has just moved may be in a chunk
        // that has no place in the order yet.
        if let Some((chunk, _)) = self.chunks.find(copy.pba)
            && self.chunks.get(chunk).head == Head::Cold
            && self.chunks.get(chunk).sealed.is_none()
            && !self.seal(Head::Cold, false)
        {
            return Some(false);
        }
        let share = |lba, vba| Record::Share {
            lba,
            vba,
            pba: copy.pba,
        };
        let length = share(lba, Vba(0)).encoded_len();
        let Some(chunk) = self.chunk_with_room(Head::Host, records * length, false) else {
            return Some(false);
        };
        let vba = match entry {
            Entry::Shared(vba) => vba,
            _ => {
                let vba = self.shared.insert(copy.pba)?;
                self.own(vba, copy.journal);
                self.map.set(copy.journal, Entry::Shared(vba));
                self.chunks.get_mut(chunk).push(share(copy.journal, vba));
                vba
            }
        };
        self.own(vba, lba);
        self.chunks.get_mut(chunk).push(share(lba, vba));
        self.remap(lba, Entry::Shared(vba));
        self.remapped(copy);
        Some(true)
    }

    fn own(&mut self, vba: Vba, lba: Lba) {
        let counted = self.shared.add(vba, lba);
        assert!(counted, "the count of shared page {vba} has room");
    }

    fn remapped(&mut self, copy: JournalCopy) {
        self.stats.remapped_blocks += 1;
        let pool = &mut self.once.pool;
        // A collided entry may have a second checkpoint to serve.
        if pool.is_collided(copy.index) == Some(false) {
            pool.remove(copy.index);
        }
    }
}

fn answer(verdicts: &mut [Verdict], index: u32, same: bool) {
    let verdict = &mut verdicts[index as usize];
    *verdict = match *verdict {
        Verdict::Asked(copy) if same => Verdict::Same(copy),
        _ => Verdict::Write,
    };
}
