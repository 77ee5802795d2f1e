//! In-line deduplication: contents that are stored already are not stored again (CAFTL §3).
//!
//! By comparison: the block's CRC32C, CAFTL's pre-hash (§3.4.2), proposes a page, and the bytes decide. No other
//! hash is needed, and the checksums of all that is stored lie in the segments' summaries: the index is built
//! again from them after a restart. As the paper has it, by fingerprint, is the other way: a page that has come to
//! be shared is known by a strong hash, and a third owner needs no comparison. Fingerprints are the shared table's:
//! what an entry of the index is about may have changed, and what a shared page holds cannot. Content-based
//! sampling (§3.4.1) looks at one block of each unit first, the one whose first bytes are the largest number,
//! and at the others only if that one was found. When the write buffer fills up it leaves off, until it has
//! emptied (§3.4.3).

use super::twin::Proposer;
use super::*;
use crate::format::summary::{Owner, Tag};
use crate::index::{Holder, Index};
use crate::seam::{Decide, Dedup as Policy, Fingerprint, Payload};

#[derive(Default)]
pub(super) struct Dedup {
    policy: Policy,
    index: Index,
    /// Blocks that are not to be shared: copies of what must survive when one is damaged
    /// (OrderMergeDedup §3.5).
    critical: Vec<(Lba, u64)>,
    /// Off because the write buffer was full.
    switched_off: bool,
    /// Pairs that wait for the checksums of a segment.
    pub(super) pairs: Vec<(Segment, RequestId, Lba, Holder)>,
    /// Of each sampling unit of the request at hand, whether its sample was found.
    sampled: Vec<bool>,
}

impl Dedup {
    pub fn is_on(&self) -> bool {
        self.index.capacity() > 0
    }

    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The hint was wrong.
    pub fn forget(&mut self, hash: u64) {
        self.index.remove(hash);
    }

    /// A content is stored, and this is who has it.
    pub fn met(&mut self, hash: u64, holder: Holder, owners: u32) {
        self.index.insert(hash, holder, owners);
    }

    /// A shared page has this owner alone now.
    pub fn unshared(&mut self, hash: u64, owner: Lba) {
        self.index.moved(hash, Holder::Lba(owner));
    }

    pub fn is_critical(&self, lba: Lba) -> bool {
        let after = self.critical.partition_point(|(start, _)| *start <= lba);
        after > 0 && {
            let (start, blocks) = self.critical[after - 1];
            lba.0 - start.0 < blocks
        }
    }
}

