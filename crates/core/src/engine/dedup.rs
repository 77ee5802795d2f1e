//! In-line deduplication over the log: which block holds a content, and when the index forgets it. The policy is
//! [`policy::dedup`](crate::policy::dedup).

use super::Engine;
use crate::addr::{Lba, Pba, Segment, Vba};
use crate::entry::Entry;
use crate::format::pack::{PageOfParts, PartTag};
use crate::format::summary::{Owner, Tag};
use crate::index::Holder;
use crate::log::locate;
use crate::policy::Proposer;
use crate::policy::dedup::{Dedup, content_hash};
use crate::seam::{Class, Decide, DedupPolicy, Fingerprint};
use alloc::vec::Vec;

impl Engine {
    pub(crate) fn dedup(&self) -> &Dedup {
        self.proposers.dedup()
    }

    pub(crate) fn dedup_mut(&mut self) -> &mut Dedup {
        self.proposers.dedup_mut()
    }

    /// Sets another policy. A different index starts empty.
    pub(super) fn set_dedup(&mut self, policy: DedupPolicy) {
        if policy.decide != self.proposers.dedup().decide() {
            self.state.forget_prints();
        }
        self.proposers.set(policy);
    }

    /// True if a fingerprint identifies a block that this proposer proposed.
    pub(super) fn goes_by_fingerprint(&self, by: Proposer) -> bool {
        matches!(self.proposers.dedup().decide(), Decide::Fingerprint(_))
            && matches!(by, Proposer::Index(_))
    }

    /// Returns the fingerprint that decides in place of a comparison.
    pub(super) fn decisive_print(&self, by: Proposer, of: Holder) -> Option<Fingerprint> {
        match of {
            Holder::Page(vba) if self.goes_by_fingerprint(by) => self.state.shared().print(vba),
            _ => None,
        }
    }

    /// Notes that the block at `pba` is not the one that was written there. Nothing may share it.
    pub(super) fn distrust(&mut self, pba: Pba) {
        if let Some(vba) = self.state.shared().find(pba) {
            self.state.forget_print(vba);
            self.proposers
                .dedup_mut()
                .forget(self.state.shared().hash(vba));
        }
    }

    /// Notes that `lba` now holds a content with this checksum: it was written, or it shares a page.
    pub(super) fn note_content(&mut self, lba: Lba, sum: u32, class: Class) {
        if !self.proposers.dedup().takes_note_of(lba, class) {
            return;
        }
        let hash = content_hash(sum);
        if let Some(holder) = self.holder_at(lba, hash) {
            let owners = match holder {
                Holder::Lba(_) => 1,
                Holder::Page(vba) => self.state.shared().owners(vba),
            };
            self.proposers.dedup_mut().met(hash, holder, owners);
        }
    }

    /// Prepares for an overwrite: if no other block has the old content, its index entry is dropped.
    pub(super) fn outlive_content(&mut self, lba: Lba) {
        let Entry::Plain(pba) = self.state.map().get(lba) else {
            return;
        };
        let (segment, offset) = locate(&self.superblock, pba);
        let Some(sum) = self.sums.sum(segment, offset) else {
            return;
        };
        let hash = content_hash(sum);
        self.stats.dedup_outlived += u64::from(self.proposers.dedup_mut().outlive(hash, lba));
    }

    /// Learns contents from a summary: hints for the index, which is empty after a restart.
    pub(super) fn learn_contents(&mut self, at: Pba, tags: &[Tag]) {
        for (pba, tag) in (at.0..).map(Pba).zip(tags) {
            let Some(holder) = self.holder_of(pba, *tag) else {
                continue;
            };
            let hash = content_hash(tag.sum);
            let owners = match holder {
                Holder::Lba(lba) if self.proposers.dedup().is_critical(lba) => continue,
                Holder::Lba(_) => 1,
                Holder::Page(vba) => {
                    if self.state.shared().hash(vba) == 0 {
                        self.state.set_hash(vba, hash);
                    }
                    self.state.shared().owners(vba)
                }
            };
            self.proposers.dedup_mut().met_before(hash, holder, owners);
        }
    }

