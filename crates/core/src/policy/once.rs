//! Write-once journaling: a block that the journal holds already is not written home again (WOJ §3).
//!
//! A block written into a journal puts its place into the pool. A block written home asks the pool for a
//! journal block with its hash (or, by the journal's own descriptors, with its address); the bytes of both
//! are compared, and only when all are equal the home address is mapped to the journal copy, as a second
//! owner. The paper believes the hash, because every home write was journaled first; not so when something
//! else than the journal writes to the device (direct I/O, mkfs, e2fsck), so we do not.
//!
//! This is the policy alone: it knows addresses and hashes, and not how blocks are stored. How a block is compared
//! and mapped is each layout's own.

use crate::addr::Lba;
use crate::limits;
use crate::pool::{Pool, Proposal};
use crate::seam::{Payload, Region, WriteOnce};
use crate::stats::Stats;
use alloc::vec::Vec;

/// A run of comparisons, to see whether they pay.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    equal: u32,
    unequal: u32,
}

/// What is known of journals, and of what is in them.
#[derive(Default)]
pub struct Once {
    regions: Vec<Region>,
    pool: Pool,
    trial: Trial,
    /// Home blocks that are still to be written without asking, and how many that will be next time.
    paused: u32,
    pause: u32,
    /// Blocks written into journals, and at all, when something waited for what was written, the last time.
    awaited: (u64, u64),
    /// A write was refused: nothing is pledged any more, for a commit may be of blocks that are not there.
    gaps: bool,
}

impl Once {
    /// Whether there are journals.
    pub fn is_on(&self) -> bool {
        !self.regions.is_empty()
    }

