//! In-line deduplication: contents that are stored already are not stored again (CAFTL §3).
//!
//! There are two ways to decide. One is by comparison: the block's checksum, as CAFTL's pre-hash (§3.4.2), proposes a page, and the bytes
//! decide. This needs no other hash. The segments' summaries have the checksums of all stored blocks, so the index is rebuilt from them
//! after a restart. The other way is by fingerprint, as in the paper: a shared page is known by a strong hash, so a third owner needs no
//! comparison. Fingerprints are kept with the table of shared pages, because a shared page's content cannot change, while the content
//! behind an index entry may have changed. Content-based sampling (§3.4.1) looks up one block of each unit first, the one whose first
//! bytes are the largest number, and the others only if that one was found. When the write buffer fills up, deduplication pauses until
//! the buffer has drained (§3.4.3). But blocks being written to the medium do not count: if the medium is slow, deduplication helps,
//! because it saves writes.
//!
//! This is the policy alone: it knows hashes of contents, and the index. Each layout finds the holder of a content, and compares and
//! shares it.

use crate::addr::Lba;
use crate::index::{Holder, Index};
use crate::limits;
use crate::seam::{Class, Decide, DedupPolicy, Payload};
use crate::stats::Stats;
use alloc::vec::Vec;

/// The state of in-line deduplication.
#[derive(Default)]
pub struct Dedup {
    policy: DedupPolicy,
    index: Index,
    /// An index made in advance.
    spare: Index,
    /// Blocks that must not be shared: copies that must survive damage to one of them (OrderMergeDedup §3.5).
    critical: Vec<(Lba, u64)>,
    /// Paused because the write buffer was full.
    switched_off: bool,
    /// For each sampling unit of the current request, whether its sample was found.
    sampled: Vec<bool>,
}

impl Dedup {
    /// True if there is an index.
    pub fn is_on(&self) -> bool {
        self.index.capacity() > 0
    }

    /// The index.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Prefetches the index entries of contents that will be written soon, given by their checksums.
    pub fn look_ahead(&self, sums: impl Iterator<Item = u32>) {
        if self.is_on() && !self.switched_off {
            self.index.look_ahead(sums.map(content_hash));
        }
    }

    /// Drops a hint that was wrong.
    pub fn forget(&mut self, hash: u64) {
        self.index.remove(hash);
    }

    /// Handles a block that is about to get another content; true if an entry led to it, and was removed.
    pub fn outlive(&mut self, hash: u64, lba: Lba) -> bool {
        let leads_there = self.index.find(hash) == Some(Holder::Lba(lba));
        if leads_there {
            self.index.remove(hash);
        }
        leads_there
    }

    /// Records a stored content and its holder.
    pub fn met(&mut self, hash: u64, holder: Holder, owners: u32) {
        self.index.insert(hash, holder, owners);
    }

    /// The same for a content that may be known already.
    pub fn met_before(&mut self, hash: u64, holder: Holder, owners: u32) {
        if self.index.find(hash).is_none() {
            self.met(hash, holder, owners);
        }
    }

    /// Records that a shared page has only this owner left.
    pub fn unshared(&mut self, hash: u64, owner: Lba) {
        self.index.moved(hash, Holder::Lba(owner));
    }

    /// True if a block must not be shared.
    pub fn is_critical(&self, lba: Lba) -> bool {
        let after = self.critical.partition_point(|(start, _)| *start <= lba);
        after > 0 && {
            let (start, blocks) = self.critical[after - 1];
            lba.0 - start.0 < blocks
        }
    }

    /// True if the index should learn what is written there.
    pub fn takes_note_of(&self, lba: Lba, class: Class) -> bool {
        let is_worth_it = !self.policy.semantics || class == Class::Data;
        self.is_on() && !self.switched_off && is_worth_it && !self.is_critical(lba)
    }

    /// True if the index should forget contents that no longer exist.
    pub fn forgets(&self) -> bool {
        self.policy.semantics && self.is_on()
    }

    /// How equality is decided.
    pub fn decide(&self) -> Decide {
        self.policy.decide
    }

    /// True if a policy needs another index than the current one.
    pub fn needs_index(&self, policy: DedupPolicy) -> bool {
        (policy.index_bytes, policy.store) != (self.policy.index_bytes, self.policy.store)
    }

    /// Lays an index by for the next policy that needs one like it, and returns the index that lay there. To set that policy exchanges the
    /// index in use and the one that was laid by.
    pub fn lay_by(&mut self, index: Index) -> Index {
        core::mem::replace(&mut self.spare, index)
    }