    /// Learns the contents of a page of parts from its directory. A block that shares a part, but that the directory does not name, is
    /// not searched for.
    pub(super) fn learn_parts(&mut self, at: Pba, parts: &[PartTag]) {
        for &PartTag { lba, slot, sum } in parts {
            if self.has_part(lba, at, slot) && !self.proposers.dedup().is_critical(lba) {
                self.proposers
                    .dedup_mut()
                    .met_before(content_hash(sum), Holder::Lba(lba), 1);
            }
        }
    }

    fn has_part(&self, lba: Lba, at: Pba, slot: u8) -> bool {
        if lba.0 >= self.state.map().blocks() {
            return false;
        }
        match self.state.map().get(lba) {
            Entry::Packed(vba, of) => of == slot && self.state.shared().is_at(vba, at),
            _ => false,
        }
    }

    /// Returns the parts of the page at `at` that their LBA still owns, and their checksums.
    pub fn parts(&self, at: Pba, parts: &[PartTag], out: &mut Vec<(Holder, u32)>) {
        let ours = |part: &&PartTag| self.has_part(part.lba, at, part.slot);
        let held = parts.iter().filter(ours);
        out.extend(held.map(|part| (Holder::Lba(part.lba), part.sum)));
    }

    /// Returns the pages of parts among the blocks from `at` on that have owners, but at most `most_owners`, and their checksums,
    /// by their segment's tags.
    pub fn pages_of_parts(
        &self,
        at: Pba,
        tags: &[Tag],
        most_owners: u32,
        out: &mut Vec<PageOfParts>,
    ) {
        let shared = self.state.shared();
        let tagged = (at.0..).map(Pba).zip(tags);
        out.extend(tagged.filter_map(|(at, tag)| {
            let Owner::Vba(number) = tag.owner else {
                return None;
            };
            let is_one = shared.is_owned_or_needed(number)
                && shared.owners(number) <= most_owners
                && shared.is_at(number, at);
            let sum = tag.sum;
            is_one.then_some(PageOfParts { at, number, sum })
        }));
    }

    /// Returns the holder of the block at `pba` now, by its tag and the current map; `None` if it is dead or holds parts.
    fn holder_of(&self, pba: Pba, tag: Tag) -> Option<Holder> {
        if let Some(vba) = self.state.shared().find(pba) {
            return (!self.state.shared().has_parts(vba)).then_some(Holder::Page(vba));
        }
        let lba = match (self.state.strays().owner(pba), tag.owner) {
            (Some(lba), _) => lba,
            (None, Owner::Lba(lba)) => lba,
            (None, _) => return None,
        };
        let is_there =
            lba.0 < self.state.map().blocks() && self.state.map().get(lba) == Entry::Plain(pba);
        is_there.then_some(Holder::Lba(lba))
    }

    /// Returns the blocks from `at` on that have an owner, and their checksums, by their segment's tags.
    pub fn contents(&self, at: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>) {
        let tagged = (at.0..).map(Pba).zip(tags);
        out.extend(
            tagged
                .filter_map(|(pba, tag)| self.holder_of(pba, *tag).map(|holder| (holder, tag.sum))),
        );
    }

    /// Returns the tags of a segment whose summary is not on the medium yet.
    #[must_use]
    pub fn unsummarised(&self, segment: Segment) -> Option<&[Tag]> {
        self.sums.tags(segment)
    }

    /// Returns the LBAs in `range` that own one of the shared pages that `wanted` names.
    pub fn owners_in(
        &self,
        range: core::ops::Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(Lba, Vba)>,
    ) {
        let lbas = (range.start..range.end.min(self.state.map().blocks())).map(Lba);
        out.extend(lbas.filter_map(|lba| match self.state.map().get(lba) {
            Entry::Shared(vba) if wanted(vba) => Some((lba, vba)),
            _ => None,
        }));
    }

    /// Returns the holder of the content at `lba`. A shared page learns its hash, so that the index can learn its last owner.
    fn holder_at(&mut self, lba: Lba, hash: u64) -> Option<Holder> {
        match self.state.map().get(lba) {
            Entry::Unmapped | Entry::Zero => None,
            Entry::Plain(_) | Entry::Packed(..) => Some(Holder::Lba(lba)),
            Entry::Shared(vba) => {
                self.state.set_hash(vba, hash);
                Some(Holder::Page(vba))
            }
        }
    }
}