/// The hash of a content: its checksum, spread over what the index takes for a line and for a print. 32 bits
/// are enough for a hint (of n contents one in 2^32 / n is wrong), and those of everything that is stored can
/// be had again without reading it.
fn content_hash(crc: u32) -> u64 {
    u64::from(crc)
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Engine {
    /// Another policy from now on. Another index starts empty.
    pub(super) fn set_dedup(&mut self, policy: Policy) {
        let old = self.dedup.policy;
        if (policy.index_bytes, policy.store) != (old.index_bytes, old.store) {
            self.dedup.index = Index::new(policy.store, policy.index_bytes);
        }
        if policy.decide != old.decide {
            self.shared.forget_prints();
        }
        self.dedup.policy = policy;
        self.dedup.switched_off = false;
    }

    /// Blocks that are never shared by their content, from now on, in order of their address.
    pub(super) fn set_critical(&mut self, ranges: &[(Lba, u64)]) {
        self.dedup.critical = ranges.to_vec();
        self.dedup.critical.sort_unstable();
    }

    /// Looks at the write buffer and at the samples of a request.
    pub(super) fn dedup_begin(&mut self, blocks: &[Payload]) {
        if !self.dedup.is_on() {
            return;
        }
        let (on, off) = (limits::DEDUP_SWITCH.0, limits::DEDUP_SWITCH.1);
        let full = u64::from(self.options.write_buffers);
        let held = u64::from(self.held) * 100;
        if self.dedup.switched_off {
            self.dedup.switched_off = held > full * on;
        } else if full > 0 && held >= full * off {
            self.dedup.switched_off = true;
            self.stats.dedup_switched_off += 1;
        }
        self.dedup.sampled.clear();
        let unit = self.dedup.policy.sample_blocks as usize;
        if unit > 1 && !self.dedup.switched_off {
            for blocks in blocks.chunks(unit) {
                let sample = blocks.iter().max_by_key(|payload| payload.digest.first);
                let found = sample.is_some_and(|payload| {
                    self.dedup
                        .index
                        .find(content_hash(payload.digest.crc))
                        .is_some()
                });
                self.dedup.sampled.push(found);
            }
        }
    }

    /// Who may have the content of the block at `index` of a request.
    pub(super) fn propose_duplicate(
        &mut self,
        lba: Lba,
        index: usize,
        payload: &Payload,
    ) -> Option<(Proposer, Holder)> {
        if !self.dedup.is_on() || self.dedup.switched_off || self.dedup.is_critical(lba) {
            return None;
        }
        let unit = self.dedup.policy.sample_blocks as usize;
        if unit > 1 && self.dedup.sampled.get(index / unit) == Some(&false) {
            self.stats.dedup_sampled_out += 1;
            return None;
        }
        self.stats.dedup_lookups += 1;
        let hash = content_hash(payload.digest.crc);
        let of = self.dedup.index.find(hash)?;
        let is_sound = match of {
            Holder::Lba(lba) => lba.0 < self.map.blocks() && !self.dedup.is_critical(lba),
            Holder::Page(_) => true,
        };
        if !is_sound {
            self.dedup.forget(hash);
            return None;
        }
        // What is on the medium, as far as that is in memory: a content that has changed needs no read.
        if let Some(pba) = self.physical(self.entry_of(of))
            && self.chunks.find(pba).is_none()
        {
            let (segment, offset) = locate(&self.superblock, pba);
            if self
                .sums
                .crc(segment, offset)
                .is_some_and(|crc| crc != payload.digest.crc)
            {
                self.stats.dedup_false_hints += 1;
                self.dedup.forget(hash);
                return None;
            }
        }
        Some((Proposer::Index(hash), of))
    }

    /// Whether a block is told by its fingerprint, of what the index proposed.
    pub(super) fn goes_by_fingerprint(&self, by: Proposer) -> bool {
        matches!(self.dedup.policy.decide, Decide::Fingerprint(_))
            && matches!(by, Proposer::Index(_))
    }

    /// The fingerprint that decides in place of a comparison.
    pub(super) fn decisive_print(&self, by: Proposer, of: Holder) -> Option<Fingerprint> {
        match of {
            Holder::Page(vba) if self.goes_by_fingerprint(by) => self.shared.print(vba),
            _ => None,
        }
    }

    /// What is at `pba` is not what was written there: nothing is to share it, whatever it was.
    pub(super) fn distrust(&mut self, pba: Pba) {
        if let Some(vba) = self.shared.find(pba) {
            self.shared.forget_print(vba);
            self.dedup.forget(self.shared.hash(vba));
        }
    }

    /// A content of this checksum has been stored at `lba`, or has come to share what is there.
    pub(super) fn note_content(&mut self, lba: Lba, crc: u32) {
        if self.dedup.switched_off || self.dedup.is_critical(lba) {
            return;
        }
        let hash = content_hash(crc);
        if let Some(holder) = self.holder_at(lba, hash) {
            let owners = match holder {
                Holder::Lba(_) => 1,
                Holder::Page(vba) => self.shared.owners(vba),
            };
            self.dedup.met(hash, holder, owners);
        }
    }

    /// What is stored, as a summary tells it: hints for the index, which knows nothing after a restart.
    pub(super) fn learn_contents(&mut self, at: Pba, tags: &[Tag]) {
        for (pba, tag) in (at.0..).map(Pba).zip(tags) {
            let Some(holder) = self.holder_of(pba, *tag) else {
                continue;
            };
            let hash = content_hash(tag.crc);
            let owners = match holder {
                Holder::Lba(lba) if self.dedup.is_critical(lba) => continue,
                Holder::Lba(_) => 1,
                Holder::Page(vba) => {
                    if self.shared.hash(vba) == 0 {
                        self.shared.set_hash(vba, hash);
                    }
                    self.shared.owners(vba)
                }
            };
            if self.dedup.index.find(hash).is_none() {
                self.dedup.met(hash, holder, owners);
            }
        }
    }

    /// Who has the block at `pba` now, by what its tag says and what has become of that; nobody, if it is dead or
    /// holds parts.
    fn holder_of(&self, pba: Pba, tag: Tag) -> Option<Holder> {
        if let Some(vba) = self.shared.find(pba) {
            return (!self.shared.has_parts(vba)).then_some(Holder::Page(vba));
        }
        let lba = match (self.strays.get(&(pba.0 as u32)), tag.owner) {
            (Some(&lba), _) => Lba(lba.into()),
            (None, Owner::Lba(lba)) => lba,
            (None, _) => return None,
        };
        let is_there = lba.0 < self.map.blocks() && self.map.get(lba) == Entry::Plain(pba);
        is_there.then_some(Holder::Lba(lba))
    }

    /// Of the blocks from `at` on those that somebody has, and their checksums, by their segment's tags.
    pub fn contents(&self, at: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>) {
        let tagged = (at.0..).map(Pba).zip(tags);
        out.extend(
            tagged
                .filter_map(|(pba, tag)| self.holder_of(pba, *tag).map(|holder| (holder, tag.crc))),
        );
    }

    /// The tags of a segment whose summary is not on the medium yet.
    #[must_use]
    pub fn unsummarised(&self, segment: Segment) -> Option<&[Tag]> {
        self.sums.tags(segment)
    }

    /// Which of the LBAs in `range` own one of the shared pages that `wanted` names.
    pub fn owners_in(
        &self,
        range: core::ops::Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(Lba, Vba)>,
    ) {
        let lbas = (range.start..range.end.min(self.map.blocks())).map(Lba);
        out.extend(lbas.filter_map(|lba| match self.map.get(lba) {
            Entry::Shared(vba) if wanted(vba) => Some((lba, vba)),
            _ => None,
        }));
    }

    /// Who has what is at `lba`; a shared page learns its hash, so that the index can be told who is left.
    fn holder_at(&mut self, lba: Lba, hash: u64) -> Option<Holder> {
        match self.map.get(lba) {
            Entry::Unmapped | Entry::Zero => None,
            Entry::Plain(_) | Entry::Packed(..) => Some(Holder::Lba(lba)),
            Entry::Shared(vba) => {
                self.shared.set_hash(vba, hash);
                Some(Holder::Page(vba))
            }
        }
    }
}
