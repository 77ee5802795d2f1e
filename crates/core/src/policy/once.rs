//! Write-once journaling: a block that the journal holds already is not written home again (WOJ §3).
//!
//! When a block is written into a journal, its place enters the pool. When a block is written home, the pool is searched for a journal
//! block with its hash (or, by the journal's descriptors, with its address). All bytes of both are compared. Only if they are equal is
//! the home address mapped to the journal copy, as a second owner. The paper trusts the hash, because every home write was journaled
//! first. But other programs write to the device too (direct I/O, mkfs, e2fsck), so Vellum does not trust it.
//!
//! This is the policy alone: it knows addresses and hashes, not how blocks are stored. Each layout compares and maps blocks in its own
//! way.

use crate::addr::Lba;
use crate::limits;
use crate::pool::{Pool, Proposal};
use crate::seam::{Payload, Region, WriteOnce};
use crate::stats::Stats;
use alloc::vec::Vec;

/// A run of comparisons, to see whether they pay off.
#[derive(Clone, Copy, Debug, Default)]
struct Trial {
    equal: u32,
    unequal: u32,
}

/// The state of write-once journaling: the journals, and their contents as far as they are known.
#[derive(Default)]
pub struct Once {
    regions: Vec<Region>,
    pool: Pool,
    trial: Trial,
    /// Home blocks still to be written without a look-up, and how many there will be next time.
    paused: u32,
    pause: u32,
    /// The numbers of blocks written into journals, and in total, when a request last waited for them.
    awaited: (u64, u64),
    /// True if a write was refused. Nothing is pledged any more, because a transaction may contain blocks that were never stored.
    gaps: bool,
}

impl Once {
    /// True if there are journals.
    pub fn is_on(&self) -> bool {
        !self.regions.is_empty()
    }

    /// The journal blocks.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// True if a block is in a watched journal.
    pub fn has(&self, lba: Lba) -> bool {
        self.in_journal(lba).is_some()
    }

    /// Returns a block's index over all journals' blocks, and its journal's rule, if it is in one.
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

    /// Returns the rule for a block outside every journal.
    fn rule_of_home(&self, lba: Lba) -> WriteOnce {
        self.regions
            .iter()
            .find(|region| is_home(region, lba))
            .map_or(WriteOnce::Off, |region| region.rule)
    }

    /// Notes that a FLUSH, or a write with FUA, waits for what has been written.
    pub fn awaits(&mut self, flush: bool, stats: &mut Stats) {
        let now = (stats.journal_blocks, stats.host_blocks_written);
        let before = core::mem::replace(&mut self.awaited, now);
        let of_homes = before.0 == now.0 && before.1 != now.1;
        stats.flushes_of_homes += u64::from(flush && self.is_on() && of_homes);
    }

    /// Notes that a block is home: its entry leaves the pool. A collided entry stays, because a second block may need it.
    pub fn written_home(&mut self, index: u32) {
        if self.pool.is_collided(index) == Some(false) {
            self.pool.remove(index);
        }
    }

    /// Notes the result of a comparison; true if comparisons pause from now on.
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

/// The pool's key for a home address: every bit of it in the upper half.
fn home_key(lba: Lba) -> u64 {
    (lba.0 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Once {
    /// Sets where journals are. Regions are cut to what the volume and the pool can hold.
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

    /// True if the journal's block at `journal` may belong to `home`.
    pub fn may_pledge(&self, home: Lba, journal: Lba) -> bool {
        let Some((index, _)) = self.in_journal(journal) else {
            return false;
        };
        !self.gaps && self.in_journal(home).is_none() && is_home(self.journal_block(index).1, home)
    }

    /// Returns the pool's number of a block that is pledged to a home block.
    pub fn pledged(&self, journal: Lba) -> Option<u32> {
        self.in_journal(journal).map(|(index, _)| index)
    }

    /// Learns home addresses of journal blocks, from a descriptor block.
    pub fn learn_homes(&mut self, pairs: &[(Lba, Lba)]) {
        for &(home, journal) in pairs {
            if let Some((index, WriteOnce::Descriptor)) = self.in_journal(journal)
                && is_home(self.journal_block(index).1, home)
            {
                self.pool.insert(index, home_key(home));
            }
        }
    }

    /// Notes that a block was stored; true if it is a journal's.
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

    /// Notes that a journal's block was read, as a replay does before it writes home: after an opening the pool is empty. Known
    /// entries stay.
    pub fn recall(&mut self, lba: Lba, weak: u64) {
        if let Some((index, WriteOnce::Hash | WriteOnce::HashUnlessCollided)) = self.in_journal(lba)
            && self.pool.is_collided(index).is_none()
        {
            self.pool.insert(index, weak);
        }
    }

    /// Notes that a write was refused.
    pub fn note_refused(&mut self) {
        self.gaps = true;
    }

    /// Makes journal space that reads as zeros propose nothing.
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

    /// True if the journal probably holds the block that is about to be written home, judged by its content. This is only a look-up, and
    /// counts nothing.
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

    /// Returns the journal block that may have the content of a block written home: its number in the pool, and its address.
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
        stats.home_writes += 1;
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

    /// A block that is expected is then proposed, and a question about expected blocks changes nothing.
    #[test]
    fn a_block_that_the_journal_holds_is_expected_home() {
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
        assert!(
            !once.expects(Lba(7), &held),
            "comparisons pause, so nothing is expected"
        );
    }
}