    /// The journal blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Whether a block is in a journal that is watched.
    pub fn has(&self, lba: Lba) -> bool {
        self.in_journal(lba).is_some()
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

    /// A FLUSH, or a write with FUA, waits for what has been written.
    pub fn awaits(&mut self, flush: bool, stats: &mut Stats) {
        let now = (stats.journal_blocks, stats.host_blocks_written);
        let before = core::mem::replace(&mut self.awaited, now);
        let of_homes = before.0 == now.0 && before.1 != now.1;
        stats.flushes_of_homes += u64::from(flush && self.is_on() && of_homes);
    }

    /// A block is home: its entry leaves, unless that is collided and may have a second one to serve.
    pub fn checkpointed(&mut self, index: u32) {
        if self.pool.is_collided(index) == Some(false) {
            self.pool.remove(index);
        }
    }

    /// Takes note of how a comparison ended; whether it is the one after which asking is left off.
    pub fn judge(&mut self, equal: bool) -> bool {
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

impl Once {
    /// Where journals are from now on. Regions are cut to what the volume and the pool can hold.
    pub fn watch(&mut self, regions: &[Region], volume: u64) {
        let mut room = limits::POOL_BLOCKS;
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
        if kept == self.regions {
            return;
        }
        let blocks: u64 = kept.iter().map(|region| region.blocks).sum();
        self.regions = kept;
        self.pool = Pool::new(blocks as u32);
        self.trial = Trial::default();
        (self.paused, self.pause) = (0, 0);
    }

    /// Whether what the journal has at `journal` may belong to `home`.
    pub fn may_pledge(&self, home: Lba, journal: Lba) -> bool {
        let Some((index, _)) = self.in_journal(journal) else {
            return false;
        };
        !self.gaps && self.in_journal(home).is_none() && is_home(self.journal_block(index).1, home)
    }

    /// The number in the pool of a block that is pledged to a home block.
    pub fn pledged(&self, journal: Lba) -> Option<u32> {
        self.in_journal(journal).map(|(index, _)| index)
    }

    /// Home addresses of journal blocks, as a descriptor block has them.
    pub fn learn_homes(&mut self, pairs: &[(Lba, Lba)]) {
        for &(home, journal) in pairs {
            if let Some((index, WriteOnce::Descriptor)) = self.in_journal(journal)
                && is_home(self.journal_block(index).1, home)
            {
                self.pool.insert(index, home_key(home));
            }
        }
    }

    /// A block has been stored; whether it is a journal's.
    pub fn note(&mut self, lba: Lba, payload: &Payload) -> bool {
        let Some((index, rule)) = self.in_journal(lba) else {
            return false;
        };
        match rule {
            WriteOnce::Descriptor | WriteOnce::Off => {}
            WriteOnce::Hash | WriteOnce::HashUnlessCollided => {
                self.pool.insert(index, payload.digest.weak);
            }
        }
        true
    }

    /// A journal's block has been read, as a replay does before it writes home: after an opening nothing is known of it. What is
    /// known stays.
    pub fn recall(&mut self, lba: Lba, weak: u64) {
        if let Some((index, WriteOnce::Hash | WriteOnce::HashUnlessCollided)) = self.in_journal(lba)
            && self.pool.is_collided(index).is_none()
        {
            self.pool.insert(index, weak);
        }
    }

    /// A write was not taken.
    pub fn note_refused(&mut self) {
        self.gaps = true;
    }

    /// Journal space that reads as zeros proposes nothing.
    pub fn forget(&mut self, lba: Lba, blocks: u64) {
        let end = lba.0 + blocks;
        let mut first = 0;
        for region in &self.regions {
            let from = lba.0.max(region.start.0);
            let to = end.min(region.start.0 + region.blocks);
            for at in from..to {
                self.pool.remove((first + at - region.start.0) as u32);
            }
            first += region.blocks;
        }
    }

    /// Whether the journal presumably holds what is about to be written home, by its content: a look alone, that counts nothing.
    #[must_use]
    pub fn expects(&self, lba: Lba, payload: &Payload) -> bool {
        let rule = self.rule_of_home(lba);
        self.paused == 0
            && rule != WriteOnce::Descriptor
            && self.in_journal(lba).is_none()
            && self.find(lba, rule, payload).is_some()
    }

    fn find(&self, lba: Lba, rule: WriteOnce, payload: &Payload) -> Option<(Proposal, Lba)> {
        let key = match rule {
            WriteOnce::Off => return None,
            WriteOnce::Hash | WriteOnce::HashUnlessCollided => payload.digest.weak,
            WriteOnce::Descriptor => home_key(lba),
        };
        let proposal = self.pool.find(key)?;
        let (journal, region) = self.journal_block(proposal.index);
        is_home(region, lba).then_some((proposal, journal))
    }

    /// The journal block that may have the content of a block written home: its number in the pool, and where it is.
    pub fn propose(
        &mut self,
        lba: Lba,
        payload: &Payload,
        stats: &mut Stats,
    ) -> Option<(u32, Lba)> {
        if !self.is_on() || self.in_journal(lba).is_some() {
            return None;
        }
        let rule = self.rule_of_home(lba);
        if rule == WriteOnce::Off {
            return None;
        }
        stats.checkpoint_writes += 1;
        if self.paused > 0 {
            self.paused -= 1;
            stats.missing_blocks += 1;
            return None;
        }
        let Some((proposal, journal)) = self.find(lba, rule, payload) else {
            stats.missing_blocks += 1;
            return None;
        };
        if proposal.collided && rule == WriteOnce::HashUnlessCollided {
            stats.collided_blocks += 1;
            return None;
        }
        Some((proposal.index, journal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::addr::Buf;
    use crate::seam::Digest;

    fn block(weak: u64) -> Payload {
        let digest = Digest {
            weak,
            ..Digest::default()
        };
        Payload {
            buf: Buf(0),
            digest,
        }
    }

    /// What is expected is what is proposed then, and to look changes nothing.
    #[test]
    fn what_the_journal_holds_is_expected_home() {
        let mut once = Once::default();
        let region = Region {
            start: Lba(100),
            blocks: 50,
            homes: Lba(0),
            homes_blocks: 1000,
            rule: WriteOnce::Hash,
        };
        once.watch(&[region], 2000);
        let (held, other) = (block(0x1234_5678_9abc), block(0xdef0_1234_5678));
        assert!(once.note(Lba(120), &held));
        let mut stats = Stats::default();
        for (lba, payload, is_expected) in [
            (7, &held, true),
            (7, &other, false),
            (130, &held, false),
            (1500, &held, false),
        ] {
            assert_eq!(once.expects(Lba(lba), payload), is_expected, "LBA {lba}");
            let proposed = once.propose(Lba(lba), payload, &mut stats);
            assert_eq!(proposed.is_some(), is_expected, "LBA {lba}");
        }
        once.paused = 1;
        assert!(!once.expects(Lba(7), &held), "nothing is asked for a while");
    }
}
