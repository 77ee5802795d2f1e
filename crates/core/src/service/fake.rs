//! A fake volume that gives the answers that a test has set.

use super::Answers;
use crate::addr::{Lba, Pba, Segment, Vba};
use crate::entry::PartId;
use crate::format::SumKind;
use crate::format::geometry::{self, Params};
use crate::format::pack::{PageOfParts, PartTag};
use crate::format::summary::{Owner, Tag};
use crate::format::superblock::Superblock;
use crate::index::Holder;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

pub(super) const SEGMENT: u32 = 256;

pub(super) fn superblock() -> Superblock {
    let planned = geometry::plan(&Params {
        medium_blocks: 20_000,
        logical_blocks: Some(10_000),
        over_provisioning: 100,
        segment_blocks: Some(SEGMENT),
        uuid: [1; 16],
        secret: [2; 32],
        sums: SumKind::Crc32c,
    });
    planned.unwrap_or_else(|error| panic!("{error}"))
}

/// A volume to which nothing is written.
#[derive(Default)]
pub(super) struct Fake {
    /// The tags of the first segment, which has no summary yet.
    pub tags: Option<Vec<Tag>>,
    /// Which blocks are pages of parts.
    pub pages: BTreeMap<Pba, Vba>,
    /// The LBA's part.
    pub parts: BTreeMap<u64, PartId>,
    /// The LBA's shared page.
    pub shared: BTreeMap<u64, Vba>,
    pub has_room: bool,
}

impl Fake {
    fn owners(&self, page: Vba) -> u32 {
        let parts = self.parts.values();
        parts.filter(|part| part.page == page).count() as u32
    }
}

impl Answers for Fake {
    fn unsummarised(&self, segment: Segment) -> Option<&[Tag]> {
        self.tags.as_deref().filter(|_| segment == Segment(0))
    }

    fn pages_of_parts(&self, at: Pba, tags: &[Tag], most: u32, out: &mut Vec<PageOfParts>) {
        let tagged = (at.0..).map(Pba).zip(tags);
        out.extend(tagged.filter_map(|(at, tag)| {
            let (number, sum) = (*self.pages.get(&at)?, tag.sum);
            (self.owners(number) <= most).then_some(PageOfParts { at, number, sum })
        }));
    }

    fn sparse_page(&self, page: Vba, at: Pba, made_with: usize) -> Option<u32> {
        let owners = self.owners(page);
        let is_sparse = owners > 0 && owners as usize * 2 <= made_with;
        (is_sparse && self.pages.get(&at) == Some(&page)).then_some(owners)
    }

    fn foldable_in(
        &self,
        lbas: Range<u64>,
        wanted: impl Fn(Vba) -> bool,
        out: &mut Vec<(PartId, Lba)>,
    ) {
        let parts = self.parts.range(lbas);
        let parts = parts.filter(|(_, part)| wanted(part.page));
        out.extend(parts.map(|(lba, part)| (*part, Lba(*lba))));
    }

    fn has_room_to_fold(&self) -> bool {
        self.has_room
    }

    fn stored(&self) -> u64 {
        self.tags.as_ref().map_or(0, Vec::len) as u64
    }

    fn contents(&self, _: Pba, tags: &[Tag], out: &mut Vec<(Holder, u32)>) {
        out.extend(tags.iter().filter_map(|tag| match tag.owner {
            Owner::None => None,
            Owner::Lba(lba) => Some((Holder::Lba(lba), tag.sum)),
            Owner::Vba(page) => Some((Holder::Page(page), tag.sum)),
        }));
    }

    fn parts(&self, _: Pba, parts: &[PartTag], out: &mut Vec<(Holder, u32)>) {
        out.extend(parts.iter().map(|part| (Holder::Lba(part.lba), part.sum)));
    }

    fn owners_in(&self, lbas: Range<u64>, wanted: impl Fn(Vba) -> bool, out: &mut Vec<(Lba, Vba)>) {
        let shared = self.shared.range(lbas);
        let shared = shared.filter(|(_, page)| wanted(**page));
        out.extend(shared.map(|(lba, page)| (Lba(*lba), *page)));
    }
}