    /// Sets another policy; true if it has another index, which starts empty.
    pub fn set(&mut self, policy: DedupPolicy) -> bool {
        let other = self.needs_index(policy);
        if other {
            let is_made =
                self.spare.is_empty() && self.spare.is_of(policy.store, policy.index_bytes);
            match is_made {
                true => core::mem::swap(&mut self.index, &mut self.spare),
                false => self.index = Index::new(policy.store, policy.index_bytes),
            }
        }
        self.policy = policy;
        self.switched_off = false;
        other
    }

    /// Sets the blocks that must never be shared by their content, in order of their address.
    pub fn set_critical(&mut self, ranges: &[(Lba, u64)]) {
        self.critical = ranges.to_vec();
        self.critical.sort_unstable();
    }

    /// Checks the write buffer, and the samples of a request. Of the buffer's `full` blocks, `held` are not being written to the medium.
    /// Only these count: while the medium is the bottleneck, deduplication must go on, because it saves writes.
    pub fn begin(&mut self, blocks: &[Payload], held: u64, full: u64, stats: &mut Stats) {
        if !self.is_on() {
            return;
        }
        let (on, off) = (limits::DEDUP_SWITCH.0, limits::DEDUP_SWITCH.1);
        let held = held * 100;
        if self.switched_off {
            self.switched_off = held > full * on;
        } else if full > 0 && held >= full * off {
            self.switched_off = true;
            stats.dedup_switched_off += 1;
        }
        self.sampled.clear();
        let unit = self.policy.sample_blocks as usize;
        if unit > 1 && !self.switched_off {
            for blocks in blocks.chunks(unit) {
                let sample = blocks.iter().max_by_key(|payload| payload.digest.first);
                let found = sample.is_some_and(|payload| {
                    self.index.find(content_hash(payload.digest.sum)).is_some()
                });
                self.sampled.push(found);
            }
        }
    }

    /// Returns the holder that may have the content of the block at `index` of a request, and the content's hash.
    pub fn propose(
        &mut self,
        lba: Lba,
        index: usize,
        payload: &Payload,
        stats: &mut Stats,
    ) -> Option<(u64, Holder)> {
        if !self.is_on() || self.switched_off {
            return None;
        }
        let is_critical = payload.digest.copied || self.is_critical(lba);
        let class = payload.digest.class;
        let is_rare = self.policy.semantics && matches!(class, Class::Metadata | Class::Journal);
        if is_critical || is_rare {
            stats.dedup_passed_over += 1;
            return None;
        }
        let unit = self.policy.sample_blocks as usize;
        if unit > 1 && self.sampled.get(index / unit) == Some(&false) {
            stats.dedup_sampled_out += 1;
            return None;
        }
        stats.dedup_lookups += 1;
        let hash = content_hash(payload.digest.sum);
        self.index.find(hash).map(|of| (hash, of))
    }
}

/// The hash of a content: its checksum, spread over the bits that the index uses for a line and for a print. 32 bits are enough
/// for a hint (of n contents one in 2^32 / n is wrong), and the checksums of everything stored can be read again without reading
/// the data.
pub fn content_hash(sum: u32) -> u64 {
    u64::from(sum)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seam::IndexKind;

    fn policy(index_bytes: usize) -> DedupPolicy {
        DedupPolicy {
            index_bytes,
            ..DedupPolicy::default()
        }
    }

    #[test]
    fn an_index_made_in_advance_is_used_if_it_fits_and_the_old_one_returned() {
        let mut dedup = Dedup::default();
        dedup.set(policy(4096));
        dedup.met(1, Holder::Lba(Lba(1)), 1);
        for (laid_by, is_taken) in [(8192, true), (4096, false)] {
            let before = dedup.index().capacity();
            dedup.lay_by(Index::new(IndexKind::Compact, laid_by));
            let wanted = policy(if is_taken { laid_by } else { 16384 });
            assert!(dedup.needs_index(wanted) && dedup.set(wanted));
            assert!(dedup.index().is_empty());
            assert_eq!(dedup.index().capacity() * 8, wanted.index_bytes);
            let left = dedup.lay_by(Index::default()).capacity();
            assert_eq!(left, if is_taken { before } else { laid_by / 8 });
        }
    }

    #[test]
    fn an_index_that_has_been_used_is_not_taken_for_a_new_one() {
        let mut dedup = Dedup::default();
        let mut used = Index::new(IndexKind::Compact, 4096);
        used.insert(1, Holder::Lba(Lba(1)), 1);
        dedup.lay_by(used);
        dedup.set(policy(4096));
        assert!(dedup.is_on() && dedup.index().is_empty());
    }
}
